/* A set of strings of bytes, numbered in the order in which they are added. The set does not own
 * the bytes. Private. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

typedef struct wfi_string {
    const uint8_t *start;
    size_t n;
} wfi_string;

typedef struct wfi_strings {
    wfi_string *at; /* [n], by number */
    size_t n, capacity;
    uint32_t *slot; /* open addressing: a string's number + 1; 0 is free */
    size_t n_slots; /* a power of two, more than twice n */
} wfi_strings;

/* The number of `string`, which is added if it is not there. Errors: NO_MEMORY. */
wf_status wfi_strings_add(wf_context *ctx, wfi_strings *set, wfi_string string,
                          int32_t *number_out);
/* -1: it is not there. */
int32_t wfi_strings_find(const wfi_strings *set, wfi_string string);
void wfi_strings_release(wf_context *ctx, wfi_strings *set);
