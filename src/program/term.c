#include "program/term.h"

#include "base/tree.h"
#include "plan/lanes.h"

wfi_term wfi_term_tree(const wfi_term *leaves, int64_t n) {
    if (n == 1) return leaves[0];
    int64_t left = wfi_tree_split(n);
    return wfi_term_fold(wfi_term_tree(leaves, left), wfi_term_tree(leaves + left, n - left));
}

wfi_term wfi_term_any_order(const wfi_term *leaves, int64_t n) {
    uint64_t sum = 0;
    for (int64_t k = 0; k < n; k++) sum += wfi_term_mix(leaves[k], WFI_TERM_ANY_ORDER);
    return wfi_term_mix(wfi_term_start(WFI_TERM_ANY_ORDER, 0, n), sum);
}

void wfi_term_segment(const wfi_segment *segment, int64_t micro, const wfi_term *in,
                      wfi_term *out) {
    wfi_term made = wfi_term_start((int)segment->part + (segment->is_pack ? 100 : 200),
                                   segment->unit, segment->is_pack ? -1 : micro);
    if (segment->is_rest) made = wfi_term_mix(made, 3);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool reads = slot->access & WFI_READ && slot->kind != WFI_BLOCK_FRAME &&
                     slot->kind != WFI_BLOCK_GRADIENT;
        made = wfi_term_mix(made, reads ? in[s] : 2);
    }
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        out[s] = slot->access & WFI_WRITE
                     ? wfi_term_mix(wfi_term_mix(made, WFI_TERM_SLOT + (uint64_t)slot->kind),
                                    (uint64_t)slot->id)
                     : in[s];
    }
}

wfi_term wfi_term_tie(wfi_term owner, wfi_term other, int32_t tied) {
    return wfi_term_mix(wfi_term_mix(wfi_term_start(WFI_TIE, tied, 0), owner), other);
}

wfi_term wfi_term_norm(wfi_term gradient, int32_t unit) {
    return wfi_term_mix(wfi_term_start(WFI_NORM, unit, 0), gradient);
}

wfi_term wfi_term_update(wfi_block_kind what, int32_t unit, wfi_term param, wfi_term gradient,
                         wfi_term state, const wfi_term *norms, int32_t n_norms) {
    wfi_term term = wfi_term_mix(wfi_term_start(WFI_UPDATE, unit, (int64_t)what), param);
    term = wfi_term_mix(wfi_term_mix(term, gradient), state);
    for (int32_t k = 0; k < n_norms; k++) term = wfi_term_mix(term, norms[k]);
    return term;
}

wfi_term wfi_term_statistics(wfi_term buffer, const wfi_term *stats, int64_t n_micro) {
    wfi_term term = wfi_term_mix(wfi_term_start(WFI_FOLD_STATS, 0, 0), buffer);
    for (int64_t m = 0; m < n_micro; m++) term = wfi_term_mix(term, stats[m]);
    return term;
}
