/* When each instruction of a step ran, and what units took over many steps. Private.
 *
 * Every instruction has its own two places to write to, so ranks record without a lock;
 * the host reads after a step, when all streams are idle.
 */
#ifndef WFI_TRACE_H
#define WFI_TRACE_H

#include "program/program.h"
#include "program/timeline.h"

/* The latest times of one unit's part, a microbatch each. */
#define WFI_N_SAMPLES 256
typedef struct wfi_samples {
    double us[WFI_N_SAMPLES];
    uint64_t n; /* ever; the latest WFI_N_SAMPLES are kept */
} wfi_samples;

typedef struct wfi_trace {
    const wf_program *p;
    int64_t start_ns;           /* of the step */
    int64_t *begin_ns, *end_ns; /* [n_instructions] */
    wfi_samples *samples;       /* [n_units * WFI_N_PARTS] */
    double copy_us, copy_bytes; /* of transfers, loads and packing, over all steps */
    double update_us, update_bytes;
    int64_t n_steps;
} wfi_trace;

wf_status wfi_trace_create(const wf_program *p, wfi_trace **trace_out);
void wfi_trace_destroy(wfi_trace *trace); /* NULL is allowed */

/* At the begin and at the end of a step, by the host. */
void wfi_trace_start(wfi_trace *trace);
void wfi_trace_finish(wfi_trace *trace);

wf_status wfi_trace_timeline(const wfi_trace *trace, wf_timeline **timeline_out);
wf_status wfi_trace_costs(const wfi_trace *trace, wf_costs **costs_out);

#endif
