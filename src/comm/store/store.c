/* The public interface of all stores: checks, waits and error messages. */
#include "comm/store/store.h"
#include "base/clock.h"
#include "base/env.h"

#include <string.h>
#include <time.h>

/* The last request, sent at the deadline, still gets this time for its reply. */
#define REPLY_MS 2000

static const wfi_store_class *const kinds[] = {&wfi_store_memory, &wfi_store_file, &wfi_store_tcp};

void wfi_store_nap(int64_t *nap_us) {
    *nap_us = *nap_us ? wfi_min_i64(2 * *nap_us, 20000) : 200;
    struct timespec nap = {0, (long)*nap_us * 1000};
    nanosleep(&nap, NULL);
}

/* ---- opening ---- */

static wf_status find_kind(wf_context *ctx, const char *url, const wfi_store_class **kind_out) {
    for (size_t k = 0; url && k < WFI_COUNT(kinds); k++)
        if (!strncmp(url, kinds[k]->scheme, strlen(kinds[k]->scheme))) {
            *kind_out = kinds[k];
            return WF_OK;
        }
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "store '%.200s': it takes memory:, file:///path or tcp://address:port",
                    url ? url : "");
}

static wf_status check(wf_context *ctx, const wf_store_config *config) {
    WF_TRY(wfi_check_struct(ctx, config, sizeof *config, "wf_store_config"));
    if (config->n_ranks < 1 || config->n_ranks > 65536 || config->rank < 0 ||
        config->rank >= config->n_ranks)
        return wfi_fail(ctx, WF_INVALID_ARG, "store %.200s: rank %d of %d; ranks count from 0",
                        config->url ? config->url : "", config->rank, config->n_ranks);
    return WF_OK;
}

wf_status wf_store_open(wf_context *ctx, const wf_store_config *config, wf_store **store_out) {
    const wfi_store_class *kind = NULL;
    WF_TRY(check(ctx, config));
    int64_t timeout_ms = config->timeout_ms;
    WF_TRY(find_kind(ctx, config->url, &kind));
    WF_TRY(wfi_env_timeout(ctx, &timeout_ms));
    wf_store *store = wfi_alloc(ctx, 1, sizeof *store, "a store");
    if (!store) return WF_NO_MEMORY;
    *store = (wf_store){.ctx = ctx,
                        .kind = kind,
                        .url = wfi_strdup(ctx, config->url),
                        .rank = config->rank,
                        .n_ranks = config->n_ranks,
                        .timeout_ms = timeout_ms};
    pthread_mutex_init(&store->lock, NULL);
    wf_status status = store->url ? kind->open(store, config) : WF_NO_MEMORY;
    if (status != WF_OK) {
        wf_store_close(store);
        return status;
    }
    *store_out = store;
    return WF_OK;
}

void wf_store_close(wf_store *store) {
    if (!store) return;
    if (store->state) store->kind->close(store);
    pthread_mutex_destroy(&store->lock);
    wfi_free(store->ctx, store->url);
    wfi_free(store->ctx, store);
}

const char *wf_store_url(const wf_store *store) {
    return store->url;
}

/* ---- operations ---- */

static wf_status check_key(const wf_store *store, const char *key) {
    size_t n = key ? strnlen(key, WF_STORE_MAX_KEY + 1) : 0;
    if (wfi_store_key_is_good(key, n)) return WF_OK;
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store %.200s: a key has 1 to %d printable characters without spaces; this one "
                    "does not",
                    store->url, WF_STORE_MAX_KEY);
}

static wf_status check_value(const wf_store *store, const char *key, size_t bytes) {
    if (bytes <= WF_STORE_MAX_VALUE) return WF_OK;
    return wfi_fail(store->ctx, WF_INVALID_ARG,
                    "store %.200s: a value of %zu bytes for the key %s; it takes %d", store->url,
                    bytes, key, WF_STORE_MAX_VALUE);
}

