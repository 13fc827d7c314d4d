/* weft bench async: the speed of each row by wf_simulation_run, from the times of one worker.
 *
 * A worker without a server takes compute + update for a share of a batch. With one it takes
 * compute + update + two transfers: the gradient goes, the parameters come back. The simulation has
 * a core for each worker and server. A machine with fewer cores is crowded: all compute times are
 * multiplied by the wanted cores per core. A slow worker sleeps, so it wants less than a core.
 */
#include "bench/async.h"

#include <math.h>

static void find_costs(async_costs *c) {
    double step_ms = samples_median(&c->step_ms, 0);
    c->update = fmin(samples_median(&c->update_ms, 0), step_ms / 2);
    c->compute_ms = step_ms - c->update;
    c->transfer_ms = fmax(0, samples_median(&c->served_ms, 0) - step_ms) / 2;
}

static wf_simulation_config config_of(const bench_async *b, const async_row *r) {
    static const wf_simulation_update updates[] = {[WF_UPDATE_SYNC] = WF_SIMULATION_SYNC,
                                                   [WF_UPDATE_ASYNC] = WF_SIMULATION_ASYNC,
                                                   [WF_UPDATE_LOCAL] = WF_SIMULATION_LOCAL};
    const wf_recipe *recipe = &b->c->o.recipe;
    wf_simulation_config q = WF_SIMULATION_CONFIG_INIT;
    q.update = updates[r->update];
    q.n_workers = b->n_workers;
    q.n_steps = b->c->o.steps;
    if (r->n_servers) q.n_servers = r->n_servers;
    if (r->is_bounded) q.staleness = recipe->staleness;
    q.local_steps = recipe->local_steps < q.n_steps ? recipe->local_steps : q.n_steps;
    q.transfer_ms = b->costs.transfer_ms;
    q.update_ms = b->costs.update;
    return q;
}

/* Worker 0 computes its lanes, the others theirs, all of them `crowding` times as long as on a core
 * of their own. Without servers, the fast ones wait while the slow one sleeps, so only the time
 * that they compute is crowded. */
static void set_times(const bench_async *b, const async_row *r, double crowding,
                      wf_simulation_config *q) {
    double n_each = (double)b->n_lanes / (double)b->n_workers;
    double most = b->costs.compute_ms * (double)r->n_most_lanes / n_each;
    double slow = b->costs.compute_ms * (double)r->n_slow_lanes / n_each;
    double slow_ms =
        r->update == WF_UPDATE_ASYNC ? slow * r->slow * crowding : slow * (r->slow - 1 + crowding);
    q->forward_ms = most * crowding;
    q->slow = fmin(fmax(1, slow_ms / q->forward_ms), WF_SIMULATION_MAX_SLOW);
    if (slow_ms < q->forward_ms || r->slow <= 1) q->slow = 1;
}

/* Returns the wanted cores per core of the machine, at least 1. */
static double crowding_of(const bench_async *b, const async_row *r, double server_busy) {
    double wanted = (double)b->n_workers - 1 + 1 / r->slow;
    wanted = wanted * b->c->o.recipe.n_threads + (double)r->n_servers * server_busy;
    return fmax(1, wanted / apart_n_cores());
}

static wf_status simulate(const bench_async *b, async_row *r, double crowding) {
    wf_simulation_config q = config_of(b, r);
    wf_simulation *s;
    set_times(b, r, crowding, &q);
    wf_status status = wf_simulation_run(b->c->ctx, &q, &s);
    if (status != WF_OK) return status;
    wf_simulation_summary sum = wf_simulation_summarize(s);
    r->predicted = sum.steps_per_second * (double)b->c->o.recipe.batch;
    r->server_busy = r->n_servers ? sum.server_busy : NAN;
    wf_simulation_destroy(s);
    return WF_OK;
}

wf_status async_predict(bench_async *b) {
    wf_status status = WF_OK;
    find_costs(&b->costs);
    for (async_row *r = b->rows; r < b->rows + b->n_rows && status == WF_OK; r++) {
        status = simulate(b, r, crowding_of(b, r, 0));
        double crowding = crowding_of(b, r, r->n_servers ? r->server_busy : 0);
        if (status == WF_OK) status = simulate(b, r, crowding);
    }
    return status;
}
