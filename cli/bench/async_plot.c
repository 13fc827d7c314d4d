/* weft bench async: pictures of the speeds, of the losses over time, and of the staleness. */
#include "bench/async.h"
#include "draw/chart.h"

#include <math.h>
#include <string.h>

#define SCRIPT_BYTES 5000

/* Panels side by side: even workers, and those with a slow one. */
static int n_panels(const bench_async *b) {
    return b->c->o.slow > 1 ? 2 : 1;
}

static bool is_in_panel(const async_row *r, int panel) {
    return panel == (r->slow > 1);
}

static void title_of(const bench_async *b, const char *subject, char title[200]) {
    snprintf(title, 200, "%.40s, %lld workers, batch %lld: %s", b->c->o.model,
             (long long)b->n_workers, (long long)b->c->o.recipe.batch, subject);
}

/* One color for each update. */
static unsigned color_of(const async_row *r) {
    static const unsigned colors[] = {CHART_BLACK, CHART_GREY,   CHART_BLUE, CHART_SKY,
                                      CHART_GREEN, CHART_ORANGE, CHART_RED,  CHART_PINK};
    return colors[r->number % (int)(sizeof colors / sizeof *colors)];
}

/* ---- speeds ---- */

#define BAR_WIDTH 0.36

/* Two bars of an update are side by side; a single one is in the middle. */
static double place_of(const bench_async *b, const async_row *r) {
    int n = 0;
    for (int i = 0; i < b->n_rows; i++) n += b->rows[i].number == r->number;
    if (n == 1) return r->number;
    return r->number + (r->slow > 1 ? BAR_WIDTH : -BAR_WIDTH) / 2;
}

/* 'sync' 0,'async\nno bound\n1 server' 2 */
static void add_tics(const bench_async *b, char *text, size_t bytes) {
    size_t n = 0;
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        bool is_first = true;
        for (const async_row *q = b->rows; q < r; q++) is_first &= q->number != r->number;
        if (!is_first) continue;
        n += (size_t)snprintf(text + n, bytes - n, "%s\"", n ? "," : "");
        for (const char *at = r->name; *at; at++)
            n += (size_t)snprintf(text + n, bytes - n, *at == ',' ? "\\n" : "%c", *at);
        n += (size_t)snprintf(text + n, bytes - n, "\" %d", r->number);
    }
}

static exit_status plot_rates(const bench_async *b) {
    char drawing[SCRIPT_BYTES], title[200], tics[1500] = "";
    chart p;
    exit_status bad = chart_begin(&p, b->c, "async", "row,slow,per_second,predicted,x");
    if (bad) return bad;
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++)
        fprintf(p.csv, "\"%s\",%.9g,%.9g,%.9g,%.9g\n", r->name, r->slow, async_rate(r),
                r->predicted, place_of(b, r));
    add_tics(b, tics, sizeof tics);
    title_of(b, "speed by update", title);
    snprintf(drawing, sizeof drawing,
             "set ylabel 'samples per second'; set xtics (%s) scale 0 font ',13'; set bmargin 7;"
             "set style fill solid 1 noborder; set boxwidth %g; set xrange [-0.6:%g];"
             "stats 'async.csv' skip 1 using ($3>$4?$3:$4) nooutput name 'top';"
             "set yrange [0:top_max*1.12];"
             "plot 'async.csv' skip 1 using ($2==1?$5:NaN):3 with boxes lc rgb '#0072b2' title "
             "'even workers','' skip 1 using ($2>1?$5:NaN):3 with boxes lc rgb '#e69f00' %s,"
             "'' skip 1 using 5:4 with points pt 2 ps 1.6 lw 3 lc rgb 'black' title 'predicted',"
             "'' skip 1 using 5:3:(sprintf($3<100?\"%%.3g\":\"%%.0f\",$3)) with labels offset "
             "0,0.7 font ',12' "
             "notitle;",
             tics, 0.94 * BAR_WIDTH, b->n_updates - 0.4,
             n_panels(b) > 1 ? "title 'one worker slowed'" : "notitle");
    return chart_end(&p, title, drawing);
}

/* ---- panels ---- */

/* One above the other, each with its legend. */
static void begin_panels(const bench_async *b, const char *title, char *text, size_t bytes) {
    snprintf(text, bytes,
             "unset title; set multiplot layout %d,1 title \"%s\"; set key outside right center "
             "vertical maxrows 12 Left reverse font ',13' spacing 1.1; set tmargin 2; set rmargin "
             "30; set tics "
             "font ',14'; set style fill solid 1 noborder; ",
             n_panels(b), title);
}

static void begin_panel(const bench_async *b, int panel, char *text, size_t bytes) {
    size_t n = strlen(text);
    if (panel)
        snprintf(text + n, bytes - n, "set title 'worker 0 slowed %g x' offset 0,-0.7; plot ",
                 b->c->o.slow);
    else
        snprintf(text + n, bytes - n, "set title 'even workers' offset 0,-0.7; plot ");
}

