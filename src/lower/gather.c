/* Offloaded and divided tensors: those that are not always on the device that computes with them.
 *
 * Parameters that are divided over a stage's replicas, or kept in another space, are fetched and
 * gathered just before a unit uses them, and freed after: they have a block for each time.
 * Activations that are kept in another space are evicted after the last forward that reads them,
 * and fetched before the first backward. Tensors that the next uses need are prefetched during the
 * current one, as many ahead as the plan sets.
 *
 * A *use* is a unit in an action of the rank. Parameters stay if this use and the next use of such
 * parameters both read them: this holds for consecutive microbatches of one unit, and for the last
 * unit, whose backward follows its forward. Activations that the next use reads stay, too, and so
 * do inputs of slices that are passed from pair to pair.
 */
#include "lower/gather.h"
#include "lower/move.h"
#include "lower/update.h"

#include <stdlib.h>

/* The next unit behind `unit` of which the segment reads parameters that are gathered, if it comes
 * before the one that is next so far; -1: none. */
static int32_t next_read(const wf_program *p, const wfi_segment *segment, int32_t unit,
                         int32_t next) {
    for (int32_t s = 0; segment && s < segment->n_slots; s++) {
        int32_t id = segment->slots[s].id;
        if (segment->slots[s].kind == WFI_BLOCK_PARAM && id > unit && (next < 0 || id < next) &&
            wfi_is_kept_apart(p, WFI_BLOCK_PARAM, id))
            next = id;
    }
    return next;
}

typedef struct search {
    wfi_lowering *l;
    int32_t *updated; /* [n_units] after which use the unit is updated, if that is early, or -1 */
    int32_t n_uses, last;
    int32_t first;         /* use of the action at hand */
    int32_t first_block;   /* of activations, where they are kept */
    int32_t *last_forward; /* [n_blocks - first_block] the use, or -1: it has come back */
    int32_t n_forward;
    size_t forward_capacity;
} search;

static wf_status add_gather(wfi_lowering *l, wfi_name what, int32_t stage, int32_t since,
                            int32_t use) {
    WF_TRY(WFI_GROW(l->p->ctx, l->gathers, l->n_gathers, l->gather_capacity, "lowering"));
    l->gathers[l->n_gathers++] = (wfi_gather){what, stage, since, use};
    return WF_OK;
}

static wf_status find_parameters(search *s, const wfi_action *action, int32_t unit,
                                 int32_t number) {
    wfi_lowering *l = s->l;
    const wf_program *p = l->p;
    const wfi_unit_code *code = &wfi_program_code_of(p, action->micro)->units[unit];
    wfi_part part = wfi_part_of(action->kind);
    bool repeats = code->part[WFI_PART_R] && (part == WFI_PART_B || part == WFI_PART_BW);
    const wfi_segment *segments[] = {code->part[part], code->pack[part],
                                     repeats ? code->part[WFI_PART_R] : NULL,
                                     repeats ? code->pack[WFI_PART_F] : NULL};
    int32_t last = s->last;
    for (int32_t u = -1;;) {
        int32_t next = -1;
        for (size_t k = 0; k < WFI_COUNT(segments); k++) next = next_read(p, segments[k], u, next);
        if ((u = next) < 0) return WF_OK;
        bool goes_on = p->graph->units[unit].is_inner && l->last_read[u] >= s->first;
        if (l->last_read[u] < 0 || (l->last_read[u] != last && !goes_on))
            WF_TRY(add_gather(l, wfi_of_unit(WFI_BLOCK_PARAM, u), action->stage, -1, number));
        l->last_read[u] = s->last = number;
    }
}

static int32_t n_ahead(const wfi_lowering *l) {
    return l->p->plan->overlaps ? l->p->plan->prefetch : 0;
}

/* The block where it would be kept stands for it. A tensor that the next use would fetch again
 * stays. */
