/* Ranks of a job that train, by messages between threads and as processes. All ranks know the
 * timeline of all, and each issues its own part alone. A rank that disagrees, fails, dies, falls
 * silent, leaves or does not come stops the others, whose error names it. train_plans compares the
 * bits.
 */
#include "api/trainer.h"
#include "group_ranks.h"
#include "program/clock.h"
#include "small_models.h"

#define N_STEPS 4

/* What ranks do. */
typedef struct work {
    const char *plan;
    int timeout_ms;
    double loss; /* of one rank's last step */
} work;

static wf_recipe rank_recipe(void) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = 8, .n_lanes = 4, .clip_norm = 0.5, .n_threads = 1,
                                    .optimizer = WF_ADAMW, .kernels = WF_KERNELS_REFERENCE);
    return recipe;
}

static wf_status make_with(ranks_one *one, const wf_recipe *recipe, bool traces,
                           wf_trainer **trainer_out) {
    const work *w = one->self;
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.job = one->job;
    config.timeout_ms = w->timeout_ms;
    config.trace = traces;
    return test_try_trainer(one->ctx, small_net, recipe, w->plan, &config, trainer_out);
}

static wf_status make_trainer(ranks_one *one, wf_trainer **trainer_out) {
    wf_recipe recipe = rank_recipe();
    return make_with(one, &recipe, false, trainer_out);
}

/* Steps `from` to `to` - 1. A task of a failed step may still read the batch. */
static wf_status steps(wf_trainer *t, small_batch *batch, int from, int to, double *loss_out) {
    wf_feed feeds[] = {{"x", batch->x, sizeof batch->x}, {"y", batch->y, sizeof batch->y}};
    wf_status status = WF_OK;
    for (int s = from; s < to && !status; s++) {
        wf_step_result result;
        small_batch_fill(batch, s);
        status = wf_trainer_step(t, feeds, 2, SMALL_BATCH, &result);
        *loss_out = result.loss;
    }
    return status;
}

/* ---- timelines and parts ---- */

/* How many instructions of the last step began before what they depend on had ended, on whichever
 * rank, or ended before they began. */
static int count_too_early(const wfi_trace *trace) {
    const wf_program *p = trace->p;
    int n = !trace->start_ns;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        n += trace->begin_ns[i] < trace->start_ns || trace->end_ns[i] < trace->begin_ns[i];
        for (int32_t d = 0; d < p->instructions[i].n_depends; d++)
            n += trace->begin_ns[i] < trace->end_ns[p->instructions[i].depends[d]];
    }
    return n;
}

/* Every rank has the same times, and every unit took some. */
static const char *trace(ranks_one *one) {
    wf_recipe recipe = rank_recipe();
    wf_trainer *t;
    wf_timeline *timeline, *again;
    wf_costs *costs;
    small_batch batch;
    double loss, mine[2] = {0}, first[2];
    RANKS_TRY(one, make_with(one, &recipe, true, &t));
    RANKS_TRY(one, steps(t, &batch, 0, N_STEPS, &loss));
    RANKS_TRY(one, wf_trainer_timeline(t, &timeline));
    RANKS_TRY(one, wf_trainer_timeline(t, &again));
    RANKS_CHECK(one, wf_timeline_step_us(timeline) == wf_timeline_step_us(again));
    wf_timeline_destroy(again);
    RANKS_TRY(one, wf_trainer_costs(t, &costs));
    mine[0] = wf_timeline_step_us(timeline);
    for (int u = 0; u < wf_costs_n_units(costs); u++) {
        RANKS_CHECK(one, wf_costs_unit(costs, u).forward_us > 0);
        mine[1] += wf_costs_unit(costs, u).forward_us + wf_costs_unit(costs, u).backward_weight_us;
    }
    RANKS_CHECK(one, count_too_early(t->ready[0]->executor->trace) == 0);
    wf_timeline_destroy(timeline);
    wf_costs_destroy(costs);
    wf_trainer_destroy(t);
    RANKS_TRY(one, wf_group_broadcast(one->group, mine, first, 2, WF_I64, 0, NULL));
    RANKS_CHECK(one, mine[0] > 0 && !memcmp(mine, first, sizeof mine));
    return NULL;
}

