/* Runs a function of the caller as ranks: the common part, and ranks that are threads. */
#include "launch/function.h"
#include "base/env.h"
#include "comm/job/control.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- threads ---- */

typedef struct team {
    wf_context *ctx;
    const wf_spawn_config *config;
    int64_t timeout_ms;
    int segment_fd;
    pthread_mutex_t lock; /* protects the fields below */
    int failed_rank;      /* the first; -1 */
    wf_status status;     /* its */
    char sentence[WFI_SENTENCE_BYTES];
} team;

typedef struct rank_thread {
    team *team;
    int rank;
    pthread_t thread;
} rank_thread;

static void record_failure(team *t, int rank, wf_status status) {
    pthread_mutex_lock(&t->lock);
    if (t->failed_rank < 0) {
        t->failed_rank = rank;
        t->status = status;
        snprintf(t->sentence, sizeof t->sentence, "%s", wf_context_error(t->ctx));
    }
    pthread_mutex_unlock(&t->lock);
}

static void *be_rank(void *self) {
    rank_thread *r = self;
    team *t = r->team;
    wf_job *job;
    wf_status status =
        wfi_control_attach(t->ctx, t->segment_fd, r->rank, t->config->n_ranks, t->timeout_ms, &job);
    if (status != WF_OK) {
        record_failure(t, r->rank, status);
        return NULL;
    }
    status = t->config->entry->function(t->ctx, job, t->config->arg);
    if (status != WF_OK) {
        record_failure(t, r->rank, status);
        wfi_failure_set(wfi_control_failure(job), status, wf_context_error(t->ctx));
    }
    wf_job_leave(job);
    return NULL;
}

static wf_status run_threads(team *t, rank_thread *threads) {
    int n = t->config->n_ranks, n_started = 0;
    while (n_started < n) {
        rank_thread *r = &threads[n_started];
        *r = (rank_thread){.team = t, .rank = n_started};
        if (pthread_create(&r->thread, NULL, be_rank, r)) break;
        n_started++;
    }
    if (n_started < n) {
        wf_status status =
            wfi_fail(t->ctx, WF_DEVICE, "the thread of rank %d of %d cannot start", n_started, n);
        record_failure(t, n_started, status);
        wfi_control_fail_segment(t->segment_fd, t->sentence); /* those that wait for it */
    }
    for (int r = 0; r < n_started; r++) pthread_join(threads[r].thread, NULL);
    return t->failed_rank < 0
               ? WF_OK
               : wfi_fail(t->ctx, t->status, "rank %d: %s", t->failed_rank, t->sentence);
}

wf_status wfi_spawn_threads(wf_context *ctx, const wf_spawn_config *config, int64_t timeout_ms,
                            int *failed_rank_out) {
    team t = {.ctx = ctx, .config = config, .timeout_ms = timeout_ms, .failed_rank = -1};
    WF_TRY(wfi_control_segment(ctx, config->n_ranks, &t.segment_fd));
    rank_thread *threads = wfi_alloc(ctx, (size_t)config->n_ranks, sizeof *threads, "ranks");
    pthread_mutex_init(&t.lock, NULL);
    wf_status status = threads ? run_threads(&t, threads) : WF_NO_MEMORY;
    pthread_mutex_destroy(&t.lock);
    wfi_free(ctx, threads);
    close(t.segment_fd);
    *failed_rank_out = t.failed_rank;
    return status;
}

/* ---- both ---- */

static wf_status check_name(wf_context *ctx, const wf_spawn_config *config) {
    const char *name = config->entry->name;
    bool is_good = name && *name;
    for (const char *c = name; is_good && *c; c++)
        is_good = isalnum((unsigned char)*c) || *c == '-' || *c == '_';
    if (!is_good)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "spawn: processes find their function by its name, of letters, digits, - "
                        "and _; it has %s",
                        name && *name ? "others" : "none");
    if (config->arg_bytes > WF_SPAWN_MAX_ARG)
        return wfi_fail(ctx, WF_INVALID_ARG, "spawn: an argument of %zu bytes; processes take %d",
                        config->arg_bytes, WF_SPAWN_MAX_ARG);
    return WF_OK;
}

static wf_status check(wf_context *ctx, const wf_spawn_config *config, int64_t *timeout_ms_out) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_spawn_config"));
    *timeout_ms_out = config->timeout_ms;
    if (config->n_ranks < 1 || config->n_ranks > WF_LAUNCH_MAX_RANKS)
        return wfi_fail(ctx, WF_INVALID_ARG, "spawn: %d ranks; there can be 1 to %d",
                        config->n_ranks, WF_LAUNCH_MAX_RANKS);
    if (!config->entry || !config->entry->function)
        return wfi_fail(ctx, WF_INVALID_ARG, "spawn: no function is given");
    if (config->how != WF_SPAWN_THREADS && config->how != WF_SPAWN_PROCESSES)
        return wfi_fail(ctx, WF_INVALID_ARG, "spawn: %d is neither threads nor processes",
                        (int)config->how);
    WF_TRY(wfi_env_timeout(ctx, timeout_ms_out));
    return config->how == WF_SPAWN_PROCESSES ? check_name(ctx, config) : WF_OK;
}

wf_status wf_spawn(wf_context *ctx, const wf_spawn_config *config, int *failed_rank_out) {
    int64_t timeout_ms;
    int failed_rank = -1;
    if (failed_rank_out) *failed_rank_out = -1;
    WF_TRY(check(ctx, config, &timeout_ms));
    wf_status status = config->how == WF_SPAWN_THREADS
                           ? wfi_spawn_threads(ctx, config, timeout_ms, &failed_rank)
                           : wfi_spawn_processes(ctx, config, timeout_ms, &failed_rank);
    if (failed_rank_out) *failed_rank_out = failed_rank;
    return status;
}
