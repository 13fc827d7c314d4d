/* Ranks as processes: every plan gives the bits of one rank and of threads, on every process;
 * the planned peak is the measured one; who dies, stalls or disagrees is named, and the others
 * stop. The test starts itself again for each rank. */
#include "api/trainer.h"
#include "comm/job/control.h"
#include "rank_processes.h"
#include "sharded_plan.h"
#include "small_models.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

#define N_STEPS 3

static wf_recipe job_recipe(void) {
    wf_recipe recipe = small_recipe();
    recipe.n_micro = 8;
    recipe.n_lanes = 4;
    recipe.clip_norm = 0.5;
    recipe.n_threads = 1;
    recipe.optimizer = WF_ADAMW;
    return recipe;
}

/* ---- a rank ---- */

static int say_error(wf_context *ctx) {
    printf("error %s\n", wf_context_error(ctx));
    return 1;
}

static wf_status refuse(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                        void *scratch, const wfi_step_args *step) {
    return wfi_fail(kernel->ctx, WF_DEVICE, "the library says no");
}

/* The first kernel of the unit's forward, on this process. */
static void break_kernel(wf_trainer *t, int32_t unit) {
    static wfi_kernel_impl broken;
    wfi_kernel *kernel =
        t->ready[0]->executor->code[0]->units[unit].part[WFI_PART_F]->steps[0].kernel;
    broken = *kernel->impl;
    broken.run = refuse;
    kernel->impl = &broken;
}

static wf_status make_trainer(wf_context *ctx, const char *plan_text, wf_job *job, bool traces,
                              const wf_recipe *recipe, wf_trainer **trainer_out) {
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.trace = traces;
    wf_model *model = NULL;
    wf_plan *plan = NULL;
    config.job = job;
    wf_status status = wf_model_create(ctx, "small", small_net, NULL, 0, &model);
    if (status == WF_OK) status = sharded_parse(ctx, plan_text, &plan);
    if (status == WF_OK) status = wf_trainer_create(ctx, model, recipe, plan, &config, trainer_out);
    wf_model_destroy(model);
    wf_plan_destroy(plan);
    return status;
}

static wf_status step(wf_trainer *trainer, int s, double *loss_out) {
    static small_batch batch;
    small_batch_fill(&batch, s);
    wf_feed feeds[] = {{"x", batch.x, sizeof batch.x}, {"y", batch.y, sizeof batch.y}};
    wf_step_result result;
    wf_status status = wf_trainer_step(trainer, feeds, 2, SMALL_BATCH, &result);
    *loss_out = result.loss;
    return status;
}

/* Of a third trainer, which is given the weights of this one. */
static wf_status hash_copy(wf_context *ctx, wf_job *job, const char *plan, wf_trainer *from,
                           char sha_out[65]) {
    wf_recipe recipe = job_recipe();
    wf_trainer *third;
    wf_status status = make_trainer(ctx, plan, job, false, &recipe, &third);
    if (status) return status;
    status = wf_trainer_copy_weights(third, from, NULL);
    if (!status) status = wf_trainer_weights_sha256(third, sha_out);
    wf_trainer_destroy(third);
    return status;
}

/* Train, save, load into another trainer, train on, test; say losses, a copy's weights and peaks.
 */
static int run_rank(wf_context *ctx, wf_job *job, const char *plan, const char *path) {
    wf_recipe recipe = job_recipe();
    wf_trainer *trainer, *second;
    double loss = 0, test_loss = 0;
    char sha[65];
    if (make_trainer(ctx, plan, job, false, &recipe, &trainer)) return say_error(ctx);
    wf_status status = WF_OK;
    for (int s = 0; s < N_STEPS && !status; s++) status = step(trainer, s, &loss);
    if (!status) status = wf_trainer_save_state(trainer, path, NULL, 0);
    wf_trainer_destroy(trainer);
    if (status || make_trainer(ctx, plan, job, false, &recipe, &second)) return say_error(ctx);
    status = wf_trainer_load_state(second, path);
    for (int s = N_STEPS; s < 2 * N_STEPS && !status; s++) status = step(second, s, &loss);
    if (!status) status = small_eval(second, 9, 11, &test_loss);
    if (!status) status = hash_copy(ctx, job, plan, second, sha);
    if (status) {
        wf_trainer_destroy(second);
        return say_error(ctx);
    }
    printf("%.17g %.17g %s", loss, test_loss, sha);
    for (int r = 0; r < wf_job_n_ranks(job); r++) {
        wf_trainer_memory memory = wf_trainer_memory_of(second, r);
        printf(" %s", memory.planned_peak_bytes == memory.measured_peak_bytes ? "=" : "!");
    }
    printf("\n");
    wf_trainer_destroy(second);
    return 0;
}