TEST_CASE(all_are_traced) {
    static const char *const plans[] = {"dp=2,pp=2,cut=head", "dp=4", "dp=1,pp=4,schedule=zb1"};
    for (size_t k = 0; k < WFI_COUNT(plans); k++)
        for (int how = MESSAGES; how <= LAST_WAY; how++)
            ranks_as((ranks_way)how, 4, trace, &(work){.plan = plans[k]});
}

/* Instructions in which no rank of this process takes part have no references any more. */
static bool take_from_others(const wf_trainer *t, int own) {
    const wf_program *p = t->ready[0]->program;
    int n_taken = 0;
    for (int32_t k = 0, n; k < p->n_instructions; k += n) {
        bool is_own = false;
        n = wfi_n_together(p, k);
        for (int32_t m = 0; m < n; m++) is_own |= p->instructions[p->order[k + m]].rank == own;
        for (int32_t m = 0; m < n && !is_own; m++, n_taken++) {
            p->instructions[p->order[k + m]].references = NULL;
            p->instructions[p->order[k + m]].n_references = 1;
        }
    }
    return n_taken > p->n_instructions / 4;
}

static const char *issue_own_part(ranks_one *one) {
    wf_trainer *t;
    small_batch batch;
    double loss;
    RANKS_TRY(one, make_trainer(one, &t));
    RANKS_CHECK(one, take_from_others(t, one->rank));
    RANKS_TRY(one, steps(t, &batch, 0, N_STEPS, &loss));
    RANKS_CHECK(one, loss == ((const work *)one->self)->loss);
    wf_trainer_destroy(t);
    return NULL;
}

/* Only the checker of events needs the instructions of other ranks. */
TEST(each_issues_its_own_part) {
    static const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2", 2},
                 {"pp=3", 3},
                 {"dp=4,allreduce=tree,bucket=1KiB", 4},
                 {"dp=4,zero=3", 4},
                 {"dp=2,pp=2", 4}};
    work w = {.plan = ""};
    wf_trainer *t;
    small_batch batch;
    unsetenv("WEFT_CHECK_EVENTS");
    TEST_OK(ctx, make_trainer(&(ranks_one){.ctx = ctx, .self = &w}, &t));
    TEST_OK(ctx, steps(t, &batch, 0, N_STEPS, &w.loss));
    wf_trainer_destroy(t);
    for (size_t k = 0; k < WFI_COUNT(plans); k++) {
        w.plan = plans[k].plan;
        ranks_messages(plans[k].n_ranks, NULL, issue_own_part, &w);
    }
    setenv("WEFT_CHECK_EVENTS", "1", 1);
}

/* ---- ranks that stop the others ---- */

static wf_status refuse(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                        void *scratch, const wfi_step_args *step) {
    return wfi_fail(kernel->ctx, WF_DEVICE, "the library says no");
}

/* The first kernel of the second unit's forward, on this rank. */
static void break_kernel(wf_trainer *t) {
    static wfi_kernel_impl broken;
    wfi_kernel *kernel = t->ready[0]->executor->code[0]->units[1].part[WFI_PART_F]->steps[0].kernel;
    broken = *kernel->impl;
    broken.run = refuse;
    kernel->impl = &broken;
}

/* The error is that of rank 1's own work; to the others it is another rank's. */
static const char *break_down(ranks_one *one) {
    wf_trainer *t;
    small_batch batch;
    double loss;
    RANKS_TRY(one, make_trainer(one, &t));
    if (one->rank == 1) break_kernel(t);
    wf_status status = steps(t, &batch, 0, N_STEPS, &loss);
    wf_trainer_destroy(t);
    RANKS_CHECK(one, status == (one->rank == 1 ? WF_DEVICE : WF_REMOTE));
    RANKS_REFUSED(one, status, status, "rank 1, forward");
    RANKS_REFUSED(one, status, status, "the library says no");
    return NULL;
}

static const char *disagree(ranks_one *one) {
    wf_recipe recipe = rank_recipe();
    wf_trainer *t;
    if (one->rank == 1) recipe.lr *= 2;
    RANKS_REFUSED(one, make_with(one, &recipe, false, &t), WF_REMOTE,
                  "rank 1 was started with recipe lr 0.1, rank 0 with recipe lr 0.05");
    return NULL;
}