static wfi_store_request request_of(wfi_store_verb verb, const char *key) {
    return (wfi_store_request){.verb = verb, .key = key, .n_key = (uint32_t)strlen(key)};
}

/* Executes the request and reports the results that are errors in every operation. Called with the
 * lock. */
static wf_status act(wf_store *store, const wfi_store_request *r, int64_t deadline_ms,
                     wfi_store_reply *reply_out) {
    WF_TRY(store->kind->act(store, r, deadline_ms, reply_out));
    switch (reply_out->result) {
    case WFI_STORE_FULL:
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store %.200s is full: it takes %d keys and %u bytes", store->url,
                        WFI_STORE_MAX_KEYS, WFI_STORE_MAX_BYTES);
    case WFI_STORE_NO_ROOM:
        return wfi_fail(store->ctx, WF_NO_MEMORY, "store %.200s: no memory left for the key %.*s",
                        store->url, (int)r->n_key, r->key);
    case WFI_STORE_NO_COUNT:
        return wfi_fail(store->ctx, WF_INVALID_ARG,
                        "store %.200s: %lld cannot be added to the key %.*s: its value is not a "
                        "whole number, or would be too large",
                        store->url, (long long)r->amount, (int)r->n_key, r->key);
    default:
        return WF_OK;
    }
}

/* Executes a request that does not wait for other ranks. */
static wf_status act_once(wf_store *store, const wfi_store_request *r, wfi_store_reply *reply_out) {
    pthread_mutex_lock(&store->lock);
    wf_status status = act(store, r, wfi_now_ms() + store->timeout_ms, reply_out);
    pthread_mutex_unlock(&store->lock);
    reply_out->value = NULL;
    return status;
}

wf_status wf_store_set(wf_store *store, const char *key, const void *value, size_t bytes) {
    wfi_store_reply reply;
    WF_TRY(check_key(store, key));
    WF_TRY(check_value(store, key, bytes));
    wfi_store_request r = request_of(WFI_STORE_SET, key);
    r.value = value;
    r.n_value = (uint32_t)bytes;
    return act_once(store, &r, &reply);
}

wf_status wf_store_add(wf_store *store, const char *key, int64_t amount, int64_t *sum_out) {
    wfi_store_reply reply;
    WF_TRY(check_key(store, key));
    wfi_store_request r = request_of(WFI_STORE_ADD, key);
    r.amount = amount;
    WF_TRY(act_once(store, &r, &reply));
    *sum_out = reply.number;
    return WF_OK;
}

wf_status wf_store_compare_set(wf_store *store, const char *key, const void *expected,
                               size_t expected_bytes, const void *value, size_t bytes,
                               int *was_set_out) {
    wfi_store_reply reply;
    WF_TRY(check_key(store, key));
    WF_TRY(check_value(store, key, bytes));
    WF_TRY(check_value(store, key, expected ? expected_bytes : 0));
    wfi_store_request r = request_of(WFI_STORE_COMPARE_SET, key);
    r.value = value;
    r.n_value = (uint32_t)bytes;
    r.has_expected = expected != NULL;
    r.expected = expected;
    r.n_expected = expected ? (uint32_t)expected_bytes : 0;
    WF_TRY(act_once(store, &r, &reply));
    *was_set_out = reply.result == WFI_STORE_DONE;
    return WF_OK;
}

wf_status wf_store_delete(wf_store *store, const char *key, int *was_set_out) {
    wfi_store_reply reply;
    WF_TRY(check_key(store, key));
    wfi_store_request r = request_of(WFI_STORE_DELETE, key);
    WF_TRY(act_once(store, &r, &reply));
    *was_set_out = reply.result == WFI_STORE_DONE;
    return WF_OK;
}

wf_status wf_store_n_keys(wf_store *store, int64_t *n_out) {
    wfi_store_request r = {.verb = WFI_STORE_COUNT};
    wfi_store_reply reply;
    WF_TRY(act_once(store, &r, &reply));
    *n_out = reply.number;
    return WF_OK;
}

