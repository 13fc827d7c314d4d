/* The picture for gnuplot: a script with tables of boxes, rows, numbers in boxes, and names. */
#include "draw/gnuplot.h"
#include "draw/sheet.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_LEFT 96
#define TITLE      32
#define BOTTOM     62 /* axis */
#define NAME_CHAR  8.2
#define LEAST_MOVE 3 /* pixels: shorter moves could not be seen */

static const unsigned colors[WF_N_SPAN_KINDS] = {
    [WF_SPAN_FORWARD] = 0x56b4e9,   [WF_SPAN_BACKWARD] = 0xe69f00,
    [WF_SPAN_WEIGHT] = 0x2bb58a,    [WF_SPAN_BACKWARD_WEIGHT] = 0xe69f00,
    [WF_SPAN_RECOMPUTE] = 0x0072b2, [WF_SPAN_UPDATE] = 0x999999,
    [WF_SPAN_TRANSFER] = 0xd55e00,  [WF_SPAN_REDUCE] = 0x222222,
    [WF_SPAN_HOST] = 0xd6c93c,
};

static const unsigned memory_colors[WF_N_MEMORY_KINDS] = {
    [WF_MEMORY_PARAMETERS] = 0x3b1752,  [WF_MEMORY_GATHERED] = 0x66307f,
    [WF_MEMORY_GRADIENTS] = 0x9150a5,   [WF_MEMORY_STATE] = 0xb87fc5,
    [WF_MEMORY_ACTIVATIONS] = 0xdcb3e0, [WF_MEMORY_WORKSPACE] = 0xf3dff2,
    [WF_MEMORY_HOST] = 0x7a5230,        [WF_MEMORY_DISK] = 0xc9a77c,
};

/* The colour of the last chunk is three fifths white. */
unsigned sheet_color(const sheet *s, wf_span_kind kind, int chunk) {
    double white = s->n_chunks > 1 ? 0.6 * chunk / (s->n_chunks - 1) : 0;
    unsigned color = 0;
    for (int shift = 0; shift <= 16; shift += 8) {
        double part = colors[kind] >> shift & 0xff;
        color |= (unsigned)lround(part + (255 - part) * white) << shift;
    }
    return color;
}

unsigned sheet_memory_color(wf_memory_kind kind) {
    return memory_colors[kind];
}

void sheet_rectangle(const sheet *s, int to, double begin_ms, double end_ms, double top,
                     double bottom, unsigned color) {
    fprintf(s->tables[to].out, "%.6f\t%.1f\t%.6f\t%.6f\t%.1f\t%.1f\t%u\n", begin_ms, top, begin_ms,
            end_ms, top, bottom, color);
}

/* ---- layout ---- */

/* Of a part: its heading, its rows, its panels. */
static int part_height(const sheet *s, int k) {
    return s->heading + s->rows[k].n * (s->row + s->thin + s->gap) +
           panel_height(s, s->d->parts[k].timeline);
}

static bool is_drawn(const sheet *s, int part, const box *now) {
    return s->rows[part].row_of[now->rank] >= 0;
}

static double number_width(const sheet *s, const box *now) {
    int n = snprintf(NULL, 0, "%lld", (long long)now->micro);
    return (s->row > 30 ? 6.8 : 5.6) * n + 4;
}

static bool has_room(const sheet *s, const box *now) {
    return s->row > 12 &&
           (now->end_us - now->begin_us) / 1e3 / s->ms_per_pixel > number_width(s, now);
}

/* Numbers are of use if the boxes that have one are most of the work. */
static numbering choose_numbers(const sheet *s) {
    double us = 0, numbered_us = 0;
    for (int k = 0; k < s->d->n_parts; k++)
        for (const box *b = s->boxes[k].items; b < s->boxes[k].items + s->boxes[k].n; b++) {
            if (b->micro < 0 || !is_drawn(s, k, b)) continue;
            us += b->end_us - b->begin_us;
            if (has_room(s, b)) numbered_us += b->end_us - b->begin_us;
        }
    return numbered_us >= 0.98 * us ? NUMBER_ALL
           : 2 * numbered_us >= us  ? NUMBER_MOST
                                    : NUMBER_NONE;
}