static int run_alone(wf_context *ctx, wf_job *job, const char *what, const char *plan) {
    wf_recipe recipe = job_recipe();
    wf_trainer *trainer;
    int rank = wf_job_rank(job);
    double loss;
    if (!strcmp(what, "disagree") && rank == 1) recipe.lr *= 2;
    if (make_trainer(ctx, plan, job, false, &recipe, &trainer)) return say_error(ctx);
    if (!strcmp(what, "fail") && rank == 1) break_kernel(trainer, 1);
    for (int s = 0; s < 1000; s++) {
        if (!strcmp(what, "die") && rank == 1 && s == 2) kill(getpid(), SIGKILL);
        if (!strcmp(what, "stall") && rank == 1 && s == 2) pause();
        wf_status status = step(trainer, s, &loss);
        if (status) {
            if (!strcmp(what, "fail")) printf("%s ", wf_status_name(status));
            wf_trainer_destroy(trainer);
            return say_error(ctx);
        }
    }
    return 0;
}

/* How many instructions of the last step began before what they depend on had ended, on whichever
 * rank, or ended before they began. */
static int count_too_early(const wfi_trace *trace) {
    const wf_program *p = trace->p;
    int n = 0;
    for (int32_t i = 0; i < p->n_instructions; i++) {
        n += trace->begin_ns[i] < trace->start_ns || trace->end_ns[i] < trace->begin_ns[i];
        for (int32_t d = 0; d < p->instructions[i].n_depends; d++)
            n += trace->begin_ns[i] < trace->end_ns[p->instructions[i].depends[d]];
    }
    return n;
}

/* A traced run: what all processes then know. */
static int run_traced(wf_context *ctx, wf_job *job, const char *plan) {
    wf_recipe recipe = job_recipe();
    wf_trainer *trainer;
    wf_timeline *timeline = NULL;
    wf_costs *costs = NULL;
    double loss, least = 1e9, sum = 0;
    if (make_trainer(ctx, plan, job, true, &recipe, &trainer)) return say_error(ctx);
    wf_status status = WF_OK;
    for (int s = 0; s < N_STEPS && !status; s++) status = step(trainer, s, &loss);
    if (!status) status = wf_trainer_timeline(trainer, &timeline);
    if (!status) status = wf_trainer_costs(trainer, &costs);
    if (status) return say_error(ctx);
    for (int u = 0; u < wf_costs_n_units(costs); u++) {
        double us = wf_costs_unit(costs, u).forward_us;
        least = us < least ? us : least;
        sum += us + wf_costs_unit(costs, u).backward_weight_us;
    }
    const wfi_trace *trace = trainer->ready[0]->executor->trace;
    printf("%d of %d too early, %s, step of %.17g us, costs of %.17g us\n", count_too_early(trace),
           trace->p->n_instructions, least > 0 ? "all units ran" : "a unit cost nothing",
           wf_timeline_step_us(timeline), sum);
    wf_timeline_destroy(timeline);
    wf_costs_destroy(costs);
    wf_trainer_destroy(trainer);
    return 0;
}

static int be_rank(char **argv) {
    wf_job_config meeting = WF_JOB_CONFIG_INIT;
    meeting.rank = atoi(argv[2]);
    meeting.n_ranks = atoi(argv[3]);
    meeting.name = argv[4];
    meeting.timeout_ms = atoi(argv[5]);
    int status;
    wf_context *ctx = test_context();
    wf_job *job = NULL;
    if (wf_job_join(ctx, &meeting, &job))
        status = say_error(ctx);
    else if (!strcmp(argv[1], "train"))
        status = run_rank(ctx, job, argv[6], argv[7]);
    else if (!strcmp(argv[1], "trace"))
        status = run_traced(ctx, job, argv[6]);
    else
        status = run_alone(ctx, job, argv[1], argv[6]);
    wf_job_leave(job);
    wf_context_destroy(ctx);
    return status;
}

/* ---- the test ---- */

static void run_job(rank_process *p, int n_ranks, const char *what, const char *plan,
                    const char *path, int timeout_ms) {
    static int n_jobs;
    char name[64], rank[16], size[16], timeout[16];
    snprintf(name, sizeof name, "test-%d-%d", (int)getpid(), n_jobs++);
    snprintf(size, sizeof size, "%d", n_ranks);
    snprintf(timeout, sizeof timeout, "%d", timeout_ms);
    for (int r = n_ranks - 1; r >= 0; r--) {
        snprintf(rank, sizeof rank, "%d", r);
        char *argv[] = {"train_processes",       (char *)(uintptr_t)what, rank, size, name, timeout,
                        (char *)(uintptr_t)plan, (char *)(uintptr_t)path, NULL};
        rank_start(&p[r], argv);
    }
    for (int r = 0; r < n_ranks; r++) rank_finish(&p[r]);
}

