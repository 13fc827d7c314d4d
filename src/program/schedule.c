/* The order of work on each rank: the plan's schedule, made for this program's costs. */
#include "program/program.h"

void wfi_program_stage_times(const wf_program *p, int32_t stage, wfi_stage_times *out) {
    *out = (wfi_stage_times){0, 0, 0};
    for (int32_t u = p->first_unit[stage]; u < p->first_unit[stage + 1]; u++) {
        const wf_unit_cost *unit = &p->costs->units[u];
        out->forward += unit->forward_us;
        out->backward += unit->backward_us;
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

static void forward_only(int n_stages, int stage, int n_micro, wfi_action_list *list) {
    (void)n_stages;
    for (int m = 0; m < n_micro; m++) wfi_action_push(list, WFI_ACTION_F, stage, m);
}

/* The stages' lists of one replica for all lowered ranks, whose microbatches are counted in the
 * step. */
static wf_status copy_to_ranks(const wf_program *p, const wfi_action_list *stages,
                               wfi_action_list **lists_out) {
    wfi_action_list *lists = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *lists, "a schedule");
    if (!lists) return WF_NO_MEMORY;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t d = 0; d < p->stages[s].n_replicas; d++) {
            int32_t rank = wfi_program_rank_of(p, d, s);
            wfi_action_list *list = &lists[rank];
            if (!wfi_rank_is_lowered(p, rank)) continue;
            list->actions =
                wfi_alloc(p->ctx, (size_t)stages[s].n, sizeof *list->actions, "a schedule");
            if (!list->actions) {
                wfi_schedule_free(p->ctx, lists, p->n_ranks);
                return WF_NO_MEMORY;
            }
            for (int k = 0; k < stages[s].n; k++) {
                wfi_action action = stages[s].actions[k];
                action.micro += d * (int)wfi_stage_n_micro(p, s);
                list->actions[list->n++] = action;
            }
        }
    *lists_out = lists;
    return WF_OK;
}

/* Whether each replica is a pipeline of its own: a stage a rank, all with as many replicas. */
static bool is_pipeline(const wf_program *p) {
    bool is = p->n_stages == p->mesh.pp;
    for (int32_t s = 0; s < p->n_stages; s++) is &= p->stages[s].n_replicas == p->mesh.dp;
    return is;
}

wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out) {
    wfi_action_list *stages;
    if (!is_pipeline(p)) return wfi_program_rounds(p, lists_out);
    static const wfi_schedule forward = {"forward", "", false, forward_only, NULL};
    wfi_stage_times *times =
        wfi_alloc(p->ctx, (size_t)p->n_stages, sizeof *times, "a schedule's times");
    if (!times) return WF_NO_MEMORY;
    for (int32_t s = 0; s < p->n_stages; s++) wfi_program_stage_times(p, s, &times[s]);
    wfi_schedule_request request = {.n_stages = p->n_stages,
                                    .n_micro = (int)wfi_stage_n_micro(p, 0),
                                    .times = times,
                                    .transfer = wfi_program_transfer_time(p),
                                    .hold = p->plan->hold ? p->plan->hold : 2 * p->n_stages - 1};
    wf_status status = wfi_schedule_make(
        p->ctx, p->kind == WF_PROGRAM_TRAIN ? p->plan->schedule : &forward, &request, &stages);
    wfi_free(p->ctx, times);
    if (status != WF_OK) return status;
    status = copy_to_ranks(p, stages, lists_out);
    wfi_schedule_free(p->ctx, stages, p->n_stages);
    return status;
}
