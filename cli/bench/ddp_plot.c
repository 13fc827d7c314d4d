/* weft bench ddp: the rows as a picture. */
#include "bench/ddp.h"

#include <string.h>

#define BAR_WIDTH 0.27

/* The bars of so many ranks, side by side around `middle`, and the line they might reach. */
static void write_group(const rounds *b, FILE *csv, int n_ranks, int middle) {
    const struct {
        const char *way;
        const json_t *row;
    } bars[] = {{n_ranks == 1 ? "one" : "off", ddp_weft(b, n_ranks, false)},
                {"on", ddp_weft(b, n_ranks, true)},
                {"peer", ddp_best_peer(b, n_ranks)}};
    int n = 0, at = 0;
    for (int i = 0; i < 3; i++) n += bars[i].row != NULL;
    for (int i = 0; i < 3; i++)
        if (bars[i].row)
            fprintf(csv, "%s,%d,%.17g,%.17g\n", bars[i].way, n_ranks,
                    row_median(bars[i].row, "runs"), middle + BAR_WIDTH * (at++ - (n - 1) / 2.0));
    if (n_ranks > 1)
        fprintf(csv, "ideal,%d,%.17g,%d\n", n_ranks,
                n_ranks * row_median(ddp_weft(b, 1, false), "runs"), middle);
}

exit_status ddp_plot(const rounds *b, const char *unit) {
    char drawing[3000], title[200], tics[1500] = "";
    bool has_peer = ddp_best_peer(b, 1) || ddp_best_peer(b, (int)b->c->o.ranks);
    int n_groups = 0;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "ddp", "way,ranks,per_second,x");
    if (bad) return bad;
    for (int n_ranks = 1; n_ranks <= b->c->o.ranks; n_ranks++) {
        size_t n = strlen(tics);
        if (!ddp_weft(b, n_ranks, false)) continue;
        snprintf(tics + n, sizeof tics - n, "%s'%d rank%s' %d", n ? "," : "", n_ranks,
                 n_ranks == 1 ? "" : "s", n_groups);
        write_group(b, p.csv, n_ranks, n_groups++);
    }
    snprintf(
        drawing, sizeof drawing,
        "set ylabel '%s per second'; set xtics (%s) scale 0 font ',20';set style fill solid 1 "
        "noborder; set boxwidth %g;stats 'ddp.csv' skip 1 using 3 nooutput name 'top'; set yrange "
        "[0:top_max*1.25];set xrange [-0.6:%g];is(way)=(strcol(1) eq way ? $4 : NaN);plot "
        "'ddp.csv' skip 1 using (is('one')):3 with boxes lc rgb '#999999' title 'weft, one "
        "rank','' skip 1 using (is('off')):3 with boxes lc rgb '#56b4e9' title 'weft, sums after "
        "backward','' skip 1 using (is('on')):3 with boxes lc rgb '#0072b2' title 'weft, sums "
        "during backward','' skip 1 using (is('peer')):3 with boxes lc rgb '#e69f00' %s,'' skip 1 "
        "using (is('ideal')-0.42):3:(0.84):(0) with vectors nohead dt 2 lw 2.5 lc rgb '#333333' "
        "title 'ideal: ranks times the speed of one','' skip 1 using (strcol(1) eq 'ideal' ? NaN : "
        "$4):3:(sprintf($3<100?\"%%.1f\":\"%%.0f\",$3)) with labels offset 0,0.7 notitle;",
        unit, tics, 0.94 * BAR_WIDTH, n_groups - 0.4,
        has_peer ? "title 'PyTorch DDP over gloo'" : "notitle");
    snprintf(title, sizeof title, "%.40s: replicas, each with %lld samples", b->c->o.model,
             (long long)b->c->o.recipe.batch);
    return chart_end(&p, title, drawing);
}
