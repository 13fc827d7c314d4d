/* weft bench async: pictures of the speeds, of the losses over time, and of the staleness. */
#include "bench/async.h"
#include "common/text.h"

#include <string.h>

#define SCRIPT_BYTES 5000

/* Panels side by side: even workers, and those with a slow one. */
static int n_panels(const rounds *b) {
    return b->c->o.slow > 1 ? 2 : 1;
}

static bool is_in_panel(const json_t *row, int panel) {
    return panel == (row_number(row, "slow") > 1);
}

static exit_status begin(chart *p, const rounds *b, const char *name, const char *header,
                         const char *subject) {
    const options *o = &b->c->o;
    return chart_begin(p, b->c, name, header, "%.40s, %lld workers, batch %lld: %s", o->model,
                       (long long)o->recipe.n_workers, (long long)o->recipe.batch, subject);
}

/* The row's update, by its place in the last panel, which has all updates. -1: there is none. */
static int number_of(const rounds *b, const json_t *row) {
    int number = 0;
    for (json_t *other = NULL; (other = next_row(b->rows, other));) {
        if (!is_in_panel(other, n_panels(b) - 1)) continue;
        if (!strcmp(row_text(other, "name"), row_text(row, "name"))) return number;
        number++;
    }
    return -1;
}

static int count_rows(const rounds *b, int panel, const char *list) {
    int n = 0;
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        n += is_in_panel(row, panel) && json_array_size(json_object_get(row, list));
    return n;
}

/* ---- speeds ---- */

#define BAR_WIDTH 0.36

/* Two bars of an update are side by side; a single one is in the middle. */
static void set_places(const rounds *b) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        double shift = 0;
        for (json_t *other = NULL; (other = next_row(b->rows, other));)
            if (other != row && number_of(b, other) == number_of(b, row))
                shift = row_number(row, "slow") > 1 ? BAR_WIDTH / 2 : -BAR_WIDTH / 2;
        row_set(row, ".x", number_of(b, row) + shift);
    }
}

/* 'sync' 0,'async\nno bound\n1 server' 2 */
static void add_tics(const rounds *b, char *text, size_t bytes) {
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        if (!is_in_panel(row, n_panels(b) - 1)) continue;
        text_add(text, bytes, "%s\"", *text ? "," : "");
        for (const char *at = row_text(row, "name"); *at; at++)
            text_add(text, bytes, *at == ',' ? "\\n" : "%c", *at);
        text_add(text, bytes, "\" %d", number_of(b, row));
    }
}

static exit_status plot_rates(const rounds *b) {
    char tics[1500] = "";
    chart p;
    set_places(b);
    exit_status bad = begin(&p, b, "async", "row,slow,per_second,predicted,x", "speed by update");
    if (bad) return bad;
    for (json_t *row = NULL; (row = next_row(b->rows, row));)
        chart_row(p.csv, row, "name,slow,samples_per_second,predicted,.x");
    add_tics(b, tics, sizeof tics);
    return chart_end(
        &p,
        "set ylabel 'samples per second'; set xtics (%s) scale 0 font ',13'; set bmargin 7;"
        "set boxwidth %g; set xrange [-0.6:%g];"
        "stats csv skip 1 using ($3>$4?$3:$4) nooutput name 'top';set yrange [0:top_max*1.12];"
        "plot csv skip 1 using ($2==1?$5:NaN):3 with boxes lc rgb '#0072b2' title 'even workers',"
        "'' skip 1 using ($2>1?$5:NaN):3 with boxes lc rgb '#e69f00' %s,"
        "'' skip 1 using 5:4 with points pt 2 ps 1.6 lw 3 lc rgb 'black' title 'predicted',"
        "'' skip 1 using 5:3:(sprintf($3<100?\"%%.3g\":\"%%.0f\",$3)) with labels offset 0,0.7 "
        "font ',12' notitle;",
        tics, 0.94 * BAR_WIDTH, count_rows(b, n_panels(b) - 1, "losses") - 0.4,
        n_panels(b) > 1 ? "title 'one worker slowed'" : "notitle");
}

/* ---- panels ---- */

/* Panels one above the other, each with its legend. A row with that list is a curve: lines of the
 * file with the row's index in the first column, drawn as `style`. `width`: of bars side by side;
 * 0: lines. */
