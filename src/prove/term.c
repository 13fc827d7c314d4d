#include "prove/term.h"

#include "base/tree.h"

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
    made = wfi_term_mix(made, (uint64_t)segment->variant);
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        bool reads =
            slot->access & WFI_READ && slot->kind != WFI_BLOCK_WORKSPACE && !wfi_is_sum(slot->kind);
        made = wfi_term_mix(made, reads ? in[s] : 2);
    }
    for (int32_t s = 0; s < segment->n_slots; s++) {
        const wfi_slot *slot = &segment->slots[s];
        if (slot->access & WFI_SPOIL)
            out[s] = 0;
        else
            out[s] = slot->access & WFI_WRITE
                         ? wfi_term_mix(wfi_term_mix(made, WFI_TERM_SLOT + (uint64_t)slot->kind),
                                        (uint64_t)slot->id)
                         : in[s];
    }
}

wfi_term wfi_term_made(wfi_instruction_kind kind, int32_t id, int32_t k, const wfi_term *in,
                       int32_t n) {
    wfi_term term = wfi_term_start((int)kind, id, k);
    for (int32_t i = 0; i < n; i++) term = wfi_term_mix(term, in[i]);
    return term;
}