/* The lines of the file whose first column is the number of this row, drawn as `style`. */
static void add_row(const bench_async *b, const async_row *r, double shift, const char *style,
                    bool is_first, char *text, size_t bytes) {
    size_t n = strlen(text);
    snprintf(text + n, bytes - n, "%s using ($1==%d?$2+%.4g:NaN):3 %s lc rgb '#%06x' title '%s'",
             is_first ? "file skip 1" : ",'' skip 1", (int)(r - b->rows), shift, style, color_of(r),
             r->name);
}

/* Rows with curves in each panel. `width`: of bars side by side; 0: lines. */
static void add_panels(const bench_async *b, bool (*has)(const async_row *), double width,
                       const char *style, char *text, size_t bytes) {
    for (int panel = 0; panel < n_panels(b); panel++) {
        int n = 0, at = 0;
        begin_panel(b, panel, text, bytes);
        for (int i = 0; i < b->n_rows; i++)
            n += is_in_panel(&b->rows[i], panel) && has(&b->rows[i]);
        for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
            if (!is_in_panel(r, panel) || !has(r)) continue;
            add_row(b, r, width * (at - (n - 1) / 2.0), style, !at, text, bytes);
            at++;
        }
        strncat(text, "; ", bytes - strlen(text) - 1);
    }
    strncat(text, "unset multiplot;", bytes - strlen(text) - 1);
}

/* ---- losses ---- */

static bool has_losses(const async_row *r) {
    return json_array_size(r->losses) > 0;
}

static exit_status plot_losses(const bench_async *b) {
    char drawing[SCRIPT_BYTES], title[200];
    chart p;
    exit_status bad = chart_begin(&p, b->c, "async_loss", "row,seconds,loss,name,slow");
    if (bad) return bad;
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        double each_s = (double)b->c->o.recipe.batch / async_rate(r);
        for (size_t k = 0; k < json_array_size(r->losses); k++)
            fprintf(p.csv, "%d,%.9g,%.9g,\"%s\",%.9g\n", (int)(r - b->rows),
                    (double)(k + 1) * each_s, async_mean_loss(b, r, k), r->name, r->slow);
    }
    title_of(b, "loss over time", title);
    begin_panels(b, title, drawing, sizeof drawing);
    strcat(drawing, "file='async_loss.csv'; set xlabel 'seconds'; set ylabel 'loss'; stats file "
                    "skip 1 using 3 nooutput name 'y'; set yrange [y_min:y_max]; ");
    add_panels(b, has_losses, 0, "with lines lw 3", drawing, sizeof drawing);
    return chart_end(&p, title, drawing);
}

/* ---- staleness ---- */

#define MOST_BINS 12 /* the last bin also counts all older gradients */

static bool has_staleness(const async_row *r) {
    return json_array_size(r->staleness) > 0;
}

/* Bins up to the last that is not empty. */
static int write_bins(const bench_async *b, const async_row *r, FILE *csv) {
    double bins[MOST_BINS + 1] = {0}, n = 0;
    int last = 0;
    for (size_t k = 0; k < json_array_size(r->staleness); k++) {
        double here = json_number_value(json_array_get(r->staleness, k));
        int bin = k < MOST_BINS ? (int)k : MOST_BINS;
        bins[bin] += here;
        n += here;
        if (here > 0) last = bin;
    }
    for (int k = 0; k <= last; k++)
        fprintf(csv, "%d,%d,%.9g,\"%s\",%.9g\n", (int)(r - b->rows), k, 100 * bins[k] / n, r->name,
                r->slow);
    return last;
}

static exit_status plot_staleness(const bench_async *b) {
    char drawing[SCRIPT_BYTES], title[200];
    int n_rows = 0, last = 0;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "async_staleness", "row,steps,percent,name,slow");
    if (bad) return bad;
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (!has_staleness(r)) continue;
        int own = write_bins(b, r, p.csv);
        last = own > last ? own : last;
        n_rows += r->slow <= 1;
    }
    double width = 0.8 / n_rows;
    title_of(b, "staleness of gradients", title);
    begin_panels(b, title, drawing, sizeof drawing);
    snprintf(drawing + strlen(drawing), sizeof drawing - strlen(drawing),
             "file='async_staleness.csv'; set xlabel 'steps old%s'; set ylabel '%% of the "
             "gradients'; set yrange [0:100]; set xrange [-0.6:%d.6]; set xtics 1; set boxwidth "
             "%.4g; ",
             last < MOST_BINS ? "" : " (12: or older)", last, 0.94 * width);
    add_panels(b, has_staleness, width, "with boxes", drawing, sizeof drawing);
    return chart_end(&p, title, drawing);
}

exit_status async_plot(const bench_async *b) {
    exit_status bad = plot_rates(b);
    if (!bad) bad = plot_losses(b);
    return bad ? bad : plot_staleness(b);
}
