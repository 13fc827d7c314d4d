#include "kernel/onednn/threads.h"

#include "base/clock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl_config.h>

/* The OpenMP that counts is the one that oneDNN was linked to (GNU's or another),
 * so it is looked up in the process; linking one here might bring in a second. */
static void *openmp(const char *name) {
    return DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP ? dlsym(RTLD_DEFAULT, name) : NULL;
}

static int ask(const char *name, int otherwise) {
    int (*get)(void) = (int (*)(void))openmp(name);
    return get ? get() : otherwise;
}

static void tell(const char *name, int value) {
    void (*set)(int) = (void (*)(int))openmp(name);
    if (set) set(value);
}

/* A function to be run by so many threads, or by as many as have been set. */
typedef void (*parallel_function)(void (*part)(void *), void *argument, unsigned n, unsigned flags);
static parallel_function parallel(void) {
    return (parallel_function)openmp("GOMP_parallel");
}

wf_status wfi_library_set_threads(wf_context *ctx, int n_threads) {
    if (n_threads > 1 && ask("omp_in_parallel", 0))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "%d threads are not available inside an OpenMP parallel region, which "
                        "grants one per thread; call weft from outside it, or give --threads 1",
                        n_threads);
    if (openmp("omp_set_num_threads")) {
        tell("omp_set_num_threads", n_threads);
        return WF_OK;
    }
    if (n_threads == 1) return WF_OK;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "this oneDNN is not built on OpenMP, so %d threads cannot be requested; use 1",
                    n_threads);
}

int wfi_library_threads(void) {
    return ask("omp_get_max_threads", 1);
}

/* ---- whether the system has room for them ---- */

/* OpenMP ends the process when a thread cannot be made, so as many are made here before. */
typedef struct probe {
    pthread_mutex_t start; /* locked until all have been made */
    pthread_t *threads;    /* [n_threads - 1] */
    long *numbers;         /* [n_threads - 1] the kernel's */
} probe;

typedef struct probed {
    probe *of;
    int index;
} probed;

static void *wait_and_end(void *argument) {
    probed *r = argument;
    r->of->numbers[r->index] = syscall(SYS_gettid);
    pthread_mutex_lock(&r->of->start);
    pthread_mutex_unlock(&r->of->start);
    return NULL;
}

/* A thread that has been joined counts a moment longer, until the kernel has let go of it. */
static void wait_until_gone(long number) {
    int64_t end_ms = wfi_now_ms() + 1000;
    struct timespec moment = {0, 20000};
    while (!syscall(SYS_tgkill, getpid(), number, 0) && wfi_now_ms() < end_ms)
        nanosleep(&moment, NULL);
}

static int make_threads(probe *p, probed *each, int n, int *error_out) {
    int n_made = 0;
    pthread_mutex_lock(&p->start);
    while (n_made < n && !*error_out) {
        each[n_made] = (probed){p, n_made};
        *error_out = pthread_create(&p->threads[n_made], NULL, wait_and_end, &each[n_made]);
        if (!*error_out) n_made++;
    }
    pthread_mutex_unlock(&p->start);
    for (int i = 0; i < n_made; i++) pthread_join(p->threads[i], NULL);
    for (int i = 0; i < n_made; i++) wait_until_gone(p->numbers[i]);
    return n_made;
}

static wf_status probe_threads(wf_context *ctx, int rank, int n_threads) {
    size_t n = (size_t)n_threads - 1;
    probe p = {.start = PTHREAD_MUTEX_INITIALIZER};
    wfi_pool pool = {.ctx = ctx};
    probed *each = wfi_pool_alloc(&pool, n + 1, sizeof *each);
    p.threads = wfi_pool_alloc(&pool, n + 1, sizeof *p.threads);
    p.numbers = wfi_pool_alloc(&pool, n + 1, sizeof *p.numbers);
    wf_status status = wfi_pool_status(&pool);
    int error = 0, n_made = status == WF_OK ? make_threads(&p, each, (int)n, &error) : 0;
    wfi_pool_release(&pool);
    if (!error) return status;
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "rank %d: %d threads are planned, but the system lets only %d start (%s): see "
                    "ulimit -u and the container's limit of processes, or give --threads %d",
                    rank, n_threads, n_made + 1, strerror(error), n_made + 1);
}

