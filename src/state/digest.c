/* Digests of tensors and of headers, so that a flipped bit of a disk is found. */
#include "base/crc32.h"
#include "state/header.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define N_DIGITS 8
#define SEAL     "\"" WFI_SAFETENSORS_SEAL "\":\""

uint32_t wfi_safetensors_digest_part(const void *data, size_t n_bytes, uint64_t n_after) {
    return wfi_crc32_shift(wfi_crc32(data, n_bytes), n_after);
}

bool wfi_safetensors_is_digest(const char *key) {
    size_t n = sizeof WFI_SAFETENSORS_SEAL - 1;
    return !strncmp(key, WFI_SAFETENSORS_SEAL, n) && (!key[n] || key[n] == '.');
}

/* Returns where the seal's digits begin; 0: there is none. In a value its quotes are escaped. */
static size_t find_seal(const char *text, size_t n) {
    const char *seal = memmem(text, n, SEAL, sizeof SEAL - 1);
    size_t at = seal ? (size_t)(seal - text) + sizeof SEAL - 1 : 0;
    return at + N_DIGITS <= n ? at : 0;
}

static void digest_text(const char *text, size_t n, size_t at, char digits[N_DIGITS + 1]) {
    size_t end = at + N_DIGITS;
    uint32_t digest = wfi_safetensors_digest_part(text, at, n - at) ^
                      wfi_safetensors_digest_part("00000000", N_DIGITS, n - end) ^
                      wfi_safetensors_digest_part(text + end, n - end, 0);
    snprintf(digits, N_DIGITS + 1, "%08" PRIx32, digest);
}

void wfi_safetensors_set_seal(char *text, size_t n) {
    char digits[N_DIGITS + 1];
    size_t at = find_seal(text, n);
    if (!at) return;
    digest_text(text, n, at, digits);
    memcpy(text + at, digits, N_DIGITS);
}

wf_status wfi_safetensors_check_seal(wf_context *ctx, const char *path, const char *text,
                                     size_t n) {
    char digits[N_DIGITS + 1];
    size_t at = find_seal(text, n);
    if (!at) return WF_OK;
    digest_text(text, n, at, digits);
    if (!memcmp(text + at, digits, N_DIGITS)) return WF_OK;
    return wfi_fail(ctx, WF_CORRUPT,
                    "%s: its header is damaged: the CRC-32 of its text is %s, but the file records "
                    "another; take another copy of the file",
                    path, digits);
}
