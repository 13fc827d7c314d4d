/* Ranks of a job that do not all do the same: several trainers alive at once, and ranks that have
 * nothing to do in a program and come to it early or late. Every rank gets one rank's bits, the
 * losses of the run in question, and the same reason to stop in the same run; who calls in another
 * order is named. As threads, as processes, and by messages.
 *
 * label: long
 */
#include "api/trainer.h"
#include "group_ranks.h"
#include "small_models.h"

#include <sys/mman.h>

#define MAX_ROUNDS  20000
#define N_LONG_NAPS 100 /* of a millisecond */

/* What the ranks are to do, in memory that processes share, too. */
typedef struct work {
    const char *plan;
    bool trains;
    int n_micro, n_rounds;
    double losses[MAX_ROUNDS]; /* one rank's */
    char want[400];
    int n_wrong;                         /* atomic access */
    int round[RANKS_MOST];               /* that each rank is in; atomic access */
    int reasons[RANKS_MOST][MAX_ROUNDS]; /* to stop, that each rank heard */
} work;

static work *make_work(const char *plan) {
    work *w = mmap(NULL, sizeof *w, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(w != MAP_FAILED);
    w->plan = plan;
    return w;
}

static wf_status make_trainer(wf_context *ctx, wf_job *job, const char *plan_text, int n_micro,
                              uint64_t seed, bool forward_only, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_recipe recipe = SMALL_RECIPE(.n_micro = n_micro, .n_lanes = n_micro < 4 ? n_micro : 4,
                                    .n_threads = 1, .seed = seed, .kernels = WF_KERNELS_REFERENCE);
    config.job = job;
    config.forward_only = forward_only;
    return test_try_trainer(ctx, small_net, &recipe, plan_text, &config, trainer_out);
}

static wf_status run_batch(wf_trainer *trainer, int number, bool trains, wf_step_result *result) {
    small_batch batch;
    small_batch_fill(&batch, number);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    return trains ? wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, result)
                  : wf_trainer_eval(trainer, feeds, 2, SMALL_BATCH, result);
}

/* ---- several trainers ---- */

#define N_TRAINERS 4

/* Two that train and one that runs forward are alive at once; one of the first ends and another
 * takes its place; they end in another order than they began. `job` NULL: what one rank says. */
static wf_status use_several(wf_context *ctx, wf_job *job, const char *plan, char said[400]) {
    wf_trainer *t[N_TRAINERS] = {NULL};
    wf_step_result result = {0};
    double sum[N_TRAINERS] = {0};
    char sha[N_TRAINERS][65];
    wf_status status = make_trainer(ctx, job, plan, 8, 5, false, &t[0]);
    /* One has stepped before the next is made. */
    if (!status) status = run_batch(t[0], 100, true, &result);
    if (!status) status = make_trainer(ctx, job, plan, 8, 6, true, &t[1]);
    if (!status) status = make_trainer(ctx, job, plan, 8, 7, false, &t[2]);
    for (int s = 0; s < 4 && !status; s++) {
        if (s == 2) {
            status = wf_trainer_weights_sha256(t[0], sha[0]);
            wf_trainer_destroy(t[0]);
            t[0] = NULL;
            if (!status) status = make_trainer(ctx, job, plan, 8, 8, false, &t[3]);
        }
        for (int k = 0; k < N_TRAINERS && !status; k++) {
            if (!t[k]) continue;
            status = run_batch(t[k], s, k != 1, &result);
            if (!status) sum[k] += result.loss;
            /* Its arena grows while others' are there. */
            if (k == 2 && !status) status = run_batch(t[k], s + 50, false, &result);
            if (k == 2 && !status) sum[k] += result.loss;
        }
    }
    for (int k = 1; k < N_TRAINERS && !status; k++)
        status = wf_trainer_weights_sha256(t[k], sha[k]);
    if (!status)
        snprintf(said, 400, "%a %a %a %a %.16s %.16s %.16s %.16s", sum[0], sum[1], sum[2], sum[3],
                 sha[0], sha[1], sha[2], sha[3]);
    for (int k = 0; k < N_TRAINERS; k++) wf_trainer_destroy(t[(k + 2) % N_TRAINERS]);
    return status;
}

