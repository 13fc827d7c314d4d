/* Transfers between ranks in a step: the values that an action reads and another rank makes, the
 * inputs that the root loads for others, and gradients of tied weights.
 *
 * All ranks name them in one order, that of the actions that read them first: no transfer stands in
 * a stream behind one that is needed later, so none waits for one that waits for it.
 */
#include "lower/transfer.h"
#include "lower/move.h"
#include "lower/sums.h"

#include <stdlib.h>

typedef struct search {
    const wf_program *p;
    const wfi_action_list *lists;
    const wfi_sequence *sequence;
    wfi_transfer *transfers;
    int32_t n;
    size_t capacity;
} search;

/* The rank that makes it for the reader. */
static int32_t find_maker(const search *s, wfi_name what, int32_t reader) {
    wfi_where made = wfi_where_is(s->p, what, WFI_MADE);
    return wfi_rank_with(s->p, &made, reader);
}

static wf_status push(search *s, wfi_transfer t) {
    if (t.from == t.to) return WF_OK;
    WF_TRY(WFI_GROW(s->p->ctx, s->transfers, s->n, s->capacity, "lowering"));
    s->transfers[s->n++] = t;
    return WF_OK;
}

static wf_status find_in_slot(search *s, const wfi_slot *slot, int32_t rank, int32_t k) {
    const wf_program *p = s->p;
    int64_t micro = s->lists[rank].actions[k].micro;
    wfi_transfer t = {.what = wfi_named(slot->kind, slot->id, micro),
                      .to = rank,
                      .place = s->sequence->begin[rank][k]};
    bool moves = slot->kind == WFI_BLOCK_VALUE ||
                 (slot->kind == WFI_BLOCK_INPUT && wf_plan_loads_at_root(p->plan));
    if (!(slot->access & WFI_READ) || !moves) return WF_OK;
    t.from = find_maker(s, t.what, rank);
    return push(s, t);
}

/* Where the same is done on a stage; the end of its list, if nowhere. */
static int32_t find_action(const wfi_action_list *list, wfi_action action, int32_t stage) {
    int32_t k = 0;
    while (k < list->n &&
           (list->actions[k].stage != stage || list->actions[k].kind != action.kind ||
            list->actions[k].micro != action.micro))
        k++;
    return k;
}

/* When a lane of the unit's gradient is complete, so are the summands of other stages' uses of its
 * weights; or it will be, if weight gradients wait. */
static wf_status find_ties(search *s, int32_t unit, int32_t rank, int32_t k) {
    const wf_program *p = s->p;
    const wf_graph *g = p->graph;
    const wfi_action *action = &s->lists[rank].actions[k];
    if (action->micro != wfi_last_of_lane(p, action->micro)) return WF_OK;
    for (int32_t n = g->units[unit].first_tied; n < g->units[unit].end_tied; n++) {
        int32_t i = g->tied[n];
        int32_t user = wfi_program_stage_of(p, g->weight_gradients[i].unit);
        wfi_transfer t = {.what = wfi_named(WFI_BLOCK_TIED, i, action->micro),
                          .to = rank,
                          .place = s->sequence->begin[rank][k]};
        t.from = find_maker(s, t.what, rank);
        int32_t other = find_action(&s->lists[t.from], *action, user);
        if (other < s->lists[t.from].n && s->sequence->end[t.from][other] > t.place)
            t.place = s->sequence->end[t.from][other];
        WF_TRY(push(s, t));
    }
    return WF_OK;
}

static wf_status find_in_action(search *s, int32_t rank, int32_t k) {
    const wf_program *p = s->p;
    const wfi_action *action = &s->lists[rank].actions[k];
    const wfi_code *code = wfi_program_code_of(p, action->micro);
    for (int32_t u = p->first_unit[action->stage]; u < p->first_unit[action->stage + 1]; u++) {
        const wfi_segment *segment = code->units[u].part[wfi_part_of(action->kind)];
        if (!wfi_unit_is_on(p, u, rank)) continue;
        for (int32_t i = 0; segment && i < segment->n_slots; i++)
            WF_TRY(find_in_slot(s, &segment->slots[i], rank, k));
        if (wfi_action_sums(action->kind)) WF_TRY(find_ties(s, u, rank, k));
    }
    return WF_OK;
}