/* ---- waiting ---- */

/* Copies the value, if the key is set. */
static wf_status look(wf_store *store, const char *key, int64_t deadline_ms, void *dst,
                      size_t dst_bytes, size_t *bytes_out, bool *is_there_out) {
    wfi_store_request r = request_of(WFI_STORE_GET, key);
    wfi_store_reply reply;
    deadline_ms = wfi_max_i64(deadline_ms, wfi_now_ms() + REPLY_MS);
    pthread_mutex_lock(&store->lock);
    wf_status status = act(store, &r, deadline_ms, &reply);
    *is_there_out = status == WF_OK && reply.result == WFI_STORE_DONE;
    if (*is_there_out && bytes_out) {
        *bytes_out = reply.n_value;
        if (reply.n_value > dst_bytes)
            status = wfi_fail(store->ctx, WF_INVALID_ARG,
                              "store %.200s: the key %s has %u bytes, there is room for %zu",
                              store->url, key, reply.n_value, dst_bytes);
        else if (reply.n_value)
            memcpy(dst, reply.value, reply.n_value);
    }
    pthread_mutex_unlock(&store->lock);
    return status;
}

wf_status wf_store_get(wf_store *store, const char *key, void *dst, size_t dst_bytes,
                       size_t *bytes_out) {
    int64_t nap_us = 0, deadline_ms = wfi_now_ms() + store->timeout_ms;
    bool is_there = false;
    size_t bytes = 0;
    WF_TRY(check_key(store, key));
    for (;;) {
        WF_TRY(look(store, key, deadline_ms, dst, dst_bytes, &bytes, &is_there));
        if (is_there) break;
        if (wfi_now_ms() >= deadline_ms)
            return wfi_fail(
                store->ctx, WF_TIMEOUT,
                "rank %d waited %lld ms for the key %s, but no rank has set it in %.200s",
                store->rank, (long long)store->timeout_ms, key, store->url);
        wfi_store_nap(&nap_us);
    }
    if (bytes_out) *bytes_out = bytes;
    return WF_OK;
}

/* Collects the missing keys from `first` on for the error message. */
static wf_status give_up(wf_store *store, const char *const *keys, int n_keys, int first) {
    wfi_text missing;
    int n_missing = 0;
    wfi_text_init(&missing, store->ctx);
    for (int k = first; k < n_keys && n_missing < 8; k++) {
        bool is_there = false;
        wf_status status =
            look(store, keys[k], wfi_now_ms() + store->timeout_ms, NULL, 0, NULL, &is_there);
        if (status != WF_OK || is_there) continue;
        wfi_text_add(&missing, "%s%s", n_missing++ ? ", " : "", keys[k]);
    }
    wf_status status = wfi_fail(
        store->ctx, WF_TIMEOUT,
        "rank %d waited %lld ms for %d keys, but no rank has set %s%s in %.200s", store->rank,
        (long long)store->timeout_ms, n_keys, missing.data ? missing.data : keys[first],
        n_missing == 8 ? " and others" : "", store->url);
    wfi_free(store->ctx, missing.data);
    return status;
}

wf_status wf_store_wait(wf_store *store, const char *const *keys, int n_keys) {
    int64_t nap_us = 0, deadline_ms = wfi_now_ms() + store->timeout_ms;
    for (int k = 0; k < n_keys; k++) WF_TRY(check_key(store, keys[k]));
    for (int k = 0; k < n_keys;) {
        bool is_there = false;
        WF_TRY(look(store, keys[k], deadline_ms, NULL, 0, NULL, &is_there));
        if (is_there) {
            k++;
            continue;
        }
        if (wfi_now_ms() >= deadline_ms) return give_up(store, keys, n_keys, k);
        wfi_store_nap(&nap_us);
    }
    return WF_OK;
}
