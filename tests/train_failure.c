/* A rank that fails in the middle of a step: all stop at once, what failed first is told,
 * and the trainer can be destroyed.
 */
#include "api/trainer.h"
#include "small_models.h"

#include <limits.h>
#include <time.h>

#define N_REPEATS 20
#define N_MICRO   8
/* Each instruction sleeps half of that on average. */
#define DELAY_US "15000"

static void nap(void) {
    const struct timespec time = {0, 1000000};
    nanosleep(&time, NULL);
}

static int count_threads(void) {
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return 0;
    int n = 0;
    for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
        n += entry->d_name[0] != '.';
    closedir(folder);
    return n;
}

#if defined(__SANITIZE_THREAD__)
#define N_OF_SANITIZER 1 /* it starts one of its own with the program's first */
#else
#define N_OF_SANITIZER 0
#endif

/* No more than n and the sanitizer's. A thread that has been joined is listed a little longer. */
static void expect_threads(int n) {
    for (int i = 0; i < 60000 && count_threads() > n + N_OF_SANITIZER; i++) nap();
    assert_in_range(count_threads(), n, n + N_OF_SANITIZER);
}

/* ---- kernels that fail ---- */

/* In place of a kernel of one rank. */
typedef struct broken_kernel {
    wfi_kernel_impl impl; /* first: found from the kernel */
    const wfi_kernel_impl *sound;
    const wfi_failure *after; /* fails only when this one has failed; NULL: by itself */
    const wfi_failure *own;   /* the rank's */
    int n_good;               /* calls before the one that fails */
    int n_after;              /* calls that began when something had failed */
} broken_kernel;

static wf_status broken_run(wfi_kernel *kernel, wfi_stream_queue *stream, void *const operands[],
                            void *scratch, const wfi_step_args *step) {
    broken_kernel *b = (broken_kernel *)(uintptr_t)kernel->impl;
    b->n_after += wfi_failure_status(b->own) != WF_OK;
    if (b->n_good-- > 0) return b->sound->run(kernel, stream, operands, scratch, step);
    while (b->after && wfi_failure_status(b->after) == WF_OK) nap();
    return wfi_fail(kernel->ctx, WF_DEVICE, b->after ? "a consequence" : "the library says no");
}

/* The first kernel of the unit's part, of the replica that the rank belongs to. */
static void break_kernel(wf_trainer *t, int32_t rank, int32_t unit, wfi_part part,
                         broken_kernel *b) {
    const wfi_executor *e = t->ready[0]->executor;
    const wfi_code *code = wfi_executor_code(e, rank, 0);
    wfi_kernel *kernel = code->units[unit].part[part]->steps[0].kernel;
    b->own = t->workers[rank].owner.failure;
    b->sound = kernel->impl;
    b->impl = *kernel->impl;
    b->impl.run = broken_run;
    kernel->impl = &b->impl;
}

/* ---- steps ---- */

static wf_trainer *make_trainer(wf_context *ctx, const char *plan) {
    wf_recipe recipe = SMALL_RECIPE(.n_micro = N_MICRO, .n_lanes = 4, .n_threads = 1);
    return planned_trainer(ctx, small_net, &recipe, plan, NULL, 0);
}

static const struct {
    const char *plan;
    int32_t rank, unit;
    wfi_part part;
    int n_good;
    int most_calls; /* backward on rank 0: what the failed rank has let through */
    const char *sentence;
} failures[] = {
    {"pp=3,cut=block+last", 1, 1, WFI_PART_F, 2, 1,
     "rank 1, forward block, microbatch 2: the library says no"},
    {"pp=3,cut=block+last", 2, 3, WFI_PART_BW, 1, 1,
     "rank 2, backward+weight last, microbatch 1: the library says no"},
    {"dp=2", 1, 2, WFI_PART_F, 1, N_MICRO / 2,
     "rank 1, forward head, microbatch 5: the library says no"},
};

TEST_CASE(all_stop_at_once) {
    int n_threads = count_threads();
    setenv("WEFT_DELAY_US", DELAY_US, 1);
    for (size_t k = 0; k < sizeof failures / sizeof *failures; k++) {
        for (int n = 0; n < N_REPEATS; n++) {
            wf_context *ctx = test_context();
            wf_trainer *t = make_trainer(ctx, failures[k].plan);
            broken_kernel broken = {.n_good = failures[k].n_good};
            break_kernel(t, failures[k].rank, failures[k].unit, failures[k].part, &broken);
            broken_kernel counted = {.n_good = INT_MAX};
            break_kernel(t, 0, 0, WFI_PART_BW, &counted);
            TEST_REFUSED(ctx, small_try_step(t, 0, NULL), WF_DEVICE, failures[k].sentence);
            int n_calls = INT_MAX - counted.n_good;
            /* One task may have been about to begin. */
            if (counted.n_after > 1 || n_calls > failures[k].most_calls)
                fail_msg("plan '%s': rank 0 went backward %d times, %d of them after the failure",
                         failures[k].plan, n_calls, counted.n_after);
            /* It stays failed, and says why. */
            TEST_REFUSED(ctx, small_try_step(t, 0, NULL), WF_DEVICE, failures[k].sentence);
            wf_trainer_destroy(t);
            test_context_end(ctx);
            expect_threads(n_threads);
        }
    }
    unsetenv("WEFT_DELAY_US");
}

/* Ranks that fail because of the first do not write over its sentence. */
TEST_CASE(first_is_told) {
    static const char *const plans[] = {"dp=2", "dp=4"};
    for (int n = 0; n < N_REPEATS; n++) {
        scoped_context ctx = test_context();
        scoped_trainer t = make_trainer(ctx, plans[n % 2]);
        broken_kernel broken[4] = {{.n_good = 0}};
        for (int32_t r = 0; r < t->n_workers; r++) {
            int32_t first = t->n_workers - 1;
            broken[r].after = r == first ? NULL : t->workers[r].owner.failure;
            break_kernel(t, r, 1, WFI_PART_F, &broken[r]);
        }
        char sentence[80];
        int last = t->n_workers - 1;
        snprintf(sentence, sizeof sentence, "rank %d, forward block, microbatch %d: the library",
                 last, last * N_MICRO / t->n_workers);
        TEST_REFUSED(ctx, small_try_step(t, 0, NULL), WF_DEVICE, sentence);
    }
}
