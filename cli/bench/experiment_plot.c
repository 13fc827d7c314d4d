/* The tutorial's pictures: two bar charts, and time against the split. Each is drawn by
 * gnuplot from a CSV file that stays beside it.
 */
#include "bench/experiment.h"
#include "common/text.h"
#include "draw/chart.h"

#include <string.h>

/* All show times of the same batches. */
static exit_status begin(chart *p, const rounds *b, const char *name, const char *header) {
    const options *o = &b->c->o;
    return chart_begin(p, b->c, name, header, "%.40s: %d batches of %lld images, %lld x %lld",
                       o->model, ROW_BATCHES, (long long)o->recipe.batch, (long long)o->image,
                       (long long)o->image);
}

/* ---- bars ---- */

static void bar(const chart *p, const json_t *row, unsigned color, const char *label) {
    fprintf(p->csv, "\"%s\",%.17g,%.17g,%u\n", label, row_mean(row, "seconds"),
            row_std(row, "seconds"), color);
}

/* `ideal` > 0: a line there. */
static exit_status end_bars(chart *p, int n_bars, double ideal) {
    char line[400] = "";
    if (ideal > 0)
        snprintf(
            line, sizeof line,
            "ideal=%.9g; set arrow from graph 0,first ideal to graph 1,first ideal nohead back "
            "dt 2 lw 2 lc rgb '#333333'; set label sprintf(\"ideal\\n%%.2f s\",ideal) at graph "
            "1,first ideal right offset 0,1.7 textcolor rgb '#333333';",
            ideal);
    return chart_end(
        p,
        "set ylabel 'execution time (s)'; set xtics nomirr scale 0; set bmargin 4.5; set boxwidth "
        "0.6; stats csv skip 1 using ($2+$3) nooutput name 'top';"
        "set yrange [0:top_max*1.12]; set xrange [-0.6:%.9g]; %s"
        "plot csv skip 1 using 0:2:4:xtic(1) with boxes lc rgb variable notitle,"
        "'' skip 1 using 0:($2-$3):(0):(2*$3) with vectors heads size screen 0.007,90 fixed "
        "lc rgb 'black' lw 2 notitle,"
        "'' skip 1 using 0:($2+$3):(sprintf('%%.2f s',$2)) with labels offset 0,0.9 notitle;",
        n_bars - (ideal > 0 ? 0.05 : 0.4), line);
}

#define BAR_FIELDS "label,seconds_mean,seconds_std,color"

static exit_status plot_two(const rounds *b, const char *cut) {
    int64_t batch = b->c->o.recipe.batch;
    chart p;
    exit_status bad = begin(&p, b, "mp_vs_rn", BAR_FIELDS);
    if (bad) return bad;
    bar(&p, experiment_best(b, "model parallel", "naive", cut, batch), CHART_RED, "model parallel");
    bar(&p, experiment_best(b, "single device", NULL, NULL, batch), CHART_GREY, "single device");
    return end_bars(&p, 2, 0);
}

static exit_status plot_three(const rounds *b, int64_t split, const char *cut) {
    const json_t *single = experiment_best(b, "single device", NULL, NULL, 0);
    const json_t *pipeline = experiment_best(b, "pipeline", NULL, NULL, 0);
    int64_t batch = b->c->o.recipe.batch;
    bool is_best = row_number(single, "split") == (double)batch;
    char label[100];
    chart p;
    exit_status bad = begin(&p, b, "mp_vs_rn_vs_pp", BAR_FIELDS);
    if (bad) return bad;
    bar(&p, experiment_best(b, "model parallel", "naive", cut, batch), CHART_RED,
        "model parallel\\nunsplit");
    bar(&p, experiment_best(b, "single device", NULL, NULL, batch), CHART_GREY,
        is_best ? "single device\\nunsplit,\\nits best" : "single device\\nunsplit");
    snprintf(label, sizeof label, "single device\\nat its best,\\nsplit %.0f",
             row_number(single, "split"));
    if (!is_best) bar(&p, single, CHART_GREY, label);
    snprintf(label, sizeof label, "pipeline\\nsplit %lld,\\ncut at %s", (long long)split, cut);
    bar(&p, experiment_best(b, "pipeline", "1f1b", cut, split), CHART_BLUE, label);
    snprintf(label, sizeof label, "best pipeline\\nsplit %.0f,\\n%s, balanced",
             row_number(pipeline, "split"), row_text(pipeline, "schedule"));
    bar(&p, pipeline, CHART_GREEN, label);
    return end_bars(&p, is_best ? 4 : 5, row_mean(single, "seconds") / 2);
}

/* ---- time against the split ---- */

static exit_status plot_splits(const rounds *b) {
    const json_t *single = experiment_best(b, "single device", NULL, NULL, 0);
    double first = (double)b->c->o.recipe.batch, last = first;
    char tics[600] = "";
    chart p;
    exit_status bad = begin(&p, b, "split_size_tradeoff",
                            "split,single_mean,single_std,pipeline_mean,pipeline_std,ideal");
    if (bad) return bad;
    for (json_t *row = NULL; (row = next_row(b->rows, row));) {
        double split = row_number(row, "split");
        if (strcmp(row_text(row, "schedule"), "none")) continue;
        const json_t *pipeline = experiment_best(b, "pipeline", "1f1b", "balanced", (int64_t)split);
        first = split < first ? split : first;
        fprintf(p.csv, "%.0f,%.17g,%.17g,%.17g,%.17g,%.17g\n", split, row_mean(row, "seconds"),
                row_std(row, "seconds"), row_mean(pipeline, "seconds"),
                row_std(pipeline, "seconds"), row_mean(single, "seconds") / 2);
        TEXT_ADD(tics, "%s%.0f", *tics ? "," : "", split);
    }
    return chart_end(
        &p,
        "set ylabel 'execution time (s)'; set logscale x; set xtics (%s) scale 0.5; set xrange "
        "[%.9g:%.9g]; set xlabel 'split size (images in a microbatch)'; set yrange [0:*];"
        "plot csv skip 1 using 1:2:3 with yerrorlines lc rgb '#777777' lw 3 pt 5 ps 1.3 "
        "title 'single device',"
        "'' skip 1 using 1:4:5 with yerrorlines lc rgb '#0072b2' lw 3 pt 7 ps 1.5 "
        "title 'pipeline on 2 devices (1f1b, balanced cut)',"
        "'' skip 1 using 1:6 with lines dt 2 lw 2.5 lc rgb '#333333' "
        "title 'ideal: best single device / 2';",
        tics, first / 1.15, last * 1.15);
}

exit_status experiment_plot(const rounds *b, int64_t tutorial_split, const char *tutorial_cut) {
    exit_status bad = plot_two(b, tutorial_cut);
    if (!bad) bad = plot_three(b, tutorial_split, tutorial_cut);
    return bad ? bad : plot_splits(b);
}
