/* A fingerprint in the making. Private. */
#pragma once

#include <weft/data.h>

typedef struct wfi_data_hash wfi_data_hash;

/* Errors: UNSUPPORTED (libsodium does not start), NO_MEMORY. */
wf_status wfi_data_hash_begin(wf_context *ctx, wfi_data_hash **hash_out);
void wfi_data_hash_add(wfi_data_hash *hash, const void *bytes, size_t n_bytes);
void wfi_data_hash_number(wfi_data_hash *hash, int64_t number);
/* Frees it. */
void wfi_data_hash_end(wf_context *ctx, wfi_data_hash *hash, char hex_out[WF_DATA_HASH_BYTES]);
