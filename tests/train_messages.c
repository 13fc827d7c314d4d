/* Ranks that share no memory: what they read of each other is carried by messages. Every plan gives
 * the bits of one rank, on every rank; states, tensors and gradients are read and loaded
 * everywhere; who does not come, disagrees or falls silent is named. The ranks are threads of this
 * process, the messages are between threads; all memory but the mail's is each rank's own.
 */
#include "api/trainer.h"
#include "comm/job/control.h"
#include "fake_network.h"
#include "program/clock.h"
#include "sharded_plan.h"
#include "small_models.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define N_STEPS   3 /* and then, in another trainer, to ... */
#define N_ALL     5
#define MAX_RANKS 6

static wf_recipe message_recipe(void) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 8;
    recipe.n_lanes = 4;
    recipe.clip_norm = 0.5;
    recipe.n_threads = 1;
    recipe.optimizer = WF_ADAMW;
    recipe.kernels = WF_KERNELS_REFERENCE;
    return recipe;
}

typedef struct rank {
    fake_rank box;
    const char *what, *plan, *path;
    int timeout_ms;
    char said[800];
    pthread_t thread;
    wf_status status;
} rank;

static wf_status make_trainer(wf_context *ctx, const rank *self, wf_job *job,
                              const wf_recipe *recipe, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    config.job = job;
    config.timeout_ms = self->timeout_ms;
    config.keep_gradients = 1;
    config.trace = !strcmp(self->what, "trace");
    wf_status status = wf_model_create(ctx, "small", small_net, NULL, 0, &model);
    if (status == WF_OK) status = sharded_parse(ctx, self->plan, &plan);
    if (status == WF_OK) status = wf_trainer_create(ctx, model, recipe, plan, &config, trainer_out);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return status;
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

/* ---- what ranks do ---- */

typedef wf_status (*run_fn)(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_samples,
                            wf_step_result *result_out);

static wf_status run_batch(wf_trainer *trainer, run_fn run, int s, size_t n,
                           wf_step_result *result_out) {
    small_batch batch;
    small_batch_fill(&batch, s);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x / SMALL_BATCH * n},
                       {"y", batch.y, sizeof *batch.y * n}};
    return run(trainer, feeds, 2, (int64_t)n, result_out);
}

/* Every other step is of a smaller batch, with a program of its own. */
static wf_status step(wf_trainer *trainer, int s, wf_step_result *result_out) {
    return run_batch(trainer, wf_trainer_step, s, s % 2 ? SMALL_BATCH - 5 : SMALL_BATCH,
                     result_out);
}

/* An update of the caller's own: a weight becomes its gradient. */
static wf_status update(wf_trainer *trainer) {
    float gradient[10];
    wf_step_result result;
    WF_TRY(run_batch(trainer, wf_trainer_gradients, N_ALL, SMALL_BATCH, &result));
    WF_TRY(wf_trainer_read_gradient(trainer, "fc.bias", gradient, sizeof gradient));
    WF_TRY(wf_trainer_write(trainer, "fc.bias", gradient, sizeof gradient));
    return wf_trainer_count_step(trainer);
}

static wf_status forward(wf_trainer *trainer, float *logits_out, size_t bytes) {
    small_batch batch;
    small_batch_fill(&batch, 9);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    return wf_trainer_forward(trainer, feeds, 2, SMALL_BATCH, "logits", logits_out, bytes);
}

/* Trains, saves, loads into another trainer, trains on, and says what came out; `job` may be NULL:
 * what one rank says. */
