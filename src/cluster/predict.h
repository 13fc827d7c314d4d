/* Predictions of one model on one cluster, for any number of plans. Private. */
#pragma once

#include "cluster/work.h"
#include "plan/plan.h"

/* The part of a plan and recipe that a prediction depends on. */
typedef struct wfi_case {
    int dp, pp, tp, chunks;
    int dp_stride, pp_stride; /* of ranks along the axes; tp is the innermost */
    bool divides_rows;
    int zero;  /* 0 to 3 */
    int shard; /* replicas that divide; at most dp */
    const wfi_schedule *schedule;
    wfi_recompute recompute;
    wfi_space offload[WFI_N_OFFLOADS];
    bool has_root;          /* dataparallel */
    const char *cut;        /* of the plan; NULL: none */
    int64_t batch, n_micro; /* over all replicas */
    const wfi_allreduce *allreduce;
    double bucket_bytes; /* of gradients that are summed together; 0: of all */
    bool is_serial;      /* overlap=off: sums wait for the end of backward */
    int prefetch;        /* units that come ahead of use */
} wfi_case;

static inline int64_t wfi_case_n_samples(const wfi_case *c) {
    return (c->batch + c->n_micro - 1) / c->n_micro;
}
/* Devices of a node that the plan uses: they share its host and its disk. */
static inline double wfi_case_per_node(const wfi_case *c, const wf_cluster *cluster) {
    double all = (double)c->dp * c->pp * c->tp;
    return cluster->n_levels ? fmin(cluster->levels[0].count, all) : 1;
}
/* Microbatches of a replica. */
static inline int wfi_case_n_micro(const wfi_case *c) {
    return (int)((c->n_micro + c->dp - 1) / c->dp);
}
/* The stage that is chunk k of a device. */
static inline int wfi_case_stage(const wfi_case *c, int device, int k) {
    return k * c->pp + (c->schedule->is_v && k % 2 ? c->pp - 1 - device : device);
}

typedef struct wfi_pipeline {
    double makespan_us; /* with transfers */
    double compute_us;  /* without; 0: not computed yet */
    double *held;       /* [pp] microbatches that a device keeps at most */
} wfi_pipeline;

/* A pipeline that was simulated: cases that differ in zero or offload have the same. */
typedef struct wfi_known_run {
    const wfi_schedule *schedule;
    int pp, n_stages, n_micro;
    double busy_us, hidden_us;
    wfi_stage_times *times; /* [n_stages] */
    wfi_pipeline run;
} wfi_known_run;
#define WFI_MAX_RUNS 8

/* Where the stages of a case begin: cases that differ in schedule, zero or offload have the same.
 */
typedef struct wfi_known_division {
    const wfi_model_work *work; /* NULL: none */
    int n_stages;
    int64_t *first; /* [n_stages + 1] blocks */
} wfi_known_division;
#define WFI_MAX_DIVISIONS 8

/* The work of a microbatch is kept from case to case. */
typedef struct wfi_predictor {
    wf_context *ctx;
    wf_prediction_request q;
    wfi_precision precision;
    struct wfi_known_work {
        wfi_work_request request;
        wf_status status;
        wfi_model_work *work;                   /* NULL: the model refuses it */
    } * known;                                  /* [n_known] */
    size_t n_known, known_capacity, last_known; /* last_known: the one that was found last */
    wfi_known_run runs[WFI_MAX_RUNS];           /* the next to go: next_run */
    wfi_known_division divisions[WFI_MAX_DIVISIONS];
    int next_run, next_division;
} wfi_predictor;

/* Errors: INVALID_ARG. */
wf_status wfi_predictor_begin(wf_context *ctx, const wf_prediction_request *request,
                              wfi_predictor *p);
void wfi_predictor_end(wfi_predictor *p);
/* Returns whether a case is not for this model, such as more slices than it can be cut into. */
bool wfi_is_refused(wf_status status);
/* The work of a microbatch on a rank of `tp` that also divide rows. The microbatch is the
 * recipe's, or else the smallest power of two that the model takes. Errors: those of the model
 * function. */
