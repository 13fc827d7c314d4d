/* Numbers as bytes in little-endian order, as files and messages have them. Private. */
#pragma once

#include <stdint.h>

static inline void wfi_put_number(uint8_t *at, int n_bytes, uint64_t number) {
    for (int i = 0; i < n_bytes; i++) at[i] = (uint8_t)(number >> 8 * i);
}

static inline uint64_t wfi_get_number(const uint8_t *at, int n_bytes) {
    uint64_t number = 0;
    for (int i = 0; i < n_bytes; i++) number |= (uint64_t)at[i] << 8 * i;
    return number;
}
