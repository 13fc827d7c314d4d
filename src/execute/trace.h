/* Start and end of each instruction of a step, and times of units over many steps. Private. A
 * process of a job traces its own rank.
 *
 * Every instruction has its own two places to write to, so ranks record without a lock; the host
 * reads after a step, when all streams are idle.
 */
#pragma once

#include "program/program.h"

#include <weft/job.h>

/* Time and bytes of transfers of one kind. */
typedef struct wfi_rate_sum {
    double us, bytes;
} wfi_rate_sum;

typedef struct wfi_trace {
    wfi_pool pool; /* of the arrays */
    const wf_program *p;
    int32_t rank;               /* rank of the traced instructions; -1: all ranks */
    int64_t start_ns;           /* of the step */
    int64_t *begin_ns, *end_ns; /* [n_instructions] */
    int64_t *cpu_ns;   /* [n_instructions] of the stream's thread; 0: a device or a disk works */
    int64_t *least_ns; /* [n_instructions] of all steps but the first: CPU time, or time */
    int64_t clock_ns;  /* of reading a thread's CPU time, which no instruction should count */
    int64_t n_steps;
} wfi_trace;

/* Sums from which a program's costs are computed. */
typedef struct wfi_trace_sums {
    double *mean_us; /* [n_units * WFI_N_PARTS]; NAN: never ran */
    wfi_rate_sum rates[WFI_N_RATES];
} wfi_trace_sums;

/* `rank`: of the job's process, or -1. */
wf_status wfi_trace_create(const wf_program *p, int32_t rank, wfi_trace **trace_out);
void wfi_trace_destroy(wfi_trace *trace); /* NULL is allowed */

/* At the begin and at the end of a step, by the host. */
void wfi_trace_start(wfi_trace *trace);
void wfi_trace_finish(wfi_trace *trace);

/* With `job`, all of its processes call these, and get the same. */
wf_status wfi_trace_timeline(wfi_trace *trace, wf_job *job, wf_timeline **timeline_out);
wf_status wfi_trace_costs(const wfi_trace *trace, wf_job *job, wf_costs **costs_out);

/* trace_share.c: adds the traces of the job's other processes. */
wf_status wfi_trace_share(wfi_trace *trace, wf_job *job);
wf_status wfi_trace_share_sums(const wf_program *p, wf_job *job, wfi_trace_sums *sums);
/* When the times of all ranks are there: those of sends. */
void wfi_trace_complete(wfi_trace *trace);
