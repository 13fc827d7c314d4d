/* weft bench async: its options and rows, and the rounds of runs. */
#include "bench/async.h"
#include "checkpoint.h"
#include "job.h"
#include "report.h"
#include "text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define USUAL_STALENESS 4
#define USUAL_STEPS     60

/* ---- rows ---- */

/* Gives each lane to the worker that would end first with it; each has at least one. Returns
 * whether the shares differ. */
static bool share_lanes(const bench_async *b, double slow, int64_t *shares) {
    for (int64_t k = 0; k < b->n_workers; k++) shares[k] = 1;
    for (int64_t n = b->n_workers; n < b->n_lanes; n++) {
        int64_t best = 0;
        for (int64_t k = 1; k < b->n_workers; k++)
            if ((double)shares[k] + 1 < (double)(shares[best] + 1) * (best ? 1 : slow)) best = k;
        shares[best]++;
    }
    return shares[0] != shares[1];
}

static void write_shares(const bench_async *b, const int64_t *shares, async_row *r) {
    size_t n = strlen(r->plan);
    for (int64_t k = 0; k < b->n_workers; k++)
        n += (size_t)snprintf(r->plan + n, sizeof r->plan - n, "%s%lld",
                              k ? "+" : ",lanes=", (long long)shares[k]);
    r->n_slow_lanes = shares[0];
    r->n_most_lanes = shares[1];
}

static async_row *add(bench_async *b, wf_update_mode update, double slow) {
    async_row *r = &b->rows[b->n_rows++];
    *r = (async_row){.update = update, .slow = slow, .accuracy = NAN, .predicted = NAN};
    r->n_slow_lanes = r->n_most_lanes = b->n_lanes / b->n_workers;
    snprintf(r->plan, sizeof r->plan, "dp=%lld", (long long)b->n_workers);
    return r;
}

static void add_sync(bench_async *b, double slow) {
    int64_t shares[ASYNC_MAX_WORKERS];
    strcpy(add(b, WF_UPDATE_SYNC, slow)->name, "sync");
    if (slow <= 1 || !share_lanes(b, slow, shares)) return;
    async_row *r = add(b, WF_UPDATE_SYNC, slow);
    strcpy(r->name, "sync, uneven lanes");
    r->is_uneven = true;
    write_shares(b, shares, r);
}

static void add_async(bench_async *b, double slow, int64_t n_servers, bool is_bounded) {
    async_row *r = add(b, WF_UPDATE_ASYNC, slow);
    const char *end = n_servers == 1 ? "" : "s";
    char bound[40] = "no bound";
    if (is_bounded)
        snprintf(bound, sizeof bound, "staleness %lld", (long long)b->c->o.recipe.staleness);
    snprintf(r->name, sizeof r->name, "async, %s, %lld server%s", bound, (long long)n_servers, end);
    snprintf(r->plan, sizeof r->plan, "dp=%lld,ps=%lld", (long long)b->n_workers,
             (long long)n_servers);
    r->n_servers = n_servers;
    r->is_bounded = is_bounded;
}

static void add_updates(bench_async *b, double slow) {
    int64_t n_most = b->c->o.servers;
    add_sync(b, slow);
    add_async(b, slow, 1, true);
    for (int64_t n = 1; n < n_most; n *= 2) add_async(b, slow, n, false);
    add_async(b, slow, n_most, false);
    snprintf(add(b, WF_UPDATE_LOCAL, slow)->name, sizeof b->rows->name, "local, %lld steps",
             (long long)b->c->o.recipe.local_steps);
}

/* Rows of one update have one number. The rows with a slow worker come first, because even workers
 * lack some updates. */
static void number_rows(bench_async *b) {
    int first = b->n_rows;
    while (first > 0 && b->rows[first - 1].slow == b->rows[b->n_rows - 1].slow) first--;
    for (int i = 0; i < b->n_rows; i++) {
        async_row *r = &b->rows[(first + i) % b->n_rows];
        r->number = b->n_updates;
        for (int k = 0; k < i; k++) {
            const async_row *before = &b->rows[(first + k) % b->n_rows];
            if (!strcmp(before->name, r->name)) r->number = before->number;
        }
        b->n_updates += r->number == b->n_updates;
    }
}

/* Refuses a plan that no run accepts, before any run. */
static exit_status check_plans(const bench_async *b) {
    for (const async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        wf_plan *plan;
        wf_status status = wf_plan_parse(b->c->ctx, r->plan, &plan);
        if (status != WF_OK) return complain_of(b->c, status);
        wf_plan_destroy(plan);
    }
    return EXIT_DONE;
}

exit_status async_add_rows(bench_async *b) {
    add_updates(b, 1);
    if (b->c->o.slow > 1) add_updates(b, b->c->o.slow);
    number_rows(b);
    return check_plans(b);
}

/* ---- rounds ---- */

/* The first two runs of a round measure one worker. */
#define N_COST_RUNS 2