TEST_CASE(bits_of_one_rank) {
    const struct {
        const char *plan;
        int n_ranks;
    } plans[] = {{"dp=2", 2},
                 {"pp=2", 2},
                 {"pp=3,schedule=zb2", 3},
                 {"dp=4", 4},
                 {"dp=2,pp=2", 4},
                 {"dataparallel=2", 2},
                 {"block:dp=2,head:dataparallel=2", 2},
                 {"zero=1: dp=2,pp=2", 4},
                 {"whole gradient: dp=2", 2},
                 {"dp=2,zero=2", 2},
                 {"zero=3: dp=4", 4},
                 {"dp=2,zero=3,schedule=breadth", 2},
                 {"dp=4,zero=2,shard=2", 4},
                 {"zero=3: dp=2,pp=2", 4}};
    char folder[] = "/tmp/weft-test-XXXXXX", path[64], want[200], sha[65];
    wf_context *ctx = test_context();
    wf_recipe recipe = job_recipe();
    wf_trainer *one = planned_trainer(ctx, small_net, &recipe, "", "cpu:1", 0);
    double loss = 0, test_loss = 0;
    for (int s = 0; s < 2 * N_STEPS; s++) loss = small_step(ctx, one, s);
    TEST_OK(ctx, small_eval(one, 9, 11, &test_loss));
    TEST_OK(ctx, wf_trainer_weights_sha256(one, sha));
    snprintf(want, sizeof want, "%.17g %.17g %s", loss, test_loss, sha);
    wf_trainer_destroy(one);
    test_context_end(ctx);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/state", folder);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        static rank_process p[MAX_PROCESSES];
        run_job(p, plans[k].n_ranks, "train", plans[k].plan, path, TEST_TIMEOUT_MS);
        for (int r = 0; r < plans[k].n_ranks; r++)
            if (p[r].status || strncmp(p[r].said, want, strlen(want)) || strchr(p[r].said, '!'))
                fail_msg("plan '%s', rank %d: '%s', one rank says '%s'", plans[k].plan, r,
                         p[r].said, want);
    }
    unlink(path);
    rmdir(folder);
}

TEST_CASE(all_are_traced) {
    static const char *const plans[] = {"dp=2,pp=2,cut=head", "dp=4", "dp=1,pp=4,schedule=zb1"};
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        static rank_process p[MAX_PROCESSES];
        run_job(p, 4, "trace", plans[k], "", TEST_TIMEOUT_MS);
        for (int r = 0; r < 4; r++)
            if (p[r].status || strncmp(p[r].said, "0 of ", 5) || strcmp(p[r].said, p[0].said) ||
                !strstr(p[r].said, "all units ran"))
                fail_msg("plan '%s', rank %d: '%s', rank 0 says '%s'", plans[k], r, p[r].said,
                         p[0].said);
    }
}

static void expect(const char *what, int timeout_ms, int rank, const char *words) {
    static rank_process p[MAX_PROCESSES];
    struct timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    run_job(p, 3, what, "dp=1,pp=3", "", timeout_ms);
    clock_gettime(CLOCK_MONOTONIC, &end);
    for (int r = 0; r < 3; r++) {
        if (r == rank) continue;
        if (!strstr(p[r].said, words))
            fail_msg("%s: rank %d says '%s', not '%s'", what, r, p[r].said, words);
    }
    assert_true((end.tv_sec - begin.tv_sec) * 1000 < timeout_ms); /* they did not wait for it */
}

TEST_CASE(who_dies_is_named) {
    expect("die", TEST_TIMEOUT_MS, 1, "rank 1");
}

/* The error is that of rank 1's own work; to the others it is another rank's. */
TEST_CASE(who_fails_says_why) {
    static rank_process p[MAX_PROCESSES];
    run_job(p, 3, "fail", "dp=1,pp=3", "", TEST_TIMEOUT_MS);
    for (int r = 0; r < 3; r++) {
        const char *status =
            r == 1 ? "DEVICE error rank 1, forward" : "REMOTE error rank 1, forward";
        if (strncmp(p[r].said, status, strlen(status)) || !strstr(p[r].said, "the library says no"))
            fail_msg("rank %d says '%s', not '%s'", r, p[r].said, status);
    }
}

TEST_CASE(who_disagrees_is_named) {
    expect("disagree", TEST_TIMEOUT_MS, -1,
           "rank 1 was started with recipe lr 0.1, rank 0 with recipe lr 0.05");
}

TEST_CASE(who_does_not_come_is_named) {
    rank_process p;
    char name[64];
    snprintf(name, sizeof name, "test-nobody-%d", (int)getpid());
    char *argv[] = {"train_processes", "train", "0", "2", name, "300", "dp=2", "", NULL};
    rank_start(&p, argv);
    rank_finish(&p);
    assert_non_null(strstr(p.said, "rank 1 of 2 has not arrived"));
}

int main(int argc, char **argv) {
    if (argc > 7) return be_rank(argv);
    return test_run(NULL, NULL);
}
