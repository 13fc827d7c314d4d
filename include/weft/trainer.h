/* Trainers: a model with its state on devices, and the program that steps it.
 *
 *     wf_trainer_create(ctx, model, &recipe, plan, NULL, &trainer);
 *     for (step...) wf_trainer_step(trainer, feeds, n_feeds, n_samples, &result);
 *     wf_trainer_save(trainer, "run/model.safetensors");
 *
 * One thread at a time uses a trainer. Each new number of samples, such as a smaller batch at the
 * end of an epoch, gets a program of its own on first use.
 *
 * Errors of runs (wf_trainer_step, _eval and _forward):
 *
 *   SHAPE        a feed is missing, unknown or of the wrong size; a bad number of samples
 *   INVALID_ARG  a label or token that the model does not have; the sentence names input, sample
 *                and value. This and SHAPE leave the trainer unchanged
 *   NOT_FINITE   the loss of a microbatch, or a number that a step computed; equal on all ranks.
 *                The result of the step is set, and wf_trainer_undo_step restores the state
 *   TIMEOUT, DEVICE, REMOTE   the trainer can only be destroyed
 *
 * In a job, an error other than refused feeds ends the job: processes would no longer agree. Feeds
 * that all processes refuse alike do not end it. If only some processes refuse theirs, the job
 * ends, except with own_batch: then all processes get the status, and none has run.
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
    const char *devices; /* "cpu:2": two CPU ranks, as threads; NULL: one CPU device per rank of
                          * the plan */
    size_t device_memory_bytes; /* per rank; 0 = unlimited */
    int64_t timeout_ms;         /* for a wait without progress; 0 = 600,000 */
    int profile;                /* measure time per kernel, for wf_trainer_profile */
    int trace;                  /* for wf_trainer_timeline and wf_trainer_costs */
    int keep_gradients;         /* for wf_trainer_read_gradient; needs memory */
    int forward_only;           /* only wf_trainer_eval and _forward, without memory for backward */
    /* The job; each process is one rank of the plan. Borrowed, must outlive the trainer.
     * NULL: all ranks are threads of this process. A job may have up to 16 trainers at a time; all
     * ranks must create and run them in the same order. */
    wf_job *job;
    /* In a job. 1: each process feeds only its part of a step's samples (wf_trainer_part), and only
     * the inputs that its rank reads; UNSUPPORTED if the plan loads all inputs on rank 0
     * (wf_plan_loads_at_root) or gives replicas unequal shares (wf_plan_has_equal_parts). 0: each
     * process feeds the whole batch. */
    int own_batch;
    /* Approximate size of checkpoint shards (wf_safetensors_writer_divide); 0: one file. */
    size_t shard_bytes;
    size_t host_memory_bytes; /* per rank, for offload=; 0 = unlimited */
    const char *folder;       /* for files of offload=...:disk; NULL: TMPDIR, or /tmp */
    int save_async;           /* save in the background: see wf_trainer_save_wait */
    int keep_undo;            /* copy the state to host memory before each step, for
                               * wf_trainer_undo_step; counts as host memory */
    int no_init;              /* draw no parameters, because wf_trainer_load_state or _read_image
                               * follows; until then nothing can be saved */
} wf_trainer_config;

