/* From instants to a timeline. Private. */
#pragma once

#include "program/program.h"

#include <weft/timeline.h>

/* Moments of a rank's memory in a timeline; a picture cannot show more. Several moments are joined
 * to the one with most memory. */
#define WFI_MAX_MOMENTS 400

typedef struct wfi_moments {
    wf_memory_moment *items; /* [n] in the timeline's pool; NULL or [WFI_MAX_MOMENTS] */
    int n;
} wfi_moments;

/* The spans of a rank: those of the rank that it follows (program/classes.c), with microbatches and
 * slices of its own. */
typedef struct wfi_rank_spans {
    int32_t like;
    int32_t tp;    /* its coordinate, if its slices differ from the followed rank's; else -1 */
    int64_t first; /* number of its first span, among all ranks' */
    int64_t kept;  /* place of that span, or of the followed rank's, in `spans` */
    int64_t later; /* distance of its microbatches from the followed rank's */
} wfi_rank_spans;

/* Names of a span on ranks with other slices. */
typedef struct wfi_span_names {
    const char *unit, *name;
} wfi_span_names;

/* A span of a whole step, of which the timeline has the short form. */
typedef struct wfi_whole_span {
    double begin_us, end_us;
    int32_t span;  /* of the short form */
    int32_t later; /* how many microbatches later it is */
} wfi_whole_span;

struct wf_timeline {
    wf_context *ctx;
    wfi_pool pool;         /* names, moments, ranks */
    wf_span *spans;        /* by rank, stream and time; of ranks that follow others, none */
    wfi_whole_span *whole; /* in the same order; NULL: `spans` are those of the whole step */
    wfi_rank_spans *ranks; /* [n_ranks]; NULL: no rank follows another */
    /* [of `spans`] NULL, or [tp]; where no rank has other slices than the one that it follows, the
     * array itself is NULL. */
    const wfi_span_names **others;
    wf_rank_time *times;  /* [n_ranks] */
    wfi_moments *moments; /* [n_ranks] */
    int n_ranks;
    int64_t n_spans; /* of all ranks */
    int n_chunks;
    double step_us;
};

/* begin_us, end_us [n_instructions]: by instruction, from the begin of the step. The timeline
 * keeps nothing of the program. */
wf_status wfi_timeline_create(const wf_program *p, const double *begin_us, const double *end_us,
                              wf_timeline **timeline_out);

/* moments.c: fills those of each rank; the step is known. */
wf_status wfi_timeline_find_moments(const wf_program *p, const double *begin_us,
                                    const double *end_us, wf_timeline *t);

/* All zero, to be filled; n_spans: those that are kept. */
wf_status wfi_timeline_allocate(wf_context *ctx, int n_ranks, int64_t n_spans,
                                wf_timeline **timeline_out);

/* Divides the step of each rank by its spans, where ranks are workers and then servers. */
void wfi_timeline_divide_spans(wf_timeline *t, int n_workers);

/* Divides a gap of the compute stream by the instruction waited for, which was ready and ended
 * then. Returns from when on it was there. */
double wfi_divide_gap(double ended_us, double ready_us, double begin, double end,
                      wf_rank_time *time);

/* Divides the step of each rank; times_out [n_ranks]. */
wf_status wfi_timeline_divide(const wf_program *p, const double *begin_us, const double *end_us,
                              double step_us, wf_rank_time *times_out);
