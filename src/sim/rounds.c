/* Updates without a server: all workers compute, then all of them all-reduce. */
#include "sim/updates.h"

#include <math.h>

/* An all-reduce takes two transfers: gradients or changes to the sum, and the sum back. */
static double reduce_ms(const wf_simulation *s) {
    return s->config.n_workers > 1 ? 2 * s->config.transfer_ms : 0;
}

/* The worker's update after step `number`; its clock advances. */
static wf_status update(wf_simulation *s, int32_t worker, int64_t number, double *clock_ms) {
    double begin_ms = *clock_ms;
    *clock_ms += wfi_sim_worker_ms(s, worker, s->config.update_ms);
    s->computed_ms += *clock_ms - begin_ms;
    wfi_sim_span span = {WF_SPAN_UPDATE, worker,   WFI_STREAM_COMPUTE, "update",
                         number,         begin_ms, *clock_ms};
    return wfi_sim_add(s, span);
}

/* All workers wait for the last one, exchange, and apply the result. */
static wf_status exchange(wf_simulation *s, double *clocks_ms, int64_t number) {
    int32_t n = (int32_t)s->config.n_workers;
    double begin_ms = 0;
    for (int32_t w = 0; w < n; w++) begin_ms = fmax(begin_ms, clocks_ms[w]);
    for (int32_t w = 0; w < n; w++) {
        clocks_ms[w] = begin_ms + reduce_ms(s);
        wfi_sim_span span = {WF_SPAN_REDUCE, w,           WFI_STREAM_REDUCE, "all-reduce", -1,
                             begin_ms,       clocks_ms[w]};
        WF_TRY(wfi_sim_add(s, span));
        WF_TRY(update(s, w, number, &clocks_ms[w]));
    }
    return WF_OK;
}

/* Steps from `first` to the one before `end` on each worker, then an exchange. */
static wf_status run_round(wf_simulation *s, double *clocks_ms, int64_t first, int64_t end) {
    bool is_local = s->config.update == WF_SIMULATION_LOCAL;
    for (int32_t w = 0; w < (int32_t)s->config.n_workers; w++)
        for (int64_t step = first; step < end; step++) {
            WF_TRY(wfi_sim_compute(s, w, step, clocks_ms[w], &clocks_ms[w]));
            if (is_local) WF_TRY(update(s, w, step, &clocks_ms[w]));
            if (step + 1 < end) wfi_sim_pass_step(s, step + 1, clocks_ms[w]);
        }
    WF_TRY(exchange(s, clocks_ms, end - 1));
    double end_ms = 0;
    for (int32_t w = 0; w < (int32_t)s->config.n_workers; w++) end_ms = fmax(end_ms, clocks_ms[w]);
    wfi_sim_finish_steps(s, end, end_ms);
    return WF_OK;
}

wf_status wfi_simulate_rounds(wf_simulation *s) {
    const wf_simulation_config *c = &s->config;
    int64_t n = c->update == WF_SIMULATION_LOCAL ? c->local_steps : 1;
    double *clocks_ms = wfi_alloc(s->ctx, (size_t)c->n_workers, sizeof *clocks_ms, "a simulation");
    wf_status status = clocks_ms ? WF_OK : WF_NO_MEMORY;
    for (int64_t step = 0; step < c->n_steps && status == WF_OK; step += n)
        status = run_round(s, clocks_ms, step, wfi_min_i64(step + n, c->n_steps));
    if (c->update == WF_SIMULATION_SYNC) s->staleness[0] = c->n_steps * c->n_workers;
    wfi_free(s->ctx, clocks_ms);
    return status;
}