static const char *leave(ranks_one *one) {
    wf_trainer *t;
    small_batch batch;
    double loss;
    RANKS_TRY(one, make_trainer(one, &t));
    RANKS_TRY(one, steps(t, &batch, 0, 2, &loss));
    wf_status status = one->rank == 1 ? WF_OK : steps(t, &batch, 2, N_STEPS, &loss);
    wf_trainer_destroy(t);
    if (one->rank != 1) RANKS_REFUSED(one, status, WF_REMOTE, "rank 1 has left the job");
    return NULL;
}

static const char *die(ranks_one *one) {
    wf_trainer *t;
    small_batch batch;
    double loss;
    RANKS_TRY(one, make_trainer(one, &t));
    RANKS_TRY(one, steps(t, &batch, 0, 2, &loss));
    if (one->rank == 1) kill(getpid(), SIGKILL);
    RANKS_REFUSED(one, steps(t, &batch, 2, N_STEPS, &loss), WF_REMOTE, "rank 1");
    wf_trainer_destroy(t);
    return NULL;
}

TEST_CASE(who_stops_is_named) {
    work w = {.plan = "dp=1,pp=3"};
    for (int how = MESSAGES; how <= LAST_WAY; how++) {
        ranks_as((ranks_way)how, 3, break_down, &w);
        ranks_as((ranks_way)how, 3, disagree, &w);
    }
    ranks_messages(3, NULL, leave, &w);
    if (LAST_WAY == PROCESSES) ranks_processes(3, NULL, die, &w, 1);
}

static const char *be_silent(ranks_one *one) {
    wf_trainer *t;
    small_batch batch;
    double loss;
    RANKS_TRY(one, make_trainer(one, &t));
    RANKS_TRY(one, steps(t, &batch, 0, 2, &loss));
    while (one->rank == 1 && wfi_failure_status(wfi_control_failure(one->job)) == WF_OK)
        usleep(1000);
    wf_status status = steps(t, &batch, 2, N_STEPS, &loss);
    wf_trainer_destroy(t);
    RANKS_REFUSED(one, status, status, "rank 1 (process");
    return status ? NULL : "no deadline is missed";
}

static const char *fall_silent(void *self, int timeout_ms) {
    work w = {.plan = "dp=1,pp=3", .timeout_ms = timeout_ms};
    return ranks_try_messages(3, NULL, be_silent, &w);
}

TEST_CASE(who_falls_silent_is_named) {
    test_deadlines(fall_silent, NULL);
}

/* Rank 1 leaves when it has done its part; to see that is no failure of the others. */
static const char *leave_at_the_end(ranks_one *one) {
    RANKS_TRY(one, wf_job_barrier(one->job));
    if (one->rank == 1) return NULL;
    for (int n = 0; n < 20000 && !wfi_control_is_lost(one->job, 1); n++) usleep(1000);
    RANKS_CHECK(one, wfi_control_is_lost(one->job, 1));
    RANKS_TRY(one, wfi_failure_check(one->ctx, wfi_control_failure(one->job)));
    return NULL;
}

TEST_CASE(who_leaves_at_the_end_may) {
    ranks_messages(3, NULL, leave_at_the_end, NULL);
}

TEST(who_does_not_come_is_named) {
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = 2};
    fake_rank box = {&net, 0};
    wfi_network mail = fake_network(&box);
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    wf_job *job;
    char name[64];
    TEST_REFUSED(ctx, wfi_control_join_network(ctx, &mail, 0, 2, 200, &job), WF_TIMEOUT,
                 "rank 1 has not arrived");
    assert_null(net.first);
    ranks_name(name);
    meeting.n_ranks = 2;
    meeting.name = name;
    meeting.timeout_ms = 200;
    TEST_REFUSED(ctx, wf_job_join(ctx, &meeting, &job), WF_TIMEOUT, "rank 1 of 2 has not arrived");
}

static int set_up(void **state) {
    return setenv("WEFT_DELAY_US", "300", 0) | test_check_events(state);
}

static int tear_down(void **state) {
    return unsetenv("WEFT_DELAY_US");
}

TEST_FIXTURE(set_up, tear_down)
