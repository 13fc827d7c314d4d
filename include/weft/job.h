/* A job: processes that train together, one rank each. Those of one machine share memory; no
 * port, no file, no name is left behind. Those of several machines send each other messages
 * through an MPI library, which is found when they run (docs/launch.md).
 *
 *     wf_job_config meeting = WF_JOB_CONFIG_INIT;
 *     meeting.init = "env://"; // which rank is this, and where are the others?
 *     wf_job_join(ctx, &meeting, &job);
 *     config.job = job;
 *     wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer);
 *
 * All processes call the same functions of the trainer in the same order, with the same
 * arguments: each call is one of the whole job. Files are written by rank 0, and losses and
 * weights are the same everywhere.
 */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include <weft/context.h>

typedef struct wf_job wf_job;

typedef struct wf_job_config {
    size_t struct_size;
    int rank, n_ranks; /* this process's, and of all */
    /* The same in all processes of the job and in no other job of this machine. Not needed by
     * processes that wf_launch started. */
    const char *name;
    int64_t timeout_ms; /* of every wait for another process; 0 = WEFT_TIMEOUT_MS, or 600,000 */
    /* How the processes find each other:
     *   NULL                  by rank, n_ranks and name
     *   env://                rank, n_ranks and name are those of the environment, by the rules of
     *                         wf_launch_place; so one line is right for every launcher, and for
     *                         programs started by hand with RANK, WORLD_SIZE, MASTER_ADDR and
     *                         MASTER_PORT. No port is opened: the last two only name the job. If
     *                         n_ranks is given as well, rank and n_ranks have to be the same there
     *   tcp://127.0.0.1:PORT  over a store (wf_store_open) that rank 0 serves while they meet.
     *   file:///path          over a store in a file.
     *                         With these two, rank and n_ranks are the environment's if n_ranks is
     *                         1, and name is not used. */
    const char *init;
    const char *token; /* tcp: that of the store; NULL: WEFT_TOKEN */
    /* How the ranks reach each other afterwards: "shm", shared memory; "mpi", and then that
     * library's mpirun has started them, and init is NULL or env://; "auto" or NULL: shm, or mpi if
     * env:// says that they are on several machines; "nccl": the same, but what trainers' ranks
     * read of each other goes between their GPUs, by NCCL; all devices are CUDA's then. */
    const char *wire;
} wf_job_config;

#define WF_JOB_CONFIG_INIT                                                                         \
    { sizeof(wf_job_config), 0, 1, 0, 0, 0, 0, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* Meets the job's other processes. A process may join, leave and join again as often as it likes,
 * as long as all do. Errors: TIMEOUT: the sentence names who did not come; INVALID_ARG: also what
 * is wrong in the environment, a port or a name that is taken, a file of an earlier run, two
 * processes of one rank; REMOTE: they do not agree on what the job is; UNSUPPORTED: there is no
 * MPI library: the sentence says what to install or set; those of wf_store_open. After TIMEOUT
 * or REMOTE over mpi, a thread may still be in MPI_Init: end the process by _exit, as handlers
 * at exit destroy what it uses. */
WF_API WF_NODISCARD wf_status wf_job_join(wf_context *ctx, const wf_job_config *config,
                                          wf_job **job_out);
/* Its trainers have been destroyed. Over mpi it waits for the others to leave, and ends MPI if
 * wf_job_join has started it: a program that joins several jobs starts MPI itself. NULL is
 * allowed. */
WF_API void wf_job_leave(wf_job *job);
WF_API int wf_job_rank(const wf_job *job);
WF_API int wf_job_n_ranks(const wf_job *job);
/* The same on this machine. */
WF_API int wf_job_local_rank(const wf_job *job);
WF_API int wf_job_n_local_ranks(const wf_job *job);
/* Returns when all ranks have come here. Errors: TIMEOUT, REMOTE: who did not, and what it was last
 * doing. */
WF_API WF_NODISCARD wf_status wf_job_barrier(wf_job *job);
/* Rank 0's bytes become those of all ranks; `n_bytes` is the same in all. Errors: REMOTE: it is
 * not; those of the barrier. */
WF_API WF_NODISCARD wf_status wf_job_broadcast(wf_job *job, void *data, size_t n_bytes);
/* Something that all ranks of a job need the same, such as an option: {"--warmup", "5"}. An empty
 * value, or NULL: it is not given; "true": it is, without a value. */
typedef struct wf_setting {
    const char *name, *value;
} wf_setting;
/* Meets the other ranks, and finds that all bring the same settings. Errors: REMOTE, on all ranks:
 * the sentence names the first that differs, the rank and both values; those of a barrier. */
WF_API WF_NODISCARD wf_status wf_job_compare(wf_job *job, const wf_setting *settings,
                                             int n_settings);
/* This process would like all to stop; `reason` > 0, such as a signal's number. The next run of
 * a trainer tells the others, and its wf_step_result.stop_reason tells all of them: so they stop
 * after the same step. Any thread may call it, and a signal handler. */
WF_API void wf_job_request_stop(wf_job *job, int reason);

#ifdef __cplusplus
}
#endif
#endif