static wf_status train(wf_context *ctx, rank *self, wf_job *job) {
    wf_recipe recipe = message_recipe();
    wf_trainer *first, *second;
    wf_step_result result = {0};
    char sha[65], wrong[80] = "";
    float bias[10], gradient[10], logits[SMALL_BATCH * 10];
    WF_TRY(make_trainer(ctx, self, job, &recipe, &first));
    if (!strcmp(self->what, "own") && !take_from_others(first, self->box.rank))
        strcat(wrong, " too few!");
    wf_status status = WF_OK;
    for (int s = 0; s < N_STEPS && !status; s++) {
        status = step(first, s, &result);
        if (!status && !s) status = forward(first, logits, sizeof logits);
    }
    if (!status) status = wf_trainer_save_state(first, self->path, NULL, 0);
    wf_trainer_destroy(first);
    if (status) return status;
    WF_TRY(make_trainer(ctx, self, job, &recipe, &second));
    status = wf_trainer_load_state(second, self->path);
    if (job && self->box.rank == 1) wf_job_request_stop(job, 7);
    for (int s = N_STEPS; s < N_ALL && !status; s++) status = step(second, s, &result);
    if (job && result.stop_reason != 7) strcat(wrong, " stop!");
    if (!status) status = wf_trainer_read(second, "fc.bias", bias, sizeof bias);
    if (!status) status = wf_trainer_read_gradient(second, "fc.bias", gradient, sizeof gradient);
    if (!status) status = update(second);
    if (!status) status = forward(second, logits, sizeof logits);
    if (!status) status = wf_trainer_weights_sha256(second, sha);
    for (int r = 0; job && !status && r < wf_job_n_ranks(job); r++) {
        wf_trainer_memory m = wf_trainer_memory_of(second, r);
        if (m.planned_peak_bytes != m.measured_peak_bytes) strcat(wrong, " peak!");
    }
    if (!status)
        snprintf(self->said, sizeof self->said, "%lld steps %.17g %.17g %s %a %a %a%s",
                 (long long)wf_trainer_n_steps(second), result.loss, result.gradient_norm, sha,
                 (double)bias[3], (double)gradient[3], (double)logits[155], wrong);
    wf_trainer_destroy(second);
    return status;
}

/* All know how long the step took on all of them. */
static wf_status trace(wf_context *ctx, rank *self, wf_job *job) {
    wf_recipe recipe = message_recipe();
    wf_trainer *trainer;
    wf_timeline *timeline = NULL;
    wf_step_result result;
    WF_TRY(make_trainer(ctx, self, job, &recipe, &trainer));
    wf_status status = step(trainer, 0, &result);
    if (!status) status = wf_trainer_timeline(trainer, &timeline);
    if (!status) snprintf(self->said, sizeof self->said, "%.17g us", wf_timeline_step_us(timeline));
    wf_timeline_destroy(timeline);
    wf_trainer_destroy(trainer);
    return status;
}

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

static wf_status misbehave(wf_context *ctx, rank *self, wf_job *job) {
    wf_recipe recipe = message_recipe();
    wf_trainer *trainer;
    wf_step_result result;
    bool is_bad = self->box.rank == 1;
    if (!strcmp(self->what, "disagree") && is_bad) recipe.lr *= 2;
    WF_TRY(make_trainer(ctx, self, job, &recipe, &trainer));
    wf_status status = WF_OK;
    if (!strcmp(self->what, "break") && is_bad) break_kernel(trainer);
    for (int s = 0; s < 4 && !status; s++) {
        if (!strcmp(self->what, "silent") && is_bad && s == 2)
            while (wfi_failure_status(wfi_control_failure(job)) == WF_OK) usleep(1000);
        if (!strcmp(self->what, "fail") && is_bad && s == 2)
            status = wf_context_fail(ctx, WF_INVALID_ARG, "it goes");
        else
            status = step(trainer, s, &result);
    }
    wf_trainer_destroy(trainer);
    return status;
}

/* Rank 1 leaves when it has done its part; to see that is no failure of the others. */
static wf_status leave(wf_context *ctx, const rank *self, wf_job *job) {
    WF_TRY(wf_job_barrier(job));
    if (self->box.rank == 1) return WF_OK;
    for (int n = 0; n < 20000 && !wfi_control_is_lost(job, 1); n++) usleep(1000);
    if (!wfi_control_is_lost(job, 1)) return wfi_fail(ctx, WF_TIMEOUT, "rank 1 is still there");
    return wfi_failure_check(ctx, wfi_control_failure(job));
}

