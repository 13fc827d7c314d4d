/* weft bench ddp, memory, price and async: their options; bench/cases/ runs their rows in turn by
 * weft bench train and weft train.
 */
#include "bench/cases.h"

#include <string.h>

#define LARGEST_BATCH   (1 << 20)
#define MAX_PLANS       64
#define MAX_WORKERS     64
#define USUAL_STALENESS 4
#define USUAL_STEPS     60

/* Checks and completes the options of one of the benches, and adds words for the script. */
typedef exit_status case_check(cli *c, words *more);

static exit_status run(cli *c, unsigned child, int usual, const char *peer, case_check *check) {
    words more = {0};
    exit_status bad = apart_resolve(c, usual);
    if (!bad && check) bad = check(c, &more);
    if (!bad) {
        words_add(&more, "unit=%s",
                  wf_model_registry_find(c->o.model)->takes_tokens ? "tokens" : "images");
        bad = cases_run(c, child, peer, &more);
    }
    words_release(&more);
    return bad;
}

/* ---- the benches ---- */

/* The rows set these keys themselves. */
static exit_status check_ddp(cli *c, words *w) {
    static const char *const own[] = {"dp", "overlap"};
    const options *o = &c->o;
    (void)w;
    if (o->recipe.batch < 1 || o->recipe.batch > LARGEST_BATCH)
        return complain(EXIT_USAGE, "--batch %lld: a rank takes 1 to %d samples",
                        (long long)o->recipe.batch, LARGEST_BATCH);
    for (const char *at = o->plan; at && *at; at += strcspn(at, ","), at += *at == ',')
        for (size_t i = 0; i < sizeof own / sizeof *own; i++)
            if (strcspn(at, "=,") == strlen(own[i]) && !strncmp(at, own[i], strlen(own[i])))
                return complain(EXIT_USAGE,
                                "--plan %.200s: weft bench ddp sets %s itself, in each row: dp up "
                                "to --ranks, overlap on and off; leave it out",
                                o->plan, own[i]);
    return EXIT_DONE;
}

/* A plan says how many ranks it wants, at most as many as are asked for. */
static exit_status add_plan(const cli *c, const char *text, words *w) {
    wf_plan *plan;
    TRY(complain_of(c, wf_plan_parse(c->ctx, text, &plan)));
    int n_ranks = wf_plan_n_ranks(plan);
    wf_plan_destroy(plan);
    if (option_is_given(&c->o, OPT_ranks) && n_ranks > c->o.ranks)
        return complain(EXIT_USAGE, "--plans: '%s' needs %d ranks, but --ranks is %lld", text,
                        n_ranks, (long long)c->o.ranks);
    if (w->n == MAX_PLANS) return complain(EXIT_USAGE, "there can be %d rows", MAX_PLANS);
    words_add(w, "row=%d %s", n_ranks, text);
    return EXIT_DONE;
}

/* By default, plans that divide one more tensor over the replicas in each row. */
static exit_status check_memory(cli *c, words *w) {
    const options *o = &c->o;
    char usual[200], plan[500];
    int n = (int)o->ranks;
    exit_status bad = EXIT_DONE;
    if (o->recipe.n_micro == MICRO_AUTO)
        return complain(EXIT_USAGE,
                        "--micro auto: rows are compared, so all have as many microbatches; give "
                        "their number");
    if (o->peers && o->recipe.batch % o->ranks)
        return complain(EXIT_USAGE,
                        "--peers: PyTorch's %lld ranks have equal parts of a batch, which --batch "
                        "%lld has not",
                        (long long)o->ranks, (long long)o->recipe.batch);
    snprintf(usual, sizeof usual,
             "dp=%d;dp=%d,zero=1;dp=%d,zero=2;dp=%d,zero=3;dp=%d,zero=3,schedule=breadth", n, n, n,
             n, n);
    for (const char *at = o->plans ? o->plans : usual; at && !bad;) {
        size_t length = strcspn(at, ";");
        snprintf(plan, sizeof plan, "%.*s", (int)length, at);
        bad = add_plan(c, plan, w);
        at = at[length] ? at + length + 1 : NULL;
    }
    return bad;
}

/* Uneven shares need several lanes a worker. */
static int64_t usual_lanes(const wf_recipe *r) {
    int64_t each = 4;
    while (each > 1 && r->n_workers && r->batch % (each * r->n_workers)) each /= 2;
    return each * r->n_workers;
}

static exit_status check_async(cli *c, words *w) {
    options *o = &c->o;
    (void)w;
    int n_cores = apart_n_cores();
    if (!option_is_given(o, OPT_steps)) o->steps = USUAL_STEPS;
    if (!option_is_given(o, OPT_n_workers)) o->recipe.n_workers = n_cores < 2 ? 2 : n_cores;
    if (!option_is_given(o, OPT_n_lanes)) o->recipe.n_lanes = usual_lanes(&o->recipe);
    if (!option_is_given(o, OPT_staleness)) o->recipe.staleness = USUAL_STALENESS;
    if (!option_is_given(o, OPT_servers)) o->servers = 2;
    if (!option_is_given(o, OPT_slow)) o->slow = 3;
    int64_t n = o->recipe.n_workers;
    if (n < 2 || n > MAX_WORKERS)
        return complain(EXIT_USAGE, "--workers %lld: there can be 2 to %d", (long long)n,
                        MAX_WORKERS);
    if (o->recipe.batch % n)
        return complain(EXIT_USAGE, "--batch %lld cannot be divided among %lld workers",
                        (long long)o->recipe.batch, (long long)n);
    if (o->servers < 1 || o->servers > MAX_WORKERS)
        return complain(EXIT_USAGE, "--servers %lld: there can be 1 to %d", (long long)o->servers,
                        MAX_WORKERS);
    if (!(o->slow >= 1) || o->slow > WF_SIMULATION_MAX_SLOW)
        return complain(EXIT_USAGE, "--slow must be 1 to %d", WF_SIMULATION_MAX_SLOW);
    if (o->steps < 2)
        return complain(EXIT_USAGE, "--steps must be at least 2: the first is not timed");
    if (o->recipe.n_lanes % n)
        return complain(EXIT_USAGE, "--lanes %lld cannot be divided among %lld workers",
                        (long long)o->recipe.n_lanes, (long long)n);
    return EXIT_DONE;
}

exit_status run_bench_ddp(cli *c) {
    return run(c, FOR_BENCH, 5, "peers/pytorch_ddp.py", check_ddp);
}

exit_status run_bench_memory(cli *c) {
    return run(c, FOR_BENCH, 3, "peers/pytorch_memory.py", check_memory);
}

exit_status run_bench_price(cli *c) {
    return run(c, FOR_BENCH, 3, NULL, NULL);
}

exit_status run_bench_async(cli *c) {
    return run(c, FOR_TRAIN, 3, NULL, check_async);
}
