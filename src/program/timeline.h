/* From instants to a timeline. Private. */
#ifndef WFI_TIMELINE_H
#define WFI_TIMELINE_H

#include "program/program.h"

#include <weft/timeline.h>

struct wf_timeline {
    wf_context *ctx;
    wfi_pool pool;       /* names */
    wf_span *spans;      /* [n_spans] by rank, stream and time */
    wf_rank_time *times; /* [n_ranks] */
    int n_ranks, n_spans;
    double step_us;
};

/* begin_us, end_us [n_instructions]: by instruction, from the begin of the step. The timeline
 * keeps nothing of the program. */
wf_status wfi_timeline_create(const wf_program *p, const double *begin_us, const double *end_us,
                              wf_timeline **timeline_out);

/* All zero, to be filled. */
wf_status wfi_timeline_allocate(wf_context *ctx, int n_ranks, int n_spans,
                                wf_timeline **timeline_out);

/* Divides the step of each rank; times_out [n_ranks]. */
wf_status wfi_timeline_divide(const wf_program *p, const double *begin_us, const double *end_us,
                              double step_us, wf_rank_time *times_out);

#endif
