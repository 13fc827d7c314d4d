/* weft bench ddp: the rows as a table, as JSON and as a picture. */
#include "bench/ddp.h"
#include "draw/chart.h"
#include "report.h"

#include <math.h>
#include <string.h>

static const ddp_row *next_ranks(const bench_ddp *b, const ddp_row *r) {
    for (const ddp_row *next = r ? r + 1 : b->rows; next < b->rows + b->n_rows; next++)
        if (!next->peer && (!r || next->n_ranks != r->n_ranks)) return next;
    return NULL;
}

/* weft's faster way over PyTorch's fastest; NAN where one is missing. */
static double ratio(const bench_ddp *b, int n_ranks) {
    const ddp_row *on = ddp_weft(b, n_ranks, n_ranks > 1), *peer = ddp_best_peer(b, n_ranks);
    return on && peer ? ddp_rate(on) / ddp_rate(peer) : NAN;
}

/* ---- table ---- */

static void say_row(const bench_ddp *b, const ddp_row *r) {
    char name[60], reduce[40] = "", cpu[20] = "-";
    if (r->peer)
        snprintf(name, sizeof name, "PyTorch, %s", r->peer);
    else
        snprintf(name, sizeof name, "weft%s",
                 r->n_ranks == 1 ? ""
                 : r->overlap    ? ", overlap on"
                                 : ", overlap off");
    if (!isnan(r->reduce_ms))
        snprintf(reduce, sizeof reduce, "%10.2f %10.2f", r->reduce_ms, r->beside_ms);
    if (!isnan(r->cpu_ms)) snprintf(cpu, sizeof cpu, "%.1f", r->cpu_ms);
    say(b->c, "%5d  %-32s%12.2f%11.1f %%%12.1f%10s%s\n", r->n_ranks, name, ddp_rate(r),
        100 * ddp_efficiency(b, r), r->step_min_ms, cpu, reduce);
}

void ddp_say(const bench_ddp *b) {
    char rate[40];
    snprintf(rate, sizeof rate, "%s/s", b->unit);
    say(b->c, "\n%5s  %-32s%12s%13s%12s%10s%10s %10s\n", "ranks", "", rate, "efficiency", "min ms",
        "cpu ms", "reduce ms", "overlap ms");
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++)
        if (r->rates.n) say_row(b, r);
    say(b->c, "\n"
              "efficiency is speed over ranks times the speed of one; reduce: duration of sums in "
              "a traced\n"
              "step, waits included; overlap: the part of it during backward\n");
    if (b->c->o.ranks > 1) say(b->c, "overlap on and off: the same weights, bit for bit\n");
    if (*b->no_peer) say(b->c, "no figure of PyTorch's: %s\n", b->no_peer);
    for (const ddp_row *r = next_ranks(b, NULL); r; r = next_ranks(b, r))
        if (!isnan(ratio(b, r->n_ranks)))
            say(b->c, "%d rank%s: weft / PyTorch (%s) = %.2f\n", r->n_ranks,
                r->n_ranks == 1 ? "" : "s", ddp_best_peer(b, r->n_ranks)->peer,
                ratio(b, r->n_ranks));
}

/* ---- JSON ---- */

static json_t *row_json(const bench_ddp *b, const ddp_row *r) {
    char key[40];
    snprintf(key, sizeof key, "%s_per_second", b->unit);
    json_t *about =
        json_pack("{s:i, s:o, s:o, s:o, s:o}", "ranks", r->n_ranks, key, json_number(ddp_rate(r)),
                  "efficiency", json_number(ddp_efficiency(b, r)), "runs", samples_json(&r->rates),
                  "step_ms_min", json_number(r->step_min_ms));
    json_t *more =
        r->peer ? json_pack("{s:s}", "way", r->peer)
                : json_pack("{s:b, s:s, s:I, s:o, s:o, s:o, s:s}", "overlap", r->overlap, "plan",
                            r->plan, "batch", (json_int_t)(b->c->o.recipe.batch * r->n_ranks),
                            "cpu_ms", json_number(r->cpu_ms), "reduce_ms",
                            json_number(r->reduce_ms), "reduce_beside_backward_ms",
                            json_number(r->beside_ms), "weights_sha256", r->sha);
    json_object_update(about, more);
    json_decref(more);
    return about;
}

