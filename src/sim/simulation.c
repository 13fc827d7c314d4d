/* The simulation of updates: checks, results. */
#include "sim/updates.h"

#include <math.h>

/* ---- configuration ---- */

static wf_status check_count(wf_context *ctx, const char *of, int64_t n, int64_t least,
                             int64_t most) {
    if (n >= least && n <= most) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "simulation: %lld %s; there may be %lld to %lld",
                    (long long)n, of, (long long)least, (long long)most);
}

static wf_status check_time(wf_context *ctx, const char *of, double ms) {
    if (ms >= 0 && ms <= WF_SIMULATION_MAX_TIME_MS) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "simulation: %s takes %g ms; a time is from 0 to %g", of,
                    ms, WF_SIMULATION_MAX_TIME_MS);
}

static wf_status check_times(wf_context *ctx, const wf_simulation_config *c) {
    WF_TRY(check_time(ctx, "forward", c->forward_ms));
    WF_TRY(check_time(ctx, "backward", c->backward_ms));
    WF_TRY(check_time(ctx, "the weight gradient", c->weight_ms));
    WF_TRY(check_time(ctx, "a transfer", c->transfer_ms));
    WF_TRY(check_time(ctx, "an update", c->update_ms));
    if (c->forward_ms + c->backward_ms + c->weight_ms > 0) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG, "simulation: a share must take some time to compute");
}

static wf_status check(wf_context *ctx, const wf_simulation_config *c) {
    WF_TRY(wfi_check_struct(ctx, c, sizeof *c, "wf_simulation_config"));
    if ((unsigned)c->update > WF_SIMULATION_LOCAL)
        return wfi_fail(ctx, WF_INVALID_ARG, "simulation: there is no kind of update %d",
                        (int)c->update);
    WF_TRY(check_count(ctx, "workers", c->n_workers, 1, WF_SIMULATION_MAX_WORKERS));
    WF_TRY(check_count(ctx, "servers", c->n_servers, 1, WF_SIMULATION_MAX_WORKERS));
    WF_TRY(check_count(ctx, "steps", c->n_steps, 1, WF_SIMULATION_MAX_SHARES / c->n_workers));
    WF_TRY(check_count(ctx, "local steps", c->local_steps, 1, c->n_steps));
    WF_TRY(
        check_count(ctx, "steps of staleness", c->staleness, WF_SIMULATION_UNBOUNDED, INT64_MAX));
    int64_t n_rows = c->n_workers * (c->update == WF_SIMULATION_ASYNC ? 1 + c->n_servers : 1);
    WF_TRY(check_count(ctx, "steps of the timeline", c->timeline_steps, 0,
                       wfi_min_i64(c->n_steps, WF_SIMULATION_MAX_SHARES / n_rows)));
    if (!(c->slow >= 1 && c->slow <= WF_SIMULATION_MAX_SLOW))
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "simulation: worker 0 is slower by %g; the factor is from 1 to %d", c->slow,
                        WF_SIMULATION_MAX_SLOW);
    return check_times(ctx, c);
}

/* ---- results ---- */

static wf_simulation_summary summarize(const wf_simulation *s) {
    wf_simulation_summary sum = {.step_ms = s->end_ms / (double)s->config.n_steps};
    sum.steps_per_second = 1e3 / sum.step_ms;
    sum.worker_busy = s->computed_ms / (s->end_ms * (double)s->config.n_workers);
    sum.link_busy = s->link_ms / s->end_ms;
    sum.update_busy = s->update_ms / s->end_ms;
    sum.server_busy = fmax(sum.link_busy, sum.update_busy);
    for (int64_t k = 0; k <= s->config.n_steps; k++)
        if (s->staleness[k]) sum.n_staleness = k + 1;
    return sum;
}

static wf_status run(wf_simulation *s) {
    s->staleness =
        wfi_alloc(s->ctx, (size_t)s->config.n_steps + 1, sizeof *s->staleness, "a simulation");
    if (!s->staleness) return WF_NO_MEMORY;
    WF_TRY(s->config.update == WF_SIMULATION_ASYNC ? wfi_simulate_servers(s)
                                                   : wfi_simulate_rounds(s));
    return wfi_sim_timeline(s);
}

wf_status wf_simulation_run(wf_context *ctx, const wf_simulation_config *config,
                            wf_simulation **simulation_out) {
    WF_TRY(check(ctx, config));
    wf_simulation *s = wfi_alloc(ctx, 1, sizeof *s, "a simulation");
    if (!s) return WF_NO_MEMORY;
    *s = (wf_simulation){.ctx = ctx, .config = *config};
    wf_status status = run(s);
    if (status == WF_OK)
        *simulation_out = s;
    else
        wf_simulation_destroy(s);
    return status;
}

void wf_simulation_destroy(wf_simulation *s) {
    if (!s) return;
    wf_timeline_destroy(s->timeline);
    wfi_free(s->ctx, s->staleness);
    wfi_free(s->ctx, s->spans);
    wfi_free(s->ctx, s);
}

wf_simulation_summary wf_simulation_summarize(const wf_simulation *s) {
    return summarize(s);
}

int64_t wf_simulation_staleness(const wf_simulation *s, int64_t steps) {
    return steps >= 0 && steps <= s->config.n_steps ? s->staleness[steps] : 0;
}

const wf_timeline *wf_simulation_timeline(const wf_simulation *s) {
    return s->timeline;
}
