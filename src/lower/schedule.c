/* The order of work on each rank: the plan's schedule, made for this program's costs. */
#include "lower/schedule.h"
#include "program/stage.h"

#include <math.h>

void wfi_program_stage_times(const wf_program *p, const int32_t *first_unit, int32_t stage,
                             wfi_stage_times *out) {
    *out = (wfi_stage_times){0, 0, 0};
    for (int32_t u = first_unit[stage]; u < first_unit[stage + 1]; u++) {
        const wf_unit_cost *unit = &p->costs->units[u];
        bool is_divided = wfi_plan_divides(p->plan, &p->graph->units[u]);
        double own = is_divided ? 1.0 / p->plan->tp : 1; /* of a rank's slices */
        out->forward += own * unit->forward_us;
        out->backward += own * (unit->backward_us + unit->recompute_us);
        out->weight += own * unit->weight_us;
    }
}

/* The slowest boundary's: a schedule sees one number for all of them. */
double wfi_program_transfer_time(const wf_program *p, const int32_t *first_unit, int32_t n_stages) {
    size_t most = 0;
    for (int32_t s = 1; s < n_stages; s++) {
        size_t bytes = p->code->units[first_unit[s] - 1].given_bytes;
        if (bytes > most) most = bytes;
    }
    return p->costs->rates.message_us + (double)most * p->costs->rates.copy_us_per_byte;
}

/* ---- request for a schedule ---- */

size_t wfi_program_read_bytes(const wf_program *p, int32_t unit, wfi_part part) {
    const wfi_segment *segment = p->code->units[unit].part[part];
    size_t bytes = 0;
    for (int32_t k = 0; segment && k < segment->n_slots; k++) {
        const wfi_slot *slot = &segment->slots[k];
        bool is_made = slot->kind == WFI_BLOCK_VALUE && slot->access & WFI_READ;
        if (is_made && p->graph->nodes[p->graph->values[slot->id].node].phase == WFI_F)
            bytes += slot->bytes;
    }
    /* Slices read the same. */
    return p->graph->units[unit].is_slice ? bytes / (size_t)p->graph->n_slices : bytes;
}

/* Bytes of a microbatch from F to B, and from B to W: values that forward leaves for either, and
 * that backward leaves for the weight gradients. */
static wfi_stage_memory find_memory(const wf_program *p, const int32_t *first_unit, int32_t stage) {
    wfi_stage_memory memory = {0, 0};
    for (int32_t u = first_unit[stage]; u < first_unit[stage + 1]; u++) {
        const wfi_unit_code *code = &p->code->units[u];
        size_t read = wfi_program_read_bytes(p, u, WFI_PART_BW);
        size_t b = wfi_program_read_bytes(p, u, WFI_PART_B);
        size_t w = wfi_program_read_bytes(p, u, WFI_PART_W);
        if (b > read) read = b;
        if (w > read) read = w;
        memory.until_backward +=
            (double)(code->bytes[WFI_BLOCK_SAVED] + code->bytes[WFI_BLOCK_SAVED_W] + read);
        memory.until_weight +=
            (double)(code->bytes[WFI_BLOCK_SAVED_W] + code->bytes[WFI_BLOCK_REMADE_W] +
                     code->bytes[WFI_BLOCK_FOR_WEIGHT] + w);
    }
    return memory;
}

/* Scales memory to fractions of the device's sum of the stages' larger values. */
static void scale_memory(const wfi_schedule_request *r, wfi_stage_memory *memory) {
    for (int d = 0; d < r->n_devices; d++) {
        double most = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int s = 0; s < r->n_stages; s++) {
                wfi_stage_memory *m = &memory[s];
                if (r->device_of[s] != d) continue;
                if (!pass) most += fmax(m->until_backward, m->until_weight);
                if (pass && most > 0) m->until_backward /= most, m->until_weight /= most;
            }
    }
}

