/* Requests and replies as bytes. Input from outside is checked: lengths must add up, and each
 * message has only one valid encoding. */
#include "base/bytes.h"
#include "comm/store/store.h"

#include <sodium.h>
#include <string.h>

/* Keys appear in error messages, so they have no characters that a terminal interprets. */
bool wfi_store_key_is_good(const char *key, size_t n) {
    if (n < 1 || n > WF_STORE_MAX_KEY) return false;
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~') return false;
    return true;
}

/* Whether the request has the fields of its verb and no others. */
static bool has_right_parts(const wfi_store_request *r) {
    bool has_key = r->verb != WFI_STORE_HELLO && r->verb != WFI_STORE_COUNT;
    bool may_have_value =
        r->verb == WFI_STORE_HELLO || r->verb == WFI_STORE_SET || r->verb == WFI_STORE_COMPARE_SET;
    if (has_key ? !wfi_store_key_is_good(r->key, r->n_key) : r->n_key != 0) return false;
    if (r->n_value && !may_have_value) return false;
    if (r->has_expected && r->verb != WFI_STORE_COMPARE_SET) return false;
    if (r->n_expected && !r->has_expected) return false;
    return !r->amount || r->verb == WFI_STORE_ADD;
}

/* verb, has expected, 2 zeros, amount (8), lengths of key, value and expected (4 each); then
 * those. */
bool wfi_store_request_read(const uint8_t *bytes, size_t n, wfi_store_request *request_out) {
    if (n < WFI_STORE_HEAD) return false;
    wfi_store_request r = {.verb = (wfi_store_verb)bytes[0],
                           .has_expected = bytes[1] == 1,
                           .amount = (int64_t)wfi_get_number(bytes + 4, 8),
                           .n_key = (uint32_t)wfi_get_number(bytes + 12, 4),
                           .n_value = (uint32_t)wfi_get_number(bytes + 16, 4),
                           .n_expected = (uint32_t)wfi_get_number(bytes + 20, 4)};
    if (bytes[0] < WFI_STORE_HELLO || bytes[0] >= WFI_STORE_N_VERBS) return false;
    if (bytes[1] > 1 || bytes[2] || bytes[3]) return false;
    if (r.n_key > WF_STORE_MAX_KEY || r.n_value > WF_STORE_MAX_VALUE ||
        r.n_expected > WF_STORE_MAX_VALUE)
        return false;
    if (n != (size_t)WFI_STORE_HEAD + r.n_key + r.n_value + r.n_expected) return false;
    r.key = (const char *)bytes + WFI_STORE_HEAD;
    r.value = bytes + WFI_STORE_HEAD + r.n_key;
    r.expected = r.value + r.n_value;
    if (!has_right_parts(&r)) return false;
    *request_out = r;
    return true;
}

size_t wfi_store_request_write(const wfi_store_request *r, uint8_t *bytes_out) {
    uint8_t *at = bytes_out + WFI_STORE_HEAD;
    memset(bytes_out, 0, WFI_STORE_HEAD);
    bytes_out[0] = (uint8_t)r->verb;
    bytes_out[1] = r->has_expected;
    wfi_put_number(bytes_out + 4, 8, (uint64_t)r->amount);
    wfi_put_number(bytes_out + 12, 4, r->n_key);
    wfi_put_number(bytes_out + 16, 4, r->n_value);
    wfi_put_number(bytes_out + 20, 4, r->n_expected);
    if (r->n_key) memcpy(at, r->key, r->n_key);
    if (r->n_value) memcpy(at + r->n_key, r->value, r->n_value);
    if (r->n_expected) memcpy(at + r->n_key + r->n_value, r->expected, r->n_expected);
    return (size_t)WFI_STORE_HEAD + r->n_key + r->n_value + r->n_expected;
}

/* result, 7 zeros, number (8), length of the value (4), 4 zeros; then the value. */
bool wfi_store_reply_read(const uint8_t *bytes, size_t n, wfi_store_reply *reply_out) {
    if (n < WFI_STORE_HEAD || bytes[0] >= WFI_STORE_N_RESULTS) return false;
    wfi_store_reply r = {.result = (wfi_store_result)bytes[0],
                         .number = (int64_t)wfi_get_number(bytes + 8, 8),
                         .n_value = (uint32_t)wfi_get_number(bytes + 16, 4),
                         .value = bytes + WFI_STORE_HEAD};
    if (r.n_value > WF_STORE_MAX_VALUE || n != (size_t)WFI_STORE_HEAD + r.n_value) return false;
    *reply_out = r;
    return true;
}

size_t wfi_store_reply_write(const wfi_store_reply *r, uint8_t *bytes_out) {
    memset(bytes_out, 0, WFI_STORE_HEAD);
    bytes_out[0] = (uint8_t)r->result;
    wfi_put_number(bytes_out + 8, 8, (uint64_t)r->number);
    wfi_put_number(bytes_out + 16, 4, r->n_value);
    if (r->n_value) memcpy(bytes_out + WFI_STORE_HEAD, r->value, r->n_value);
    return (size_t)WFI_STORE_HEAD + r->n_value;
}

/* The hash takes keys of up to 64 bytes. Tokens may be longer, so the token is hashed first. */
void wfi_store_prove(const char *token, const uint8_t challenge[WFI_STORE_CHALLENGE],
                     uint8_t proof_out[WFI_STORE_PROOF]) {
    uint8_t key[crypto_generichash_KEYBYTES];
    crypto_generichash(key, sizeof key, (const uint8_t *)token, strlen(token), NULL, 0);
    crypto_generichash(proof_out, WFI_STORE_PROOF, challenge, WFI_STORE_CHALLENGE, key, sizeof key);
    sodium_memzero(key, sizeof key);
}