static wf_status find_activation(search *s, const wfi_slot *slot, const wfi_action *action,
                                 int32_t number) {
    wfi_lowering *l = s->l;
    wf_context *ctx = l->p->ctx;
    wfi_name what = wfi_named(slot->kind, slot->id, action->micro);
    int32_t block;
    WF_TRY(wfi_find_block(l, wfi_kept(what), 0, &block));
    int32_t k = block - s->first_block;
    if (k == s->n_forward) {
        WF_TRY(WFI_GROW(ctx, s->last_forward, s->n_forward, s->forward_capacity, "lowering"));
        s->last_forward[s->n_forward++] = -1;
    }
    int32_t last = s->last_forward[k];
    s->last_forward[k] = action->kind == WFI_ACTION_F ? number : -1;
    if (action->kind == WFI_ACTION_F || last < 0 || number - last < 2 + n_ahead(l)) return WF_OK;
    WF_TRY(WFI_GROW(ctx, l->evicted, l->n_evicted, l->evicted_capacity, "lowering"));
    l->evicted[l->n_evicted++] = (wfi_gather){what, action->stage, -1, last};
    return add_gather(l, what, action->stage, last, number);
}

static wf_status find_in_segment(search *s, const wfi_segment *segment, const wfi_action *action,
                                 int32_t number) {
    for (int32_t k = 0; segment && k < segment->n_slots; k++) {
        wfi_block_kind kind = segment->slots[k].kind;
        if (wfi_is_activation(kind) && wfi_is_offloaded(s->l->p, kind))
            WF_TRY(find_activation(s, &segment->slots[k], action, number));
    }
    return WF_OK;
}

/* The last use that adds to the gradient of a unit, or of another's use of its weights: also where
 * the rank has none of its state, so that all gather in one order. */
static void find_updates(search *s, int32_t unit, int32_t number) {
    const wf_graph *g = s->l->p->graph;
    for (int32_t i = g->units[unit].first_gradient; i < g->units[unit].end_gradient; i++) {
        int32_t owner = wfi_owner_of(g, i);
        if (s->updated[owner] >= 0 || wfi_is_updated_early(s->l->p, owner))
            s->updated[owner] = number;
    }
}

/* State is gathered after everything else of the last use of its unit. */
static wf_status add_state(search *s, int32_t unit) {
    wfi_lowering *l = s->l;
    int32_t use = s->updated[unit], k = l->n_gathers;
    if (use < 0) return WF_OK;
    WF_TRY(add_gather(l, wfi_of_unit(WFI_BLOCK_STATE, unit), l->p->stage_of[unit], -1, use));
    wfi_gather state = l->gathers[k];
    for (; k > 0 && l->gathers[k - 1].use > use; k--) l->gathers[k] = l->gathers[k - 1];
    l->gathers[k] = state;
    return WF_OK;
}

static wf_status find_in_use(search *s, const wfi_action *action, int32_t unit) {
    const wfi_unit_code *code = &wfi_program_code_of(s->l->p, action->micro)->units[unit];
    wfi_part part = wfi_part_of(action->kind);
    int32_t number = s->n_uses++;
    WF_TRY(find_parameters(s, action, unit, number));
    if (part == WFI_PART_B || part == WFI_PART_BW)
        WF_TRY(find_in_segment(s, code->part[WFI_PART_R], action, number));
    if (wfi_action_sums(action->kind)) find_updates(s, unit, number);
    return find_in_segment(s, code->part[part], action, number);
}

static int by_use(const void *a, const void *b) {
    const wfi_gather *x = a, *y = b;
    if (x->use != y->use) return x->use - y->use;
    if (x->what.kind != y->what.kind) return (int)x->what.kind - (int)y->what.kind;
    return x->what.owner - y->what.owner;
}

wf_status wfi_find_gathers(wfi_lowering *l) {
    const wf_program *p = l->p;
    /* A rank that only supplies parts follows the first replica's actions. */
    int32_t first = wfi_mesh_move(&p->mesh, WFI_DP, l->rank, 0);
    const wfi_action_list *list = &l->lists[wfi_differentiates(p) ? l->rank : first];
    search s = {.l = l, .last = -1, .first_block = p->n_blocks};
    wf_status status = WF_OK;
    s.updated = wfi_alloc(p->ctx, (size_t)p->graph->n_units, sizeof *s.updated, "lowering");
    if (!s.updated) return WF_NO_MEMORY;
    for (int32_t u = 0; u < p->graph->n_units; u++) l->last_read[u] = s.updated[u] = -1;
    for (int32_t k = 0; k < list->n; k++) {
        (void)wfi_take_stage(l, list->actions[k].stage);
        if (wfi_stage_member_on(p, l->stage, l->rank) < 0) continue;
        s.first = s.n_uses;
        for (int32_t u = 0; u < l->end_unit - l->first_unit && status == WF_OK; u++) {
            int32_t unit = wfi_action_unit(l, &list->actions[k], u);
            if (wfi_unit_is_on(p, unit, l->rank)) status = find_in_use(&s, &list->actions[k], unit);
        }
    }
    for (int32_t u = 0; u < p->graph->n_units && status == WF_OK; u++) status = add_state(&s, u);
    if (l->n_evicted) qsort(l->evicted, (size_t)l->n_evicted, sizeof *l->evicted, by_use);
    wfi_free(p->ctx, s.updated);
    wfi_free(p->ctx, s.last_forward);
    return status;
}

