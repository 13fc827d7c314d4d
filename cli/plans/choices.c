#include "plans/choices.h"
#include "common/text.h"
#include "draw/draw.h"
#include "draw/gnuplot.h"
#include "plans/cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH  1280
#define RED    "#b02a00"
#define GREY   "#666666"
#define SCRIPT "set border 1 lc rgb '#555555'; set tics nomirr out; set format '%%g'; unset key\n"

static const unsigned colors[CLUSTER_N_TERMS] = {0x56b4e9, 0xe69f00, 0x0072b2, 0xcc79a7, 0xd0d0d0,
                                                 0xd55e00, 0x222222, 0x999999, 0x009e73};

/* A script in memory. */
typedef struct script {
    FILE *out;
    char *text;
    size_t n_bytes;
} script;

static exit_status finish(const cli *c, const char *path, script *s, int height) {
    bool good = s->out && !fclose(s->out);
    exit_status bad = good ? draw_by_script(c, path, WIDTH, height, s->text)
                           : complain(EXIT_FAILED, "no memory left");
    free(s->text);
    return bad;
}

/* ---- rows as bars ---- */

#define ROW      46
#define BAR      20
#define LEFT     182
#define TOP      116
#define BOTTOM   72
#define LONGEST  4    /* bars of more steps of the best are cut off */
#define FOR_TEXT 0.32 /* of the width, after the longest bar */

typedef struct bars {
    script s;
    double longest_ms, unit_ms; /* the axis's unit */
    bool is_seen[CLUSTER_N_TERMS];
} bars;

/* Where a plan does not fit, colours are pale. */
static unsigned shade(unsigned color, bool fits) {
    unsigned shaded = 0;
    for (int k = 0; k < 24; k += 8) {
        unsigned part = color >> k & 0xff;
        shaded |= (fits ? part : part + (0xff - part) * 7 / 10) << k;
    }
    return shaded;
}

static void add_bar(bars *b, const wf_prediction *p, double y) {
    cluster_term terms[CLUSTER_N_TERMS];
    double begin = 0;
    cluster_terms(p, terms);
    for (int k = 0; k < CLUSTER_N_TERMS; k++) {
        double end = fmin(begin + terms[k].ms, b->longest_ms);
        if (end <= begin) continue;
        b->is_seen[k] = true;
        fprintf(b->s.out,
                "set object rectangle from first %.9g,%.1f to first %.9g,%.1f fc rgb '#%06x' fs "
                "solid noborder\n",
                begin / b->unit_ms, y, end / b->unit_ms, y + BAR, shade(colors[k], p->fits));
        begin = end;
    }
    if (p->step_ms > b->longest_ms)
        fprintf(b->s.out,
                "set arrow from first %.9g,%.1f rto graph 0.02,0 lc rgb '" GREY "' lw 2\n",
                begin / b->unit_ms, y + BAR / 2.0);
}

static void add_label(const bars *b, const char *x, double y, const char *how, const char *color,
                      const char *text) {
    char plain[300];
    snprintf(plain, sizeof plain, "%.290s", text);
    fprintf(b->s.out, "set label \"%s\" at %s,%.1f %s tc rgb '%s' noenhanced\n",
            gnuplot_plain(plain), x, y, how, color);
}

static void add_row(bars *b, const wf_choice *row, bool is_recommended, double y) {
    const wf_prediction *p = &row->prediction;
    char text[300], x[64], step[TEXT_BYTES], bytes[TEXT_BYTES];
    snprintf(text, sizeof text, "%s%s", is_recommended ? "* " : "", row->strategy);
    add_label(b, "first 0", y + BAR / 2.0, "right offset -1,0", "black", text);
    if (!*row->plan) {
        snprintf(text, sizeof text, "no plan: %.200s", row->why);
        add_label(b, "first 0", y + BAR / 2.0, "left offset 0.3,0", RED, text);
        return;
    }
    bool is_elsewhere = p->lacks && strcmp(p->lacks, "device memory") != 0;
    add_bar(b, p, y);
    snprintf(text, sizeof text, "%s, %s %s%s%s", text_of_us(step, 1e3 * p->step_ms),
             p->fits ? "spare" : "lacks",
             text_of_bytes(bytes, p->fits ? p->memory_bytes - p->peak_bytes : p->short_by_bytes),
             is_elsewhere ? " of " : "", is_elsewhere ? p->lacks : "");
    bool is_cut = p->step_ms > b->longest_ms;
    snprintf(x, sizeof x, "first %.9g", fmin(p->step_ms, b->longest_ms) / b->unit_ms);
    add_label(b, x, y + BAR / 2.0, is_cut ? "left offset 4,0" : "left offset 1,0",
              p->fits ? "black" : RED, text);
    snprintf(text, sizeof text, "%s, %lld microbatch%s", row->plan, (long long)row->n_micro,
             row->n_micro == 1 ? "" : "es");
    add_label(b, "first 0", y + BAR + 9, "left offset 0.2,0 font ',10'", GREY, text);
}

