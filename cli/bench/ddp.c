/* weft bench ddp: which rows there are, and rounds of them. */
#include "bench/ddp.h"
#include "checkpoint.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LARGEST_BATCH (1 << 20)

static const char *const peer_ways[] = {"eager", "eager, tuned malloc", "compiled",
                                        "compiled, tuned malloc"};
#define N_PEER_WAYS (sizeof peer_ways / sizeof *peer_ways)

/* ---- what a row came to ---- */

double ddp_rate(const ddp_row *r) {
    return samples_median(&r->rates, 0);
}

const ddp_row *ddp_weft(const bench_ddp *b, int n_ranks, bool overlap) {
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++)
        if (!r->peer && r->n_ranks == n_ranks && r->overlap == overlap) return r;
    return NULL;
}

const ddp_row *ddp_best_peer(const bench_ddp *b, int n_ranks) {
    const ddp_row *best = NULL;
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (!r->peer || r->n_ranks != n_ranks || !r->rates.n || r->is_slow) continue;
        if (!best || ddp_rate(r) > ddp_rate(best)) best = r;
    }
    return best;
}

double ddp_efficiency(const bench_ddp *b, const ddp_row *r) {
    const ddp_row *one = r->peer ? ddp_best_peer(b, 1) : ddp_weft(b, 1, false);
    return one ? ddp_rate(r) / (r->n_ranks * ddp_rate(one)) : NAN;
}

/* ---- rows ---- */

static exit_status add(bench_ddp *b, const char *peer, int n_ranks, bool overlap) {
    if (b->n_rows == DDP_MAX_ROWS) return complain(EXIT_FAILED, "too many rows");
    ddp_row *r = &b->rows[b->n_rows];
    *r = (ddp_row){.peer = peer, .n_ranks = n_ranks, .overlap = overlap};
    r->reduce_ms = r->beside_ms = r->cpu_ms = NAN;
    b->n_rows++;
    return EXIT_DONE;
}

/* 1, 2, 4, ... and what was asked for. */
static exit_status add_rows(bench_ddp *b) {
    int last = (int)b->c->o.ranks;
    exit_status bad = EXIT_DONE;
    for (int n = 1; n <= last && !bad; n = n < last && 2 * n > last ? last : 2 * n) {
        bad = add(b, NULL, n, false);
        if (!bad && n > 1) bad = add(b, NULL, n, true);
        for (size_t i = 0; b->c->o.peers && i < N_PEER_WAYS && !bad; i++)
            bad = add(b, peer_ways[i], n, true);
    }
    return bad;
}

/* ---- rounds ---- */

static void show(bench_ddp *b, const ddp_row *r, const char *doing) {
    char text[150];
    snprintf(text, sizeof text, "%s %d/%d  %s, %d rank%s%s%s", doing, b->n_runs_done + 1, b->n_runs,
             r->peer ? "PyTorch" : "weft", r->n_ranks, r->n_ranks == 1 ? "" : "s",
             r->peer          ? ", "
             : r->n_ranks > 1 ? ", overlap "
                              : "",
             r->peer          ? r->peer
             : r->n_ranks > 1 ? r->overlap ? "on" : "off"
                              : "");
    progress_show(&b->bar, (double)b->n_runs_done / b->n_runs, text);
}

static exit_status run_row(void *self, int row) {
    bench_ddp *b = self;
    ddp_row *r = &b->rows[row];
    if (r->is_slow || (r->peer && *b->no_peer)) return EXIT_DONE;
    show(b, r, "run");
    b->n_runs_done++;
    return ddp_run(b, r);
}

/* Ways of PyTorch that are far from its best need no second run. */
static void leave_out_slow(bench_ddp *b) {
    for (ddp_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        const ddp_row *best = r->peer ? ddp_best_peer(b, r->n_ranks) : NULL;
        if (best && r != best) r->is_slow = !(1.1 * ddp_rate(r) >= ddp_rate(best));
    }
    b->n_runs = b->n_runs_done;
    for (ddp_row *r = b->rows; r < b->rows + b->n_rows; r++)
        b->n_runs += r->is_slow ? 0 : b->n_repeats - 1;
}

