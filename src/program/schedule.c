/* The order of work on each rank: the plan's schedule, made for this program's costs. */
#include "program/program.h"

void wfi_program_stage_times(const wf_program *p, int32_t stage, wfi_stage_times *out) {
    *out = (wfi_stage_times){0, 0, 0};
    for (int32_t u = p->first_unit[stage]; u < p->first_unit[stage + 1]; u++) {
        const wf_unit_cost *unit = &p->costs->units[u];
        out->forward += unit->forward_us;
        out->backward += unit->backward_us + unit->recompute_us;
        out->weight += unit->weight_us;
    }
}

/* The slowest boundary's: a schedule sees one number for all of them. */
double wfi_program_transfer_time(const wf_program *p) {
    const wf_graph *g = p->graph;
    size_t most = 0;
    for (int32_t s = 1; s < p->n_stages; s++) {
        size_t bytes = 0;
        for (int32_t v = 0; v < g->n_values; v++) {
            const wfi_place *place = &p->code->place[v];
            bool leaves = g->values[v].kind == WFI_VALUE_NODE && wfi_value_root(g, v) == v &&
                          g->values[v].node >= 0 && place->kind == WFI_BLOCK_VALUE &&
                          place->unit == p->first_unit[s] - 1 &&
                          g->nodes[g->values[v].node].phase == WFI_F;
            if (leaves) bytes += place->bytes;
        }
        if (bytes > most) most = bytes;
    }
    return p->costs->rates.message_us + (double)most * p->costs->rates.copy_us_per_byte;
}

static void forward_only(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    for (int m = 0; m < request->n_micro; m++)
        for (int s = 0; s < request->n_stages; s++)
            if (wfi_request_device_of(request, s) == device)
                wfi_action_push(list, WFI_ACTION_F, s, m);
}

/* The lists of one replica's devices for all lowered ranks, whose microbatches are counted in the
 * step. */
static wf_status copy_to_ranks(const wf_program *p, const wfi_action_list *devices,
                               wfi_action_list **lists_out) {
    wfi_action_list *lists = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *lists, "a schedule");
    if (!lists) return WF_NO_MEMORY;
    for (int32_t i = 0; i < p->n_lowered; i++) {
        int32_t rank = p->lowered[i], dp = wfi_mesh_dp(p->mesh, rank);
        const wfi_action_list *own = &devices[wfi_mesh_pp(p->mesh, rank)];
        wfi_action_list *list = &lists[rank];
        list->actions = wfi_alloc(p->ctx, (size_t)own->n, sizeof *list->actions, "a schedule");
        if (!list->actions) {
            wfi_schedule_free(p->ctx, lists, p->n_ranks);
            return WF_NO_MEMORY;
        }
        for (; list->n < own->n; list->n++) {
            list->actions[list->n] = own->actions[list->n];
            list->actions[list->n].micro += dp * (int)wfi_stage_n_micro(p, 0);
        }
    }
    *lists_out = lists;
    return WF_OK;
}

/* Whether each replica is a pipeline of its own: of the plan's stages, all with as many replicas.
 */
static bool is_pipeline(const wf_program *p) {
    bool is = p->n_stages == wfi_plan_n_stages(p->plan, p->graph->n_units);
    for (int32_t s = 0; s < p->n_stages; s++) is &= p->stages[s].n_replicas == p->mesh.dp;
    return is;
}

static wf_status make_lists(const wf_program *p, wfi_schedule_request *request,
                            wfi_action_list **lists_out) {
    static const wfi_schedule forward = {.name = "forward", .help = "", .rule = forward_only};
    const wfi_schedule *schedule = p->kind == WF_PROGRAM_TRAIN ? p->plan->schedule : &forward;
    wfi_action_list *devices;
    WF_TRY(wfi_schedule_make(p->ctx, schedule, request, &devices));
    wf_status status = copy_to_ranks(p, devices, lists_out);
    wfi_schedule_free(p->ctx, devices, p->mesh.pp);
    return status;
}

wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out) {
    if (!is_pipeline(p)) return wfi_program_rounds(p, lists_out);
    size_t n_stages = (size_t)p->n_stages;
    wfi_stage_times *times = wfi_alloc(p->ctx, n_stages, sizeof *times, "a schedule's times");
    int *device_of = wfi_alloc(p->ctx, n_stages, sizeof *device_of, "a schedule's devices");
    wfi_schedule_request request = {.n_stages = p->n_stages,
                                    .n_micro = (int)wfi_stage_n_micro(p, 0),
                                    .times = times,
                                    .transfer = wfi_program_transfer_time(p),
                                    .hold = p->plan->hold ? p->plan->hold : 2 * p->mesh.pp - 1,
                                    .n_devices = p->mesh.pp,
                                    .device_of = device_of};
    for (int32_t s = 0; s < p->n_stages && times && device_of; s++) {
        wfi_program_stage_times(p, s, &times[s]);
        device_of[s] = p->stages[s].pp;
    }
    wf_status status = times && device_of ? make_lists(p, &request, lists_out) : WF_NO_MEMORY;
    wfi_free(p->ctx, times);
    wfi_free(p->ctx, device_of);
    return status;
}
