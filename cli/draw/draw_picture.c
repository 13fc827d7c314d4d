/* The picture for gnuplot: tables of boxes, labels and rows, and a script. All places are in
 * pixels from the top of the plot but for the axis of time, so that rows have the same height
 * in every picture. Colours are Okabe and Ito's, which people who see colours differently can
 * tell apart; black stays readable on them.
 */
#include "draw/draw.h"
#include "draw/gnuplot.h"
#include "text.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH  1280
#define LEFT   96
#define RIGHT  30
#define TOP    66 /* title and legend */
#define LEGEND 22 /* another one */
#define BOTTOM 62 /* axis */

static const unsigned colors[WF_N_SPAN_KINDS] = {
    [WF_SPAN_FORWARD] = 0x56b4e9,   [WF_SPAN_BACKWARD] = 0xe69f00,
    [WF_SPAN_WEIGHT] = 0x2bb58a,    [WF_SPAN_BACKWARD_WEIGHT] = 0xe69f00,
    [WF_SPAN_RECOMPUTE] = 0x0072b2, [WF_SPAN_UPDATE] = 0x999999,
    [WF_SPAN_TRANSFER] = 0xb0609a,  [WF_SPAN_REDUCE] = 0x444444,
    [WF_SPAN_HOST] = 0xd0c060,
};

/* The panel of memory, below the rows. */
#define PANEL     150
#define PANEL_GAP 34

static const unsigned memory_colors[WF_N_MEMORY_KINDS] = {
    [WF_MEMORY_PARAMETERS] = 0x0072b2,  [WF_MEMORY_GATHERED] = 0x56b4e9,
    [WF_MEMORY_GRADIENTS] = 0x009e73,   [WF_MEMORY_STATE] = 0x8c6bb1,
    [WF_MEMORY_ACTIVATIONS] = 0xe69f00, [WF_MEMORY_WORKSPACE] = 0x999999,
    [WF_MEMORY_HOST] = 0xf0e442,        [WF_MEMORY_DISK] = 0xcc79a7,
};

typedef struct layout {
    double ms_per_pixel;
    int row, thin, gap, heading; /* heights; thin 0: nothing moves that one could see */
    int height;                  /* of the plot */
    int n_digits;                /* of the highest microbatch: all are numbered, or none */
    int n_chunks;                /* of a rank, at most: the later, the paler */
    bool seen[WF_N_SPAN_KINDS];
    boxes boxes[WF_TRACE_MAX_PARTS];
    double peak_bytes; /* of all parts: as high as a panel; 0: none has any */
    bool seen_memory[WF_N_MEMORY_KINDS];
    int top; /* title and legends */
} layout;

typedef struct sheet {
    const drawing *d;
    layout l;
    FILE *boxes, *labels, *rows, *names, *script;
} sheet;

/* ---- layout ---- */

static void look_at_memory(const wf_timeline *timeline, layout *l) {
    draw_peak peak = draw_find_peak(timeline);
    l->peak_bytes = fmax(l->peak_bytes, peak.bytes);
    for (int i = 0; i < wf_timeline_n_moments(timeline, peak.rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(timeline, peak.rank, i);
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++) l->seen_memory[k] |= moment.bytes[k] > 0;
    }
}

/* Of a part: its heading, its rows, its panel. */
static int part_height(const layout *l, const wf_trace_part *part) {
    int rows = wf_timeline_n_ranks(part->timeline) * (l->row + l->thin + l->gap);
    bool has_panel = draw_find_peak(part->timeline).rank >= 0;
    return l->heading + rows + (has_panel ? PANEL + PANEL_GAP + 10 : 0);
}

