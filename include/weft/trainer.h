/* A trainer: a model with its state on devices, stepped by a program.
 *
 *     wf_trainer_create(ctx, model, &recipe, plan, NULL, &trainer);
 *     for (step...) wf_trainer_step(trainer, feeds, n_feeds, n_samples, &result);
 *     wf_trainer_save(trainer, "run/model.safetensors");
 *
 * In a job, a call that fails for more than its feeds (a file, memory, a device, a recipe that is
 * refused) ends the job: no process can go on as if the others had done what it could not. Feeds
 * that are refused in all processes alike end nothing; in some of them, where each brings the whole
 * batch, they end the job, too.
 *
 * One thread at a time may call it. Steps of fewer samples than the recipe's batch
 * (the end of an epoch) get a program of their own, made when first needed.
 */
#ifndef WEFT_TRAINER_H
#define WEFT_TRAINER_H

#include <weft/checkpoint.h>
#include <weft/costs.h>
#include <weft/job.h>
#include <weft/program.h>
#include <weft/timeline.h>

typedef struct wf_trainer wf_trainer;

#define WF_DEVICE_NAME_BYTES 32

typedef struct wf_trainer_config {
    size_t struct_size;
    const char *devices; /* "cpu:2": two CPU ranks, as threads; NULL: one a rank of the plan */
    size_t device_memory_bytes; /* per rank; 0 = no cap */
    int64_t timeout_ms;         /* of a wait without progress; 0 = 600,000 */
    int profile;                /* count time per kernel */
    int trace;                  /* for wf_trainer_timeline and wf_trainer_costs */
    int keep_gradients;         /* for wf_trainer_read_gradient; costs memory */
    int forward_only;           /* only wf_trainer_eval and _forward: nothing backward is planned */
    /* The plan's ranks are the processes of this job, one each; borrowed, outlives the trainer.
     * NULL: all are threads of this process. A job may have up to 16 trainers alive at once;
     * all ranks make them, and run them, in the same order. */
    wf_job *job;
    /* In a job, each process brings its own part of a step's samples (wf_trainer_part) and
     * those inputs only that its rank reads; 0: each brings the whole batch. UNSUPPORTED
     * with a plan that loads all inputs on rank 0 (wf_plan_loads_at_root). */
    int own_batch;
    /* What is saved is divided into shards of about that many bytes (wf_safetensors_writer_divide);
     * 0: it is one file. */
    size_t shard_bytes;
    size_t host_memory_bytes; /* per rank, of what offload= keeps there; 0 = no cap */
    const char *folder;       /* of the files of offload=...:disk; NULL: TMPDIR's, or /tmp */
    int save_async; /* what is saved is copied, and written meanwhile: wf_trainer_save_wait */
} wf_trainer_config;

