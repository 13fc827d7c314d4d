/* The trainer's insides. Private. */
#ifndef WFI_TRAINER_H
#define WFI_TRAINER_H

#include "run/executor.h"

#include <weft/trainer.h>

/* A program made for one kind and number of samples, ready to run. */
typedef struct wfi_ready {
    wf_program_kind kind;
    int64_t n_samples;
    wf_program *program;
    wfi_executor *executor;
    const void **inputs; /* [n_values] */
    void **outputs;      /* [n_outputs] */
    void **zeros;        /* [n_values] for inputs that may be left out, made when needed */
    double *records;     /* [n_micro][2] */
} wfi_ready;

struct wf_trainer {
    wf_context *ctx;
    wf_model *model;
    wf_plan *plan;
    wf_recipe recipe; /* resolved */
    size_t device_memory_bytes;
    bool keep_gradients, forward_only, traces;
    const struct wfi_ready *ran_last; /* the program whose leftovers are in the arena */
    int64_t delay_us;

    wf_job *job;         /* NULL: all ranks are threads of this process */
    int64_t n_runs;      /* of programs; a job's records alternate between two halves */
    wfi_failure failure; /* of any rank: all stop */
    wfi_worker *workers; /* [n_workers] one a rank */
    int n_workers;
    wfi_profile profile;
    int64_t n_steps;

    wfi_ready **ready; /* [0] is the full batch's; each its own allocation: tasks point there */
    int32_t n_ready;
    size_t ready_capacity;
};

/* The program for this kind and number of samples; made, and the arena grown, if it
 * is not there yet. */
wf_status wfi_trainer_ready(wf_trainer *t, wf_program_kind kind, int64_t n_samples,
                            wfi_ready **out);

/* Fills parameters and buffers from the seed, zeroes optimizer state. */
wf_status wfi_trainer_initialise(wf_trainer *t);

/* Where value v (parameter or buffer) lies, on the first replica's rank of its stage. */
void *wfi_trainer_address(const wf_trainer *t, int32_t v);
/* The optimizer's i-th buffer of parameter v. */
void *wfi_trainer_state_address(const wf_trainer *t, int32_t v, int i);

/* Copies the state from there to every other rank that holds it. */
void wfi_trainer_spread(const wf_trainer *t);

/* Whether this plan and recipe can run as the processes of t->job. Errors: INVALID_ARG,
 * UNSUPPORTED. */
wf_status wfi_trainer_check_job(const wf_trainer *t);
/* What all processes of a job have to have in common, as a number. */
uint64_t wfi_trainer_fingerprint(const wf_trainer *t);
/* Calls `act` while no rank of any process works; in a job, on rank 0's process only, and the
 * others wait for it. All processes get its status. */
wf_status wfi_trainer_alone(wf_trainer *t, const char *what, wf_status (*act)(void *self),
                            void *self);
/* Returns when the job's other processes have come here, too. */
static inline wf_status wfi_trainer_meet(const wf_trainer *t, const char *what) {
    return t->job ? wfi_control_meet(t->job, what) : WF_OK;
}

static inline const wf_graph *wfi_trainer_graph(const wf_trainer *t) {
    return t->ready[0]->program->graph;
}

#endif