static bool lay_out(const drawing *d, layout *l) {
    int n_rows = 0;
    double width_us = fmax(draw_width_us(d), 1e-3);
    *l = (layout){.ms_per_pixel = width_us / 1e3 / (WIDTH - LEFT - RIGHT),
                  .heading = 28,
                  .n_chunks = draw_n_chunks(d)};
    for (int k = 0; k < d->n_parts; k++) {
        if (!boxes_create(d->parts[k].timeline, l->ms_per_pixel * 1e3, &l->boxes[k])) return false;
        n_rows += wf_timeline_n_ranks(d->parts[k].timeline);
        look_at_memory(d->parts[k].timeline, l);
        for (size_t i = 0; i < l->boxes[k].n; i++) {
            l->seen[l->boxes[k].items[i].kind] = true;
            if (l->boxes[k].items[i].is_move) l->thin = 1;
            int n = snprintf(NULL, 0, "%lld", (long long)l->boxes[k].items[i].micro);
            if (n > l->n_digits && l->boxes[k].items[i].micro >= 0) l->n_digits = n;
        }
    }
    l->row = n_rows <= 16 ? 40 : n_rows <= 40 ? 22 : 12;
    l->thin = l->thin ? l->row / 5 : 0;
    l->gap = l->row / 5 + 2;
    for (int k = 0; k < d->n_parts; k++) l->height += part_height(l, &d->parts[k]);
    l->top = l->peak_bytes > 0 ? TOP + LEGEND : TOP;
    return true;
}

/* ---- tables ---- */

static void add_rectangle(FILE *out, double begin_ms, double end_ms, double top, double bottom,
                          unsigned color) {
    fprintf(out, "%.6f,%.1f,%.6f,%.6f,%.1f,%.1f,%u\n", begin_ms, top, begin_ms, end_ms, top, bottom,
            color);
}

/* Of the last chunk three fifths are white. */
static unsigned color_of(const layout *l, wf_span_kind kind, int chunk) {
    double white = l->n_chunks > 1 ? 0.6 * chunk / (l->n_chunks - 1) : 0;
    unsigned color = 0;
    for (int shift = 0; shift <= 16; shift += 8) {
        double part = colors[kind] >> shift & 0xff;
        color |= (unsigned)lround(part + (255 - part) * white) << shift;
    }
    return color;
}

static void add_compute(const sheet *s, const box *now, double top) {
    const layout *l = &s->l;
    double begin = now->begin_us / 1e3, end = now->end_us / 1e3;
    double pixels = (end - begin) / l->ms_per_pixel;
    if (pixels > 4) end -= l->ms_per_pixel; /* neighbours are parted by a white line */
    bool both = now->kind == WF_SPAN_BACKWARD_WEIGHT;
    double middle = top + (both ? l->row * 0.74 : l->row);
    add_rectangle(s->boxes, begin, end, top, middle, color_of(l, now->kind, now->chunk));
    if (both)
        add_rectangle(s->boxes, begin, end, middle, top + l->row,
                      color_of(l, WF_SPAN_WEIGHT, now->chunk));
    if (now->micro >= 0 && pixels > 7 * l->n_digits + 4 && l->row > 12)
        fprintf(s->labels, "%.6f,%.1f,%lld\n", (begin + end) / 2, (top + middle) / 2,
                (long long)now->micro);
}