/* Names of the terms that bars have, in two lines at most. */
static void add_legend(const bars *b, int height) {
    const wf_prediction none = WF_PREDICTION_INIT;
    cluster_term terms[CLUSTER_N_TERMS];
    double x = LEFT, y = 1 - 58.0 / height;
    cluster_terms(&none, terms);
    for (int k = 0; k < CLUSTER_N_TERMS; k++) {
        double width = 21 + 8.0 * (double)strlen(terms[k].words) + 16;
        if (!b->is_seen[k]) continue;
        if (x + width > WIDTH) x = LEFT, y -= 24.0 / height;
        fprintf(b->s.out,
                "set object rectangle from screen %.5f,%.5f to screen %.5f,%.5f fc rgb '#%06x' fs "
                "solid noborder\nset label '%s' at screen %.5f,%.5f left font ',11'\n",
                x / WIDTH, y - 6.0 / height, (x + 16) / WIDTH, y + 6.0 / height, colors[k],
                terms[k].words, (x + 21) / WIDTH, y);
        x += width;
    }
}

static double find_longest(const wf_choice *rows, int n) {
    double least = INFINITY, least_that_fits = INFINITY, most = 0;
    for (int k = 0; k < n; k++) {
        const wf_prediction *p = &rows[k].prediction;
        if (!*rows[k].plan) continue;
        least = fmin(least, p->step_ms);
        if (p->fits) least_that_fits = fmin(least_that_fits, p->step_ms);
        most = fmax(most, p->step_ms);
    }
    return fmin(most, LONGEST * (isinf(least_that_fits) ? least : least_that_fits));
}

exit_status choices_draw_rows(const cli *c, const char *path, const char *title,
                              const wf_choice *rows, int n, int recommended) {
    bars b = {.longest_ms = find_longest(rows, n)};
    b.unit_ms = b.longest_ms < 1e4 ? 1 : 1e3;
    int height = TOP + n * ROW + BOTTOM;
    b.s.out = open_memstream(&b.s.text, &b.s.n_bytes);
    if (!b.s.out) return complain(EXIT_FAILED, "no memory left");
    fprintf(b.s.out,
            SCRIPT "unset ytics; set xlabel 'predicted time of a step, %s'\n"
                   "set lmargin at screen %.5f; set rmargin at screen 0.98\n"
                   "set tmargin at screen %.5f; set bmargin at screen %.5f\n"
                   "set xrange [0:%.9g]; set yrange [%d:0]\n",
            b.unit_ms > 1 ? "s" : "ms", (double)LEFT / WIDTH, 1 - (double)TOP / height,
            (double)BOTTOM / height, b.longest_ms / b.unit_ms / (1 - FOR_TEXT), n * ROW);
    for (int k = 0; k < n; k++) add_row(&b, &rows[k], k == recommended, k * ROW + 4);
    add_legend(&b, height);
    fprintf(b.s.out,
            "set label \"%s%s\" at screen %.5f,%.5f left font ',14' noenhanced\nplot NaN notitle\n",
            title, recommended < 0 ? "; nothing fits" : "; *: recommended", (double)LEFT / WIDTH,
            1 - 24.0 / height);
    return finish(c, path, &b.s, height);
}

/* ---- time against memory ---- */

#define MOST_NAMED 12 /* points of the front with a number and a plan */
#define GIB        (1024.0 * 1024 * 1024)
#define CELLS_X    300
#define CELLS_Y    100

static int compare_points(const void *a, const void *b) {
    const choice_point *p = a, *q = b;
    if (p->ms != q->ms) return p->ms < q->ms ? -1 : 1;
    return (p->bytes > q->bytes) - (p->bytes < q->bytes);
}

/* Moves the points of the front before all others. Returns how many there are. */
static size_t find_front(choice_point *points, size_t n) {
    size_t n_front = 0;
    double least = INFINITY;
    qsort(points, n, sizeof *points, compare_points);
    for (size_t k = 0; k < n; k++) {
        if (points[k].bytes >= 0.99 * least) continue;
        choice_point own = points[k];
        least = own.bytes;
        memmove(&points[n_front + 1], &points[n_front], (k - n_front) * sizeof own);
        points[n_front++] = own;
    }
    return n_front;
}

/* The plot: a point of a cell stands for all of its points. */
typedef struct field {
    FILE *out;
    double unit_ms, longest_ms, most_bytes;
    bool is_taken[2][CELLS_X * CELLS_Y];
} field;

static void write_point(const field *f, const choice_point *p) {
    fprintf(f->out, "%.6g\t%.6g\n", p->ms / f->unit_ms, p->bytes / GIB);
}

static void add_table(field *f, const char *name, const choice_point *points, size_t n, bool fits) {
    fprintf(f->out, "%s << END\n-1\t-1\n", name);
    for (const choice_point *p = points; p < points + n; p++) {
        if (p->fits != fits || p->bytes >= f->most_bytes) continue;
        int x = (int)(p->ms / f->longest_ms * (CELLS_X - 1)),
            y = (int)(p->bytes / f->most_bytes * CELLS_Y);
        bool *is_taken = &f->is_taken[fits][y * CELLS_X + x];
        if (!*is_taken) write_point(f, p);
        *is_taken = true;
    }
    fprintf(f->out, "END\n");
}