static bool look_at_part(sheet *s, int k) {
    const wf_timeline *timeline = s->d->parts[k].timeline;
    double hair_us = fmax(draw_width_us(s->d), 1e-3) / (SHEET_WIDTH - LEAST_LEFT - SHEET_RIGHT);
    if (s->d->words) hair_us = 0;
    if (!boxes_create(timeline, hair_us, &s->boxes[k]) ||
        !rows_create(s->d, timeline, &s->boxes[k], &s->rows[k]) ||
        !boxes_add_followers(timeline, s->rows[k].row_of, &s->boxes[k]))
        return false;
    panel_look_at(s, timeline);
    for (const box *b = s->boxes[k].items; b < s->boxes[k].items + s->boxes[k].n; b++) {
        s->seen[b->kind] = true;
        if (b->is_move) s->thin = 1;
    }
    for (int r = 0; r < s->rows[k].n; r++) {
        double width = NAME_CHAR * (double)strlen(s->rows[k].items[r].name) + 16;
        if (width > s->left) s->left = (int)width;
    }
    return true;
}

static bool lay_out(sheet *s, int *n_rows_out) {
    s->left = LEAST_LEFT;
    s->heading = 28;
    s->n_chunks = draw_n_chunks(s->d);
    s->panels[0] = (panel){WF_MEMORY_PARAMETERS, WF_MEMORY_HOST, 150, 0};
    s->panels[1] = (panel){WF_MEMORY_HOST, WF_N_MEMORY_KINDS, 60, 0};
    *n_rows_out = 0;
    for (int k = 0; k < s->d->n_parts; k++) {
        if (!look_at_part(s, k)) return false;
        *n_rows_out += s->rows[k].n;
    }
    s->ms_per_pixel = fmax(draw_width_us(s->d), 1e-3) / 1e3 / (SHEET_WIDTH - s->left - SHEET_RIGHT);
    s->row = *n_rows_out <= 16 ? 40 : *n_rows_out <= 40 ? 22 : 12;
    s->thin = s->thin ? s->row / 5 : 0;
    s->gap = s->row / 5 + 2;
    s->numbers = choose_numbers(s);
    for (int k = 0; k < s->d->n_parts; k++) s->height += part_height(s, k);
    s->top = TITLE + 12 + SHEET_LEGEND * sheet_legend(s, 1);
    return true;
}

/* ---- rows ---- */

static bool is_dark(unsigned color) {
    return 0.299 * (color >> 16) + 0.587 * (color >> 8 & 0xff) + 0.114 * (color & 0xff) < 100;
}

static void add_compute(const sheet *s, const box *now, double top) {
    double begin = now->begin_us / 1e3, end = now->end_us / 1e3;
    unsigned color = sheet_color(s, now->kind, now->chunk);
    if ((end - begin) / s->ms_per_pixel > 4)
        end -= s->ms_per_pixel; /* neighbours are parted by a white line */
    bool both = now->kind == WF_SPAN_BACKWARD_WEIGHT;
    double middle = top + (both ? s->row * 0.74 : s->row);
    sheet_rectangle(s, TABLE_BOXES, begin, end, top, middle, color);
    if (both)
        sheet_rectangle(s, TABLE_BOXES, begin, end, middle, top + s->row,
                        sheet_color(s, WF_SPAN_WEIGHT, now->chunk));
    if (now->micro >= 0 && s->numbers != NUMBER_NONE && has_room(s, now))
        fprintf(s->tables[TABLE_LABELS].out, "%.6f\t%.1f\t%lld\t%u\n", (begin + end) / 2,
                (top + middle) / 2, (long long)now->micro, is_dark(color) ? 0xffffffu : 0);
}

static void add_move(const sheet *s, const box *now, double step_ms, double top) {
    double begin = now->begin_us / 1e3, end = now->end_us / 1e3;
    double missing = LEAST_MOVE * s->ms_per_pixel - (end - begin);
    if (missing > 0) begin -= missing / 2, end += missing / 2;
    sheet_rectangle(s, TABLE_BOXES, fmax(begin, 0), fmin(end, step_ms), top, top + s->thin - 1,
                    sheet_color(s, now->kind, 0));
}

static void add_part(const sheet *s, int k, double top) {
    const wf_trace_part *part = &s->d->parts[k];
    double pitch = s->row + s->thin + s->gap, step_ms = wf_timeline_step_us(part->timeline) / 1e3;
    char heading[300];
    draw_heading(s->d, k, heading, sizeof heading);
    fprintf(s->script, "set label \"%s\" at graph 0, first %.1f left noenhanced;\n",
            gnuplot_plain(heading), top + s->heading / 2.0 - 2);
    top += s->heading;
    for (int r = 0; r < s->rows[k].n; r++) {
        double y = top + r * pitch;
        sheet_rectangle(s, TABLE_ROWS, 0, step_ms, y, y + s->row, 0xbbbbbb);
        fprintf(s->tables[TABLE_NAMES].out, "0\t%.1f\t%s\n", y + s->row / 2.0,
                s->rows[k].items[r].name);
    }
    for (const box *now = s->boxes[k].items; now < s->boxes[k].items + s->boxes[k].n; now++) {
        double y = top + s->rows[k].row_of[now->rank] * pitch;
        if (!is_drawn(s, k, now)) continue;
        if (now->is_move)
            add_move(s, now, step_ms, y + s->row + 1);
        else
            add_compute(s, now, y);
    }
    panel_add(s, part->timeline, top + s->rows[k].n * pitch);
}