static int compare(int64_t a, int64_t b) {
    return (a > b) - (a < b);
}

/* Readings of the same on the same rank stand together, the first in front. */
static int by_name(const void *a, const void *b) {
    const wfi_transfer *x = a, *y = b;
    int c = compare(x->to, y->to);
    if (!c) c = compare(x->what.kind, y->what.kind);
    if (!c) c = compare(x->what.owner, y->what.owner);
    if (!c) c = compare(x->what.micro, y->what.micro);
    return c ? c : compare(x->place, y->place);
}

static bool same_name(const wfi_transfer *x, const wfi_transfer *y) {
    return x->to == y->to && wfi_same_name(x->what, y->what);
}

static int by_place(const void *a, const void *b) {
    const wfi_transfer *x = a, *y = b;
    return x->place != y->place ? compare(x->place, y->place) : by_name(a, b);
}

wf_status wfi_find_transfers(const wf_program *p, const wfi_action_list *lists,
                             const wfi_sequence *sequence, wfi_transfer **transfers_out,
                             int32_t *n_out) {
    search s = {.p = p, .lists = lists, .sequence = sequence};
    wf_status status = WF_OK;
    for (int32_t r = 0; r < p->n_lowered; r++)
        for (int32_t k = 0; k < lists[p->lowered[r]].n && status == WF_OK; k++)
            status = find_in_action(&s, p->lowered[r], k);
    if (status != WF_OK) {
        wfi_free(p->ctx, s.transfers);
        return status;
    }
    int32_t n = 0;
    if (s.n) qsort(s.transfers, (size_t)s.n, sizeof *s.transfers, by_name);
    for (int32_t k = 0; k < s.n; k++)
        if (!n || !same_name(&s.transfers[n - 1], &s.transfers[k]))
            s.transfers[n++] = s.transfers[k];
    if (n) qsort(s.transfers, (size_t)n, sizeof *s.transfers, by_place);
    *transfers_out = s.transfers;
    *n_out = n;
    return WF_OK;
}

/* ---- of the rank at hand ---- */

/* Loads an input unless the rank has it already. */
static wf_status emit_load(wfi_lowering *l, int32_t unit, wfi_name input) {
    int32_t block, n_before = l->p->n_blocks;
    WF_TRY(wfi_find_block(l, input, 0, &block));
    if (l->p->n_blocks == n_before) return WF_OK;
    WF_TRY(wfi_emit_named(l, wfi_make(WFI_LOAD, unit, input.owner, input.micro), 1, &input));
    return wfi_depend_on_lookahead(l, l->p->n_instructions - 1);
}

wf_status wfi_lower_loads(wfi_lowering *l, const wfi_segment *segment, int64_t micro) {
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->kind == WFI_BLOCK_INPUT)
            WF_TRY(emit_load(l, segment->unit, wfi_named(slot->kind, slot->id, micro)));
    }
    return WF_OK;
}

static wf_status emit_transfer(wfi_lowering *l, wfi_name what, int32_t from, int32_t to) {
    bool is_input = what.kind == WFI_BLOCK_INPUT;
    if (is_input && from == l->rank)
        WF_TRY(emit_load(l, l->p->graph->values[what.owner].unit, what));
    WF_TRY(wfi_move_between(l, what, what.micro, from, to));
    if (to == l->rank) WF_TRY(wfi_depend_on_lookahead(l, l->p->n_instructions - 1));
    bool arrives = to == l->rank && what.kind == WFI_BLOCK_TIED;
    return arrives ? wfi_lower_tied(l, what.owner, what.micro) : WF_OK;
}

wf_status wfi_lower_transfers(wfi_lowering *l, int32_t end) {
    for (; l->next_transfer < l->n_transfers; l->next_transfer++) {
        const wfi_transfer *t = &l->transfers[l->next_transfer];
        if (t->place >= end) break;
        WF_TRY(emit_transfer(l, t->what, t->from, t->to));
    }
    return WF_OK;
}
