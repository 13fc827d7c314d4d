/* The order of work on each rank: the plan's schedule, made for this program's costs. */
#include "program/program.h"

static void stage_times(const wf_program *p, int32_t stage, wfi_stage_times *out) {
    *out = (wfi_stage_times){0, 0, 0};
    for (int32_t u = p->first_unit[stage]; u < p->first_unit[stage + 1]; u++) {
        const wf_unit_cost *unit = &p->costs->units[u];
        out->forward += unit->forward_us;
        out->backward += unit->backward_us;
        out->weight += unit->weight_us;
    }
}

/* The slowest boundary's: a schedule sees one number for all of them. */
static double transfer_time(const wf_program *p) {
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

/* The stages' lists of one replica for all ranks, whose microbatches are counted in the step. */
static wf_status copy_to_ranks(const wf_program *p, const wfi_action_list *stages,
                               wfi_action_list **lists_out) {
    wfi_action_list *lists = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *lists, "a schedule");
    if (!lists) return WF_NO_MEMORY;
    for (int32_t s = 0; s < p->n_stages; s++)
        for (int32_t d = 0; d < p->stages[s].n_replicas; d++) {
            wfi_action_list *list = &lists[wfi_program_rank_of(p, d, s)];
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

/* ---- spread units ---- */

typedef struct rounds {
    const wf_program *p;
    wfi_action_list *lists; /* [n_ranks] */
    int64_t n_rounds;
    int n_actions; /* so far, of all ranks */
} rounds;

/* In each round the widest stage's replicas have a microbatch each. */
static void push_stage(rounds *r, int64_t round, int32_t stage, wfi_action_kind kind) {
    for (int32_t k = 0; k < r->p->n_replicas; k++) {
        int64_t micro = k * r->n_rounds + round;
        wfi_action_list *list = &r->lists[wfi_stage_rank_of(r->p, stage, micro)];
        wfi_action_push(list, kind, stage, (int)micro);
        list->actions[list->n - 1].order = r->n_actions++;
    }
}

/* All stages forward, then all backward: what is gathered is there as a whole before the loss is
 * computed, and before its gradient is scattered. */
static void push_round(rounds *r, int64_t round) {
    const wf_program *p = r->p;
    for (int32_t s = 0; s < p->n_stages; s++) push_stage(r, round, s, WFI_ACTION_F);
    for (int32_t s = p->n_stages - 1; s >= 0 && p->kind == WF_PROGRAM_TRAIN; s--)
        push_stage(r, round, s, WFI_ACTION_BW);
}

static wf_status schedule_rounds(const wf_program *p, wfi_action_list **lists_out) {
    rounds r = {.p = p, .n_rounds = p->recipe.n_micro / p->n_replicas};
    size_t most = 2 * (size_t)p->recipe.n_micro * (size_t)p->n_stages;
    r.lists = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *r.lists, "a schedule");
    wf_status status = r.lists ? WF_OK : WF_NO_MEMORY;
    for (int32_t k = 0; k < p->n_ranks && status == WF_OK; k++) {
        r.lists[k].actions = wfi_alloc(p->ctx, most, sizeof(wfi_action), "a schedule");
        if (!r.lists[k].actions) status = WF_NO_MEMORY;
    }
    if (status != WF_OK) {
        wfi_schedule_free(p->ctx, r.lists, p->n_ranks);
        return status;
    }
    for (int64_t round = 0; round < r.n_rounds; round++) push_round(&r, round);
    *lists_out = r.lists;
    return WF_OK;
}

wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out) {
    wfi_action_list *stages;
    if (p->is_spread) return schedule_rounds(p, lists_out);
    static const wfi_schedule forward = {"forward", "", false, forward_only, NULL};
    wfi_stage_times *times =
        wfi_alloc(p->ctx, (size_t)p->n_stages, sizeof *times, "a schedule's times");
    if (!times) return WF_NO_MEMORY;
    for (int32_t s = 0; s < p->n_stages; s++) stage_times(p, s, &times[s]);
    wfi_schedule_request request = {.n_stages = p->n_stages,
                                    .n_micro = (int)wfi_stage_n_micro(p, 0),
                                    .times = times,
                                    .transfer = transfer_time(p),
                                    .hold = p->plan->hold ? p->plan->hold : 2 * p->n_stages - 1};
    wf_status status = wfi_schedule_make(
        p->ctx, p->kind == WF_PROGRAM_TRAIN ? p->plan->schedule : &forward, &request, &stages);
    wfi_free(p->ctx, times);
    if (status != WF_OK) return status;
    status = copy_to_ranks(p, stages, lists_out);
    wfi_schedule_free(p->ctx, stages, p->n_stages);
    return status;
}