static const char *several(ranks_one *one) {
    const work *w = one->self;
    char said[400] = "";
    RANKS_TRY(one, use_several(one->ctx, one->job, w->plan, said));
    if (strcmp(said, w->want))
        return ranks_text("plan %s, rank %d: '%s', one rank says '%s'", w->plan, one->rank, said,
                          w->want);
    return NULL;
}

TEST(several_trainers) {
    const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2", 2}, {"pp=2", 2}, {"dataparallel=2", 2}, {"dp=2,pp=2", 4}, {"dp=4", 4}};
    work *w = make_work("");
    TEST_OK(ctx, use_several(ctx, NULL, "", w->want));
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++)
        for (ranks_way how = FIRST_WAY; how <= LAST_WAY; how++) {
            w->plan = plans[k].plan;
            ranks_as(how, plans[k].n_ranks, several, w);
        }
    munmap(w, sizeof *w);
}

/* ---- what is refused ---- */

static const char *too_many(ranks_one *one) {
    wf_trainer *t[WFI_CONTROL_TRAINERS], *ignored;
    for (int k = 0; k < WFI_CONTROL_TRAINERS; k++)
        RANKS_TRY(one, make_trainer(one->ctx, one->job, "dp=2", 2, 1, true, &t[k]));
    RANKS_REFUSED(one, make_trainer(one->ctx, one->job, "dp=2", 2, 1, true, &ignored),
                  WF_INVALID_ARG, "16 trainers of this job are alive");
    for (int k = 0; k < WFI_CONTROL_TRAINERS; k++) wf_trainer_destroy(t[k]);
    return NULL;
}

/* A place is used again, and again. */
static const char *one_after_another(ranks_one *one) {
    for (int k = 0; k < WFI_CONTROL_TRAINERS + 2; k++) {
        wf_trainer *t;
        wf_step_result result;
        RANKS_TRY(one, make_trainer(one->ctx, one->job, "dp=2", 2, 1, true, &t));
        RANKS_TRY(one, run_batch(t, k, false, &result));
        wf_trainer_destroy(t);
    }
    return NULL;
}

/* A place is taken until all ranks have left it, whoever of them leaves it late. */
static const char *left_at_other_times(ranks_one *one) {
    wf_trainer *old, *next;
    wf_step_result first, result;
    RANKS_TRY(one, make_trainer(one->ctx, one->job, "dp=2", 2, 1, false, &old));
    RANKS_TRY(one, run_batch(old, 0, true, &first));
    for (int k = 0; k < 4; k++) {
        bool is_late = k % 2 == one->rank;
        if (!is_late) wf_trainer_destroy(old);
        RANKS_TRY(one, make_trainer(one->ctx, one->job, "dp=2", 2, 1, false, &next));
        RANKS_TRY(one, run_batch(next, 0, true, &result));
        if (result.loss != first.loss)
            return ranks_text("trainer %d: %a, not %a", k, result.loss, first.loss);
        if (is_late) wf_trainer_destroy(old);
        old = next;
    }
    wf_trainer_destroy(old);
    return NULL;
}

/* Rank 1 makes its second trainer first. */
static const char *made_in_another_order(ranks_one *one) {
    wf_trainer *t;
    int n_micro = one->rank == 1 ? 4 : 2;
    RANKS_REFUSED(one, make_trainer(one->ctx, one->job, "dp=2", n_micro, 1, false, &t), WF_REMOTE,
                  "all ranks need the same");
    return NULL;
}

static const char *run_in_another_order(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *a, *b;
    wf_step_result result;
    wf_status status = WF_OK;
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 4, 1, false, &a));
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 4, 2, false, &b));
    for (int s = 0; s < 4 && !status; s++) {
        bool swaps = s == 2 && one->rank == 1;
        status = run_batch(swaps ? b : a, s, w->trains, &result);
        if (!status) status = run_batch(swaps ? a : b, s, w->trains, &result);
    }
    wf_trainer_destroy(a);
    wf_trainer_destroy(b);
    RANKS_REFUSED(one, status, WF_REMOTE, "all ranks must do the same in the same order");
    return NULL;
}

