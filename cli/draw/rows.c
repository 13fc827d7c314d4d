#include "draw/rows.h"
#include "common/text.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

#define MOST_AXES 3

/* A block of ranks: along each axis from the least to the most coordinate. */
typedef struct axis {
    const char *name, *one, *several;
    int size, least, most;
} axis;

typedef struct block {
    axis axes[MOST_AXES];
    int n_axes;
} block;

/* The axes that have several ranks, the outermost first; where the plan is unknown, one of all. */
static block no_ranks(const drawing *d, int n_ranks) {
    static const axis names[MOST_AXES] = {{.name = "dp", .one = "replica", .several = "replicas"},
                                          {.name = "pp", .one = "stage", .several = "stages"},
                                          {.name = "tp", .one = "tp rank", .several = "tp ranks"}};
    block b = {.n_axes = 0};
    int n = 1;
    for (int k = 0; d->plan && k < MOST_AXES; k++) {
        axis a = names[k];
        const char *name;
        for (int i = 0; (name = wf_plan_axis(d->plan, i, &a.size)) && strcmp(name, a.name);) i++;
        if (!name || a.size < 2) continue;
        if (!strcmp(name, "pp") && draw_n_chunks(d) > 1) a.one = "pp rank", a.several = "pp ranks";
        n *= a.size;
        b.axes[b.n_axes++] = a;
    }
    if (n != n_ranks || !b.n_axes) {
        b.axes[0] = (axis){.one = "rank", .several = "ranks", .size = n_ranks};
        b.n_axes = 1;
    }
    for (int k = 0; k < b.n_axes; k++) b.axes[k].least = INT_MAX, b.axes[k].most = -1;
    return b;
}

static void add_rank(const drawing *d, int rank, block *b) {
    for (int k = 0; k < b->n_axes; k++) {
        axis *a = &b->axes[k];
        int at = a->name ? wf_plan_coordinate(d->plan, a->name, rank) : rank;
        if (at < a->least) a->least = at;
        if (at > a->most) a->most = at;
    }
}

static int n_ranks_of(const block *b) {
    int n = 1;
    for (int k = 0; k < b->n_axes; k++) n *= b->axes[k].most - b->axes[k].least + 1;
    return n;
}

static char *name_of(const block *b, char text[ROW_NAME_BYTES]) {
    *text = 0;
    for (int k = 0; k < b->n_axes; k++) {
        const axis *a = &b->axes[k];
        bool is_one = a->least == a->most;
        text_add(text, ROW_NAME_BYTES, "%s%s %d", k ? ", " : "", is_one ? a->one : a->several,
                 a->least);
        if (!is_one) text_add(text, ROW_NAME_BYTES, "-%d", a->most);
    }
    return text;
}

char *role_of_rank(const drawing *d, int rank, char text[ROW_NAME_BYTES]) {
    block b = no_ranks(d, d->plan ? wf_plan_n_ranks(d->plan) : 0);
    add_rank(d, rank, &b);
    return name_of(&b, text);
}

/* ---- rows ---- */

static bool is_alike(const box *a, const box *b, double most_us) {
    return a->kind == b->kind && a->is_move == b->is_move && a->chunk == b->chunk &&
           (a->micro < 0) == (b->micro < 0) && fabs(a->begin_us - b->begin_us) <= most_us &&
           fabs(a->end_us - b->end_us) <= most_us;
}

/* Boxes of the rank begin at begins[rank]. */
static bool do_the_same(const boxes *b, const size_t *begins, int one, int other) {
    size_t n = begins[one + 1] - begins[one];
    if (n != begins[other + 1] - begins[other]) return false;
    for (size_t i = 0; i < n; i++)
        if (!is_alike(&b->items[begins[one] + i], &b->items[begins[other] + i], 2 * b->hair_us))
            return false;
    return true;
}

/* first_of[rank]: the lowest rank that does the same. */
static void compare_ranks(const boxes *b, const wf_timeline *timeline, size_t *begins,
                          int *first_of) {
    int n_ranks = wf_timeline_n_ranks(timeline);
    size_t i = 0;
    for (int r = 0; r <= n_ranks; r++) {
        while (i < b->n && b->items[i].rank < r) i++;
        begins[r] = i;
    }
    for (int r = 0; r < n_ranks; r++) {
        int like = wf_timeline_like(timeline, r);
        first_of[r] = like < r ? first_of[like] : 0;
        for (; like == r && first_of[r] < r; first_of[r]++)
            if (first_of[first_of[r]] == first_of[r] && do_the_same(b, begins, first_of[r], r))
                break;
    }
}

/* Ranks with the same work as `rank` are one row if they are a block that can be named. */
static void add_rows(const drawing *d, const int *first_of, int n_ranks, int rank, rows *out) {
    block all = no_ranks(d, n_ranks);
    int n = 0;
    for (int r = rank; r < n_ranks; r++)
        if (first_of[r] == rank) add_rank(d, r, &all), n++;
    bool is_one = n_ranks_of(&all) == n;
    out->is_folded |= is_one && n > 1;
    for (int r = rank; r < n_ranks; r++) {
        if (first_of[r] != rank || (is_one && r > rank)) continue;
        block own = no_ranks(d, n_ranks);
        add_rank(d, r, &own);
        out->items[r].rank = r;
        name_of(is_one ? &all : &own, out->items[r].name);
        out->row_of[r] = r;
    }
}

/* Rows by the number of their first rank. */
static void close_up(rows *out, int n_ranks) {
    for (int r = 0; r < n_ranks; r++) {
        if (out->row_of[r] < 0) continue;
        out->items[out->n] = out->items[r];
        out->row_of[r] = out->n++;
    }
}

static void add_named_rows(const drawing *d, int n_ranks, rows *out) {
    for (int r = 0; r < n_ranks; r++) {
        out->items[r].rank = out->first_of[r] = out->row_of[r] = r;
        snprintf(out->items[r].name, ROW_NAME_BYTES, "%s", d->words->names[r]);
    }
    out->n = n_ranks;
}

bool rows_create(const drawing *d, const wf_timeline *timeline, const boxes *b, rows *out) {
    int n = wf_timeline_n_ranks(timeline);
    size_t *begins = calloc((size_t)n + 1, sizeof *begins);
    *out = (rows){.items = calloc((size_t)n + 1, sizeof *out->items),
                  .row_of = calloc((size_t)n + 1, sizeof *out->row_of),
                  .first_of = calloc((size_t)n + 1, sizeof *out->first_of)};
    const int *first_of = out->first_of;
    bool good = begins && first_of && out->items && out->row_of;
    if (good && d->words) {
        add_named_rows(d, n, out);
    } else if (good) {
        compare_ranks(b, timeline, begins, out->first_of);
        for (int r = 0; r < n; r++) out->row_of[r] = -1;
        for (int r = 0; r < n; r++)
            if (first_of[r] == r) add_rows(d, first_of, n, r, out);
        close_up(out, n);
    } else {
        rows_release(out);
    }
    free(begins);
    return good;
}

void rows_release(rows *r) {
    free(r->items);
    free(r->row_of);
    free(r->first_of);
    memset(r, 0, sizeof *r);
}