static void *run_rank(void *argument) {
    rank *self = argument;
    wf_context *ctx = test_context();
    wf_job *job = NULL;
    wfi_network mail = fake_network(&self->box);
    wf_status status = wfi_control_join_network(ctx, &mail, self->box.rank, self->box.net->n_ranks,
                                                self->timeout_ms, &job);
    if (!status && (!strcmp(self->what, "train") || !strcmp(self->what, "own")))
        status = train(ctx, self, job);
    else if (!status && !strcmp(self->what, "trace"))
        status = trace(ctx, self, job);
    else if (!status && !strcmp(self->what, "leave"))
        status = leave(ctx, self, job);
    else if (!status)
        status = misbehave(ctx, self, job);
    if (status) snprintf(self->said, sizeof self->said, "error: %.700s", wf_context_error(ctx));
    self->status = status;
    wf_job_leave(job);
    test_context_end(ctx);
    return NULL;
}

static void run_job(rank *ranks, int n_ranks, const char *what, const char *plan, const char *path,
                    int timeout_ms) {
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = n_ranks};
    for (int r = 0; r < n_ranks; r++) {
        ranks[r] = (rank){
            .box = {&net, r}, .what = what, .plan = plan, .path = path, .timeout_ms = timeout_ms};
        assert_int_equal(pthread_create(&ranks[r].thread, NULL, run_rank, &ranks[r]), 0);
    }
    for (int r = 0; r < n_ranks; r++) pthread_join(ranks[r].thread, NULL);
    if (net.first) fail_msg("%s, plan '%s': messages are left under way", what, plan);
    if (!strcmp(what, "train")) assert_true(net.n_carried > 100);
}

typedef struct plan_case {
    const char *plan;
    int n_ranks;
} plan_case;

static void compare_with_one(const char *what, const plan_case *plans, size_t n_plans) {
    char folder[] = "/tmp/weft-test-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    rank one = {.what = "train", .plan = "", .path = path, .timeout_ms = TEST_TIMEOUT_MS};
    wf_context *ctx = test_context();
    TEST_OK(ctx, train(ctx, &one, NULL));
    test_context_end(ctx);
    for (size_t k = 0; k < n_plans; k += TEST_SAMPLE) {
        rank ranks[MAX_RANKS];
        run_job(ranks, plans[k].n_ranks, what, plans[k].plan, path, TEST_TIMEOUT_MS);
        for (int r = 0; r < plans[k].n_ranks; r++)
            if (strcmp(ranks[r].said, one.said))
                fail_msg("plan '%s', rank %d: '%s', one rank says '%s'", plans[k].plan, r,
                         ranks[r].said, one.said);
    }
    unlink(path);
    rmdir(folder);
}

/* Only the checker of events needs the instructions of other ranks. */
TEST_CASE(each_issues_its_own_part) {
    const plan_case plans[] = {{"dp=2", 2},
                               {"pp=3", 3},
                               {"dp=4,allreduce=tree,bucket=1KiB", 4},
                               {"dp=4,zero=3", 4},
                               {"dp=2,pp=2", 4}};
    unsetenv("WEFT_CHECK_EVENTS");
    compare_with_one("own", plans, sizeof plans / sizeof *plans);
    setenv("WEFT_CHECK_EVENTS", "1", 1);
}

TEST_CASE(bits_of_one_rank) {
    const plan_case plans[] = {{"dp=2", 2},
                               {"pp=2", 2},
                               {"dp=2,allreduce=root", 2},
                               {"dp=4,allreduce=tree,bucket=1KiB", 4},
                               {"dp=4,allreduce=pairwise,bucket=12KiB", 4},
                               {"dp=2,allreduce=ring,sums=free", 2},
                               {"dp=2,pp=3,schedule=zb2", 6},
                               {"pp=2,schedule=interleaved", 2},
                               {"dp=2,pp=2,schedule=zbv,zero=3", 4},
                               {"dp=2,pp=2", 4},
                               {"dataparallel=2", 2},
                               {"block:dp=2,head:dataparallel=2", 2},
                               {"zero=1: dp=2", 2},
                               {"zero=1: dp=2,pp=2,bucket=1KiB", 4},
                               {"dp=2,zero=2,bucket=1KiB", 2},
                               {"dp=2,zero=3", 2},
                               {"dp=4,zero=3,shard=2", 4},
                               {"dp=2,offload=state+params:disk", 2},
                               {"dp=2,pp=2,zero=3,overlap=off", 4},
                               {"whole gradient: dp=4", 4}};
    compare_with_one("train", plans, sizeof plans / sizeof *plans);
}

