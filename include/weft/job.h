/* A job: processes of one machine that train together, one rank each. They share memory; no
 * port, no file, no name is left behind.
 *
 *     wf_launch_place(ctx, &place);                       // which rank am I?
 *     wf_job_join(ctx, place.job, place.rank, place.n_ranks, 0, &job);
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

#ifdef __cplusplus
extern "C" {
#endif

/* Meets the job's other processes. `name` is the same in all of them and in no other job; it
 * is not needed for processes that wf_launch started. timeout_ms: of every wait for another
 * process; 0 = WEFT_TIMEOUT_MS, or 600,000. Errors: TIMEOUT: the sentence names who did not
 * come; INVALID_ARG; REMOTE: they do not agree on what the job is. */
WF_API WF_NODISCARD wf_status wf_job_join(wf_context *ctx, const char *name, int rank, int n_ranks,
                                          int64_t timeout_ms, wf_job **job_out);
/* Its trainers have been destroyed. NULL is allowed. */
WF_API void wf_job_leave(wf_job *job);
WF_API int wf_job_rank(const wf_job *job);
WF_API int wf_job_n_ranks(const wf_job *job);
/* Returns when all processes have come here. Errors: TIMEOUT, REMOTE: who did not, and what it
 * was last doing. */
WF_API WF_NODISCARD wf_status wf_job_barrier(wf_job *job);

#ifdef __cplusplus
}
#endif
#endif