/* ---- those that come ---- */

static void count(void *argument) {
    int *n = argument;
    __atomic_fetch_add(n, 1, __ATOMIC_RELEASE);
}

/* Names the variable that limits threads, the likeliest first: "OMP_THREAD_LIMIT is '1': unset
 * it" */
static void name_cause(char *text, size_t bytes) {
    static const char *const variables[] = {
        "OMP_THREAD_LIMIT", "KMP_DEVICE_THREAD_LIMIT", "KMP_ALL_THREADS",
        "KMP_MAX_THREADS",  "OMP_MAX_ACTIVE_LEVELS",   "OMP_DYNAMIC",
        "OMP_NESTED",       "GOMP_CPU_AFFINITY",       "OMP_PLACES",
    };
    for (size_t i = 0; i < WFI_COUNT(variables); i++) {
        const char *value = getenv(variables[i]);
        if (!value) continue;
        snprintf(text, bytes, "%s is '%.40s': unset it", variables[i], value);
        return;
    }
    snprintf(text, bytes, "no OpenMP variable explains it: free some threads");
}

wf_status wfi_library_start_threads(wf_context *ctx, int rank, int n_threads, int *n_out) {
    /* Threads of all ranks count towards one limit: a rank starts its threads before the next rank
     * counts. */
    static pthread_mutex_t one_by_one = PTHREAD_MUTEX_INITIALIZER;
    parallel_function region = parallel();
    int n_come = 0;
    WF_TRY(wfi_library_set_threads(ctx, n_threads));
    if (n_threads == 1) {
        *n_out = 1;
        return WF_OK;
    }
    if (!region)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "the threads of oneDNN's OpenMP cannot be counted, and %d are planned; "
                        "give --threads 1",
                        n_threads);
    tell("omp_set_dynamic", 0);
    if (ask("omp_get_max_active_levels", 1) < 1) tell("omp_set_max_active_levels", 1);
    pthread_mutex_lock(&one_by_one);
    wf_status status = probe_threads(ctx, rank, n_threads);
    if (status == WF_OK) region(count, &n_come, 0, 0);
    /* The end of the region orders it, but no sanitizer sees that. */
    n_come = __atomic_load_n(&n_come, __ATOMIC_ACQUIRE);
    pthread_mutex_unlock(&one_by_one);
    WF_TRY(status);
    if (n_come == n_threads) {
        *n_out = n_come;
        return WF_OK;
    }
    char cause[160];
    name_cause(cause, sizeof cause);
    return wfi_fail(ctx, WF_UNSUPPORTED,
                    "rank %d: %d threads are planned, but OpenMP starts %d, and oneDNN would skip "
                    "the part of the missing ones; %s, or give --threads %d",
                    rank, n_threads, n_come, cause, n_come);
}

/* ---- work of our own for them ---- */

typedef struct division {
    wfi_each_function each;
    const void *argument;
    int n_threads;
    int64_t n;
    int status;
} division;

static void run_part(void *argument) {
    division *d = argument;
    int thread = ask("omp_get_thread_num", 0);
    for (int64_t i = thread; i < d->n; i += d->n_threads) {
        wf_status status = d->each(d->argument, i, thread);
        if (status != WF_OK) __atomic_store_n(&d->status, (int)status, __ATOMIC_RELAXED);
    }
}

wf_status wfi_library_each(int n_threads, int64_t n, wfi_each_function each, const void *argument) {
    division d = {each, argument, n_threads, n, WF_OK};
    parallel_function region = parallel();
    if (n_threads == 1)
        for (int64_t i = 0; i < n && d.status == WF_OK; i++) d.status = (int)each(argument, i, 0);
    else
        region(run_part, &d, (unsigned)n_threads, 0);
    return (wf_status)d.status;
}