/* ---- script ---- */

static const char *const table_names[N_TABLES] = {"$boxes", "$rows", "$labels", "$names"};

static void write_tables(sheet *s) {
    for (int k = 0; k < N_TABLES; k++) {
        fflush(s->tables[k].out);
        fprintf(s->script, "%s << END\n%sEND\n", table_names[k], s->tables[k].text);
    }
}

/* In a smaller font where it is too long for one line, and cut off where that is too large. */
static void write_title(const sheet *s, const char *font, int height) {
    char title[200];
    int width = SHEET_WIDTH - s->left - SHEET_RIGHT, n = (int)strlen(s->d->title);
    int size = n * 9.4 < width ? 15 : 11, most = (int)(width / 6.9);
    snprintf(title, sizeof title, "%.*s%s", most - 4, s->d->title, n > most - 4 ? " ..." : "");
    fprintf(s->script, "set label \"%s\" at screen %.5f,%.5f left font '%s,%d' noenhanced\n",
            gnuplot_plain(title), (double)s->left / SHEET_WIDTH, 1 - 20.0 / height, font, size);
}

static void write_script(sheet *s, picture_kind kind) {
    FILE *out = s->script;
    int height = s->top + s->height + BOTTOM;
    const char *font = kind == PICTURE_SVG ? "sans-serif" : "sans";
    fprintf(out,
            "set terminal %s size %d,%d font '%s,12' background rgb 'white'\n"
            "set datafile separator '\\t'; unset key; unset ytics\n"
            "set lmargin at screen %.5f; set rmargin at screen %.5f\n"
            "set tmargin at screen %.5f; set bmargin at screen %.5f\n"
            "set xrange [0:%.6f]; set yrange [%d:0]\n"
            "set border 1 lc rgb '#555555'; set xtics nomirr out; set format x '%%g'\n"
            "set xlabel 'time%s, ms' offset 0,0.3\n",
            kind == PICTURE_SVG ? "svg" : "pngcairo", SHEET_WIDTH, height, font,
            (double)s->left / SHEET_WIDTH, 1 - (double)SHEET_RIGHT / SHEET_WIDTH,
            1 - (double)s->top / height, (double)BOTTOM / height,
            s->ms_per_pixel * (SHEET_WIDTH - s->left - SHEET_RIGHT), s->height,
            s->d->words ? "" : " in the step");
    write_title(s, font, height);
    sheet_legend(s, height);
    double top = 0;
    for (int k = 0; k < s->d->n_parts; k++) {
        add_part(s, k, top);
        top += part_height(s, k);
    }
    write_tables(s);
    fprintf(out,
            "plot $boxes using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable fs solid noborder,"
            " $rows using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable lw 0.6 fs empty,"
            " $labels using 1:2:3:4 with labels font ',%d' tc rgb variable,"
            " $names using 1:2:3 with labels right offset -0.8,0 noenhanced\n",
            s->row > 30 ? 11 : 9);
}

static bool open_tables(sheet *s, table *script) {
    bool good = (script->out = open_memstream(&script->text, &script->n_bytes)) != NULL;
    for (table *t = s->tables; t < s->tables + N_TABLES; t++)
        good &= (t->out = open_memstream(&t->text, &t->n_bytes)) != NULL;
    s->script = script->out;
    return good;
}

/* The text, which is the caller's, or NULL. */
static char *close_table(table *t, bool good) {
    good &= t->out && !ferror(t->out);
    good &= t->out && fclose(t->out) == 0;
    if (good) return t->text;
    free(t->text);
    return NULL;
}

char *draw_script(const drawing *d, picture_kind kind, int *n_rows_out) {
    sheet s = {.d = d};
    table script = {NULL, NULL, 0};
    bool good = lay_out(&s, n_rows_out) && *n_rows_out <= DRAW_MAX_ROWS;
    bool is_open = good && open_tables(&s, &script);
    if (is_open) write_script(&s, kind);
    for (int k = 0; k < N_TABLES; k++) free(close_table(&s.tables[k], true));
    for (int k = 0; k < d->n_parts; k++) {
        boxes_release(&s.boxes[k]);
        rows_release(&s.rows[k]);
    }
    return close_table(&script, is_open);
}