TEST_CASE(all_are_traced) {
    rank ranks[MAX_RANKS];
    run_job(ranks, 4, "trace", "dp=2,pp=2", "", TEST_TIMEOUT_MS);
    for (int r = 0; r < 4; r++)
        if (atof(ranks[r].said) <= 0 || strcmp(ranks[r].said, ranks[0].said))
            fail_msg("rank %d: '%s', rank 0: '%s'", r, ranks[r].said, ranks[0].said);
}

/* All say the words, rank 1 `own` words; or what is wrong. */
static const char *try_words(const char *what, int timeout_ms, const char *words, const char *own) {
    static char wrong[1000];
    rank ranks[MAX_RANKS];
    run_job(ranks, 3, what, "dp=1,pp=3", "", timeout_ms);
    for (int r = 0; r < 3; r++) {
        if (strstr(ranks[r].said, r == 1 ? own : words)) continue;
        snprintf(wrong, sizeof wrong, "%s: rank %d says '%.700s', not '%s'", what, r, ranks[r].said,
                 r == 1 ? own : words);
        return wrong;
    }
    return NULL;
}

static void expect(const char *what, const char *words, const char *own) {
    const char *wrong = try_words(what, TEST_TIMEOUT_MS, words, own);
    if (wrong) fail_msg("%s", wrong);
}

TEST_CASE(who_disagrees_is_named) {
    const char *words = "rank 1 was started with recipe lr 0.1, rank 0 with recipe lr 0.05";
    expect("disagree", words, words);
}

static const char *fall_silent(void *self, int timeout_ms) {
    return try_words("silent", timeout_ms, "rank 1 (process", "rank 1 (process");
}

TEST_CASE(who_falls_silent_is_named) {
    test_deadlines(fall_silent, NULL);
}

TEST_CASE(who_leaves_is_named) {
    expect("fail", "rank 1 has left the job", "it goes");
}

TEST_CASE(who_leaves_at_the_end_may) {
    rank ranks[MAX_RANKS];
    run_job(ranks, 3, "leave", "", "", TEST_TIMEOUT_MS);
    for (int r = 0; r < 3; r++)
        if (ranks[r].status) fail_msg("rank %d: '%s'", r, ranks[r].said);
}

/* The error is that of rank 1's own work; to the others it is another rank's. */
TEST_CASE(who_fails_says_why) {
    rank ranks[MAX_RANKS];
    run_job(ranks, 3, "break", "dp=1,pp=3", "", TEST_TIMEOUT_MS);
    for (int r = 0; r < 3; r++) {
        if (!strstr(ranks[r].said, "rank 1, forward") || !strstr(ranks[r].said, "library says no"))
            fail_msg("rank %d says '%s'", r, ranks[r].said);
        assert_int_equal(ranks[r].status, r == 1 ? WF_DEVICE : WF_REMOTE);
    }
}

TEST_CASE(who_does_not_come_is_named) {
    fake_net net = {.lock = PTHREAD_MUTEX_INITIALIZER, .n_ranks = 2};
    rank self = {.box = {&net, 0}, .what = "train", .plan = "dp=2", .timeout_ms = 200};
    run_rank(&self);
    if (!strstr(self.said, "rank 1 has not arrived")) fail_msg("'%s'", self.said);
    assert_null(net.first);
}

int main(void) {
    setenv("WEFT_CHECK_EVENTS", "1", 1);
    setenv("WEFT_DELAY_US", "300", 0);
    return test_run(NULL, NULL);
}