#define WF_TRAINER_CONFIG_INIT                                                                     \
    { sizeof(wf_trainer_config), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* One input of the global batch: row-major in host memory, dim 0 = samples, with the dtype of its
 * wf_input. Labels must be below the number of classes; negative ones are ignored. Tokens must be
 * rows of the embedding table. */
typedef struct wf_feed {
    const char *name; /* as in wf_input */
    const void *data;
    size_t bytes;
} wf_feed;

typedef struct wf_step_result {
    double loss;    /* mean over the rows that count */
    int64_t n_rows; /* rows that count: samples or tokens without ignored labels */
    int64_t n_hits; /* rows with the largest logit at the label; 0 without labels */
    double lr;
    double gradient_norm; /* before clipping, equal on all ranks; 0 unless clipping is on */
    int stop_reason; /* in a job: the largest reason of wf_job_request_stop from any process before
                      * its run began, for any trainer; equal on all ranks. 0: none */
} wf_step_result;

typedef struct wf_trainer_memory {
    size_t planned_peak_bytes;  /* of the programs created so far */
    size_t measured_peak_bytes; /* largest extent that kernels and copies have used */
    int is_measured;   /* 1 if the programs with the planned peaks have run. Otherwise the measured
                        * peaks are lower, for example in a resumed run without a step */
    size_t host_bytes; /* live bytes of the context's allocator */
    /* Host memory and file of offload=. */
    size_t planned_host_peak_bytes, measured_host_peak_bytes;
    size_t planned_disk_peak_bytes, measured_disk_peak_bytes;
    /* Maximum of this process's copies for saves in the background. */
    size_t save_bytes;
} wf_trainer_memory;

/* One row of the profile. Times are sums since the trainer was created or the profile was reset.
 * They are CPU times of the computing thread: other programs and waits do not count. */
typedef struct wf_profile_row {
    const char *label;  /* op, "pack", "accumulate", "update", ... */
    const char *kernel; /* implementation and its library's name for it */
    int64_t n_calls;
    int64_t time_ns;
    double flops;
} wf_profile_row;

#ifdef __cplusplus
extern "C" {
#endif

/* Counts the ranks of a device list such as "cpu:4" or "cpu:1,cpu:0". Errors: INVALID_ARG (a bad
 * list), UNSUPPORTED. */
WF_API WF_NODISCARD wf_status wf_devices_count(wf_context *ctx, const char *devices, int *n_out);
/* The device memory per rank of such a list: the free memory, divided by the ranks on the device,
 * for the rank with the least. 0 for CPUs and devices that do not report it. Errors: INVALID_ARG,
 * UNSUPPORTED, DEVICE (the devices are not available). */
WF_API WF_NODISCARD wf_status wf_devices_memory(wf_context *ctx, const char *devices,
                                                size_t *bytes_out);
/* The device of a rank in such a list, such as "cpu:1". Ranks on one device share its cores, but
 * have separate memory and streams. Errors: INVALID_ARG (a bad list or rank), UNSUPPORTED. */
WF_API WF_NODISCARD wf_status wf_devices_name(wf_context *ctx, const char *devices, int rank,
                                              char name_out[WF_DEVICE_NAME_BYTES]);

/* Creates a trainer: compiles the program, allocates memory and initializes the weights from the
 * seed. `config` NULL means WF_TRAINER_CONFIG_INIT. Errors: those of wf_program_create; INVALID_ARG
 * (devices that do not match the plan, a bad timeout); DOES_NOT_FIT; DEVICE; NO_MEMORY; UNSUPPORTED
 * (a feature of plan or config is not available; or OpenMP or the system starts fewer threads than
 * the recipe requires, and the sentence names the cause); in a job also TIMEOUT and REMOTE. */
WF_API WF_NODISCARD wf_status wf_trainer_create(wf_context *ctx, const wf_model *model,
                                                const wf_recipe *recipe, const wf_plan *plan,
                                                const wf_trainer_config *config,
                                                wf_trainer **trainer_out);
/* The common case: a model function with a recipe's text (wf_recipe_parse) and a plan's
 * (wf_plan_parse). Ranks are threads, one CPU device each. `config` is the function's, borrowed,
 * and must outlive the trainer. Errors: those of both parsers and of wf_trainer_create. */
WF_API WF_NODISCARD wf_status wf_trainer_open(wf_context *ctx, wf_model_function function,
                                              const void *config, const char *recipe,
                                              const char *plan, wf_trainer **trainer_out);
/* Waits for running work, then destroys the trainer. NULL is allowed. */
WF_API void wf_trainer_destroy(wf_trainer *trainer);

/* Runs one optimizer step on `n_samples` samples, from the number of microbatches to the recipe's
 * batch; a recurrent model takes only the whole batch. Returns when the loss is known.
 *
 * With own_batch, feeds and n_samples are this process's part, as wf_trainer_part divides the sum
 * of all parts. The results are those of one rank with all parts in rank order.
 *
 * Errors: those of runs; those of wf_program_create for a new number of samples; SHAPE (parts that
 * do not match, on all processes); INVALID_ARG (config.forward_only, or the average is in use).
 * NOT_FINITE also covers gradients, which are checked when they are summed, new weights and
 * optimizer state. Its sentence names the last affected unit, where backward begins, and the first
 * microbatch with a loss that is not finite. The bad state can be read but not saved, until
 * wf_trainer_load_state replaces it. */
WF_API WF_NODISCARD wf_status wf_trainer_step(wf_trainer *trainer, const wf_feed *feeds,
                                              int n_feeds, int64_t n_samples,
                                              wf_step_result *result_out);

/* Computes the gradients of a step and updates nothing: for models with two losses, or for an
 * update rule of the caller's own. wf_trainer_read_gradient reads the sums until the next run. The
 * random numbers are those of the next step. So a step of the same samples right afterwards has the
 * same gradients, unless the model has running statistics or hidden state, which advance as in a
 * step. Errors: those of wf_trainer_step and wf_trainer_prepare_gradients; NOT_FINITE (a loss
 * alone; gradients are not checked). */
WF_API WF_NODISCARD wf_status wf_trainer_gradients(wf_trainer *trainer, const wf_feed *feeds,
                                                   int n_feeds, int64_t n_samples,
                                                   wf_step_result *result_out);
/* Plans the program of wf_trainer_gradients for a whole step of `n_samples` now. Errors: those of
 * wf_program_create; DOES_NOT_FIT; INVALID_ARG (a trainer for forward runs only); SHAPE (more
 * samples than the batch, or fewer for a recurrent model); in a job, those of a wait. */
WF_API WF_NODISCARD wf_status wf_trainer_prepare_gradients(wf_trainer *trainer, int64_t n_samples);
/* Counts a step that the caller made with wf_trainer_gradients and wf_trainer_write. Random
 * numbers, the learning-rate schedule and checkpoints then continue with the next step. In a job,
 * all processes call it. Errors: INVALID_ARG (a trainer for forward runs only, or a recipe
 * with ema, whose average such a step does not update). */
WF_API WF_NODISCARD wf_status wf_trainer_count_step(wf_trainer *trainer);

/* Restores the state from before the latest run, a step that was NOT_FINITE, bit for bit:
 * parameters, buffers, optimizer state and hidden state. The step is not counted:
 * wf_trainer_skip_steps(trainer, 1) leaves its batch out. In a job, all processes call it. Errors:
 * INVALID_ARG (no config.keep_undo, or the latest run was another one), DEVICE; in a job also
 * TIMEOUT and REMOTE. */
WF_API WF_NODISCARD wf_status wf_trainer_undo_step(wf_trainer *trainer);
/* Counts `n_steps` steps that change nothing. Random numbers, the learning-rate schedule and
 * checkpoints then continue after them. In a job, all processes call it. Errors: INVALID_ARG (a
 * trainer for forward runs only, a negative number). */
WF_API WF_NODISCARD wf_status wf_trainer_skip_steps(wf_trainer *trainer, int64_t n_steps);

/* Finds this process's part of a step of `n_samples` over all ranks: with own_batch in a job, the
 * samples of its replica's microbatches; else all. The stages of one replica have the same part. */
WF_API void wf_trainer_part(const wf_trainer *trainer, int64_t n_samples, int64_t *first_out,
                            int64_t *n_out);

/* Creates the program for forward runs of `n_samples` now, so that its memory is known and checked
 * before the first step. Errors: those of wf_program_create; DOES_NOT_FIT; in a job also TIMEOUT
 * and REMOTE. */
WF_API WF_NODISCARD wf_status wf_trainer_prepare_eval(wf_trainer *trainer, int64_t n_samples);

/* Runs forward only, with running statistics and without dropout; no state changes. n_samples and
 * feeds are of the whole run, also with own_batch, where a process may leave out inputs that its
 * rank does not read. Errors: those of runs; those of wf_trainer_prepare_eval for a new number of
 * samples; SHAPE (with own_batch also: ranks differ in n_samples). NOT_FINITE leaves the trainer
 * unchanged. */
WF_API WF_NODISCARD wf_status wf_trainer_eval(wf_trainer *trainer, const wf_feed *feeds,
                                              int n_feeds, int64_t n_samples,
                                              wf_step_result *result_out);

/* Reports the loss of a test, equal in all processes, to the schedule PLATEAU, which may reduce the
 * learning rate from the next step on. NaN never counts as better. The schedule's state is part of
 * the trainer's. Other schedules ignore the call. */
WF_API void wf_trainer_evaluated(wf_trainer *trainer, double loss);

/* Like wf_trainer_eval, and copies the output called `name` (wf_output) to `dst`, in a job on every
 * process. Inputs that the output does not depend on may be missing. Errors: those of
 * wf_trainer_eval without NOT_FINITE; INVALID_ARG (an unknown output), SHAPE (dst_bytes is not the
 * output's size). */
WF_API WF_NODISCARD wf_status wf_trainer_forward(wf_trainer *trainer, const wf_feed *feeds,
                                                 int n_feeds, int64_t n_samples, const char *name,
                                                 void *dst, size_t dst_bytes);

/* ---- state ----
 *
 * In a job these functions are collective, except wf_trainer_state_metadata and wf_trainer_n_steps.
 * Each process reads and writes the tensors of its own rank, and none holds all of them. Paths and
 * metadata are rank 0's, and rank 0 reads and writes for processes that do not see its files. A
 * failure of one process ends the job, and other processes get REMOTE. Errors of all functions of
 * this section: NO_MEMORY; in a job also TIMEOUT and REMOTE. */

/* Sets additional metadata of all files that the trainer writes, such as a description of the model
 * for other programs. Copies the pairs, which replace earlier ones. Errors: NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_trainer_describe(wf_trainer *trainer, const wf_metadata *metadata,
                                                  int n_metadata);
/* Writes parameters and buffers to `path` as safetensors, atomically. With config.shard_bytes,
 * writes an index and shards; a reader never sees a mixture of old and new ones. Errors, which
 * leave the old file untouched and no temporary file: NOT_FINITE (after a step with this status, or
 * after a load that broke off), IO. */
WF_API WF_NODISCARD wf_status wf_trainer_save(wf_trainer *trainer, const char *path);
/* Writes the complete state for a resumed run: parameters, buffers, optimizer state, step, and the
 * caller's metadata (data position, resolved recipe, ...). Errors: those of wf_trainer_save;
 * INVALID_ARG (text that is not UTF-8, a duplicate key or the key `weft.n_steps`, the average is in
 * use). */
WF_API WF_NODISCARD wf_status wf_trainer_save_state(wf_trainer *trainer, const char *path,
                                                    const wf_metadata *metadata, int n_metadata);
/* Waits for saves in the background. With config.save_async, the two functions above only copy the
 * data to host memory, in the process that writes it; a thread then writes the file. The first step
 * that begins after that moves the file to its path. This function, another save after a later
 * step, and every load of this trainer wait for the thread and move the file. Call it before other
 * readers open the file (wf_trainer_state_metadata, other trainers). Errors: IO, returned by the
 * call that moves the file. The old file is then untouched, also if the trainer is destroyed
 * before. */
WF_API WF_NODISCARD wf_status wf_trainer_save_wait(wf_trainer *trainer);
/* Loads the state that wf_trainer_save_state wrote, under any plan; later steps give the bits of an
 * uninterrupted run. All of it is checked before any tensor changes. Errors: those of
 * wf_trainer_load_weights; CORRUPT (also: not a training state); INVALID_ARG (its run had other
 * micro, lanes or slices). */
WF_API WF_NODISCARD wf_status wf_trainer_load_state(wf_trainer *trainer, const char *path);
/* Gets the value of a key from a state file that is at its path (wf_trainer_save_wait); NULL if
 * absent. Free with wf_text_free. Errors: those of wf_safetensors_open. */
WF_API WF_NODISCARD wf_status wf_trainer_state_metadata(wf_context *ctx, const char *path,
                                                        const char *key, char **value_out);
/* Writes the complete state to `image`, memory of wf_program_image_bytes that all processes of the
 * job share, or reads it back, under any plan. Each process copies pieces of its own ranks. The
 * image must be aligned to 8 bytes and, before the first write, zero; zeros in its first 8 bytes
 * make it invalid. A write that a killed process
 * leaves unfinished is not whole, so writers take two images in turn. Errors: SHAPE (`bytes`),
 * UNSUPPORTED (a job without shared memory), INVALID_ARG (the average is in use); of a write
 * NOT_FINITE, of a read CORRUPT (not whole, damaged, or of another model, optimizer or recipe;
 * equal on all ranks). */
WF_API WF_NODISCARD wf_status wf_trainer_write_image(wf_trainer *trainer, void *image,
                                                     size_t bytes);
WF_API WF_NODISCARD wf_status wf_trainer_read_image(wf_trainer *trainer, const void *image,
                                                    size_t bytes);
/* The step of a whole image; -1 if it is not whole. */
WF_API int64_t wf_image_step(const void *image);
/* Loads parameters and buffers by name from a safetensors file, shards or a folder, as
 * wf_safetensors_open finds them. Prefixes of torchvision and Hugging Face are recognized. F16,
 * BF16 and F64 become F32; F64 is rounded to nearest. Errors, which leave the trainer unchanged:
 * IO; SHAPE (the sentence lists missing and unexpected tensors); CORRUPT (also: a number is not
 * finite; the sentence names the tensor); INVALID_ARG (the average is in use). After an IO in the
 * middle of a file, load the state again before a save. */
WF_API WF_NODISCARD wf_status wf_trainer_load_weights(wf_trainer *trainer, const char *path);
/* The same without the tensors that match a word of `skip` (as in wf_graph_config.freeze). They
 * keep their values, and the file may have them in any shape, or not at all. *skipped_out (may be
 * NULL) is their names, joined by commas; free it with wf_text_free. Errors: those of
 * wf_trainer_load_weights; INVALID_ARG (a word that matches no tensor). */
WF_API WF_NODISCARD wf_status wf_trainer_load_weights_but(wf_trainer *trainer, const char *path,
                                                          const char *skip, char **skipped_out);

/* Copies parameters and buffers by name from `from` to `to`, under any plans, devices and models:
 * for a target network, or two networks trained against each other. Both must have one context and
 * one job. `names` selects tensors by words as in wf_graph_config.freeze; NULL selects all of `to`.
 * If `from` uses its average, the average is copied. The optimizer state of `to` stays. A process
 * holds one tensor at a time. If a step of `from` was NOT_FINITE, `to` cannot be saved either.
 * Errors, which leave `to` unchanged: INVALID_ARG (a word that matches no tensor, a name that
 * `from` does not have, another context or job, `to` uses its average); SHAPE. */
WF_API WF_NODISCARD wf_status wf_trainer_copy_weights(wf_trainer *to, wf_trainer *from,
                                                      const char *names);

/* Replaces the weights by their moving average (1, with recipe.ema), or restores the weights to the
 * bit (0). All weights move. The average then applies to evaluation, outputs, wf_trainer_save,
 * _read and _weights_sha256; states contain it. As in PyTorch's AveragedModel, frozen parameters
 * and buffers (running statistics) are the model's own. The average equals the weights until after
 * the first step. Errors: INVALID_ARG (no average); while the average is in use, steps, loads and
 * wf_trainer_save_state also return INVALID_ARG. */
WF_API WF_NODISCARD wf_status wf_trainer_use_average(wf_trainer *trainer, int is_used);

/* Resets the hidden state (wf_lstm) before the next run of that kind, for the start of a text.
 * Steps and forward runs have separate states. That of forward runs is also reset when the number
 * of samples changes, and by wf_trainer_load_state: files do not contain it. No effect on other
 * models. In a job, all processes call it before the same run. */
WF_API void wf_trainer_reset_hidden(wf_trainer *trainer, wf_program_kind kind);

/* A parameter or buffer of the model. */
typedef struct wf_trainer_tensor {
    const char *name; /* borrowed from the trainer */
    wf_dtype dtype;
    wf_shape shape;
} wf_trainer_tensor;

/* Describes the i-th parameter or buffer and returns 1; 0 past the last. The order is the same in
 * every process. */
WF_API int wf_trainer_tensor_get(const wf_trainer *trainer, int i, wf_trainer_tensor *tensor_out);

/* The number of steps since initialization. */
WF_API int64_t wf_trainer_n_steps(const wf_trainer *trainer);
/* Copies parameter or buffer `name` to the host, in a job on every process. Errors: INVALID_ARG (an
 * unknown name), SHAPE (dst_bytes is not its size). */
WF_API WF_NODISCARD wf_status wf_trainer_read(wf_trainer *trainer, const char *name, void *dst,
                                              size_t dst_bytes);
/* Replaces parameter or buffer `name` by the caller's numbers, in a job by the same in every
 * process. `src` is borrowed during the call. Optimizer state and gradients stay. Errors:
 * INVALID_ARG (an unknown name, or the trainer uses its average), SHAPE (src_bytes is not its
 * size), NOT_FINITE (an element is infinite or NaN; the tensor is unchanged). */
WF_API WF_NODISCARD wf_status wf_trainer_write(wf_trainer *trainer, const char *name,
                                               const void *src, size_t src_bytes);
/* Copies the gradient of parameter `name`, before clipping, to the host, in a job on every process:
 * from the latest wf_trainer_gradients, or from the latest step with config.keep_gradients. Errors:
 * INVALID_ARG (the latest run kept no gradients, or `name` is not a trained parameter), SHAPE
 * (dst_bytes is not its size). */
WF_API WF_NODISCARD wf_status wf_trainer_read_gradient(wf_trainer *trainer, const char *name,
                                                       void *dst, size_t dst_bytes);
/* SHA-256 of all parameters and buffers (docs/files.md): 64 hex digits and a zero. Errors: those
 * of the section. */
WF_API WF_NODISCARD wf_status wf_trainer_weights_sha256(wf_trainer *trainer, char hex_out[65]);

/* Compares the state that several ranks keep: parameters, buffers and optimizer state of replicas.
 * *n_bytes_out (may be NULL) is the size of the compared pieces, each counted once; 0: no two ranks
 * keep the same piece. Errors: CORRUPT, equal on all ranks (the sentence names the ranks that
 * differ from most others, or all holders if there is no majority, and the first tensor);
 * INVALID_ARG (the average is in use). */
WF_API WF_NODISCARD wf_status wf_trainer_verify(wf_trainer *trainer, int64_t *n_bytes_out);
/* 1 if the latest wf_trainer_verify found that a rank of this process differs from most others. */
WF_API int wf_trainer_is_faulty(const wf_trainer *trainer);

/* ---- reports ---- */

/* The program of the full batch. Borrowed. */
WF_API const wf_program *wf_trainer_program(const wf_trainer *trainer);
/* Memory of a rank. If `rank` is out of range, only host_bytes and save_bytes are set. */
WF_API wf_trainer_memory wf_trainer_memory_of(const wf_trainer *trainer, int rank);
/* The number of compute threads of each rank in this process, counted when the rank started. */
WF_API int wf_trainer_n_threads(const wf_trainer *trainer);
/* Gets row i of the profile, largest time first, and returns 1; 0 past the last. */
WF_API int wf_trainer_profile(wf_trainer *trainer, int i, wf_profile_row *row_out);
WF_API void wf_trainer_profile_reset(wf_trainer *trainer);

/* The timeline of the last step. Needs config.trace and a step of the full batch. In a job, this
 * function and wf_trainer_costs are collective, with equal results. Errors: INVALID_ARG (no trace
 * or no such step), NO_MEMORY; in a job also TIMEOUT and REMOTE. */
WF_API WF_NODISCARD wf_status wf_trainer_timeline(const wf_trainer *trainer,
                                                  wf_timeline **timeline_out);
/* The measured costs of each unit: the least CPU time of each microbatch in all traced steps but
 * the first, in the mean over microbatches. They suit simulations of programs with the same
 * microbatches. Needs config.trace and two steps of the full batch. Errors: those of
 * wf_trainer_timeline. */
WF_API WF_NODISCARD wf_status wf_trainer_costs(const wf_trainer *trainer, wf_costs **costs_out);

/* The timeline of a step without other programs: each instruction takes its least CPU time of all
 * traced steps but the first; on devices other than CPUs, its least time. Needs all ranks in this
 * process, config.trace and two steps of the full batch. Errors: INVALID_ARG, NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_trainer_replay(const wf_trainer *trainer,
                                                wf_timeline **timeline_out);

/* Replaces `lanes=measured` of the plan by shares of the recipe's lanes: runs some microbatches of
 * zeros with equal shares, and divides the lanes by the times that the replicas compute. Does
 * nothing for other plans. In a job, all processes call it and get equal shares. Errors: those of
 * wf_recipe_resolve, wf_trainer_create and wf_trainer_step. */
WF_API WF_NODISCARD wf_status wf_plan_measure_lanes(wf_context *ctx, const wf_model *model,
                                                    const wf_recipe *recipe, wf_plan *plan,
                                                    const wf_trainer_config *config);
/* Measures the costs of `model` at the recipe's microbatch size: runs some microbatches of zeros on
 * the plan's stages, with all ranks at work, and B apart from W. `config` is as for a trainer.
 * Errors: those of wf_recipe_resolve, wf_trainer_create and wf_trainer_step. */
WF_API WF_NODISCARD wf_status wf_costs_measure(wf_context *ctx, const wf_model *model,
                                               const wf_recipe *recipe, const wf_plan *plan,
                                               const wf_trainer_config *config,
                                               wf_costs **costs_out);

#ifdef __cplusplus
}
#endif
#endif
