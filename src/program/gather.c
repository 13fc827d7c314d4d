/* Parameters that are divided over a stage's replicas, or kept in another space, are fetched and
 * gathered just before a unit uses them, and freed after: they have a block for each time. What the
 * next units need is gathered while this one computes, so many ahead as the plan says.
 *
 * A *use* is a unit in an action of the rank. What one use reads and the next one that reads
 * divided parameters reads, too, stays: as with one microbatch after the other through the same
 * unit, or with the last unit, whose backward follows its forward.
 */
#include "program/lower.h"

/* Whether a segment reads parameters of the unit that are gathered. */
static bool reads(const wf_program *p, const wfi_segment *segment, int32_t unit) {
    for (int32_t s = 0; segment && s < segment->n_slots; s++)
        if (segment->slots[s].kind == WFI_BLOCK_PARAM && segment->slots[s].id == unit &&
            wfi_kept_depth(p, WFI_BLOCK_PARAM, unit))
            return true;
    return false;
}

typedef struct search {
    wfi_lowering *l;
    int32_t *last_read; /* [n_units] of whose parameters: the last use that reads them, or -1 */
    int32_t n_uses, last;
} search;

static wf_status find_in_use(search *s, const wfi_action *action, int32_t unit) {
    wfi_lowering *l = s->l;
    const wf_program *p = l->p;
    const wfi_unit_code *code = &wfi_program_code_of(p, action->micro)->units[unit];
    wfi_part part = wfi_part_of(action->kind);
    int32_t number = s->n_uses++, last = s->last;
    bool repeats = code->part[WFI_PART_R] && (part == WFI_PART_B || part == WFI_PART_BW);
    for (int32_t u = 0; u < p->graph->n_units; u++) {
        bool is_read = reads(p, code->part[part], u) || reads(p, code->pack[part], u);
        if (repeats)
            is_read |= reads(p, code->part[WFI_PART_R], u) || reads(p, code->pack[WFI_PART_F], u);
        if (!is_read) continue;
        if (s->last_read[u] < 0 || s->last_read[u] != last) {
            WF_TRY(WFI_GROW(p->ctx, l->gathers, l->n_gathers, l->gather_capacity, "lowering"));
            l->gathers[l->n_gathers++] = (wfi_gather){u, action->stage, number};
        }
        s->last_read[u] = s->last = number;
    }
    return WF_OK;
}

wf_status wfi_find_gathers(wfi_lowering *l) {
    const wf_program *p = l->p;
    /* Who only brings parts does so for the first replica. */
    bool computes = p->kind == WF_PROGRAM_TRAIN || !wfi_mesh_dp(p->mesh, l->rank);
    const wfi_action_list *list =
        &l->lists[computes ? l->rank : wfi_mesh_rank(p->mesh, wfi_mesh_pp(p->mesh, l->rank), 0)];
    search s = {.l = l, .last = -1};
    wf_status status = WF_OK;
    s.last_read = wfi_alloc(p->ctx, (size_t)p->graph->n_units, sizeof *s.last_read, "lowering");
    if (!s.last_read) return WF_NO_MEMORY;
    for (int32_t u = 0; u < p->graph->n_units; u++) s.last_read[u] = -1;
    for (int32_t k = 0; k < list->n; k++) {
        (void)wfi_take_stage(l, list->actions[k].stage);
        for (int32_t u = 0; u < l->end_unit - l->first_unit && status == WF_OK; u++)
            status = find_in_use(&s, &list->actions[k], wfi_action_unit(l, &list->actions[k], u));
    }
    wfi_free(p->ctx, s.last_read);
    return status;
}

/* Not before what the rank computed last: until then its memory may be another's. */
static wf_status emit_gather(wfi_lowering *l, const wfi_gather *gather) {
    wf_program *p = l->p;
    const wfi_stage *stage = &p->stages[gather->stage];
    int32_t first = p->n_instructions, unit = gather->unit;
    int32_t depth = WFI_GATHERED_DEPTH + l->n_gathered[unit]++;
    wfi_extent kept = wfi_kept_extent(p, WFI_BLOCK_PARAM, unit, l->rank);
    if (kept.bytes)
        WF_TRY(wfi_lower_copy(l, WFI_BLOCK_PARAM, unit, wfi_kept_depth(p, WFI_BLOCK_PARAM, unit),
                              depth, kept));
    WF_TRY(wfi_add_thing(l, WFI_BLOCK_PARAM, unit, depth, -1));
    bool is_forward = stage->n_members > stage->n_replicas;
    WF_TRY(wfi_lower_change(l, gather->stage, stage->strategy->parameter,
                            is_forward ? WFI_ROOT : WFI_REPLICATE, unit));
    for (int32_t i = first; i < p->n_instructions; i++)
        WF_TRY(wfi_depend_on(l, i, l->last_compute));
    return WF_OK;
}

wf_status wfi_lower_gathers(wfi_lowering *l, int32_t unit) {
    int32_t ahead = l->p->plan->overlaps ? l->p->plan->prefetch : 0, number = l->n_uses++;
    int32_t reached = l->n_reached;
    while (reached < l->n_gathers && l->gathers[reached].use <= number) reached++;
    for (; l->n_emitted < l->n_gathers && l->n_emitted < reached + ahead; l->n_emitted++)
        WF_TRY(emit_gather(l, &l->gathers[l->n_emitted]));
    if (reached == l->n_reached) return WF_OK;
    for (; l->n_reached < reached; l->n_reached++) l->in_use[l->gathers[l->n_reached].unit]++;
    wfi_drop_packed(l, unit); /* of other copies */
    return WF_OK;
}

wf_status wfi_lower_last_gathers(wfi_lowering *l) {
    for (; l->n_emitted < l->n_gathers; l->n_emitted++) {
        WF_TRY(emit_gather(l, &l->gathers[l->n_emitted]));
        l->last_compute = l->p->n_instructions - 1; /* one after the other */
    }
    return WF_OK;
}
