/* Timelines: the instructions of each stream of each rank in one step, with their times.
 *
 * A timeline is measured or simulated. Drawings, traces and the breakdown of a rank's time are made
 * from it.
 */
#ifndef WEFT_TIMELINE_H
#define WEFT_TIMELINE_H

#include <weft/costs.h>
#include <weft/program.h>

typedef struct wf_timeline wf_timeline;

typedef enum wf_span_kind {
    WF_SPAN_FORWARD,
    WF_SPAN_BACKWARD,        /* gradient of the stage's input */
    WF_SPAN_WEIGHT,          /* gradient of the weights */
    WF_SPAN_BACKWARD_WEIGHT, /* both */
    WF_SPAN_RECOMPUTE,       /* a second forward before a backward */
    WF_SPAN_UPDATE,          /* optimizer, statistics, sums within a rank, packing */
    WF_SPAN_TRANSFER,        /* sends and receives */
    WF_SPAN_REDUCE,          /* sums and gathers over ranks */
    WF_SPAN_HOST,            /* to and from host memory */
    WF_N_SPAN_KINDS
} wf_span_kind;

/* One instruction. Times are in microseconds from the begin of the step. */
typedef struct wf_span {
    wf_span_kind kind;
    int rank;
    const char *stream; /* "compute", "copy", "send", "receive" or "reduce"; static */
    const char *name;   /* "forward layer3.0"; borrowed from the timeline */
    const char *unit;   /* or ""; borrowed */
    int64_t micro;      /* global microbatch, or -1 */
    int chunk;          /* chunk of a pipeline stage on the rank, from 0; 0 if there is one */
    int transfer; /* number that a send and its receive share, from 1; 0 for other spans, and for
                   * spans read from a trace */
    double begin_us, end_us;
} wf_span;

/* Breakdown of a rank's step; the four times add up to the step. compute: the compute stream works.
 * transfer: its next input is in transfer. bubble: its next input does not exist yet, or the stream
 * has finished. wait: the input is present, but the stream does not run yet (wake-up, queues, the
 * host). */
typedef struct wf_rank_time {
    double compute_us, transfer_us, bubble_us, wait_us;
} wf_rank_time;

/* The uses of memory. */
typedef enum wf_memory_kind {
    WF_MEMORY_PARAMETERS, /* parameters and buffers, kept from step to step */
    WF_MEMORY_GATHERED,   /* copies of parameters that other ranks hold */
    WF_MEMORY_GRADIENTS,
    WF_MEMORY_STATE, /* optimizer state */
    WF_MEMORY_ACTIVATIONS,
    WF_MEMORY_WORKSPACE, /* temporaries, weights in the kernels' formats, staging */
    WF_MEMORY_HOST,      /* of all uses, in host memory or in a file instead of the device */
    WF_MEMORY_DISK,
    WF_N_MEMORY_KINDS
} wf_memory_kind;

/* The bytes that are alive on a rank from this moment until the next one. */
typedef struct wf_memory_moment {
    double us; /* from the begin of the step */
    size_t bytes[WF_N_MEMORY_KINDS];
} wf_memory_moment;

#ifdef __cplusplus
extern "C" {
#endif

/* The name of a kind: "forward", "backward", "weight", "backward+weight", "recompute", "update",
 * "transfer", "reduce" or "host"; "?" if out of range. Static. */
WF_API const char *wf_span_kind_name(wf_span_kind kind);

/* Simulates the program with one clock per stream. `costs` NULL means the program's own. Errors:
 * INVALID_ARG (costs of another model, or times that are negative or not finite), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_program_simulate(const wf_program *program, const wf_costs *costs,
                                                  wf_timeline **timeline_out);

/* The length of the step, and the numbers of ranks and spans. */
WF_API double wf_timeline_step_us(const wf_timeline *timeline);
WF_API int wf_timeline_n_ranks(const wf_timeline *timeline);
WF_API int64_t wf_timeline_n_spans(const wf_timeline *timeline);
/* Span i. Spans are in order of ranks, and those of one stream in order of time. Out of range:
 * zeros and empty texts. */
WF_API wf_span wf_timeline_span(const wf_timeline *timeline, int64_t i);
/* Copies up to n spans from `first` on, in their order. Returns their number. */
WF_API int wf_timeline_spans(const wf_timeline *timeline, int64_t first, int n, wf_span *spans_out);
/* The number of chunks of a rank: 1, or more where ranks have several stages of a pipeline. */
WF_API int wf_timeline_n_chunks(const wf_timeline *timeline);
/* The first span of a rank; the number of spans if there is no such rank. */
WF_API int64_t wf_timeline_first_span(const wf_timeline *timeline, int rank);
/* The lowest rank that does the same as `rank` at the same times, on other microbatches, as far as
 * the plan alone shows; `rank` itself if there is none. */
WF_API int wf_timeline_like(const wf_timeline *timeline, int rank);
/* The breakdown of a rank's time. Out of range: zeros. */
WF_API wf_rank_time wf_timeline_rank(const wf_timeline *timeline, int rank);
/* The name of a kind: "parameters", "gathered", "gradients", "state", "activations", "workspace",
 * "host" or "disk". Static. */
WF_API const char *wf_memory_kind_name(wf_memory_kind kind);
/* Memory of a rank over time: a few hundred moments at most, in order, always with the highest. A
 * timeline that was read from a trace has 0. Out of range: 0 and zeros. */
WF_API int wf_timeline_n_moments(const wf_timeline *timeline, int rank);
WF_API wf_memory_moment wf_timeline_moment(const wf_timeline *timeline, int rank, int i);
WF_API void wf_timeline_destroy(wf_timeline *timeline); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