/* Rank 1 reads the weights before a run, the others after it. */
static const char *meets_in_another_order(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *t;
    wf_step_result result;
    char sha[65];
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 4, 1, false, &t));
    wf_status status = run_batch(t, 0, w->trains, &result);
    if (!status && one->rank == 1) status = wf_trainer_weights_sha256(t, sha);
    if (!status) status = run_batch(t, 1, w->trains, &result);
    if (!status && one->rank != 1) status = wf_trainer_weights_sha256(t, sha);
    wf_trainer_destroy(t);
    RANKS_REFUSED(one, status, WF_REMOTE, "all ranks must do the same in the same order");
    return NULL;
}

/* Step `number`, or an evaluation, with the label of sample 3. */
static wf_status run_label(wf_trainer *trainer, int number, bool trains, int32_t label) {
    small_batch batch;
    wf_step_result result;
    small_batch_fill(&batch, number);
    batch.y[3] = label;
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    return trains ? wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result)
                  : wf_trainer_eval(trainer, feeds, 2, SMALL_BATCH, &result);
}

/* All ranks refuse the same feeds, nothing has changed, and the next run is as any other. */
static const char *refused_together(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *t;
    wf_step_result result;
    char before[65], after[65];
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 4, 1, false, &t));
    RANKS_TRY(one, run_batch(t, 0, true, &result));
    RANKS_TRY(one, wf_trainer_weights_sha256(t, before));
    for (int k = 0; k < 3; k++)
        RANKS_REFUSED(one, run_label(t, 1, w->trains, 10), WF_INVALID_ARG,
                      "y[3] is 10; the model has 10 classes, 0 to 9");
    RANKS_TRY(one, wf_trainer_weights_sha256(t, after));
    if (strcmp(before, after)) return "the weights are others";
    RANKS_TRY(one, run_label(t, 1, w->trains, -1));
    wf_trainer_destroy(t);
    return NULL;
}

/* Rank 1 is given another label than the others, which wait for it in their run. */
static const char *refused_alone(ranks_one *one) {
    const work *w = one->self;
    wf_trainer *t;
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, 4, 1, false, &t));
    wf_status status = run_label(t, 0, w->trains, one->rank == 1 ? 10 : 3);
    wf_trainer_destroy(t);
    if (one->rank == 1)
        RANKS_REFUSED(one, status, WF_INVALID_ARG, "y[3] is 10");
    else
        RANKS_REFUSED(one, status, WF_REMOTE, ": a run that its feeds do not allow");
    return NULL;
}

TEST_CASE(who_differs_is_named) {
    work *w = make_work("dp=2");
    for (ranks_way how = FIRST_WAY; how <= LAST_WAY; how++) {
        if (how == FIRST_WAY) ranks_as(how, 2, too_many, w);
        if (how != PROCESSES) ranks_as(how, 2, one_after_another, w);
        ranks_as(how, 2, left_at_other_times, w);
        ranks_as(how, 2, made_in_another_order, w);
        for (int trains = 0; trains < 2; trains++) {
            w->trains = trains;
            ranks_as(how, 2, run_in_another_order, w);
            ranks_as(how, 2, meets_in_another_order, w);
            ranks_as(how, 2, refused_together, w);
            ranks_as(how, 2, refused_alone, w);
        }
    }
    munmap(w, sizeof *w);
}

/* ---- ranks without a part in the program ---- */

/* Each rank pauses now and then, by a series of its own; sometimes for so long that the others
 * would run on, if they did not wait. */
