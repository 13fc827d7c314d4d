/* weft bench memory: which rows there are, and rounds of them. */
#include "bench/memory.h"
#include "checkpoint.h"
#include "report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static exit_status add(bench_memory *b, const char *peer, const char *plan, size_t n, int n_ranks) {
    if (b->n_rows == MEMORY_MAX_ROWS)
        return complain(EXIT_USAGE, "--plans: there can be %d rows", MEMORY_MAX_ROWS);
    memory_row *r = &b->rows[b->n_rows];
    *r = (memory_row){.peer = peer, .asked = strndup(plan, n), .n_ranks = n_ranks};
    if (!r->asked) return complain(EXIT_FAILED, "no memory left");
    b->n_rows++;
    if (n_ranks > b->n_most) b->n_most = n_ranks;
    return EXIT_DONE;
}

/* A plan says how many ranks it wants, at most as many as are asked for. */
static exit_status add_plan(bench_memory *b, const char *text, size_t n) {
    wf_plan *plan;
    char *copy = strndup(text, n);
    if (!copy) return complain(EXIT_FAILED, "no memory left");
    wf_status status = wf_plan_parse(b->c->ctx, copy, &plan);
    free(copy);
    if (status != WF_OK) return complain_of(b->c, status);
    int n_ranks = wf_plan_n_ranks(plan);
    wf_plan_destroy(plan);
    if (option_is_given(&b->c->o, OPT_ranks) && n_ranks > b->c->o.ranks)
        return complain(EXIT_USAGE, "--plans: '%.*s' needs %d ranks, but --ranks is %lld", (int)n,
                        text, n_ranks, (long long)b->c->o.ranks);
    return add(b, NULL, text, n, n_ranks);
}

/* What replicas can divide, one thing more in each row. */
static exit_status add_usual_plans(bench_memory *b) {
    static const char *const more[] = {"", ",zero=1", ",zero=2", ",zero=3",
                                       ",zero=3,schedule=breadth"};
    char plan[100];
    exit_status bad = EXIT_DONE;
    for (size_t i = 0; i < sizeof more / sizeof *more && !bad; i++) {
        snprintf(plan, sizeof plan, "dp=%lld%s", (long long)b->c->o.ranks, more[i]);
        bad = add_plan(b, plan, strlen(plan));
    }
    return bad;
}

static exit_status add_rows(bench_memory *b) {
    static const char *const ways[] = {"ddp", "fsdp", "fsdp-recompute"};
    const options *o = &b->c->o;
    exit_status bad = EXIT_DONE;
    for (const char *at = o->plans; at && !bad;) {
        size_t n = strcspn(at, ";");
        bad = add_plan(b, at, n);
        at = at[n] ? at + n + 1 : NULL;
    }
    if (!o->plans) bad = add_usual_plans(b);
    for (size_t i = 0; o->peers && i < sizeof ways / sizeof *ways && !bad; i++)
        bad = add(b, ways[i], ways[i], strlen(ways[i]), (int)o->ranks);
    return bad;
}

/* ---- rounds ---- */

static exit_status run_row(void *self, int row) {
    bench_memory *b = self;
    memory_row *r = &b->rows[row];
    int n_runs = b->n_rows * b->n_repeats;
    char text[150];
    if (*r->why) return EXIT_DONE;
    snprintf(text, sizeof text, "run %d/%d  %s%.100s", b->n_runs_done + 1, n_runs,
             r->peer ? "PyTorch " : "", r->asked);
    progress_show(&b->bar, (double)b->n_runs_done / n_runs, text);
    b->n_runs_done++;
    return memory_run(b, r);
}

/* A plan says where things are, and may change no bit of them; with sums=free it may. */
static exit_status check_bits(const bench_memory *b) {
    const memory_row *first = NULL;
    for (const memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        if (r->peer || strstr(r->plan, "sums=free")) continue;
        if (!first) first = r;
        if (strcmp(first->sha, r->sha))
            return complain(EXIT_FAILED,
                            "the weights are %.12s... under the plan %s and %.12s... under %s; "
                            "this is a bug of weft",
                            first->sha, first->plan, r->sha, r->plan);
    }
    return EXIT_DONE;
}

static exit_status run_all(bench_memory *b) {
    exit_status bad = EXIT_DONE;
    progress_open(&b->bar, !b->c->o.quiet);
    for (int repeat = 0; repeat < b->n_repeats && !bad; repeat++)
        bad = apart_round(repeat, b->n_rows, run_row, b);
    progress_clear(&b->bar);
    return bad ? bad : check_bits(b);
}

/* ---- the command ---- */

static exit_status resolve(cli *c) {
    const options *o = &c->o;
    exit_status bad = apart_resolve(c, 3);
    if (bad) return bad;
    if (o->recipe.n_micro == MICRO_AUTO)
        return complain(EXIT_USAGE,
                        "--micro auto: rows are compared, so all have as many microbatches; give "
                        "their number");
    if (o->peers && o->recipe.batch % o->ranks)
        return complain(EXIT_USAGE,
                        "--peers: PyTorch's %lld ranks have equal parts of a batch, which --batch "
                        "%lld has not",
                        (long long)o->ranks, (long long)o->recipe.batch);
    return apart_check_alone(c);
}

static void release(bench_memory *b) {
    for (memory_row *r = b->rows; r < b->rows + b->n_rows; r++) {
        samples_release(&r->ms);
        samples_release(&r->disk_ms);
        json_decref(r->planned);
        json_decref(r->measured);
        json_decref(r->sent);
        free(r->asked);
        free(r->plan);
    }
    json_decref(b->recipe);
    apart_close(&b->run);
}

exit_status run_bench_memory(cli *c) {
    static bench_memory b;
    b = (bench_memory){.c = c};
    exit_status bad = resolve(c);
    if (!bad) bad = report_check(c);
    if (!bad && c->o.out) bad = checkpoint_folder(c);
    if (!bad) bad = apart_open(c, &b.run);
    if (bad) return bad;
    b.n_repeats = (int)c->o.repeat;
    interrupt_watch();
    b.begin = effort_now();
    bad = add_rows(&b);
    if (!bad) bad = run_all(&b);
    if (!bad) bad = complain_of(c, effort_since(c, &b.begin, &b.spent));
    if (!bad) memory_say(&b);
    if (!bad) effort_say(c, &b.spent);
    if (!bad) bad = memory_write(&b);
    release(&b);
    return bad;
}
