/* The trainer's insides. Private. */
#pragma once

#include "execute/delay.h"
#include "execute/executor.h"
#include "execute/fault.h"

#include <weft/trainer.h>

/* Which integers may be fed to an input: labels, or numbers of rows. */
typedef struct wfi_ids {
    int64_t end; /* all are below; 0: any integer may be fed */
    /* Negative labels do not count; there are no negative rows, except of places. */
    bool are_rows, are_places;
} wfi_ids;

/* A program made for one kind and number of samples, ready to run. */
typedef struct wfi_ready {
    wf_program_kind kind;
    int64_t n_samples;
    wfi_pool pool; /* of the arrays */
    wf_program *program;
    wfi_executor *executor;
    bool has_run;
    const void **inputs;    /* [n_values] */
    void **outputs;         /* [n_outputs] */
    wfi_ids *ids;           /* [n_values] of inputs */
    void **zeros;           /* [n_values] for inputs that may be left out, made when needed */
    double *records;        /* [n_micro][2] */
    const double *reported; /* [n_micro][2] by the latest run: records, or a job's */
    int32_t *reporter;      /* [n_micro] the rank that reports it */
} wfi_ready;

/* Where the schedule plateau stands. */
typedef struct wfi_plateau {
    int64_t n_evaluated, n_cuts; /* `n_cuts`: of the learning rate */
    int64_t n_bad;               /* evaluations in a row that were no better than the best */
    double best;
} wfi_plateau;

/* The part of a batch that a trainer computes for others; see api/share.h. */
typedef struct wfi_share {
    bool is_set;
    int64_t step, first_sample, n_rows;
} wfi_share;

struct wf_trainer {
    wf_context *ctx;
    wf_model *model;
    wf_plan *plan;
    wf_recipe recipe; /* resolved */
    char *folder;     /* of files in memory's place; NULL: the device's default */
    size_t device_memory_bytes, host_memory_bytes;
    size_t shard_bytes;
    bool keep_gradients, forward_only, traces, own_batch;
    bool keeps_undo;
    bool can_undo;         /* the latest run was a step that was not finite */
    bool was_spoiled;      /* before that step */
    struct wfi_undo *undo; /* [n_workers] */
    wfi_flip flip;         /* faults of the environment */
    wfi_raise raise;
    bool uses_average; /* in the weights' place; see wf_trainer_use_average */
    bool is_faulty;    /* the latest comparison of replicas found that a local rank is wrong */
    bool is_spoiled;   /* by a non-finite step: its state must not be saved */
    const struct wfi_ready *ran_last; /* the program with stale temporaries in the arena */
    int64_t delay_us;
    wfi_slow slow; /* of the environment */
    wfi_share share;

    wf_job *job;         /* NULL: all ranks are threads of this process */
    int place;           /* among the trainers of the job, or -1: none yet */
    uint64_t serial;     /* its number among all that the job has made */
    wfi_failure failure; /* of any rank: all stop */
    wfi_stall stall;     /* of any rank: it is named */
    wfi_worker *workers; /* [n_workers] one a rank */
    int n_workers;
    wfi_profile profile;
    int64_t n_steps;
    wfi_plateau plateau;
    bool resets_hidden[2]; /* of TRAIN and FORWARD: before the next run */
    int64_t n_forward;     /* samples of the latest forward run; its hidden state is kept */
    wfi_pool about_pool;
    wf_metadata *about; /* [n_about] of every file that is written */
    int n_about;

    bool save_async, are_saves_written; /* the latter: in a job, by all, when its last run began */
    struct wfi_save *saves;             /* that are being written; in the order of their calls */
    size_t save_bytes;                  /* the most copied at a time */

    wfi_ready **ready; /* [0] is the full batch's; each its own allocation: tasks point there */
    int32_t n_ready;
    size_t ready_capacity;
};

/* wf_trainer_create with devices that are a list already; NULL: config->devices. The first program
 * is of kind `kind`; it decides which tensors the state has. */
wf_status wfi_trainer_create_on(wf_context *ctx, const wf_model *model, const wf_recipe *recipe,
                                const wf_plan *plan, const wf_trainer_config *config,
                                const wfi_device_list *list, wf_program_kind kind,
                                wf_trainer **trainer_out);

/* The program for this kind and number of samples; made, and the arena grown, if it
 * is not there yet. */
wf_status wfi_trainer_ready(wf_trainer *t, wf_program_kind kind, int64_t n_samples,
                            wfi_ready **out);

/* Writes the name of the next run of that kind: "step 3". */
void wfi_trainer_name_run(const wf_trainer *t, wf_program_kind kind, char *name_out,
                          size_t n_bytes);

/* The planned peak of all programs, or of those that have run. */
size_t wfi_trainer_planned_peak(const wf_trainer *t, int rank, wfi_space space, bool has_run);
/* The highest byte of a space that the rank has reached, as far as this process knows. */
size_t wfi_trainer_measured_peak(const wf_trainer *t, int rank, wfi_space space);

/* ---- state.c, save.c, average.c ---- */

