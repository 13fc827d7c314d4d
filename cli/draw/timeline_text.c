/* The picture as text: a line a rank, a column a slice of time. A box begins with a character for
 * its kind, in lower case for every other chunk, and the microbatch, as far as they fit.
 */
#include "draw/draw.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* character, what fills the box, colour on a terminal */
static const struct {
    char character, fill;
    const char *color;
} looks[WF_N_SPAN_KINDS] = {
    [WF_SPAN_FORWARD] = {'F', '-', "\033[30;46m"},
    [WF_SPAN_BACKWARD] = {'B', '=', "\033[30;43m"},
    [WF_SPAN_WEIGHT] = {'W', '~', "\033[30;42m"},
    [WF_SPAN_BACKWARD_WEIGHT] = {'B', '=', "\033[30;43m"},
    [WF_SPAN_RECOMPUTE] = {'R', '-', "\033[30;44m"},
    [WF_SPAN_UPDATE] = {'U', '+', "\033[30;47m"},
};

typedef struct canvas {
    const drawing *d;
    FILE *out;
    const box **row; /* [columns] what covers most of the column; NULL: nothing does */
    double *covered; /* [columns] how much of it, in microseconds */
    int columns;
    double column_us;
    bool has_color, seen[WF_N_SPAN_KINDS];
} canvas;

static void cover(canvas *v, const box *now) {
    int first = (int)(now->begin_us / v->column_us), last = (int)(now->end_us / v->column_us);
    for (int k = first; k <= last && k < v->columns; k++) {
        double part =
            fmin(now->end_us, (k + 1) * v->column_us) - fmax(now->begin_us, k * v->column_us);
        if (part <= v->covered[k]) continue;
        v->covered[k] = part;
        v->row[k] = now;
    }
}

/* Columns that are idle for most of their time are idle. Boxes are in order of ranks; *at is the
 * first that may be this one's, and then the next one's. */
static void fill_row(canvas *v, const boxes *b, int rank, size_t *at) {
    for (int k = 0; k < v->columns; k++) v->row[k] = NULL, v->covered[k] = 0;
    double *busy = v->covered + v->columns;
    for (int k = 0; k < v->columns; k++) busy[k] = 0;
    for (; *at < b->n && b->items[*at].rank <= rank; ++*at) {
        const box *now = &b->items[*at];
        if (now->rank != rank || now->is_move) continue;
        cover(v, now);
        int last = (int)(now->end_us / v->column_us);
        for (int k = (int)(now->begin_us / v->column_us); k <= last && k < v->columns; k++)
            busy[k] +=
                fmin(now->end_us, (k + 1) * v->column_us) - fmax(now->begin_us, k * v->column_us);
    }
    for (int k = 0; k < v->columns; k++)
        if (busy[k] < v->column_us / 2) v->row[k] = NULL;
}

static void print_box(canvas *v, const box *now, int width) {
    char text[40];
    char character = looks[now->kind].character;
    if (now->chunk % 2) character = (char)tolower((unsigned char)character);
    int n = now->micro < 0
                ? snprintf(text, sizeof text, "%c", character)
                : snprintf(text, sizeof text, "%c%lld", character, (long long)now->micro);
    if (n > width) n = 1; /* half a number would be another one */
    v->seen[now->kind] = true;
    if (v->has_color) fputs(looks[now->kind].color, v->out);
    fprintf(v->out, "%.*s", n, text);
    for (int k = n; k < width; k++) fputc(looks[now->kind].fill, v->out);
    if (v->has_color) fputs("\033[0m", v->out);
}

static void print_row(canvas *v, const boxes *b, int rank, size_t *at) {
    fill_row(v, b, rank, at);
    fprintf(v->out, "rank %-3d|", rank);
    for (int k = 0, n; k < v->columns; k += n) {
        for (n = 1; k + n < v->columns && v->row[k + n] == v->row[k];) n++;
        if (v->row[k])
            print_box(v, v->row[k], n);
        else
            fprintf(v->out, "%*s", n, "");
    }
    fputs("|\n", v->out);
}

static void print_axis(const canvas *v) {
    char end[40];
    double ms = v->column_us * v->columns / 1e3;
    int n = snprintf(end, sizeof end, "%.*f ms", draw_decimals(ms), ms);
    fprintf(v->out, "%8s0%*s%s\n", "", v->columns - n, "", end);
}

static void print_legend(const canvas *v) {
    bool is_split = draw_is_split(v->d);
    const char *between = "        ";
    for (int k = 0; k < WF_N_SPAN_KINDS; k++) {
        if (!v->seen[k]) continue;
        fprintf(v->out, "%s%c %s", between, looks[k].character,
                draw_kind_help((wf_span_kind)k, is_split));
        between = ", ";
    }
    fprintf(v->out, "; the number is the microbatch%s\n",
            draw_n_chunks(v->d) > 1 ? "; lower case: every other chunk" : "");
}

static bool print_part(canvas *v, const wf_trace_part *part) {
    char heading[300];
    boxes b;
    size_t at = 0;
    draw_heading(part, heading, sizeof heading);
    fprintf(v->out, "%s\n", heading);
    if (!boxes_create(part->timeline, v->column_us / 6, &b)) return false;
    for (int r = 0; r < wf_timeline_n_ranks(part->timeline); r++) print_row(v, &b, r, &at);
    boxes_release(&b);
    return true;
}

bool draw_text(FILE *out, const drawing *d, int columns, bool has_color) {
    char title[1000];
    canvas v = {.d = d, .out = out, .columns = columns, .has_color = has_color};
    v.column_us = fmax(draw_width_us(d), 1e-3) / columns;
    v.row = calloc((size_t)columns, sizeof *v.row);
    v.covered = calloc(2 * (size_t)columns, sizeof *v.covered);
    bool good = v.row && v.covered;
    if (good) fprintf(out, "%s\n", wf_text_escape(d->title, title, sizeof title));
    for (int k = 0; k < d->n_parts && good; k++) good = print_part(&v, &d->parts[k]);
    if (good) print_axis(&v);
    if (good) print_legend(&v);
    free((void *)v.row);
    free(v.covered);
    return good && !ferror(out);
}