static exit_status trace_all(bench_ddp *b) {
    exit_status bad = EXIT_DONE;
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++)
        b->n_runs += !r->peer && r->n_ranks > 1;
    for (ddp_row *r = b->rows; r < b->rows + b->n_rows && !bad; r++) {
        if (r->peer || r->n_ranks == 1) continue;
        show(b, r, "trace");
        bad = ddp_trace(b, r);
        b->n_runs_done++;
    }
    return bad;
}

/* The plan says when gradients are summed, and may change no bit of them. */
static exit_status check_bits(const bench_ddp *b) {
    for (const ddp_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        const ddp_row *other = r->peer ? NULL : ddp_weft(b, r->n_ranks, !r->overlap);
        if (other && strcmp(other->sha, r->sha))
            return complain(EXIT_FAILED,
                            "%d ranks: the weights are %.12s... under the plan %s and %.12s... "
                            "under %s; this is a bug of weft",
                            r->n_ranks, r->sha, r->plan, other->sha, other->plan);
    }
    return EXIT_DONE;
}

static exit_status run_all(bench_ddp *b) {
    exit_status bad = add_rows(b);
    b->n_runs = b->n_rows * b->n_repeats;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int repeat = 0; repeat < b->n_repeats && !bad; repeat++) {
        bad = apart_round(repeat, b->n_rows, run_row, b);
        if (!repeat) leave_out_slow(b);
    }
    if (!bad) bad = trace_all(b);
    progress_clear(&b->bar);
    return bad ? bad : check_bits(b);
}

/* ---- the command ---- */

/* Rows differ in those keys, so whoever gives one of them wants another command. */
static exit_status check_plan(const char *plan) {
    static const char *const own[] = {"dp", "overlap"};
    for (const char *at = plan; at && *at; at += strcspn(at, ","), at += *at == ',')
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcspn(at, "=,") == strlen(own[i]) && !strncmp(at, own[i], strlen(own[i])))
                return complain(EXIT_USAGE,
                                "--plan %.200s: weft bench ddp sets %s itself, in each row: dp up "
                                "to --ranks, overlap on and off; leave it out",
                                plan, own[i]);
    return EXIT_DONE;
}

static exit_status resolve(cli *c) {
    const options *o = &c->o;
    exit_status bad = apart_resolve(c, 5);
    if (bad) return bad;
    if (o->recipe.batch < 1 || o->recipe.batch > LARGEST_BATCH)
        return complain(EXIT_USAGE, "--batch %lld: a rank takes 1 to %d samples",
                        (long long)o->recipe.batch, LARGEST_BATCH);
    bad = check_plan(o->plan);
    return bad ? bad : apart_check_alone(c);
}

static void describe(const bench_ddp *b) {
    const options *o = &b->c->o;
    int n_cores = apart_n_cores();
    say(b->c, "%s: %lld samples a rank, whatever their number (weak scaling), %d thread%s each\n",
        o->model, (long long)o->recipe.batch, o->recipe.n_threads,
        o->recipe.n_threads == 1 ? "" : "s");
    say(b->c, "%d rounds; a run is an untimed and %lld timed steps, ranks as processes\n",
        b->n_repeats, (long long)o->steps);
    if (o->ranks * o->recipe.n_threads > n_cores)
        say(b->c, "there are %d cores: more ranks than that take turns and gain nothing\n",
            n_cores);
}

exit_status run_bench_ddp(cli *c) {
    static bench_ddp b;
    b = (bench_ddp){.c = c};
    exit_status bad = resolve(c);
    if (bad) return bad;
    bad = report_check(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = apart_open(c, &b.run);
    if (bad) return bad;
    b.n_repeats = (int)c->o.repeat;
    b.unit = wf_model_registry_find(c->o.model)->takes_tokens ? "tokens" : "images";
    interrupt_watch();
    describe(&b);
    b.begin = effort_now();
    bad = run_all(&b);
    if (!bad) bad = complain_of(c, effort_since(c, &b.begin, &b.spent));
    if (!bad) ddp_say(&b);
    if (!bad) effort_say(c, &b.spent);
    if (!bad) bad = ddp_write(&b);
    for (int i = 0; i < b.n_rows; i++) {
        samples_release(&b.rows[i].rates);
        free(b.rows[i].plan);
    }
    json_decref(b.recipe);
    apart_close(&b.run);
    return bad;
}
