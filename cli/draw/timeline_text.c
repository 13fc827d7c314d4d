/* The picture as text: a line for each rank, or for several that do the same at the same times; a
 * column is a slice of time. A box begins with a character for its kind, in lower case for every
 * other chunk, and the microbatch, as far as they fit.
 */
#include "common/fold.h"
#include "common/text.h"
#include "draw/rows.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* character, fill of the box, colour on a terminal */
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

#define LEAST_LABEL   8
#define LEAST_COLUMNS 20

typedef struct canvas {
    const drawing *d;
    FILE *out;
    const box **row;    /* [columns] the box that covers most of the column; NULL: there is none */
    double *covered;    /* [columns] how much of it, in microseconds */
    int columns, label; /* label: columns of the ranks in front of a row */
    double column_us;
    bool has_color, is_folded, seen[WF_N_SPAN_KINDS];
    boxes boxes[WF_TRACE_MAX_PARTS];
    rows rows[WF_TRACE_MAX_PARTS];
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

/* A server only updates, so its updates are drawn even if they are short. */
static bool is_server_update(const canvas *v, const box *now) {
    return v->d->words && now && now->kind == WF_SPAN_UPDATE;
}

/* The boxes of a rank, which stand together. Columns that are idle for most of their time are
 * idle. Where such columns follow each other, one is drawn for each column of work in them. */
static void fill_row(canvas *v, const boxes *b, int rank) {
    for (int k = 0; k < v->columns; k++) v->row[k] = NULL, v->covered[k] = 0;
    double *busy = v->covered + v->columns;
    for (int k = 0; k < v->columns; k++) busy[k] = 0;
    for (const box *now = b->items; now < b->items + b->n && now->rank <= rank; now++) {
        if (now->rank != rank || now->is_move) continue;
        cover(v, now);
        int last = (int)(now->end_us / v->column_us);
        for (int k = (int)(now->begin_us / v->column_us); k <= last && k < v->columns; k++)
            busy[k] +=
                fmin(now->end_us, (k + 1) * v->column_us) - fmax(now->begin_us, k * v->column_us);
    }
    double left_out_us = 0;
    for (int k = 0; k < v->columns; k++) {
        bool is_busy = busy[k] >= v->column_us / 2;
        left_out_us = is_busy ? 0 : left_out_us + busy[k];
        if (left_out_us >= v->column_us)
            left_out_us -= v->column_us;
        else if (!is_busy && !is_server_update(v, v->row[k]))
            v->row[k] = NULL;
    }
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

static void print_row(canvas *v, const boxes *b, int rank, const char *label) {
    fill_row(v, b, rank);
    fprintf(v->out, "%-*s|", v->label, label);
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
    char end[TEXT_BYTES];
    int n = (int)strlen(text_of_us(end, v->column_us * v->columns));
    fprintf(v->out, "%*s0%*s%s\n", v->label, "", v->columns - n, "", end);
}

static void print_legend(const canvas *v) {
    char indent[RANKS_BYTES];
    const char *between = indent;
    snprintf(indent, sizeof indent, "%*s", v->label, "");
    for (int k = 0; k < WF_N_SPAN_KINDS; k++) {
        if (!v->seen[k]) continue;
        fprintf(v->out, "%s%c %s", between, looks[k].character,
                draw_kind_help(v->d, (wf_span_kind)k));
        between = ", ";
    }
    fprintf(v->out, "; the number is the %s%s%s\n", v->is_folded ? "first rank's " : "",
            v->d->words ? v->d->words->number : "microbatch",
            draw_n_chunks(v->d) > 1 ? "; lower case: every other chunk" : "");
}

static char *label_of(const canvas *v, int part, int rank, char text[ROW_NAME_BYTES]) {
    int n_ranks = wf_timeline_n_ranks(v->d->parts[part].timeline);
    if (!v->d->words) return text_of_ranks(text, v->rows[part].first_of, n_ranks, rank);
    snprintf(text, ROW_NAME_BYTES, "%s", v->d->words->names[rank]);
    return text;
}

static void print_part(canvas *v, int part) {
    char heading[300], label[ROW_NAME_BYTES];
    int n_ranks = wf_timeline_n_ranks(v->d->parts[part].timeline);
    draw_heading(v->d, part, heading, sizeof heading);
    fprintf(v->out, "%s\n", heading);
    for (int r = 0; r < n_ranks; r++)
        if (v->rows[part].first_of[r] == r)
            print_row(v, &v->boxes[part], r, label_of(v, part, r, label));
}

/* Finds which ranks share a row, and how wide their labels are. */
static bool look_at_part(canvas *v, int part, double hair_us) {
    const wf_timeline *timeline = v->d->parts[part].timeline;
    char label[ROW_NAME_BYTES];
    int n_ranks = wf_timeline_n_ranks(timeline);
    if (!boxes_create(timeline, hair_us, &v->boxes[part]) ||
        !rows_create(v->d, timeline, &v->boxes[part], &v->rows[part]))
        return false;
    for (int r = 0; r < n_ranks; r++) {
        if (v->rows[part].first_of[r] != r) {
            v->is_folded = true;
            continue;
        }
        int n = (int)strlen(label_of(v, part, r, label)) + 1;
        if (n > v->label) v->label = n;
    }
    return true;
}

static void print_all(canvas *v) {
    char title[1000];
    fprintf(v->out, "%s\n", wf_text_escape(v->d->title, title, sizeof title));
    for (int k = 0; k < v->d->n_parts; k++) print_part(v, k);
    print_axis(v);
    print_legend(v);
}

bool draw_text(FILE *out, const drawing *d, int columns, bool has_color) {
    canvas v = {.d = d, .out = out, .label = LEAST_LABEL, .has_color = has_color};
    double width_us = fmax(draw_width_us(d), 1e-3);
    bool good = true;
    for (int k = 0; k < d->n_parts && good; k++)
        good = look_at_part(&v, k, d->words ? 0 : width_us / columns / 6);
    v.columns = columns - v.label - 2 < LEAST_COLUMNS ? LEAST_COLUMNS : columns - v.label - 2;
    v.column_us = width_us / v.columns;
    v.row = calloc((size_t)v.columns, sizeof *v.row);
    v.covered = calloc(2 * (size_t)v.columns, sizeof *v.covered);
    good &= v.row && v.covered;
    if (good) print_all(&v);
    for (int k = 0; k < d->n_parts; k++) {
        boxes_release(&v.boxes[k]);
        rows_release(&v.rows[k]);
    }
    free((void *)v.row);
    free(v.covered);
    return good && !ferror(out);
}
