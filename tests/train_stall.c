/* A rank that lets the others wait: while it does, a line of the log names it and what it is at,
 * whoever waits for whom; at the deadline the sentence does. Ranks as threads; processes that are
 * stopped: train_stop.
 */
#include "api/trainer.h"
#include "small_models.h"

#include <time.h>

#define N_MICRO 8

static void nap(int ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

/* ---- the log ---- */

typedef struct notice {
    const char *wanted;
    int n_lines;    /* that have the wanted words */
    int is_told;    /* atomic access */
    char last[600]; /* line of the log */
} notice;

static void listen(void *self, wf_log_level level, const char *topic, const char *line) {
    notice *t = self;
    if (strcmp(topic, "wait")) return;
    snprintf(t->last, sizeof t->last, "%s", line);
    if (!strstr(line, t->wanted)) return;
    t->n_lines++;
    __atomic_store_n(&t->is_told, 1, __ATOMIC_RELEASE);
}

/* ---- a kernel that takes its time ---- */

typedef struct slow_kernel {
    wfi_kernel_impl impl; /* first: found from the kernel */
    const wfi_kernel_impl *sound;
    const wfi_failure *device;
    notice *told;
    int n_good; /* calls before the one that waits until it is told of, or the run fails */
    int nap_ms; /* each call takes that, and none waits */
} slow_kernel;

static wf_status slow_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                          void *scratch, const wfi_step_args *step) {
    slow_kernel *s = (slow_kernel *)(uintptr_t)kernel->impl;
    if (s->nap_ms)
        nap(s->nap_ms); /* at once: many short ones take as long as the machine is busy */
    for (int n = 0; s->n_good == 0 && n < 30000; n++) {
        if (__atomic_load_n(&s->told->is_told, __ATOMIC_ACQUIRE)) break;
        if (wfi_failure_status(s->device) != WF_OK) break;
        nap(1);
    }
    s->n_good--;
    return s->sound->run(kernel, stream, operands, scratch, step);
}

static void slow_down(wf_trainer *t, int32_t rank, int32_t unit, wfi_part part, slow_kernel *s) {
    const wfi_executor *e = t->ready[0]->executor;
    const wfi_code *code = wfi_executor_code(e, rank, 0);
    wfi_kernel *kernel = code->units[unit].part[part]->steps[0].kernel;
    s->sound = kernel->impl;
    s->impl = *kernel->impl;
    s->impl.run = slow_run;
    s->device = t->workers[rank].owner.failure;
    kernel->impl = &s->impl;
}

/* ---- steps ---- */

/* May itself miss the deadline. */
static wf_status make_trainer(wf_context *ctx, const char *plan_text, int64_t timeout_ms,
                              wf_trainer **trainer_out) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = N_MICRO, .n_lanes = 4, .n_threads = 1);
    wf_trainer_config config = WF_TRAINER_CONFIG_INIT;
    config.timeout_ms = timeout_ms;
    return test_try_trainer(ctx, small_net, &recipe, plan_text, &config, trainer_out);
}

/* A step in which that kernel of the rank takes its time. */
static wf_status step_slowly(wf_trainer *t, int32_t rank, int32_t unit, wfi_part part,
                             slow_kernel *slow) {
    slow_down(t, rank, unit, part, slow);
    return small_try_step(t, 0, NULL);
}

typedef struct stalled {
    const char *plan;
    int32_t rank, unit;
    wfi_part part;
    int n_good;
    const char *rank_name, *doing;
} stalled;

static const stalled stalls[] = {
    {"pp=3,cut=block+last", 1, 1, WFI_PART_F, 2, "rank 1", "forward block, microbatch 2"},
    {"pp=3,cut=block+last", 2, 3, WFI_PART_BW, 1, "rank 2", "backward+weight last, microbatch 1"},
    {"pp=3,cut=block+last", 0, 0, WFI_PART_F, 0, "rank 0", "forward first, microbatch 0"},
    {"dp=2", 1, 2, WFI_PART_F, 1, "rank 1", "forward head, microbatch 5"},
    {"dp=4", 2, 1, WFI_PART_BW, 1, "rank 2", "backward+weight block, microbatch 5"},
    {"dp=2,pp=2,cut=head", 3, 3, WFI_PART_F, 0, "rank 3", "forward last, microbatch 4"},
};