static exit_status run_row(void *self, int row) {
    bench_async *b = self;
    int n_runs = (b->n_rows + N_COST_RUNS) * (int)b->c->o.repeat;
    async_row *r = row < N_COST_RUNS ? NULL : &b->rows[row - N_COST_RUNS];
    char text[150];
    snprintf(text, sizeof text, "run %d/%d  %.60s", b->n_runs_done + 1, n_runs,
             r ? r->name : "one worker");
    progress_show(&b->bar, (double)b->n_runs_done++ / n_runs, text);
    return r ? async_run(b, r) : async_measure(b, row > 0);
}

static exit_status run_all(bench_async *b) {
    exit_status bad = EXIT_DONE;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int round = 0; round < b->c->o.repeat && !bad; round++)
        bad = apart_round(round, b->n_rows + N_COST_RUNS, run_row, b);
    progress_clear(&b->bar);
    return bad;
}

/* ---- the command ---- */

static exit_status check_counts(const options *o) {
    int64_t n = o->recipe.n_workers;
    if (n < 2 || n > ASYNC_MAX_WORKERS)
        return complain(EXIT_USAGE, "--workers %lld: there can be 2 to %d", (long long)n,
                        ASYNC_MAX_WORKERS);
    if (o->recipe.batch % n)
        return complain(EXIT_USAGE, "--batch %lld cannot be divided among %lld workers",
                        (long long)o->recipe.batch, (long long)n);
    if (o->servers < 1 || o->servers > ASYNC_MAX_WORKERS)
        return complain(EXIT_USAGE, "--servers %lld: there can be 1 to %d", (long long)o->servers,
                        ASYNC_MAX_WORKERS);
    if (!(o->slow >= 1) || o->slow > WF_SIMULATION_MAX_SLOW)
        return complain(EXIT_USAGE, "--slow must be 1 to %d", WF_SIMULATION_MAX_SLOW);
    if (o->steps < 2)
        return complain(EXIT_USAGE, "--steps must be at least 2: the first is not timed");
    if (o->recipe.n_lanes % n)
        return complain(EXIT_USAGE, "--lanes %lld cannot be divided among %lld workers",
                        (long long)o->recipe.n_lanes, (long long)n);
    return EXIT_DONE;
}

/* Uneven shares need several lanes a worker. */
static int64_t usual_lanes(const wf_recipe *r) {
    int64_t each = 4;
    while (each > 1 && r->n_workers && r->batch % (each * r->n_workers)) each /= 2;
    return each * r->n_workers;
}

static exit_status resolve(cli *c) {
    options *o = &c->o;
    exit_status bad = apart_resolve(c, 3);
    if (bad) return bad;
    int n_cores = apart_n_cores();
    if (!option_is_given(o, OPT_steps)) o->steps = USUAL_STEPS;
    if (!option_is_given(o, OPT_n_workers)) o->recipe.n_workers = n_cores < 2 ? 2 : n_cores;
    if (!option_is_given(o, OPT_n_lanes)) o->recipe.n_lanes = usual_lanes(&o->recipe);
    if (!option_is_given(o, OPT_staleness)) o->recipe.staleness = USUAL_STALENESS;
    if (!option_is_given(o, OPT_servers)) o->servers = 2;
    if (!option_is_given(o, OPT_slow)) o->slow = 3;
    bad = check_counts(o);
    return bad ? bad : apart_check_alone(c);
}

static void release(bench_async *b) {
    for (async_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        samples_release(&r->rates);
        json_decref(r->losses);
        json_decref(r->staleness);
    }
    samples_release(&b->costs.step_ms);
    samples_release(&b->costs.update_ms);
    samples_release(&b->costs.served_ms);
    json_decref(b->recipe);
    apart_close(&b->run);
}

static void begin(bench_async *b, cli *c) {
    const options *o = &c->o;
    *b = (bench_async){.c = c, .n_workers = o->recipe.n_workers, .n_lanes = o->recipe.n_lanes};
    b->target_loss = option_is_given(o, OPT_target_loss) ? o->target_loss : NAN;
    b->n_window = (int)(o->steps / 10);
    if (b->n_window < 1) b->n_window = 1;
    b->begin = effort_now();
}

exit_status run_bench_async(cli *c) {
    static bench_async b;
    exit_status bad = resolve(c);
    if (!bad) bad = report_check(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (bad) return bad;
    begin(&b, c);
    bad = async_add_rows(&b);
    if (!bad) bad = apart_open(c, &b.run);
    if (bad) return bad;
    interrupt_watch();
    bad = run_all(&b);
    if (!bad) bad = complain_of(c, effort_since(c, &b.begin, &b.spent));
    if (!bad) bad = complain_of(c, async_predict(&b));
    if (!bad && isnan(b.target_loss)) b.target_loss = async_last_loss(&b, b.rows);
    if (!bad) async_say(&b);
    if (!bad) effort_say(c, &b.spent);
    if (!bad) bad = async_write(&b);
    release(&b);
    return bad;
}
