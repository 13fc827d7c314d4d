/* weft bench async: the speed of each row by wf_simulation_run, from the times of one worker.
 *
 * A worker without a server takes compute + update for a share of a batch. With one it takes
 * compute + update + two transfers: the gradient goes, the parameters come back. The simulation has
 * a core for each worker and server. A machine with fewer cores is crowded: all compute times are
 * multiplied by the wanted cores per core. A slow worker sleeps, so it wants less than a core.
 */
#include "bench/async.h"

#include <math.h>

static wf_simulation_config config_of(const rounds *b, const json_t *row,
                                      const async_costs *costs) {
    static const wf_simulation_update updates[] = {[WF_UPDATE_SYNC] = WF_SIMULATION_SYNC,
                                                   [WF_UPDATE_ASYNC] = WF_SIMULATION_ASYNC,
                                                   [WF_UPDATE_LOCAL] = WF_SIMULATION_LOCAL};
    const wf_recipe *recipe = &b->c->o.recipe;
    wf_simulation_config q = WF_SIMULATION_CONFIG_INIT;
    q.update = updates[async_update(row)];
    q.n_workers = recipe->n_workers;
    q.n_steps = b->c->o.steps;
    int64_t n_servers = (int64_t)row_number(row, "servers");
    if (n_servers) q.n_servers = n_servers;
    if (json_object_get(row, ".bounded")) q.staleness = recipe->staleness;
    q.local_steps = recipe->local_steps < q.n_steps ? recipe->local_steps : q.n_steps;
    q.transfer_ms = costs->transfer_ms;
    q.update_ms = costs->update_ms;
    return q;
}

/* Worker 0 computes its lanes, the others theirs, all of them `crowding` times as long as on a core
 * of their own. Without servers, the fast ones wait while the slow one sleeps, so only the time
 * that they compute is crowded. */
static void set_times(const rounds *b, const json_t *row, const async_costs *costs, double crowding,
                      wf_simulation_config *q) {
    const wf_recipe *r = &b->c->o.recipe;
    double n_each = (double)r->n_lanes / (double)r->n_workers, factor = row_number(row, "slow");
    double most = costs->compute_ms * row_number(row, ".most_lanes") / n_each;
    double slow = costs->compute_ms * row_number(row, ".slow_lanes") / n_each;
    double slow_ms = async_update(row) == WF_UPDATE_ASYNC ? slow * factor * crowding
                                                          : slow * (factor - 1 + crowding);
    q->forward_ms = most * crowding;
    q->slow = fmin(fmax(1, slow_ms / q->forward_ms), WF_SIMULATION_MAX_SLOW);
    if (slow_ms < q->forward_ms || factor <= 1) q->slow = 1;
}

/* Returns the wanted cores per core of the machine, at least 1. */
static double crowding_of(const rounds *b, const json_t *row) {
    const wf_recipe *r = &b->c->o.recipe;
    double wanted = (double)r->n_workers - 1 + 1 / row_number(row, "slow");
    double busy = fmax(0, row_number(row, "server_busy_predicted")); /* unknown at first */
    wanted = wanted * r->n_threads + row_number(row, "servers") * busy;
    return fmax(1, wanted / apart_n_cores());
}

static wf_status simulate(const rounds *b, json_t *row, const async_costs *costs) {
    wf_simulation_config q = config_of(b, row, costs);
    wf_simulation *s;
    set_times(b, row, costs, crowding_of(b, row), &q);
    wf_status status = wf_simulation_run(b->c->ctx, &q, &s);
    if (status != WF_OK) return status;
    wf_simulation_summary sum = wf_simulation_summarize(s);
    row_set(row, "predicted", sum.steps_per_second * (double)b->c->o.recipe.batch);
    row_set(row, "server_busy_predicted", row_number(row, "servers") ? sum.server_busy : NAN);
    wf_simulation_destroy(s);
    return WF_OK;
}

wf_status async_predict(rounds *b, const async_costs *costs) {
    wf_status status = WF_OK;
    size_t i;
    json_t *row;
    json_array_foreach(b->rows, i, row) {
        if (status == WF_OK) status = simulate(b, row, costs);
        if (status == WF_OK) status = simulate(b, row, costs);
    }
    return status;
}