/* The gather follows the rank's last computation: until then its memory may be another's. */
static wf_status emit_gather(wfi_lowering *l, const wfi_gather *gather) {
    wfi_name what = gather->what;
    int32_t first = l->p->n_instructions;
    what.turn = what.kind == WFI_BLOCK_PARAM ? ++l->n_gathered[what.owner] : 1;
    WF_TRY(wfi_move(l, what, gather->stage, WFI_KEPT, WFI_USED));
    for (int32_t i = first; i < l->p->n_instructions; i++)
        WF_TRY(wfi_depend_on(l, i, l->last_compute));
    return WF_OK;
}

/* Where the gathers of the next uses that need any end: so many uses, and nothing that has yet to
 * go. */
static int32_t find_ahead(const wfi_lowering *l, int32_t number, int32_t reached) {
    int32_t ahead = n_ahead(l), end = reached;
    while (end < l->n_gathers && l->gathers[end].since < number) {
        bool is_next = end == reached || l->gathers[end].use != l->gathers[end - 1].use;
        if (is_next && ahead-- == 0) break;
        end++;
    }
    return end;
}

wf_status wfi_lower_gathers(wfi_lowering *l, int32_t unit) {
    int32_t number = l->n_uses++, reached = l->n_reached;
    bool gathers = false;
    while (reached < l->n_gathers && l->gathers[reached].use <= number) reached++;
    for (int32_t end = find_ahead(l, number, reached); l->n_emitted < end; l->n_emitted++)
        WF_TRY(emit_gather(l, &l->gathers[l->n_emitted]));
    for (; l->n_reached < reached; l->n_reached++) {
        wfi_name what = l->gathers[l->n_reached].what;
        if (what.kind != WFI_BLOCK_PARAM) continue;
        gathers = true;
        l->in_use[what.owner]++;
    }
    if (gathers) wfi_drop_packed(l, unit); /* of other copies */
    return WF_OK;
}

wf_status wfi_lower_last_gathers(wfi_lowering *l) {
    for (; l->n_emitted < l->n_gathers; l->n_emitted++) {
        WF_TRY(emit_gather(l, &l->gathers[l->n_emitted]));
        l->last_compute = l->p->n_instructions - 1; /* one after the other */
    }
    return WF_OK;
}

/* With `overlap`, an eviction after one use may continue during the next one, but not longer: its
 * memory is needed. */
wf_status wfi_lower_evicts(wfi_lowering *l, int32_t instruction) {
    WF_TRY(wfi_depend_on(l, instruction, l->last_evict[!l->p->plan->overlaps]));
    l->last_evict[0] = l->last_evict[1];
    for (; l->next_evicted < l->n_evicted; l->next_evicted++) {
        const wfi_gather *e = &l->evicted[l->next_evicted];
        if (e->use >= l->n_uses) break;
        l->last_evict[1] = l->p->n_instructions;
        WF_TRY(wfi_move(l, e->what, e->stage, WFI_USED, WFI_KEPT));
    }
    return WF_OK;
}

/* After its eviction an activation has bytes only where it is kept. */
wf_status wfi_find_activation(wfi_lowering *l, wfi_name *name) {
    int32_t kept;
    if (!wfi_is_offloaded(l->p, name->kind)) return WF_OK;
    WF_TRY(wfi_find_block(l, wfi_kept(*name), 0, &kept));
    name->turn = l->p->blocks[kept].bytes > 0;
    return WF_OK;
}