static exit_status end_panels(chart *p, const rounds *b, const char *list, double width,
                              const char *style, const char *axes) {
    static const unsigned colors[] = {CHART_BLACK, CHART_GREY,   CHART_BLUE, CHART_SKY,
                                      CHART_GREEN, CHART_ORANGE, CHART_RED,  CHART_PINK};
    char text[SCRIPT_BYTES] = "", head[60] = "even workers";
    for (int panel = 0; panel < n_panels(b); panel++) {
        int at = 0, n_rows = count_rows(b, panel, list);
        size_t i;
        const json_t *row;
        if (panel) snprintf(head, sizeof head, "worker 0 slowed %g x", b->c->o.slow);
        TEXT_ADD(text, "set title '%s' offset 0,-0.7; plot ", head);
        json_array_foreach(b->rows, i, row) {
            if (!is_in_panel(row, panel) || !json_array_size(json_object_get(row, list))) continue;
            TEXT_ADD(text, "%s skip 1 using ($1==%zu?$2+%.4g:NaN):3 %s lc rgb '#%06x' title '%s'%s",
                     at ? "''" : "csv", i, width * (at - (n_rows - 1) / 2.0), style,
                     colors[number_of(b, row) % (int)(sizeof colors / sizeof *colors)],
                     row_text(row, "name"), at + 1 < n_rows ? "," : "; ");
            at++;
        }
    }
    return chart_end(
        p,
        "unset title; set multiplot layout %d,1 title \"%s\"; set key outside right center "
        "vertical "
        "maxrows 12 Left reverse font ',13' spacing 1.1; set tmargin 2; set rmargin 30; set tics "
        "font ',14'; %s%sunset multiplot;",
        n_panels(b), p->title, axes, text);
}

/* ---- losses ---- */

static exit_status plot_losses(const rounds *b) {
    chart p;
    exit_status bad = begin(&p, b, "async_loss", "row,seconds,loss,name,slow", "loss over time");
    if (bad) return bad;
    size_t i, k;
    const json_t *row, *loss;
    json_array_foreach(b->rows, i, row) {
        double each_s = (double)b->c->o.recipe.batch / row_median(row, "runs");
        json_array_foreach(json_object_get(row, "losses"), k, loss)
            fprintf(p.csv, "%zu,%.9g,%.9g,\"%s\",%.9g\n", i, (double)(k + 1) * each_s,
                    async_mean_loss(row, k), row_text(row, "name"), row_number(row, "slow"));
    }
    return end_panels(&p, b, "losses", 0, "with lines lw 3",
                      "set xlabel 'seconds'; set ylabel 'loss'; stats csv skip 1 using 3 nooutput "
                      "name 'y'; set yrange [y_min:y_max]; ");
}

/* ---- staleness ---- */

#define STALENESS ".staleness" /* of sync and local: none */
#define MOST_BINS 12           /* the last bin also counts all older gradients */

/* Bins up to the last that is not empty. */
static int write_bins(const json_t *row, size_t index, FILE *csv) {
    double bins[MOST_BINS + 1] = {0}, n = 0;
    int last = 0;
    size_t k;
    const json_t *value;
    json_array_foreach(json_object_get(row, STALENESS), k, value) {
        double here = json_number_value(value);
        int bin = k < MOST_BINS ? (int)k : MOST_BINS;
        bins[bin] += here;
        n += here;
        if (here > 0) last = bin;
    }
    for (int bin = 0; bin <= last && n > 0; bin++)
        fprintf(csv, "%zu,%d,%.9g,\"%s\",%.9g\n", index, bin, 100 * bins[bin] / n,
                row_text(row, "name"), row_number(row, "slow"));
    return last;
}

static exit_status plot_staleness(const rounds *b) {
    char axes[300];
    int last = 0;
    size_t i;
    const json_t *row;
    chart p;
    exit_status bad =
        begin(&p, b, "async_staleness", "row,steps,percent,name,slow", "staleness of gradients");
    if (bad) return bad;
    json_array_foreach(b->rows, i, row) {
        int own = write_bins(row, i, p.csv);
        last = own > last ? own : last;
    }
    double width = 0.8 / count_rows(b, 0, STALENESS);
    snprintf(axes, sizeof axes,
             "set xlabel 'steps old%s'; set ylabel '%% of the gradients'; set yrange [0:100]; set "
             "xrange [-0.6:%d.6]; set xtics 1; set boxwidth %.4g; ",
             last < MOST_BINS ? "" : " (12: or older)", last, 0.94 * width);
    return end_panels(&p, b, STALENESS, width, "with boxes", axes);
}

exit_status async_plot(const rounds *b) {
    exit_status bad = plot_rates(b);
    if (!bad) bad = plot_losses(b);
    return bad ? bad : plot_staleness(b);
}
