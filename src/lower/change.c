/* Emits changes of placement (program/change.h): one instruction for all pieces that it moves. */
#include "lower/change.h"

/* References for the pieces of all tensors that are not empty; without `index`, only counts them.
 */
static wf_status refer_to_pieces(wfi_lowering *l, const wfi_instruction *now, const int32_t *index,
                                 int32_t *n_out) {
    int32_t member = wfi_group_find(&l->p->groups[now->group], l->rank), n = 0;
    for (int32_t t = 0; t < l->n_names; t++) {
        int32_t n_pieces = wfi_count_pieces(l->p, now, l->names[t]);
        for (int32_t k = 0; k < n_pieces; k++) {
            wfi_piece piece = wfi_find_piece(l->p, now, l->names[t], k);
            if (!piece.extent.bytes) continue;
            int access = wfi_piece_access(now, member, &piece);
            if (!access) piece.extent.bytes = 0;
            if (index) WF_TRY(wfi_refer(l, *index, n, l->names[t], piece.extent, access));
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
    if (from == to || p->groups[group].n == 1) l->n_names = 0;
    WF_TRY(refer_to_pieces(l, &now, NULL, &n));
    if (n) {
        bool stages = wfi_change_stages(p, &now);
        WF_TRY(wfi_emit(l, now, n + stages, &i));
        WF_TRY(refer_to_pieces(l, &now, &i, &n));
        if (stages)
            WF_TRY(wfi_refer(l, i, n, wfi_of_unit(WFI_BLOCK_STAGING, unit),
                             wfi_whole(wfi_change_staged_bytes(p, &p->instructions[i])),
                             WFI_WRITE));
    }
    l->n_names = 0;
    return WF_OK;
}
