/* A timeline: what each stream of each rank did when, in one step; measured or simulated.
 * Drawings, traces and the division of a rank's time are made from it.
 */
#ifndef WEFT_TIMELINE_H
#define WEFT_TIMELINE_H

#include <weft/costs.h>
#include <weft/program.h>

typedef struct wf_timeline wf_timeline;

typedef enum wf_span_kind {
    WF_SPAN_FORWARD,
    WF_SPAN_BACKWARD,        /* gradient of what goes in */
    WF_SPAN_WEIGHT,          /* gradient of the weights */
    WF_SPAN_BACKWARD_WEIGHT, /* both */
    WF_SPAN_RECOMPUTE,       /* forward again, before a backward */
    WF_SPAN_UPDATE,          /* optimizer, statistics, sums within a rank, packing */
    WF_SPAN_TRANSFER,        /* send, receive */
    WF_SPAN_REDUCE,          /* sums and gathers over ranks */
    WF_SPAN_HOST,            /* to and from the host */
    WF_N_SPAN_KINDS
} wf_span_kind;

/* One instruction. Times in microseconds from the begin of the step. */
typedef struct wf_span {
    wf_span_kind kind;
    int rank;
    const char *stream; /* "compute", "copy", "send", "receive" or "reduce"; static */
    const char *name;   /* "forward layer3.0"; borrowed from the timeline */
    const char *unit;   /* or ""; borrowed */
    int64_t micro;      /* global microbatch, or -1 */
    int chunk;          /* of a pipeline's stages on the rank, from 0 on; 0 if there is one */
    int transfer;       /* a send and its receive have the same number, from 1 on; all others, and
                         * spans read from a trace, 0 */
    double begin_us, end_us;
} wf_span;

/* How a rank spends the step; the four add up to it. Compute: its compute stream works.
 * Of the rest: transfer: what it needs next is on its way; bubble: what it needs next does
 * not exist yet, or it has nothing left to do; wait: everything is there, and still it does
 * not work (waking up, queues, the host). */
typedef struct wf_rank_time {
    double compute_us, transfer_us, bubble_us, wait_us;
} wf_rank_time;

/* What memory is used for. */
typedef enum wf_memory_kind {
    WF_MEMORY_PARAMETERS, /* and buffers, kept from step to step */
    WF_MEMORY_GATHERED,   /* copies of parameters that other ranks keep */
    WF_MEMORY_GRADIENTS,
    WF_MEMORY_STATE, /* the optimizer's */
    WF_MEMORY_ACTIVATIONS,
    WF_MEMORY_WORKSPACE, /* temporaries, weights in the kernels' formats, staging */
    WF_MEMORY_HOST,      /* of any kind, in the host's memory and in a file instead of the device */
    WF_MEMORY_DISK,
    WF_N_MEMORY_KINDS
} wf_memory_kind;

/* What is alive on a rank from this moment on to the next. */
typedef struct wf_memory_moment {
    double us; /* from the begin of the step */
    size_t bytes[WF_N_MEMORY_KINDS];
} wf_memory_moment;

#ifdef __cplusplus
extern "C" {
#endif

/* "forward", "backward", "weight", "backward+weight", "update", "transfer", "reduce", "host". */
WF_API const char *wf_span_kind_name(wf_span_kind kind);

/* Walks the program with a clock for each stream. `costs` NULL: the program's own. Errors:
 * INVALID_ARG: they are of another model. */
WF_API WF_NODISCARD wf_status wf_program_simulate(const wf_program *program, const wf_costs *costs,
                                                  wf_timeline **timeline_out);

WF_API double wf_timeline_step_us(const wf_timeline *timeline);
WF_API int wf_timeline_n_ranks(const wf_timeline *timeline);
WF_API int wf_timeline_n_spans(const wf_timeline *timeline);
/* Spans of one stream stand in the order of time. Out of range: zeros and empty texts. */
WF_API wf_span wf_timeline_span(const wf_timeline *timeline, int i);
/* Out of range: zeros. */
WF_API wf_rank_time wf_timeline_rank(const wf_timeline *timeline, int rank);
/* "parameters", "gathered", "gradients", "state", "activations", "workspace", "host", "disk". */
WF_API const char *wf_memory_kind_name(wf_memory_kind kind);
/* A few hundred at most, in the order of time; the highest is always there. None for a timeline
 * that was read from a trace. Out of range: 0 and zeros. */
WF_API int wf_timeline_n_moments(const wf_timeline *timeline, int rank);
WF_API wf_memory_moment wf_timeline_moment(const wf_timeline *timeline, int rank, int i);
WF_API void wf_timeline_destroy(wf_timeline *timeline); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