#define WF_TRAINER_CONFIG_INIT                                                                     \
    { sizeof(wf_trainer_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* One input of the global batch, row-major on the host, dim 0 = samples. Elements are of the dtype
 * that wf_input says. Labels are below the number of classes, where negative ones are ignored, and
 * tokens from 0 to the table's last row; the run that is fed others is refused, INVALID_ARG, and
 * nothing has changed. */
typedef struct wf_feed {
    const char *name; /* as in wf_input */
    const void *data;
    size_t bytes;
} wf_feed;

typedef struct wf_step_result {
    double loss;    /* mean over the rows that count */
    int64_t n_rows; /* that count: samples or tokens, ignored labels left out */
    int64_t n_hits; /* rows whose largest logit is the label; 0 without labels */
    double lr;
    double gradient_norm; /* before clipping, the same in all processes; 0 unless clipping is on */
    int stop_reason;      /* in a job: the largest that a process gave to wf_job_request_stop
                           * before it began this run, whichever trainer's; the same in all. 0: go on */
} wf_step_result;

typedef struct wf_trainer_memory {
    size_t planned_peak_bytes;  /* of the programs made so far */
    size_t measured_peak_bytes; /* by the extents that kernels and copies were given */
    int is_measured;   /* whether those programs have run which have the planned peaks: what is
                        * measured   is less otherwise, as where a run goes on for no step */
    size_t host_bytes; /* live in the context's allocator */
    /* Beside the plan: copies of what the rank reads of others' memory, if it cannot see it (a job
     * over mpi); the most at the end of any run. */
    size_t wire_bytes;
    /* What offload= keeps in the host's memory and in a file. */
    size_t planned_host_peak_bytes, measured_host_peak_bytes;
    size_t planned_disk_peak_bytes, measured_disk_peak_bytes;
    /* What this process has copied to save it in the background, at most at a time. */
    size_t save_bytes;
} wf_trainer_memory;

/* One line of the profile. Times are the sum over all calls since the trainer was
 * created or the profile was reset: CPU time of the thread that computes, so what other programs
 * take of its core does not count, and waiting for others counts nothing. */
typedef struct wf_profile_row {
    const char *label;  /* op, "pack", "accumulate", "update", ... */
    const char *kernel; /* implementation and what its library calls it */
    int64_t n_calls;
    int64_t time_ns;
    double flops;
} wf_profile_row;

#ifdef __cplusplus
extern "C" {
#endif

/* How many ranks a list of devices is for: "cpu:4" or "cpu:1,cpu:0". Errors: INVALID_ARG,
 * UNSUPPORTED. */
WF_API WF_NODISCARD wf_status wf_devices_count(wf_context *ctx, const char *devices, int *n_out);
/* What each rank of such a list may have of its device's memory: what is free there, divided among
 * the ranks on it, for the rank that has least; 0: they are on CPUs, or on devices that do not say.
 * Errors: those; UNSUPPORTED, DEVICE: the devices cannot be reached. */
WF_API WF_NODISCARD wf_status wf_devices_memory(wf_context *ctx, const char *devices,
                                                size_t *bytes_out);
/* The device of that rank, such as "cpu:1". Ranks may share one: they share its cores, each with
 * its own memory and streams. Errors: those, INVALID_ARG (no such rank). */
WF_API WF_NODISCARD wf_status wf_devices_name(wf_context *ctx, const char *devices, int rank,
                                              char name_out[WF_DEVICE_NAME_BYTES]);

/* Lowers, checks, allocates and initialises from the seed. `config` NULL means the
 * defaults. Errors: those of wf_program_create; DOES_NOT_FIT; DEVICE; UNSUPPORTED, if OpenMP or
 * the system starts fewer threads than the recipe says: the sentence names what keeps them away. */
WF_API WF_NODISCARD wf_status wf_trainer_create(wf_context *ctx, const wf_model *model,
                                                const wf_recipe *recipe, const wf_plan *plan,
                                                const wf_trainer_config *config,
                                                wf_trainer **trainer_out);
/* The common case: a model function, a recipe's text (wf_recipe_parse) and a plan's
 * (wf_plan_parse); the plan's ranks are threads, one CPU device each. `config` is the function's;
 * it is borrowed and outlives the trainer. Errors: those of both texts, and of wf_trainer_create.
 */
WF_API WF_NODISCARD wf_status wf_trainer_open(wf_context *ctx, wf_model_function function,
                                              const void *config, const char *recipe,
                                              const char *plan, wf_trainer **trainer_out);
/* Waits for what is in flight; NULL is allowed. */
WF_API void wf_trainer_destroy(wf_trainer *trainer);

/* One optimizer step on `n_samples` samples (from the recipe's microbatches to its batch).
 * Returns when the loss is known. With own_batch, feeds and n_samples are this process's part
 * of the step: the numbers of all processes have to be what wf_trainer_part says for their
 * sum, and loss and weights are those of one rank given all parts in the order of ranks.
 * Errors: SHAPE (a feed is missing, unknown or of the wrong size; parts that do not fit
 * together, on all processes, and none has stepped); INVALID_ARG (a label or a token that the model
 * does not have: the sentence names input, sample and value); with own_batch, that the feeds of
 * another process were refused, with its status; NOT_FINITE: the loss of a microbatch, a
 * gradient, a new weight or what is kept beside it is infinite or no number, the same on all
 * processes. The sentence names the unit (of several the last, in which the backward pass begins)
 * and, if its loss is not finite either, the first such microbatch: gradients are looked at when
 * they are summed. What the step left can be read but not saved; wf_trainer_load_state makes the
 * trainer good again. TIMEOUT, DEVICE: the trainer can only be destroyed. */
WF_API WF_NODISCARD wf_status wf_trainer_step(wf_trainer *trainer, const wf_feed *feeds,
                                              int n_feeds, int64_t n_samples,
                                              wf_step_result *result_out);

/* Which samples of a step of `n_samples` over all ranks this process brings: with own_batch in a
 * job those of its replica's microbatches, else all. Stages of one replica have the same part. */
WF_API void wf_trainer_part(const wf_trainer *trainer, int64_t n_samples, int64_t *first_out,
                            int64_t *n_out);

/* Makes the program for forward runs of `n_samples` now, so that its memory is planned,
 * and refused if it does not fit, before the first step. Errors: those of wf_program_create;
 * DOES_NOT_FIT; in a job those of a wait. */
WF_API WF_NODISCARD wf_status wf_trainer_prepare_eval(wf_trainer *trainer, int64_t n_samples);

/* Forward only, with running statistics and without dropout; changes no state. n_samples and
 * feeds are of the whole run, also with own_batch; there a process may leave out what its rank
 * does not read. Errors: those of wf_trainer_prepare_eval, if no run had as many samples yet; SHAPE
 * (a feed is missing, unknown or of the wrong size; no samples; in a job with own_batch also: not
 * the same number on all ranks); INVALID_ARG (as wf_trainer_step); with own_batch, that the feeds
 * of another process were refused, with its status; NOT_FINITE: the loss of a
 * microbatch, on all processes, and the trainer is as it was; TIMEOUT, DEVICE, REMOTE: the trainer
 * can only be destroyed. */
WF_API WF_NODISCARD wf_status wf_trainer_eval(wf_trainer *trainer, const wf_feed *feeds,
                                              int n_feeds, int64_t n_samples,
                                              wf_step_result *result_out);

/* With the schedule plateau: the loss on data that is not trained on, the same in all processes,
 * decides about the learning rate from the next step on. A loss that is NaN is no better than any,
 * as the first one, too. It is a part of the state. Otherwise nothing. */
WF_API void wf_trainer_evaluated(wf_trainer *trainer, double loss);

/* The same, and copies the output named `name` (wf_output) to `dst`, in a job on every
 * process. Inputs that the output does not depend on may be left out. Errors: those of
 * wf_trainer_eval but NOT_FINITE; INVALID_ARG (no output has that name), SHAPE (it does not have
 * dst_bytes bytes). */
WF_API WF_NODISCARD wf_status wf_trainer_forward(wf_trainer *trainer, const wf_feed *feeds,
                                                 int n_feeds, int64_t n_samples, const char *name,
                                                 void *dst, size_t dst_bytes);

/* ---- state ----
 *
 * In a job these, but for wf_trainer_state_metadata and wf_trainer_n_steps, are calls of all
 * processes. Each writes and reads what its own rank holds, and none has all of it in memory; paths
 * and metadata are rank 0's, and rank 0's process writes and reads for those that do not see its
 * files. What fails in one process fails in all, and ends the job: in the others as REMOTE. Beside
 * what stands with each, errors are NO_MEMORY and, in a job, TIMEOUT and REMOTE. */

/* Pairs that every file has that the trainer writes from now on, beside its own: what others have
 * to know of the model. Copied; they take the place of those before. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_trainer_describe(wf_trainer *trainer, const wf_metadata *metadata,
                                                  int n_metadata);
/* Writes parameters and buffers to `path`: safetensors, in one step, or with config.shard_bytes an
 * index and shards, of which a reader never sees old ones beside new ones. Errors, after which the
 * file is as it was and nothing is left beside it: NOT_FINITE after a step that was, or after a
 * file that broke off while it was loaded; IO (the folder, a full disk, ...). */
WF_API WF_NODISCARD wf_status wf_trainer_save(wf_trainer *trainer, const char *path);
/* Writes everything a resumed run needs: parameters, buffers, optimizer state, step, and the
 * caller's own pairs of text (data position, resolved recipe, ...). Errors: those of
 * wf_trainer_save; INVALID_ARG (text that is not UTF-8, a key given twice or `weft.n_steps`). */
WF_API WF_NODISCARD wf_status wf_trainer_save_state(wf_trainer *trainer, const char *path,
                                                    const wf_metadata *metadata, int n_metadata);
/* With config.save_async, the two above return when what they save is copied (to the host's memory,
 * in the process that writes it; NO_MEMORY). A thread writes it, and the first step after that puts
 * the file in its place, before it begins. A save after another step, every load of this trainer,
 * and this call wait for the thread, and do so, too. All other readers of the file
 * (wf_trainer_state_metadata, other trainers) need this call first. A disk that is full is heard of
 * there: IO of that step, save, load or call, and the old file is as it was. A trainer that is
 * destroyed before leaves the old file, too. */
WF_API WF_NODISCARD wf_status wf_trainer_save_wait(wf_trainer *trainer);
/* Reads what wf_trainer_save_state wrote, under whatever plan; the next steps give the bits of a
 * run that never stopped. All is looked at before any of it is moved. Errors: those of
 * wf_trainer_load_weights; CORRUPT also if it is no state; INVALID_ARG if its run had other
 * micro, lanes or slices, which a recipe that leaves them open has from its plan. */
WF_API WF_NODISCARD wf_status wf_trainer_load_state(wf_trainer *trainer, const char *path);
/* The value of a key in a state file, which is in its place (wf_trainer_save_wait); free with
 * wf_text_free. NULL if absent. Errors: those of wf_safetensors_open. */
WF_API WF_NODISCARD wf_status wf_trainer_state_metadata(wf_context *ctx, const char *path,
                                                        const char *key, char **value_out);
/* Loads parameters and buffers by name from a safetensors file, shards or a folder
 * (wf_safetensors_open; torchvision's and Hugging Face's prefixes are understood). F16, BF16 and
 * F64 become F32: the first two exactly, the last to the nearest. Errors: IO; SHAPE: the sentence
 * lists what is missing or unexpected; CORRUPT, also if a number is not finite: the sentence names
 * the tensor. Nothing is changed then, but for an IO of a file that breaks off while it is moved:
 * the trainer's state is to be loaded again before it can be saved. */
WF_API WF_NODISCARD wf_status wf_trainer_load_weights(wf_trainer *trainer, const char *path);
/* The same but for what `skip` names, by such words as wf_graph_config.freeze: these keep what they
 * have, as they were initialised, and the file may hold them in any shape, or not. *skipped_out,
 * which may be NULL, becomes their names, with commas between them; free it with wf_text_free.
 * Errors also: INVALID_ARG: a word that nothing of the model has. */
WF_API WF_NODISCARD wf_status wf_trainer_load_weights_but(wf_trainer *trainer, const char *path,
                                                          const char *skip, char **skipped_out);

/* Copies parameters and buffers of `from` to those of the same names in `to`, whatever the plan,
 * devices and model of each: a target network, or one of two networks that are trained against each
 * other. `names`: which, by such words as wf_graph_config.freeze; NULL: all that `to` has. What the
 * optimizer of `to` keeps stays; with wf_trainer_use_average, the average of `from` is copied. Each
 * process has one tensor at a time in its memory. Both are of one context and one job. Errors,
 * after which nothing is changed: INVALID_ARG (a word that nothing of `to` has, a name that `from`
 * does not have, another context or job, `to` uses its average); SHAPE. What a step of `from` left
 * that was not finite cannot be saved by `to` either. */
WF_API WF_NODISCARD wf_status wf_trainer_copy_weights(wf_trainer *to, wf_trainer *from,
                                                      const char *names);

/* With recipe.ema: from this call on (1) the weights are their moving average, for evaluation,
 * outputs, wf_trainer_save, _read and _weights_sha256, or (0) they are the weights again, to the
 * bit. The average begins with the weights after the first step; before it is the weights. Of
 * parameters that are trained: what is frozen, and buffers (running statistics), are the model's
 * own, as in PyTorch's AveragedModel. It is saved and loaded with the state. A call of all
 * processes, which moves all weights. Errors: INVALID_ARG (there is no average; steps, and loading
 * and saving the state, while it is in the weights' place). */
WF_API WF_NODISCARD wf_status wf_trainer_use_average(wf_trainer *trainer, int is_used);

/* Hidden state (wf_lstm) of steps, or of forward runs, begins with zeros again in the next one: a
 * new text. Steps leave the hidden state of forward runs alone, and the reverse. That of forward
 * runs also begins with zeros where a forward run has another number of samples than the one
 * before, and after wf_trainer_load_state: no file has it. A model without hidden state ignores the
 * call. In a job, all processes call it before the same run. */
WF_API void wf_trainer_reset_hidden(wf_trainer *trainer, wf_program_kind kind);

/* A parameter or buffer of the model. */
typedef struct wf_trainer_tensor {
    const char *name; /* borrowed from the trainer */
    wf_dtype dtype;
    wf_shape shape;
} wf_trainer_tensor;

/* Fills in the i-th parameter or buffer, which wf_trainer_read reads, and returns 1; 0 past the
 * last. The order is the same in every process. */
WF_API int wf_trainer_tensor_get(const wf_trainer *trainer, int i, wf_trainer_tensor *tensor_out);

/* Steps taken since initialisation. */
WF_API int64_t wf_trainer_n_steps(const wf_trainer *trainer);
/* Copies parameter or buffer `name` to the host, in a job on every process. Errors: INVALID_ARG (it
 * has none of that name), SHAPE (that does not have dst_bytes bytes). */
WF_API WF_NODISCARD wf_status wf_trainer_read(wf_trainer *trainer, const char *name, void *dst,
                                              size_t dst_bytes);
/* The gradient of parameter `name` as the last step summed it (before clipping). Errors:
 * INVALID_ARG (config.keep_gradients is not set, the latest run was no step, there is no parameter
 * of that name), SHAPE. */
WF_API WF_NODISCARD wf_status wf_trainer_read_gradient(wf_trainer *trainer, const char *name,
                                                       void *dst, size_t dst_bytes);
/* SHA-256 of all parameters and buffers (docs/formats.md), 64 hex digits and a zero. */
WF_API WF_NODISCARD wf_status wf_trainer_weights_sha256(wf_trainer *trainer, char hex_out[65]);

/* ---- reports ---- */

/* Borrowed. */
WF_API const wf_program *wf_trainer_program(const wf_trainer *trainer); /* the full batch's */
/* Of a rank that there is not, host_bytes alone is not 0. */
WF_API wf_trainer_memory wf_trainer_memory_of(const wf_trainer *trainer, int rank);
/* The threads that the kernels of each rank in this process compute with, as they were counted when
 * it began; a trainer for which fewer come than the recipe says is not made (UNSUPPORTED). */
WF_API int wf_trainer_n_threads(const wf_trainer *trainer);
/* The i-th row, largest time first; 0 past the last. */
WF_API int wf_trainer_profile(wf_trainer *trainer, int i, wf_profile_row *row_out);
WF_API void wf_trainer_profile_reset(wf_trainer *trainer);

/* When each instruction of the last step ran. Needs config.trace and a step of the full
 * batch. In a job, all processes call this and wf_trainer_costs, and get the same. Errors:
 * INVALID_ARG; those of waits. */
WF_API WF_NODISCARD wf_status wf_trainer_timeline(const wf_trainer *trainer,
                                                  wf_timeline **timeline_out);
/* What each unit took: the mean of the middle half of its latest 256 microbatches, those of
 * the first step left out; a program
 * of the same microbatches is simulated well with it. Needs config.trace and two steps. */
WF_API WF_NODISCARD wf_status wf_trainer_costs(const wf_trainer *trainer, wf_costs **costs_out);

/* Measures the costs of `model` at the recipe's microbatch size: runs some microbatches of
 * zeros on the plan's stages with all ranks at work, B and W apart. `config` as for a trainer. */
WF_API WF_NODISCARD wf_status wf_costs_measure(wf_context *ctx, const wf_model *model,
                                               const wf_recipe *recipe, const wf_plan *plan,
                                               const wf_trainer_config *config,
                                               wf_costs **costs_out);

#ifdef __cplusplus
}
#endif
#endif
