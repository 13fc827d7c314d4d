/* Emits changes of placement (program/change.h): one instruction for all pieces that it moves. */
#include "lower/change.h"

typedef struct wfi_thing {
    wfi_block_kind kind;
    int32_t id, depth;
    int64_t micro;
} thing;

wf_status wfi_add_thing(wfi_lowering *l, wfi_block_kind kind, int32_t id, int32_t depth,
                        int64_t micro) {
    WF_TRY(WFI_GROW(l->p->ctx, l->things, l->n_things, l->thing_capacity, "lowering"));
    l->things[l->n_things++] = (thing){kind, id, depth, micro};
    return WF_OK;
}

/* References for the pieces of all things that are not empty; without `index`, only counts them. */
static wf_status refer_to_pieces(wfi_lowering *l, const wfi_instruction *now, const int32_t *index,
                                 int32_t *n_out) {
    int32_t member = wfi_group_find(&l->p->groups[now->group], l->rank), n = 0;
    for (int32_t t = 0; t < l->n_things; t++) {
        const thing *what = &l->things[t];
        int32_t n_pieces = wfi_count_pieces(l->p, now, what->kind, what->id);
        for (int32_t k = 0; k < n_pieces; k++) {
            wfi_piece piece = wfi_find_piece(l->p, now, what->kind, what->id, what->micro, k);
            if (!piece.extent.bytes) continue;
            int access = wfi_piece_access(now, member, &piece);
            if (!access) piece.extent.bytes = 0;
            if (index)
                WF_TRY(wfi_refer(l, *index, n, what->kind, what->id, what->depth, what->micro,
                                 piece.extent, access));
            n++;
        }
    }
    *n_out = n;
    return WF_OK;
}

wf_status wfi_lower_change(wfi_lowering *l, int32_t group, wfi_placement from, wfi_placement to,
                           int32_t unit) {
    wf_program *p = l->p;
    wfi_instruction now = wfi_make(WFI_CHANGE, unit, 0, -1);
    int32_t n, i;
    now.group = group;
    now.from = from;
    now.to = to;
    if (from == to || p->groups[group].n == 1) l->n_things = 0;
    WF_TRY(refer_to_pieces(l, &now, NULL, &n));
    if (n) {
        bool stages = wfi_change_stages(p, &now);
        WF_TRY(wfi_emit(l, now, n + stages, &i));
        WF_TRY(refer_to_pieces(l, &now, &i, &n));
        if (stages)
            WF_TRY(wfi_refer(l, i, n, WFI_BLOCK_STAGING, unit, 0, -1,
                             wfi_whole(wfi_change_staged_bytes(p, &p->instructions[i])),
                             WFI_WRITE));
    }
    l->n_things = 0;
    return WF_OK;
}