wf_status wfi_predictor_work(wfi_predictor *p, int tp, wfi_model_work **work_out);
/* Results that a caller has no use for: longer steps, and more bytes missing. */
typedef struct wfi_limits {
    double step_ms, short_by_bytes;
} wfi_limits;
typedef enum wfi_verdict { WFI_PREDICTED, WFI_TOO_SLOW, WFI_TOO_LARGE } wfi_verdict;
/* Predicts a case, unless a limit is surely passed: the rest is then not computed. `limits` NULL:
 * there are none. Errors: those of wf_predict. */
wf_status wfi_predict_case(wfi_predictor *p, const wfi_case *c, const wfi_limits *limits,
                           wf_prediction *prediction_out, wfi_verdict *verdict_out);
/* Errors: INVALID_ARG, UNSUPPORTED. */
wf_status wfi_case_of_plan(const wfi_predictor *p, const wf_plan *plan, wfi_case *case_out);

/* ---- stages.c ---- */

typedef struct wfi_stage_work {
    double us[4], summed_us[4], flops[4]; /* by wfi_phase, of one microbatch */
    double gathered_us[4];                /* zero=3: longer by these, as parameters are gathered */
    int64_t first, end;                   /* its blocks */
    double n_parameters, n_used, n_blocks;
    double saved_bytes;            /* of a microbatch */
    double weight_bytes;           /* of a microbatch, that weights' gradients read */
    double packed_bytes[2];        /* of its blocks, forward and backward */
    double layer_bytes, end_bytes; /* while a layer is computed; while the model's ends are */
    double input_bytes;            /* that it gets from the stage before */
} wfi_stage_work;

/* Parameters that the device keeps: weights that two of its stages use are there once. */
double wfi_device_used(const wfi_case *c, const wfi_stage_work *stages, int device);
/* stages_out[pp * chunks], the caller frees them. Errors: INVALID_ARG. */
wf_status wfi_stages_create(wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                            wfi_stage_work **stages_out);

/* ---- pipeline.c ---- */

/* Sets the fewest microbatches that each device needs to keep: held_out[pp]. */
void wfi_pipeline_least_held(const wfi_case *c, double *held_out);
/* No pipeline takes less time, with transfers of `transfer_us` that take busy_us of the sender. */
double wfi_pipeline_least_us(const wfi_case *c, const wfi_stage_times *times, double busy_us,
                             double transfer_us);
/* `times` [pp * chunks]; a transfer takes busy_us of the sender, and arrives hidden_us later.
 * Microbatches of the steady phase take equally long, so only some are simulated. The caller frees
 * `held`. */
wf_status wfi_pipeline_run(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                           double busy_us, double hidden_us, wfi_pipeline *pipeline_out);
/* Sets compute_us of a pipeline that has run. */
wf_status wfi_pipeline_run_compute(wf_context *ctx, const wfi_case *c, const wfi_stage_times *times,
                                   wfi_pipeline *pipeline);

/* ---- bytes.c ---- */

/* Bytes kept of one microbatch by a block, as the accounting has it. */
double wfi_block_saved_bytes(const wfi_predictor *p, const wfi_case *c,
                             const wfi_model_block *block);
double wfi_block_transient_bytes(const wfi_predictor *p, const wfi_case *c,
                                 const wfi_model_block *block);
/* Sets the bytes of the device that needs the most. `held`: [pp] microbatches. */
void wfi_predict_bytes(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w,
                       const wfi_stage_work *stages, const double *held, wf_prediction *to);
/* Bytes of a device that a plan may use, libraries among them. */
double wfi_device_room(const wfi_predictor *p);
/* Counts bytes `of` a space that are missing, if there are more than of others. */
void wfi_count_missing(wf_prediction *to, double bytes, const char *of);
/* Bytes that the fullest device needs at least. */
double wfi_least_bytes(const wfi_predictor *p, const wfi_case *c, const wfi_model_work *w);
/* Bytes of a parameter, its gradient and its state. */
double wfi_bytes_each(const wfi_predictor *p, int which);