/* Areas on top of each other, and where the highest is. `top` of what belongs to the panel. */
static void add_panel(const sheet *s, const wf_timeline *timeline, double top) {
    draw_peak peak = draw_find_peak(timeline);
    int n = wf_timeline_n_moments(timeline, peak.rank);
    double pixels = PANEL / s->l.peak_bytes, bottom = top + PANEL_GAP + PANEL;
    char bytes[TEXT_BYTES];
    for (int i = 0; i < n; i++) {
        wf_memory_moment now = wf_timeline_moment(timeline, peak.rank, i);
        double end_us = i + 1 < n ? wf_timeline_moment(timeline, peak.rank, i + 1).us
                                  : wf_timeline_step_us(timeline);
        /* A little farther, so that no line of the background is between it and the next. */
        double end_ms = fmin(end_us / 1e3 + s->l.ms_per_pixel, wf_timeline_step_us(timeline) / 1e3);
        double y = bottom;
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++) {
            double above = y - pixels * (double)now.bytes[k];
            if (now.bytes[k])
                add_rectangle(s->boxes, now.us / 1e3, end_ms, above, y, memory_colors[k]);
            y = above;
        }
    }
    double ms = wf_timeline_moment(timeline, peak.rank, peak.moment).us / 1e3;
    double y = bottom - pixels * peak.bytes;
    fprintf(s->script,
            "set arrow from first %.6f,%.1f to first %.6f,%.1f nohead front lw 1.5 "
            "lc rgb '#d55e00';\n"
            "set label 'memory of rank %d: at most %s, after %.*f ms' at graph 0, first %.1f left "
            "noenhanced;\n",
            ms, y - 5, ms, bottom, peak.rank, text_of_bytes(bytes, peak.bytes), draw_decimals(ms),
            ms, top + PANEL_GAP / 2.0);
    fprintf(s->names, "0,%.1f,%s\n0,%.1f,0\n", y, text_of_bytes(bytes, peak.bytes), bottom);
}

static void add_part(const sheet *s, int k, double top) {
    const layout *l = &s->l;
    const wf_trace_part *part = &s->d->parts[k];
    double pitch = l->row + l->thin + l->gap, step_ms = wf_timeline_step_us(part->timeline) / 1e3;
    char heading[300];
    draw_heading(part, heading, sizeof heading);
    fprintf(s->script, "set label \"%s\" at graph 0, first %.1f left noenhanced;\n",
            gnuplot_plain(heading), top + l->heading / 2.0 - 2);
    top += l->heading;
    for (int r = 0; r < wf_timeline_n_ranks(part->timeline); r++) {
        double y = top + r * pitch;
        add_rectangle(s->rows, 0, step_ms, y, y + l->row, 0xbbbbbb);
        fprintf(s->names, "0,%.1f,rank %d\n", y + l->row / 2.0, r);
    }
    for (size_t i = 0; i < l->boxes[k].n; i++) {
        const box *now = &l->boxes[k].items[i];
        double y = top + now->rank * pitch;
        if (!now->is_move)
            add_compute(s, now, y);
        else
            add_rectangle(s->boxes, now->begin_us / 1e3, now->end_us / 1e3, y + l->row + 1,
                          y + l->row + l->thin, colors[now->kind]);
    }
    if (draw_find_peak(part->timeline).rank >= 0)
        add_panel(s, part->timeline, top + wf_timeline_n_ranks(part->timeline) * pitch);
}

/* ---- script ---- */

static void add_legend(const sheet *s, int height) {
    bool is_split = draw_is_split(s->d);
    double x = LEFT, y = 46;
    for (int k = 0; k < WF_N_SPAN_KINDS; k++) {
        if (!s->l.seen[k]) continue;
        const char *help = draw_kind_help((wf_span_kind)k, is_split);
        double middle = k == WF_SPAN_BACKWARD_WEIGHT ? y + 4 : y + 7;
        const char *rectangle = "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f "
                                "fc rgb '#%06x' fs solid noborder;\n";
        fprintf(s->script, rectangle, x / WIDTH, 1 - (y - 7) / height, (x + 22) / WIDTH,
                1 - middle / height, colors[k]);
        if (k == WF_SPAN_BACKWARD_WEIGHT)
            fprintf(s->script, rectangle, x / WIDTH, 1 - middle / height, (x + 22) / WIDTH,
                    1 - (y + 7) / height, colors[WF_SPAN_WEIGHT]);
        fprintf(s->script, "set label '%s' at screen %.5f,%.5f left noenhanced;\n", help,
                (x + 28) / WIDTH, 1 - y / height);
        x += 28 + 8.4 * (double)strlen(help) + 24;
    }
    if (s->l.n_chunks > 1)
        fprintf(s->script, "set label 'paler: later chunk' at screen %.5f,%.5f left noenhanced;\n",
                (x + 16) / WIDTH, 1 - y / height);
}