static void pause_sometimes(work *w, int rank, int n, int round) {
    wfi_random_key key = {99, (uint64_t)rank};
    uint32_t draw = (uint32_t)(wfi_random_uniform(key, 1, (uint64_t)round) * 65536);
    int n_naps = draw % 20 == 0 ? N_LONG_NAPS : 0;
    bool is_left_behind = false;
    __atomic_store_n(&w->round[rank], round, __ATOMIC_RELAXED);
    if (draw % 10 == 1) usleep((draw >> 4) % 3000);
    for (int k = 0; k < n_naps && !is_left_behind; k++) {
        usleep(1000);
        for (int r = 0; r < n; r++)
            is_left_behind |= __atomic_load_n(&w->round[r], __ATOMIC_RELAXED) > round + 3;
    }
}

/* Whoever is asked to stop in this round: the reason is the round's number. */
static int asked_rank(int round, int n) {
    return round % 7 == 3 ? round * 5 % n : -1;
}

static const char *idle(ranks_one *one) {
    work *w = one->self;
    wf_trainer *trainer;
    RANKS_TRY(one, make_trainer(one->ctx, one->job, w->plan, w->n_micro, 5, !w->trains, &trainer));
    for (int round = 0; round < w->n_rounds; round++) {
        wf_step_result result = {0};
        pause_sometimes(w, one->rank, one->n, round);
        if (asked_rank(round, one->n) == one->rank) wf_job_request_stop(one->job, round);
        RANKS_TRY(one, run_batch(trainer, round, w->trains, &result));
        if (result.loss != w->losses[round]) __atomic_add_fetch(&w->n_wrong, 1, __ATOMIC_RELAXED);
        w->reasons[one->rank][round] = result.stop_reason;
    }
    wf_trainer_destroy(trainer);
    return NULL;
}

/* How often ranks heard different reasons in one run, or not that of a rank that was asked before
 * it began the run. */
static int count_other_reasons(const work *w, int n) {
    int n_other = 0, last = 0;
    for (int round = 0; round < w->n_rounds; round++) {
        if (asked_rank(round, n) >= 0) last = round;
        for (int r = 0; r < n; r++) n_other += w->reasons[r][round] != last;
    }
    return n_other;
}

static void idle_ranks(const char *plan, int n, bool trains, int n_micro, ranks_way how,
                       int n_rounds) {
    work *w = make_work(plan);
    wf_context *ctx = test_context();
    wf_trainer *one;
    w->trains = trains;
    w->n_micro = n_micro;
    w->n_rounds = n_rounds < MAX_ROUNDS ? n_rounds : MAX_ROUNDS;
    TEST_OK(ctx, make_trainer(ctx, NULL, "", n_micro, 5, !trains, &one));
    for (int round = 0; round < w->n_rounds; round++) {
        wf_step_result result;
        TEST_OK(ctx, run_batch(one, round, trains, &result));
        w->losses[round] = result.loss;
    }
    wf_trainer_destroy(one);
    test_context_end(ctx);
    ranks_as(how, n, idle, w);
    int n_other = count_other_reasons(w, n);
    if (getenv("TEST_ROUNDS"))
        printf("%s, %s, way %d: %d runs on %d ranks, %d wrong losses, %d other reasons\n", plan,
               trains ? "train" : "eval", how, w->n_rounds, n, w->n_wrong, n_other);
    if (w->n_wrong || n_other)
        fail_msg("plan %s, way %d: of %d losses %d are wrong, of as many reasons to stop %d", plan,
                 how, w->n_rounds * n, w->n_wrong, n_other);
    munmap(w, sizeof *w);
}

TEST_CASE(ranks_may_idle) {
    const char *text = getenv("TEST_ROUNDS");
    int n_rounds = text ? atoi(text) : 60 / (TEST_SAMPLE * TEST_SAMPLE);
    for (ranks_way how = FIRST_WAY; how <= LAST_WAY; how++) {
        /* Elsewhere a few are enough to see that they wait at all. */
        int n = how == THREADS || text ? n_rounds : n_rounds / 3;
        idle_ranks("dp=2", 2, false, 4, how, n);
        idle_ranks("dataparallel=2", 2, false, 4, how, n);
        idle_ranks("dataparallel=4", 4, true, 2, how, n);
    }
}

TEST_FIXTURE(test_check_events, NULL)