/* `bytes` bytes of `rank`'s arena of that space, from `at` on, into `dst` in process `to`, or in
 * all if it is < 0. All processes call it; in the rank's own process `dst` is written, too. Errors:
 * those of a wait.
 */
wf_status wfi_trainer_fetch(const wf_trainer *t, int rank, wfi_space space, size_t at, size_t bytes,
                            int to, void *dst);
/* Fills parameters and buffers from the seed, zeroes optimizer state. */
wf_status wfi_trainer_initialise(wf_trainer *t);
/* That the weights are the weights. Errors: INVALID_ARG. */
wf_status wfi_trainer_check_average(const wf_trainer *t, const char *what);

/* Puts in their place the files that have been written meanwhile, in all processes or in none.
 * Errors: those of wf_trainer_save_wait. */
wf_status wfi_trainer_poll_saves(wf_trainer *t);
/* Removes those that are not in their place. */
void wfi_trainer_abandon_saves(wf_trainer *t);

/* ---- undo.c ---- */

/* Allocates the copies, if the trainer keeps them. Errors: DOES_NOT_FIT, NO_MEMORY. */
wf_status wfi_undo_create(wf_trainer *t);
void wfi_undo_destroy(wf_trainer *t);
/* Bytes of a rank's copy in its process's host memory. */
size_t wfi_undo_bytes(const wf_trainer *t, int rank);
/* Copies the state before a step. All processes call it. Errors: those of a copy and of a wait. */
wf_status wfi_undo_keep(wf_trainer *t);

/* ---- agreement.c ---- */

/* Whether this plan and recipe can run as the processes of t->job. Errors: INVALID_ARG,
 * UNSUPPORTED. */
wf_status wfi_trainer_check_job(const wf_trainer *t);
/* Finds that all processes of t->job have the same library, plan, recipe and configuration; then,
 * when there is one, the same program. Errors: those of wfi_control_compare. */
wf_status wfi_trainer_compare_recipe(const wf_trainer *t);
wf_status wfi_trainer_compare_program(const wf_trainer *t);

/* ---- feeds.c ---- */

/* Finds the range that ops require of the integers that they read; `ids` [n_values] are zeros. */
void wfi_find_ids(const wf_graph *g, wfi_ids *ids);
/* That those fed to input `v` are in its range. Errors: INVALID_ARG. */
wf_status wfi_check_ids(const wf_trainer *t, const wfi_ready *r, int32_t v, const int32_t *data,
                        int64_t n_samples);

/* Whether value v is computed from `input`. Errors: NO_MEMORY. */
wf_status wfi_value_depends_on(const wf_graph *g, int32_t v, int32_t input, bool *depends_out);

/* Points the program's inputs to the feeds, of `n_samples` samples each. `output`: the value that
 * is wanted, or -1 for the loss. Errors: SHAPE; those of wfi_check_ids. */
wf_status wfi_bind_feeds(wf_trainer *t, wfi_ready *r, const wf_feed *feeds, int n_feeds,
                         int64_t n_samples, int32_t output);
/* Rows of `n_samples` bound samples with a label that is not negative: the divisor of the mean. */
int64_t wfi_count_rows(const wfi_ready *r, int64_t n_samples);

/* ---- part.c: processes that bring different samples ---- */

static inline bool wfi_trainer_is_part(const wf_trainer *t) {
    return t->job && t->own_batch;
}
/* Whether this process has to be given that input. */
bool wfi_trainer_loads(const wf_trainer *t, const wf_program *p, int32_t input);
/* Which samples of the program this process is given. */
void wfi_trainer_own_part(const wf_trainer *t, const wf_program *p, int64_t *first_out,
                          int64_t *n_out);
/* Checks the feeds of all processes against each other: how many samples the step has, and how
 * many of its rows count. All get the same status. Errors: SHAPE. */
wf_status wfi_trainer_join_step(wf_trainer *t, const wf_feed *feeds, int n_feeds, int64_t n_own,
                                int64_t *n_samples_out, int64_t *n_rows_out);
/* The same for a forward run: first how many samples, then, when feeds have been bound with status
 * `given`, how many rows count. */
wf_status wfi_trainer_join_forward(wf_trainer *t, int64_t n_samples);
wf_status wfi_trainer_join_rows(wf_trainer *t, const wfi_ready *r, wf_status given,
                                int64_t *n_rows_out);
/* The feeds of a run were refused with status `given`, which is returned with its sentence. If all
 * processes of a job have the whole batch, this is an empty run: all of them refuse alike. A
 * process with other feeds runs, and finds that it is alone. */
wf_status wfi_trainer_refuse_run(wf_trainer *t, wf_status given);
/* Errors: UNSUPPORTED: the plan does not give each process a range of samples. */
wf_status wfi_trainer_check_parts(const wf_trainer *t);

/* Returns when the job's other processes have come here, too. */
static inline wf_status wfi_trainer_barrier(const wf_trainer *t, const char *what) {
    return t->job ? wfi_control_barrier(t->job, what) : WF_OK;
}

static inline const wf_graph *wfi_trainer_graph(const wf_trainer *t) {
    return t->ready[0]->program->graph;
}
