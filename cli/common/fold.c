#include "common/fold.h"

#include <stdlib.h>
#include <string.h>

#define MOST_RUNS 3

/* The end of the run of ranks that begins at `r`. */
static int run_end(const int *same_as, int n_ranks, int first, int r) {
    while (r < n_ranks && same_as[r] == first) r++;
    return r;
}

static int next_run(const int *same_as, int n_ranks, int first, int r) {
    while (r < n_ranks && same_as[r] != first) r++;
    return r;
}

char *text_of_ranks(char text[RANKS_BYTES], const int *same_as, int n_ranks, int first) {
    int n = 0, n_runs = 0, run = 0, end;
    for (int r = first; r < n_ranks; r = next_run(same_as, n_ranks, first, end)) {
        end = run_end(same_as, n_ranks, first, r);
        n += end - r;
        n_runs++;
    }
    size_t at = (size_t)snprintf(text, RANKS_BYTES, n == 1 ? "rank" : "ranks");
    for (int r = first; r < n_ranks; r = next_run(same_as, n_ranks, first, end), run++) {
        end = run_end(same_as, n_ranks, first, r);
        if (n_runs > MOST_RUNS && run > 1 && run < n_runs - 1) continue;
        const char *between = !run ? " " : n_runs > MOST_RUNS && run > 1 ? " ... " : ", ";
        at += (size_t)snprintf(text + at, RANKS_BYTES - at, "%s%d", between, r);
        if (end - r > 1) at += (size_t)snprintf(text + at, RANKS_BYTES - at, "-%d", end - 1);
    }
    if (n_runs > MOST_RUNS) snprintf(text + at, RANKS_BYTES - at, " (%d)", n);
    return text;
}

/* Returns how many different texts there are. */
static int fold(char *const *texts, int n, int *same_as) {
    int n_rows = 0;
    for (int r = 0; r < n; r++) {
        for (same_as[r] = 0; same_as[r] < r; same_as[r]++)
            if (same_as[same_as[r]] == same_as[r] && !strcmp(texts[same_as[r]], texts[r])) break;
        n_rows += same_as[r] == r;
    }
    return n_rows;
}

static int label_width(const int *same_as, int n) {
    char label[RANKS_BYTES];
    int width = 0;
    for (int r = 0; r < n; r++) {
        int own = same_as[r] == r ? (int)strlen(text_of_ranks(label, same_as, n, r)) : 0;
        if (own > width) width = own;
    }
    return width;
}

#define LABEL_COLUMNS 8

static void say_rows(const cli *c, const char *label, const char *heading, char **texts,
                     int *same_as, int n, int most) {
    char ranks[RANKS_BYTES];
    int n_rows = fold(texts, n, same_as), row = 0, indent = label ? LABEL_COLUMNS : 0;
    int width = n > 1 ? label_width(same_as, n) + 2 : 0;
    if (heading) say(c, "%*s%s\n", indent + width, "", heading);
    for (int r = 0; r < n; r++) {
        if (same_as[r] != r || row++ >= most) continue;
        text_of_ranks(ranks, same_as, n, r);
        for (char *line = texts[r], *rest; line; line = rest, *ranks = 0, label = "") {
            rest = strchr(line, '\n');
            if (rest) *rest++ = 0;
            say(c, "%-*s%-*s%s\n", indent, label ? label : "", width, n > 1 ? ranks : "", line);
        }
    }
    if (n_rows > most)
        say(c, "%*s... and %d more rows; --verbose prints all\n", indent, "", n_rows - most);
}

void say_by_rank(const cli *c, const char *label, const char *heading, char **texts, int n_ranks,
                 int most) {
    int *same_as = calloc((size_t)n_ranks + 1, sizeof *same_as);
    bool good = same_as && texts;
    for (int r = 0; r < n_ranks && good; r++) good = texts[r] != NULL;
    if (good) say_rows(c, label, heading, texts, same_as, n_ranks, c->o.verbose ? n_ranks : most);
    for (int r = 0; r < n_ranks && texts; r++) free(texts[r]);
    free(texts);
    free(same_as);
}
