/* Workers with parameters of their own: asynchronous updates, and local steps with averages.
 *
 *     recipe.update = WF_UPDATE_ASYNC; // plan "dp=4,ps=1": four workers and a parameter server
 *     wf_workers_create(ctx, model, &recipe, plan, &config, &workers);
 *     wf_workers_run(workers, n_steps, results, &n_done);
 *     wf_trainer_save(wf_workers_trainer(workers), "run/model.safetensors"); // on rank 0
 *
 * The recipe divides each batch equally among its M workers. A step is M parts of batches, so a run
 * of N steps computes as many samples under every update.
 *
 *   ASYNC  A worker pulls the parameters, computes the gradient of the mean loss of its part, and
 *          pushes it. Servers divide the parameters. All servers apply the gradients in one order,
 *          that of their arrival. Each push is an update with 1/M of the learning rate. Between the
 *          pull and the push of a gradient there are at most staleness x M updates. staleness=0
 *          waits for all gradients of a step and has the bits of update=sync.
 *   LOCAL  Each worker takes local_steps steps of its own optimizer. Then
 *          an outer step moves the common parameters by the mean of the workers' changes
 *          (outer_lr, outer_momentum). The result does not depend on the ranks.
 *
 * Placement: dp=P of the plan puts the workers on P ranks, neighbours together. Without a job,
 * ranks are threads of this process. In a job each process is one rank, and calls the same
 * functions in the same order. Between two runs rank 0's trainer has the state.
 */
#ifndef WEFT_WORKERS_H
#define WEFT_WORKERS_H

#include <weft/timeline.h>
#include <weft/trainer.h>

typedef struct wf_workers wf_workers;

#define WF_WORKER_MAX_FEEDS 8

/* The part of one batch that a worker computes. */
typedef struct wf_worker_part {
    wf_feed feeds[WF_WORKER_MAX_FEEDS]; /* borrowed until the worker's next part */
    int n_feeds;
    int64_t n_samples; /* of the part, as wf_recipe_part divides the batch among the workers */
    int64_t n_batch;   /* of the whole batch */
    int64_t n_ignored; /* rows of the whole batch with ignored labels. ASYNC with staleness=0
                        * divides the loss by the others */
} wf_worker_part;

typedef struct wf_workers_config {
    size_t struct_size;
    /* Configures each worker's trainer, which gets the workers' job. With `trace`,
     * wf_workers_timeline has a result. `own_batch`, `forward_only` and `keep_gradients` are not
     * used. NULL: WF_TRAINER_CONFIG_INIT. */
    const wf_trainer_config *trainer;
    /* Reads worker `worker`'s part of batch `batch`, from 0. Workers of different ranks call it at
     * the same time, each from one thread; a worker's batches ascend by one. */
    wf_status (*read)(void *self, int worker, int64_t batch, wf_worker_part *part_out);
    /* Reports to rank 0 the number of finished steps and the loss of the latest one. May be NULL.
     */
    void (*progress)(void *self, int64_t n_steps, double loss);
    /* May be NULL: a reason > 0 ends the run after a whole step, LOCAL after an average. The last
     * result's stop_reason is then the largest one of any rank. */
    int (*stops)(void *self);
    void *self;
    /* ASYNC: `record` is a file that gets the order of the pushes after each run. `replay` is such
     * a file; the workers repeat its order, with the same bits. NULL: none. The texts must outlive
     * the workers. `identity` is a text of model, data and recipe; a replay requires the same text.
     * NULL: "". */
    const char *record, *replay, *identity;
    /* 1: only wf_workers_rank_get, with planned figures of all ranks, which are threads; 2: the
     * same, of processes. */
    int plan_only;
    /* plan_only: rank 0 also tests n_test samples, n_test_at_once at a time, as in
     * wf_program_plan_tests. */
    int64_t n_test, n_test_at_once;
} wf_workers_config;

