#include "data/strings.h"
#include "base/base.h"
#include "base/hash.h"

#include <string.h>

/* The slot that holds the string, or the free one where it belongs. */
static uint32_t *find_slot(const wfi_strings *set, wfi_string string) {
    uint64_t hash = wfi_hash_add(WFI_HASH_INIT, string.start, string.n);
    for (size_t s = (hash ^ hash >> 32) & (set->n_slots - 1);; s = (s + 1) & (set->n_slots - 1)) {
        uint32_t number = set->slot[s];
        if (!number) return &set->slot[s];
        const wfi_string *other = &set->at[number - 1];
        if (other->n == string.n && memcmp(other->start, string.start, string.n) == 0)
            return &set->slot[s];
    }
}

static wf_status grow(wf_context *ctx, wfi_strings *set) {
    WF_TRY(WFI_GROW(ctx, set->at, set->n, set->capacity, "a vocabulary"));
    if (set->n_slots > 2 * (set->n + 1)) return WF_OK;
    size_t n_slots = set->n_slots ? 2 * set->n_slots : 1024;
    uint32_t *slot = wfi_alloc(ctx, n_slots, sizeof *slot, "a vocabulary");
    if (!slot) return WF_NO_MEMORY;
    wfi_free(ctx, set->slot);
    set->slot = slot;
    set->n_slots = n_slots;
    for (size_t i = 0; i < set->n; i++) *find_slot(set, set->at[i]) = (uint32_t)i + 1;
    return WF_OK;
}

wf_status wfi_strings_add(wf_context *ctx, wfi_strings *set, wfi_string string,
                          int32_t *number_out) {
    WF_TRY(grow(ctx, set));
    uint32_t *slot = find_slot(set, string);
    if (!*slot) {
        set->at[set->n++] = string;
        *slot = (uint32_t)set->n;
    }
    *number_out = (int32_t)*slot - 1;
    return WF_OK;
}

int32_t wfi_strings_find(const wfi_strings *set, wfi_string string) {
    return set->n_slots ? (int32_t)*find_slot(set, string) - 1 : -1;
}

void wfi_strings_release(wf_context *ctx, wfi_strings *set) {
    wfi_free(ctx, set->at);
    wfi_free(ctx, set->slot);
    memset(set, 0, sizeof *set);
}
