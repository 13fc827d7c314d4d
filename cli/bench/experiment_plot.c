/* The tutorial's pictures: two bar charts, and time against the split. Each is drawn by
 * gnuplot from a CSV file that stays beside it.
 */
#include "bench/experiment.h"
#include "draw/chart.h"

#include <string.h>

/* All show times of the same batches. */
static exit_status end(chart *p, const char *drawing) {
    const options *o = &p->c->o;
    char title[200], script[4096];
    snprintf(title, sizeof title, "%.40s: %d batches of %lld images, %lld x %lld", o->model,
             ROW_BATCHES, (long long)o->recipe.batch, (long long)o->image, (long long)o->image);
    snprintf(script, sizeof script, "set ylabel 'execution time (s)'; %s", drawing);
    return chart_end(p, title, script);
}

/* ---- bars ---- */

/* `what`: lines with | between them. */
static void bar(const chart *p, const row *r, unsigned color, const char *what) {
    fputc('"', p->csv);
    for (; *what; what++)
        if (*what == '|')
            fputs("\\n", p->csv);
        else
            fputc(*what, p->csv);
    fprintf(p->csv, "\",%.17g,%.17g,%u\n", row_mean(r), samples_std(&r->seconds), color);
}

/* `ideal` > 0: a line there. */
static exit_status end_bars(chart *p, int n_bars, double ideal) {
    char script[3000], line[400] = "";
    if (ideal > 0)
        snprintf(line, sizeof line,
                 "set arrow from graph 0,first %.9g to graph 1,first %.9g nohead back dt 2 lw 2 lc "
                 "rgb '#333333';"
                 "set label sprintf(\"ideal\\n%%.2f s\", %.9g) at graph 1,first %.9g right "
                 "offset 0,1.7 textcolor rgb '#333333';",
                 ideal, ideal, ideal, ideal);
    snprintf(script, sizeof script,
             "set xtics nomirr scale 0; set bmargin 4.5; set style fill solid 1 noborder; set "
             "boxwidth 0.6;"
             "stats '%s.csv' skip 1 using ($2+$3) nooutput name 'top';"
             "set yrange [0:top_max*1.12]; set xrange [-0.6:%.9g]; %s"
             "plot '%s.csv' skip 1 using 0:2:4:xtic(1) with boxes lc rgb variable notitle,"
             "'' skip 1 using 0:($2-$3):(0):(2*$3) with vectors heads size screen 0.007,90 fixed "
             "lc rgb 'black' lw 2 notitle,"
             "'' skip 1 using 0:($2+$3):(sprintf('%%.2f s',$2)) with labels offset 0,0.9 "
             "notitle;",
             p->name, n_bars - (ideal > 0 ? 0.05 : 0.4), line, p->name);
    return end(p, script);
}

static exit_status plot_two(const experiment *e, const char *cut) {
    int64_t batch = e->c->o.recipe.batch;
    chart p;
    exit_status bad = chart_begin(&p, e->c, "mp_vs_rn", "label,seconds_mean,seconds_std,color");
    if (bad) return bad;
    bar(&p, experiment_best(e, "model parallel", "naive", cut, batch), CHART_RED, "model parallel");
    bar(&p, experiment_best(e, "single device", "none", "", batch), CHART_GREY, "single device");
    return end_bars(&p, 2, 0);
}

static exit_status plot_three(const experiment *e, int64_t split, const char *cut) {
    const row *single = experiment_best(e, "single device", NULL, NULL, 0);
    const row *pipeline = experiment_best(e, "pipeline", NULL, NULL, 0);
    int64_t batch = e->c->o.recipe.batch;
    char label[100];
    chart p;
    exit_status bad =
        chart_begin(&p, e->c, "mp_vs_rn_vs_pp", "label,seconds_mean,seconds_std,color");
    if (bad) return bad;
    bar(&p, experiment_best(e, "model parallel", "naive", cut, batch), CHART_RED,
        "model parallel|unsplit");
    bar(&p, experiment_best(e, "single device", "none", "", batch), CHART_GREY,
        single->split == batch ? "single device|unsplit,|its best" : "single device|unsplit");
    if (single->split != batch) {
        snprintf(label, sizeof label, "single device|at its best,|split %lld",
                 (long long)single->split);
        bar(&p, single, CHART_GREY, label);
    }
    snprintf(label, sizeof label, "pipeline|split %lld,|cut at %s", (long long)split, cut);
    bar(&p, experiment_best(e, "pipeline", "1f1b", cut, split), CHART_BLUE, label);
    snprintf(label, sizeof label, "best pipeline|split %lld,|%s, balanced",
             (long long)pipeline->split, pipeline->schedule);
    bar(&p, pipeline, CHART_GREEN, label);
    return end_bars(&p, single->split == batch ? 4 : 5, row_mean(single) / 2);
}

/* ---- time against the split ---- */

static exit_status plot_splits(const experiment *e) {
    const row *single = experiment_best(e, "single device", NULL, NULL, 0);
    const options *o = &e->c->o;
    char script[3000], tics[600] = "";
    int64_t first = o->recipe.batch;
    chart p;
    exit_status bad = chart_begin(&p, e->c, "split_size_tradeoff",
                                  "split,single_mean,single_std,pipeline_mean,pipeline_std,ideal");
    if (bad) return bad;
    for (const row *r = e->rows; r < e->rows + e->n_rows; r++) {
        if (r->n_ranks != 1) continue;
        const row *pipeline = experiment_best(e, "pipeline", "1f1b", "", r->split);
        if (r->split < first) first = r->split;
        fprintf(p.csv, "%lld,%.17g,%.17g,", (long long)r->split, row_mean(r),
                samples_std(&r->seconds));
        if (pipeline)
            fprintf(p.csv, "%.17g,%.17g,", row_mean(pipeline), samples_std(&pipeline->seconds));
        else
            fputs("nan,nan,", p.csv);
        fprintf(p.csv, "%.17g\n", row_mean(single) / 2);
        size_t n = strlen(tics);
        snprintf(tics + n, sizeof tics - n, "%s%lld", n ? "," : "", (long long)r->split);
    }
    snprintf(script, sizeof script,
             "set logscale x; set xtics (%s) scale 0.5; set xrange [%.9g:%.9g];"
             "set xlabel 'split size (images in a microbatch)';"
             "set yrange [0:*];"
             "plot '%s.csv' skip 1 using 1:2:3 with yerrorlines lc rgb '#777777' lw 3 pt 5 ps 1.3 "
             "title 'single device',"
             "'' skip 1 using 1:4:5 with yerrorlines lc rgb '#0072b2' lw 3 pt 7 ps 1.5 "
             "title 'pipeline on 2 devices (1f1b, balanced cut)',"
             "'' skip 1 using 1:6 with lines dt 2 lw 2.5 lc rgb '#333333' "
             "title 'ideal: best single device / 2';",
             tics, (double)first / 1.15, (double)o->recipe.batch * 1.15, p.name);
    return end(&p, script);
}

exit_status experiment_plot(const experiment *e, int64_t tutorial_split, const char *tutorial_cut) {
    exit_status bad = plot_two(e, tutorial_cut);
    if (!bad) bad = plot_three(e, tutorial_split, tutorial_cut);
    if (!bad) bad = plot_splits(e);
    return bad;
}
