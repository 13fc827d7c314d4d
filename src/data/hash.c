/* The fingerprint of a data set: of its samples as they were read, not of its files, so that a
 * packed copy or one in another folder has the same. */
#include "data/hash.h"
#include "base/base.h"
#include "base/bytes.h"
#include "data/source.h"

#include <sodium.h>

#define DIGEST_BYTES ((WF_DATA_HASH_BYTES - 1) / 2)

struct wfi_data_hash {
    crypto_generichash_state state;
};

void wfi_data_hash_add(wfi_data_hash *hash, const void *bytes, size_t n_bytes) {
    crypto_generichash_update(&hash->state, bytes, n_bytes);
}

void wfi_data_hash_number(wfi_data_hash *hash, int64_t number) {
    uint8_t bytes[8];
    wfi_put_number(bytes, sizeof bytes, (uint64_t)number);
    wfi_data_hash_add(hash, bytes, sizeof bytes);
}

wf_status wfi_data_hash_begin(wf_context *ctx, wfi_data_hash **hash_out) {
    /* Finds out which instructions the library may use; without it, it is three times slower. */
    if (sodium_init() < 0) return wfi_fail(ctx, WF_UNSUPPORTED, "libsodium cannot be initialised");
    /* Not on the stack: the library's state wants more alignment than a sanitizer's stack has. */
    wfi_data_hash *hash = wfi_alloc(ctx, 1, sizeof *hash, "a fingerprint");
    if (!hash) return WF_NO_MEMORY;
    crypto_generichash_init(&hash->state, NULL, 0, DIGEST_BYTES);
    *hash_out = hash;
    return WF_OK;
}

void wfi_data_hash_end(wf_context *ctx, wfi_data_hash *hash, char hex_out[WF_DATA_HASH_BYTES]) {
    unsigned char digest[DIGEST_BYTES];
    crypto_generichash_final(&hash->state, digest, sizeof digest);
    wfi_free(ctx, hash);
    sodium_bin2hex(hex_out, WF_DATA_HASH_BYTES, digest, sizeof digest);
}

wf_status wf_data_hash(const wf_data *data, char hex_out[WF_DATA_HASH_BYTES]) {
    const wf_data_description *about = &data->about;
    const int64_t numbers[] = {about->kind,     about->targets, about->channels,
                               about->height,   about->width,   about->n_classes,
                               about->n_tokens, about->n_train, about->n_test};
    wfi_data_hash *hash;
    WF_TRY(wfi_data_hash_begin(data->ctx, &hash));
    for (size_t i = 0; i < WFI_COUNT(numbers); i++) wfi_data_hash_number(hash, numbers[i]);
    data->source->hash(data, hash);
    wfi_data_hash_end(data->ctx, hash, hex_out);
    return WF_OK;
}