static void add_memory_legend(const sheet *s, int height) {
    double x = LEFT, y = 46 + LEGEND;
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) {
        if (!s->l.seen_memory[k]) continue;
        const char *name = wf_memory_kind_name((wf_memory_kind)k);
        fprintf(s->script,
                "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb '#%06x' fs "
                "solid noborder;\nset label '%s' at screen %.5f,%.5f left noenhanced;\n",
                x / WIDTH, 1 - (y - 7) / height, (x + 22) / WIDTH, 1 - (y + 7) / height,
                memory_colors[k], name, (x + 28) / WIDTH, 1 - y / height);
        x += 28 + 8.4 * (double)strlen(name) + 24;
    }
}

static void write_script(const sheet *s, picture_kind kind) {
    FILE *out = s->script;
    int height = s->l.top + s->l.height + BOTTOM;
    char title[200];
    snprintf(title, sizeof title, "%.160s%s", s->d->title, strlen(s->d->title) > 160 ? " ..." : "");
    fprintf(out,
            "set terminal %s size %d,%d font '%s,12' background rgb 'white'\n"
            "set datafile separator ','; unset key; unset ytics\n"
            "set lmargin at screen %.5f; set rmargin at screen %.5f\n"
            "set tmargin at screen %.5f; set bmargin at screen %.5f\n"
            "set xrange [0:%.6f]; set yrange [%d:0]\n"
            "set border 1 lc rgb '#555555'; set xtics nomirr out; set xlabel 'time in the step, "
            "ms' offset 0,0.3\n",
            kind == PICTURE_SVG ? "svg" : "pngcairo", WIDTH, height,
            kind == PICTURE_SVG ? "sans-serif" : "sans", (double)LEFT / WIDTH,
            1 - (double)RIGHT / WIDTH, 1 - (double)s->l.top / height, (double)BOTTOM / height,
            s->l.ms_per_pixel * (WIDTH - LEFT - RIGHT), s->l.height);
    fprintf(out, "set label \"%s\" at screen %.5f,%.5f left font '%s,15' noenhanced\n",
            gnuplot_plain(title), (double)LEFT / WIDTH, 1 - 20.0 / height,
            kind == PICTURE_SVG ? "sans-serif" : "sans");
    add_legend(s, height);
    add_memory_legend(s, height);
    double top = 0;
    for (int k = 0; k < s->d->n_parts; k++) {
        add_part(s, k, top);
        top += part_height(&s->l, &s->d->parts[k]);
    }
    fprintf(
        out,
        "plot 'boxes.csv' using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable fs solid noborder,"
        " 'rows.csv' using 1:2:3:4:5:6:7 with boxxyerror lc rgb variable lw 0.6 fs empty,"
        " 'labels.csv' using 1:2:3 with labels font ',%d',"
        " 'names.csv' using 1:2:3 with labels right offset -0.8,0 noenhanced\n",
        s->l.row > 30 ? 11 : 9);
}

static FILE *open_in(const char *dir, const char *name, bool *good) {
    char path[4200];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = *good ? fopen(path, "w") : NULL;
    *good &= file != NULL;
    return file;
}

static bool close_file(FILE *file) {
    return file && fclose(file) == 0;
}

bool draw_picture(const char *dir, const drawing *d, picture_kind kind) {
    sheet s = {.d = d};
    bool good = lay_out(d, &s.l);
    if (!good) errno = ENOMEM;
    s.boxes = open_in(dir, "boxes.csv", &good);
    s.labels = open_in(dir, "labels.csv", &good);
    s.rows = open_in(dir, "rows.csv", &good);
    s.names = open_in(dir, "names.csv", &good);
    s.script = open_in(dir, "script", &good);
    if (good) write_script(&s, kind);
    FILE *const files[] = {s.boxes, s.labels, s.rows, s.names, s.script};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i]) good &= close_file(files[i]);
    for (int k = 0; k < d->n_parts; k++) boxes_release(&s.l.boxes[k]);
    return good;
}
