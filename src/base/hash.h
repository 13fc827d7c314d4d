/* A short hash, FNV-1a, with which two processes compare their data. The hash does not resist
 * deliberate collisions. Private.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define WFI_HASH_INIT UINT64_C(0xCBF29CE484222325)

/* Adds data to a hash, which begins as WFI_HASH_INIT, and returns the new hash. */
static inline uint64_t wfi_hash_add(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = data;
    for (size_t k = 0; k < bytes; k++) hash = (hash ^ at[k]) * UINT64_C(0x100000001B3);
    return hash;
}
