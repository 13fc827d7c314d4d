/* Jobs: processes that train together, one rank each.
 *
 * The ranks of one machine share memory, and leave no port, file or name behind. Ranks of several
 * machines send messages through an MPI library, which is loaded at run time (docs/machines.md).
 *
 *     wf_job_config meeting = WF_JOB_CONFIG_INIT;
 *     meeting.init = "env://"; // the launcher's variables name the rank and the job
 *     wf_job_join(ctx, &meeting, &job);
 *     config.job = job;
 *     wf_trainer_create(ctx, model, &recipe, plan, &config, &trainer);
 *
 * Trainer calls are collective: all processes call the same functions in the same order with the
 * same arguments. Rank 0 writes files. Losses and weights are equal on all ranks.
 */
#ifndef WEFT_JOB_H
#define WEFT_JOB_H

#include <weft/context.h>

typedef struct wf_job wf_job;

typedef struct wf_job_config {
    size_t struct_size;
    int rank, n_ranks; /* this process's rank, and the number of ranks */
    /* The job's name: equal in all its processes, and different from other jobs of this machine.
     * Processes that wf_launch started do not need it. */
    const char *name;
    int64_t timeout_ms; /* for every wait for another process; 0 = WEFT_TIMEOUT_MS, or 600,000 */
    /* The rendezvous:
     *   NULL                  by rank, n_ranks and name
     *   env://                rank, n_ranks and name come from the environment, by the rules of
     *                         wf_launch_place. The same line works for every launcher, and for
     *                         programs started by hand with RANK, WORLD_SIZE, MASTER_ADDR and
     *                         MASTER_PORT. The last two only name the job; no port is opened. If
     *                         n_ranks is also given, rank and n_ranks must match the environment
     *   tcp://127.0.0.1:PORT  through a store (wf_store_open) that rank 0 serves during the
     *                         rendezvous
     *   file:///path          through a store in a file
     * With tcp and file, name is not used. If n_ranks is 1, rank and n_ranks are the
     * environment's. */
    const char *init;
    const char *token; /* tcp: the store's token; NULL: WEFT_TOKEN */
    /* The connection of the ranks after the rendezvous:
     *   "shm"         shared memory
     *   "mpi"         messages; that library's mpirun must have started the ranks, and init must be
     *                 NULL or env://
     *   "auto", NULL  shm, or mpi if env:// finds several machines
     *   "nccl"        as "auto", but trainers' ranks exchange data between GPUs by NCCL; all
     *                 devices must then be CUDA devices */
    const char *wire;
} wf_job_config;

#define WF_JOB_CONFIG_INIT                                                                         \
    { sizeof(wf_job_config), 0, 1, 0, 0, 0, 0, 0 }

#ifdef __cplusplus
extern "C" {
#endif

/* Joins the job: waits for its other processes. A process may join, leave and join again any number
 * of times, if all processes do. Errors: TIMEOUT (the sentence names the missing ranks);
 * INVALID_ARG (a bad timeout or environment, a port or name in use, a file of an earlier run, two
 * processes with one rank); REMOTE (the processes describe different jobs); UNSUPPORTED (no MPI
 * library; the sentence names the package or variable that helps); DEVICE (shared memory is not
 * available); INTERRUPTED (the job has failed, and a launcher that replaces ranks starts none
 * again); those of wf_store_open. After TIMEOUT or REMOTE over mpi, a thread may still be in
 * MPI_Init, and exit handlers would destroy objects that it uses: end the process by _exit. */
WF_API WF_NODISCARD wf_status wf_job_join(wf_context *ctx, const wf_job_config *config,
                                          wf_job **job_out);
/* Leaves the job. Destroy its trainers first. Over mpi the call waits until all ranks leave, and
 * ends MPI if wf_job_join started it. A program that joins several jobs must therefore start MPI
 * itself. NULL is allowed. */
WF_API void wf_job_leave(wf_job *job);
/* This process's rank in the job, and the number of ranks. */
WF_API int wf_job_rank(const wf_job *job);
WF_API int wf_job_n_ranks(const wf_job *job);
/* The wire in use: "shm", "mpi" or "nccl". Static. */
WF_API const char *wf_job_wire(const wf_job *job);
/* The rank among the job's ranks on this machine, and their number. */
WF_API int wf_job_local_rank(const wf_job *job);
WF_API int wf_job_n_local_ranks(const wf_job *job);
/* Returns when all ranks have called it. Errors: TIMEOUT, REMOTE (the sentence names the missing
 * rank and its last operation). */
WF_API WF_NODISCARD wf_status wf_job_barrier(wf_job *job);
/* Copies rank 0's bytes to all ranks. `n_bytes` must be equal on all. Errors: REMOTE (n_bytes
 * differs), those of wf_job_barrier. */
WF_API WF_NODISCARD wf_status wf_job_broadcast(wf_job *job, void *data, size_t n_bytes);
/* A setting that must be equal on all ranks, such as an option: {"--warmup", "5"}. The value of an
 * option without an argument is "true"; an empty value, or NULL, means that it is not set. */
typedef struct wf_setting {
    const char *name, *value;
} wf_setting;
/* Checks that all ranks have the same settings. Collective. Errors: REMOTE on all ranks (the
 * sentence names the first setting that differs, the rank and both values), those of
 * wf_job_barrier. */
WF_API WF_NODISCARD wf_status wf_job_compare(wf_job *job, const wf_setting *settings,
                                             int n_settings);
/* Requests that all ranks stop; `reason` > 0, such as a signal's number. The next run of a trainer
 * sends the request to the other ranks. wf_step_result.stop_reason reports it on all of them, so
 * that all stop after the same step. Safe in any thread and in a signal handler. */
WF_API void wf_job_request_stop(wf_job *job, int reason);

#ifdef __cplusplus
}
#endif
#endif