/* One of the stalls: until a line has told of it, once, or without such lines until the deadline.
 */
static const char *stall_one(const stalled *s, int stall_ms, int timeout_ms) {
    static char wrong[1000];
    char wanted[200], period[32];
    snprintf(period, sizeof period, stall_ms ? " for %g s" : "", stall_ms / 1e3);
    snprintf(wanted, sizeof wanted, "%s has not moved%s; it was last doing %s", s->rank_name,
             period, s->doing);
    notice told = {.wanted = wanted};
    wf_context_config config = WF_CONTEXT_CONFIG_INIT;
    config.log = listen;
    config.log_self = &told;
    config.log_level = WF_LOG_WARN;
    wf_context *ctx;
    snprintf(period, sizeof period, "%d", stall_ms);
    setenv("WEFT_STALL_MS", period, 1);
    assert_int_equal(wf_context_create(&config, &ctx), WF_OK);
    wf_trainer *t = NULL;
    slow_kernel slow = {.n_good = s->n_good, .told = &told};
    wf_status status = make_trainer(ctx, s->plan, timeout_ms, &t);
    if (status == WF_OK) status = step_slowly(t, s->rank, s->unit, s->part, &slow);
    bool is_right =
        stall_ms ? status == WF_OK && told.n_lines == 1
                 : status == WF_TIMEOUT && strstr(wf_context_error(ctx), wanted) && !*told.last;
    snprintf(wrong, sizeof wrong,
             "plan '%s': not '%s', but %s: %.300s; %d lines, the last '%.200s'", s->plan, wanted,
             wf_status_name(status), wf_context_error(ctx), told.n_lines, told.last);
    wf_trainer_destroy(t);
    test_context_end(ctx);
    unsetenv("WEFT_STALL_MS");
    return is_right ? NULL : wrong;
}

static const char *stall_for_long(void *self, int ms) {
    return stall_one(self, ms, TEST_TIMEOUT_MS);
}

static const char *stall_for_good(void *self, int ms) {
    return stall_one(self, 0, ms);
}

TEST_CASE(who_stalls_is_named) {
    for (size_t k = 0; k < sizeof stalls / sizeof *stalls; k++) {
        test_deadlines(stall_for_long, (void *)(uintptr_t)&stalls[k]);
        if (k % 2 == 0) test_deadlines(stall_for_good, (void *)(uintptr_t)&stalls[k]);
    }
}

/* The first stage has nothing to do for longer than the deadline, while the second computes one
 * microbatch after the other. */
static const char *idle_for(void *self, int timeout_ms) {
    static char wrong[400];
    wf_context *ctx = test_context();
    wf_trainer *t = NULL;
    slow_kernel slow = {.n_good = -1, .nap_ms = timeout_ms * 3 / 10};
    wf_status status = make_trainer(ctx, "pp=2,cut=last,schedule=gpipe", timeout_ms, &t);
    if (status == WF_OK) status = step_slowly(t, 1, 3, WFI_PART_F, &slow);
    snprintf(wrong, sizeof wrong, "%s", wf_context_error(ctx));
    wf_trainer_destroy(t);
    test_context_end(ctx);
    return status == WF_OK ? NULL : wrong;
}

TEST_CASE(idle_stage_is_not_dead) {
    test_deadlines(idle_for, NULL);
}

TEST(period_is_a_number) {
    wfi_stall stall;
    setenv("WEFT_STALL_MS", "soon", 1);
    TEST_REFUSED(ctx, wfi_stall_init(&stall, ctx, NULL), WF_INVALID_ARG, "WEFT_STALL_MS='soon'");
    unsetenv("WEFT_STALL_MS");
}
