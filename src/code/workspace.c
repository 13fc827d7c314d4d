/* The workspace of a segment: temporaries that no step needs at once share bytes. */
#include "code/code.h"

static int by_size(const wfi_temporary *a, const wfi_temporary *b) {
    return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

static void pack_apart(wfi_temporary *t, int32_t n, size_t gap_bytes, size_t *bytes_out) {
    *bytes_out = 0;
    for (int32_t i = 0; i < n; i++) {
        t[i].offset = wfi_round_up(*bytes_out, WFI_ALIGN_BYTES) + gap_bytes;
        *bytes_out = t[i].offset + t[i].bytes;
    }
}

/* First fit, largest first: two temporaries share bytes only if no step needs both. */
wf_status wfi_workspace_pack(wf_context *ctx, wfi_temporary *t, int32_t n, size_t gap_bytes,
                             size_t *bytes_out) {
    if (gap_bytes) {
        pack_apart(t, n, gap_bytes, bytes_out);
        return WF_OK;
    }
    int32_t *order = wfi_alloc(ctx, (size_t)n, sizeof *order, "a workspace");
    if (!order) return WF_NO_MEMORY;
    for (int32_t i = 0; i < n; i++) {
        int32_t j = i;
        for (; j > 0 && by_size(&t[order[j - 1]], &t[i]) > 0; j--) order[j] = order[j - 1];
        order[j] = i;
    }
    *bytes_out = 0;
    for (int32_t i = 0; i < n; i++) {
        wfi_temporary *now = &t[order[i]];
        bool moved = true;
        while (moved) {
            moved = false;
            for (int32_t j = 0; j < i; j++) {
                const wfi_temporary *other = &t[order[j]];
                bool at_once = now->first <= other->last && other->first <= now->last;
                bool overlap = now->offset < other->offset + other->bytes &&
                               other->offset < now->offset + now->bytes;
                if (!at_once || !overlap) continue;
                now->offset = wfi_round_up(other->offset + other->bytes, WFI_ALIGN_BYTES);
                moved = true;
            }
        }
        if (now->offset + now->bytes > *bytes_out) *bytes_out = now->offset + now->bytes;
    }
    wfi_free(ctx, order);
    return WF_OK;
}