static int front_height(size_t n) {
    return 568 + 20 * (int)(n < MOST_NAMED ? n : MOST_NAMED) + 12;
}

/* Where there are many, only some of the front have a name, the first and last among them. */
static void add_names(const field *f, const choice_point *front, size_t n, int height) {
    size_t n_named = n < MOST_NAMED ? n : MOST_NAMED;
    for (size_t i = 0; i < n_named; i++) {
        const choice_point *p = &front[n_named < 2 ? 0 : i * (n - 1) / (n_named - 1)];
        char plan[200], step[TEXT_BYTES], bytes[TEXT_BYTES];
        snprintf(plan, sizeof plan, "%s", p->plan);
        double y = 1 - (568 + 20.0 * (double)i) / height;
        fprintf(f->out,
                "set label '%zu' at first %.6g,%.6g left offset 0.5,0.7 front font ',11'\n"
                "set label '%zu' at screen 0.07,%.5f right\n"
                "set label '%s' at screen 0.16,%.5f right\n"
                "set label '%s' at screen 0.26,%.5f right\n"
                "set label \"%s, %lld microbatch%s%s\" at screen 0.28,%.5f left font ',11' "
                "noenhanced\n",
                i + 1, p->ms / f->unit_ms, p->bytes / GIB, i + 1, y, text_of_us(step, 1e3 * p->ms),
                y, text_of_bytes(bytes, p->bytes), y, gnuplot_plain(plan), (long long)p->n_micro,
                p->n_micro == 1 ? "" : "es", p->fits ? "" : "; does not fit", y);
    }
}

static void write_front(field *f, const char *title, const choice_point *points, size_t n,
                        size_t n_front, double memory) {
    int height = front_height(n_front);
    add_table(f, "$fits", points + n_front, n - n_front, true);
    add_table(f, "$large", points + n_front, n - n_front, false);
    fprintf(f->out, "$front << END\n");
    for (size_t k = 0; k < n_front; k++) write_point(f, &points[k]);
    fprintf(f->out,
            "END\n" SCRIPT
            "set border 3; set grid lt 1 lc rgb '#e8e8e8'; set datafile separator '\\t'\n"
            "set lmargin at screen 0.08; set rmargin at screen 0.97\n"
            "set tmargin at screen %.5f; set bmargin at screen %.5f\n"
            "set key at screen 0.97,%.5f right top horizontal maxrows 1 samplen 1.5\n"
            "set xlabel 'predicted time of a step, %s'; set ylabel 'peak of a device, GiB'\n"
            "set xrange [%.6g:%.6g]; set yrange [0:%.6g]\n"
            "set label \"%s\" at screen 0.08,%.5f left font ',14' noenhanced\n",
            1 - 72.0 / height, 1 - 490.0 / height, 1 - 12.0 / height, f->unit_ms > 1 ? "s" : "ms",
            0.9 * points->ms / f->unit_ms, f->longest_ms / f->unit_ms, f->most_bytes / GIB, title,
            1 - 20.0 / height);
    add_names(f, points, n_front, height);
    fprintf(f->out,
            "plot $large using 1:2 with points pt 7 ps 0.3 lc rgb '#e8b0a0' title 'does not fit',"
            " $fits using 1:2 with points pt 7 ps 0.3 lc rgb '#9fcbe6' title 'fits',"
            " %.6g with lines lw 1.5 dt 2 lc rgb '" RED "' title 'memory of a device',"
            " $front using 1:2 with steps lw 2 lc rgb '#0072b2' notitle,"
            " $front using 1:2 with points pt 7 ps 0.9 lc rgb '#0072b2' title 'no other plan is "
            "better in both'\n",
            memory / GIB);
}

exit_status choices_draw_front(const cli *c, const char *path, const char *title,
                               choice_point *points, size_t n, double memory) {
    script s = {NULL, NULL, 0};
    field *f = calloc(1, sizeof *f);
    s.out = f ? open_memstream(&s.text, &s.n_bytes) : NULL;
    if (s.out && n) {
        size_t n_front = find_front(points, n);
        *f = (field){.out = s.out, .most_bytes = fmax(2 * memory, 1.1 * points->bytes)};
        for (size_t k = 0; k < n; k++) f->longest_ms = fmax(f->longest_ms, points[k].ms);
        f->unit_ms = f->longest_ms < 1e4 ? 1 : 1e3;
        write_front(f, title, points, n, n_front, memory);
        free(f);
        return finish(c, path, &s, front_height(n_front));
    }
    free(f);
    if (s.out) fclose(s.out);
    free(s.text);
    return complain(EXIT_FAILED, n ? "no memory left" : "no plan to draw");
}
