/* Internals of the simulation of updates. Private.
 *
 * Its loops (server.c, rounds.c) advance clocks of their own. They report computed time, finished
 * steps and spans; spans become the timeline (spans.c).
 */
#pragma once

#include "program/program.h"

#include <weft/simulation.h>

/* A span of a worker or, with rank n_workers, of every server. */
typedef struct wfi_sim_span {
    wf_span_kind kind;
    int32_t rank;
    wfi_stream stream;
    const char *name;
    int64_t number; /* or -1 */
    double begin_ms, end_ms;
} wfi_sim_span;

struct wf_simulation {
    wf_context *ctx;
    wf_simulation_config config;
    double end_ms;                          /* of the last step */
    double computed_ms, link_ms, update_ms; /* sums: of all workers; of one server */
    int64_t *staleness;                     /* [n_steps + 1] */
    wfi_sim_span *spans;                    /* of the timeline's steps */
    size_t n_spans, capacity;
    int64_t n_steps_done;
    double cut_ms; /* end of the timeline */
    wf_timeline *timeline;
};

/* server.c and rounds.c: run all steps. Errors: NO_MEMORY. */
wf_status wfi_simulate_servers(wf_simulation *s);
wf_status wfi_simulate_rounds(wf_simulation *s);

/* ---- spans.c ---- */

/* Returns the worker's time for work that takes the others `ms`. */
double wfi_sim_worker_ms(const wf_simulation *s, int32_t worker, double ms);
/* Adds the computation of a share from `begin_ms` on; *end_ms_out is its end. Errors: NO_MEMORY. */
wf_status wfi_sim_compute(wf_simulation *s, int32_t worker, int64_t number, double begin_ms,
                          double *end_ms_out);
/* Errors: NO_MEMORY. */
wf_status wfi_sim_add(wf_simulation *s, wfi_sim_span span);
/* Notes that a worker has done n_steps steps of its own. The timeline ends when all have. */
void wfi_sim_pass_step(wf_simulation *s, int64_t n_steps, double now_ms);
/* Notes that n_steps steps are done. */
void wfi_sim_finish_steps(wf_simulation *s, int64_t n_steps, double now_ms);
/* Makes the timeline of the spans. Errors: NO_MEMORY. */
wf_status wfi_sim_timeline(wf_simulation *s);