wf_status wfi_program_request(const wf_program *p, const int32_t *first_unit, wfi_pool *pool,
                              wfi_schedule_request *request_out) {
    const wf_plan *plan = p->plan;
    int n = wfi_plan_n_stages(plan, p->graph->n_units);
    wfi_stage_times *times = wfi_pool_alloc(pool, (size_t)n, sizeof *times);
    wfi_stage_memory *memory = wfi_pool_alloc(pool, (size_t)n, sizeof *memory);
    int *device_of = wfi_pool_alloc(pool, (size_t)n, sizeof *device_of);
    if (!times || !memory || !device_of) return WF_NO_MEMORY;
    for (int s = 0; s < n; s++) {
        wfi_program_stage_times(p, first_unit, s, &times[s]);
        memory[s] = find_memory(p, first_unit, s);
        device_of[s] = wfi_schedule_device_of(plan->schedule, plan->pp, s);
    }
    *request_out =
        (wfi_schedule_request){.n_stages = n,
                               .n_micro = (int)wfi_max_i64(p->recipe.n_micro / plan->dp, 1),
                               .times = times,
                               .transfer = wfi_program_transfer_time(p, first_unit, n),
                               .hold = plan->hold ? plan->hold : 2 * plan->pp - 1,
                               .n_devices = plan->pp,
                               .device_of = device_of,
                               .memory = memory};
    scale_memory(request_out, memory);
    return WF_OK;
}

/* ---- the lists ---- */

/* The lists of the longest replica's devices for all lowered ranks; microbatches are counted in the
 * step. A replica with fewer leaves out the first ones, so that all end alike and complete units in
 * one order. */
static wf_status copy_to_ranks(const wf_program *p, const wfi_action_list *devices, int64_t n_micro,
                               wfi_action_list *lists) {
    for (int32_t i = 0; i < p->n_lowered; i++) {
        int32_t rank = p->lowered[i], dp = wfi_mesh_at(&p->mesh, WFI_DP, rank);
        int64_t n_left_out = n_micro - wfi_replica_n_micro(p, 0, dp);
        const wfi_action_list *own = &devices[wfi_mesh_at(&p->mesh, WFI_PP, rank)];
        wfi_action_list *list = &lists[rank];
        list->actions = wfi_alloc(p->ctx, (size_t)own->n, sizeof *list->actions, "a schedule");
        if (!list->actions) return WF_NO_MEMORY;
        for (int k = 0; k < own->n; k++) {
            wfi_action *action = &list->actions[list->n];
            if (own->actions[k].micro < n_left_out) continue;
            *action = own->actions[k];
            action->micro += (int)(wfi_first_micro(p, 0, dp) - n_left_out);
            list->n++;
        }
    }
    return WF_OK;
}

/* Whether it follows the plan's schedule: each replica is a pipeline of its own, of the plan's
 * stages, all with as many replicas. */
static bool is_pipeline(const wf_program *p) {
    bool is = wfi_differentiates(p) && p->n_stages == wfi_plan_n_stages(p->plan, p->graph->n_units);
    for (int32_t s = 0; s < p->n_stages; s++) is &= p->stages[s].n_replicas == p->mesh.dp;
    return is;
}

static wf_status make_lists(const wf_program *p, wfi_pool *pool, wfi_action_list *lists) {
    wfi_schedule_request request;
    wfi_action_list *devices;
    int64_t n_micro = 0;
    if (!is_pipeline(p)) return wfi_program_rounds(p, lists);
    WF_TRY(wfi_program_request(p, p->first_unit, pool, &request));
    for (int32_t dp = 0; dp < p->mesh.dp; dp++)
        n_micro = wfi_max_i64(n_micro, wfi_replica_n_micro(p, 0, dp));
    request.n_micro = (int)n_micro;
    WF_TRY(wfi_schedule_make(p->ctx, p->plan->schedule, &request, &devices));
    wf_status status = copy_to_ranks(p, devices, n_micro, lists);
    wfi_schedule_free(p->ctx, devices, p->mesh.pp);
    return status;
}

wf_status wfi_program_schedule(const wf_program *p, wfi_action_list **lists_out) {
    wfi_pool pool;
    *lists_out = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof **lists_out, "a schedule");
    if (!*lists_out) return WF_NO_MEMORY;
    wfi_pool_init(&pool, p->ctx);
    wf_status status = make_lists(p, &pool, *lists_out);
    wfi_pool_release(&pool);
    if (status == WF_OK) return WF_OK;
    wfi_schedule_free(p->ctx, *lists_out, p->n_ranks);
    *lists_out = NULL;
    return status;
}