#define WF_WORKERS_CONFIG_INIT                                                                     \
    { sizeof(wf_workers_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* Memory and traffic of one rank. */
typedef struct wf_workers_rank {
    wf_trainer_memory memory; /* of its trainer, with the workers' and servers' host memory */
    /* A step, to and from other ranks, without the first pull of a run. */
    uint64_t sent_bytes, received_bytes;
} wf_workers_rank;

#ifdef __cplusplus
extern "C" {
#endif

/* Creates the workers and servers of this process. The call copies `recipe` and `plan`, and borrows
 * config->trainer and the pointers of config. Errors: those of wf_trainer_create and
 * wf_group_create; INVALID_ARG (a plan or a model that workers do not support); CORRUPT and IO (the
 * record to replay).
 */
WF_API WF_NODISCARD wf_status wf_workers_create(wf_context *ctx, const wf_model *model,
                                                const wf_recipe *recipe, const wf_plan *plan,
                                                const wf_workers_config *config,
                                                wf_workers **workers_out);
WF_API void wf_workers_destroy(wf_workers *workers); /* NULL is allowed */

/* Runs n_steps more steps; results_out [n_steps] and *n_done_out are equal on all ranks. It runs
 * fewer steps only if config->stops returns a reason. LOCAL: the run ends with an average. Errors:
 * those of wf_trainer_step, and of config->read; INVALID_ARG (the record to replay has fewer steps;
 * a part has more ignored labels than n_ignored, with staleness=0); IO (the record to write); in a
 * job also TIMEOUT and REMOTE. After an error the workers can only be destroyed. */
WF_API WF_NODISCARD wf_status wf_workers_run(wf_workers *workers, int64_t n_steps,
                                             wf_step_result *results_out, int64_t *n_done_out);

/* The number of workers of a recorded run. Errors: IO, CORRUPT. */
WF_API WF_NODISCARD wf_status wf_workers_recorded(wf_context *ctx, const char *record,
                                                  int *n_workers_out);

/* Rank 0's trainer, with the state of all; NULL on other ranks. Do not step it. */
WF_API wf_trainer *wf_workers_trainer(wf_workers *workers);
WF_API int wf_workers_n(const wf_workers *workers);
/* The resolved recipe. Borrowed. */
WF_API const wf_recipe *wf_workers_recipe(const wf_workers *workers);
/* The number of steps, and the number of a worker's next batch. */
WF_API int64_t wf_workers_n_steps(const wf_workers *workers);
WF_API int64_t wf_workers_batch(const wf_workers *workers, int worker);

/* Writes the state that is not in rank 0's trainer: each worker's next batch and, for LOCAL, its
 * optimizer state and the outer momentum. Call it between runs, on all ranks. Errors: IO; those of
 * a job. */
WF_API WF_NODISCARD wf_status wf_workers_save(wf_workers *workers, const char *path);
/* Continues from the state that rank 0's trainer has loaded and from this file. The number of steps
 * must agree. Errors: those of wf_safetensors_open; CORRUPT; those of a job. */
WF_API WF_NODISCARD wf_status wf_workers_load(wf_workers *workers, const char *path);

/* Finds the first worker and the number of workers (0: none) of rank `rank` of the plan, and its
 * server (-1: none). */
WF_API void wf_workers_place(const wf_workers *workers, int rank, int *first_out, int *n_out,
                             int *server_out);
/* Returns the number of gradients in ASYNC runs, also in those before a load, that were `steps`
 * steps old, rounded up; -1: no gradient was so old or older. Equal on all ranks after a run. */
WF_API int64_t wf_workers_staleness(const wf_workers *workers, int64_t steps);
/* Creates the timeline of the latest spans, up to 16 of each rank's workers and of each server.
 * Ranks of the timeline: those with workers, then the servers. The spans are gradients (`micro`:
 * the version of the parameters that the worker read; LOCAL: the step), messages from a push to the
 * end of the pull, updates (the version after it), and averages. In a job collective, with equal
 * results. Errors: INVALID_ARG (no trace; no step yet), NO_MEMORY; those of a job. */
WF_API WF_NODISCARD wf_status wf_workers_timeline(wf_workers *workers, wf_timeline **timeline_out);
/* Finds memory and traffic of rank `rank` of the plan; servers' ranks follow the workers'. In a job
 * collective. Errors: those of a job. */
WF_API WF_NODISCARD wf_status wf_workers_rank_get(wf_workers *workers, int rank,
                                                  wf_workers_rank *rank_out);

#ifdef __cplusplus
}
#endif
#endif