static json_t *report_of(const bench_ddp *b) {
    json_t *rows = json_array(), *peers = json_array(), *ratios = json_object();
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++)
        if (r->rates.n) json_array_append_new(r->peer ? peers : rows, row_json(b, r));
    for (const ddp_row *r = next_ranks(b, NULL); r; r = next_ranks(b, r)) {
        char key[20];
        snprintf(key, sizeof key, "%d", r->n_ranks);
        if (!isnan(ratio(b, r->n_ranks)))
            json_object_set_new(ratios, key, json_number(ratio(b, r->n_ranks)));
    }
    /* The same weights: else the run has failed. */
    json_t *report =
        json_pack("{s:s, s:O, s:I, s:s, s:I, s:i, s:i, s:b, s:o}", "weft", WEFT_VERSION, "recipe",
                  b->recipe, "batch_per_rank", (json_int_t)b->c->o.recipe.batch, "scaling", "weak",
                  "steps", (json_int_t)b->c->o.steps, "repeat", b->n_repeats, "cores",
                  apart_n_cores(), "same_weights", true, "rows", rows);
    effort_report(&b->spent, report);
    if (b->c->o.peers) {
        json_object_set_new(report, "peers", peers);
        json_object_set_new(report, "peer_version", json_string(b->peer_version));
        json_object_set_new(report, "weft_over_peer", ratios);
        if (*b->no_peer) json_object_set_new(report, "no_peer", json_string(b->no_peer));
    }
    return report;
}

/* ---- picture ---- */

#define BAR_WIDTH 0.27

/* The bars of so many ranks, side by side around `middle`, and the line they might reach. */
static void write_group(const bench_ddp *b, FILE *csv, int n_ranks, int middle) {
    const struct {
        const char *way;
        const ddp_row *row;
    } bars[] = {{n_ranks == 1 ? "one" : "off", ddp_weft(b, n_ranks, false)},
                {"on", ddp_weft(b, n_ranks, true)},
                {"peer", ddp_best_peer(b, n_ranks)}};
    int n = 0, at = 0;
    for (int i = 0; i < 3; i++) n += bars[i].row != NULL;
    for (int i = 0; i < 3; i++)
        if (bars[i].row)
            fprintf(csv, "%s,%d,%.17g,%.17g\n", bars[i].way, n_ranks, ddp_rate(bars[i].row),
                    middle + BAR_WIDTH * (at++ - (n - 1) / 2.0));
    if (n_ranks > 1)
        fprintf(csv, "ideal,%d,%.17g,%d\n", n_ranks, n_ranks * ddp_rate(ddp_weft(b, 1, false)),
                middle);
}

static exit_status plot(const bench_ddp *b) {
    char drawing[3000], title[200], tics[1500] = "";
    bool has_peer = ddp_best_peer(b, 1) || ddp_best_peer(b, (int)b->c->o.ranks);
    int n_groups = 0;
    chart p;
    exit_status bad = chart_begin(&p, b->c, "ddp", "way,ranks,per_second,x");
    if (bad) return bad;
    for (const ddp_row *r = next_ranks(b, NULL); r; r = next_ranks(b, r), n_groups++) {
        size_t n = strlen(tics);
        snprintf(tics + n, sizeof tics - n, "%s'%d rank%s' %d", n ? "," : "", r->n_ranks,
                 r->n_ranks == 1 ? "" : "s", n_groups);
        write_group(b, p.csv, r->n_ranks, n_groups);
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
        b->unit, tics, 0.94 * BAR_WIDTH, n_groups - 0.4,
        has_peer ? "title 'PyTorch DDP over gloo'" : "notitle");
    snprintf(title, sizeof title, "%.40s: replicas, each with %lld samples", b->c->o.model,
             (long long)b->c->o.recipe.batch);
    return chart_end(&p, title, drawing);
}

exit_status ddp_write(const bench_ddp *b) {
    exit_status bad = b->c->o.out ? plot(b) : EXIT_DONE;
    return bad ? bad : report_write(b->c, report_of(b));
}
