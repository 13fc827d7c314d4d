/* Records of asynchronous runs. An input is read as it is, and again with a repaired header and
 * hash, so that its pushes are checked. Accepted records keep the rules of workers/record.h, which
 * this file states a second time, and have one form as bytes. */
#include "base/base.h"
#include "workers/record.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

enum { HEAD = 72, HASH = 32, BATCH = 8, PUSH = 12, FEW = 256 };

/* The worker's latest push before number i; -1: none. */
static int64_t previous(const wfi_record *r, int64_t i) {
    int32_t worker = r->pushes[i].worker;
    while (--i >= 0 && r->pushes[i].worker != worker) {
    }
    return i;
}

static void check_synchronous(const wfi_record *r, int64_t i) {
    const wfi_push *p = &r->pushes[i];
    int64_t n_before = 0, last = previous(r, i);
    for (int64_t k = 0; k < i; k++) n_before += !r->pushes[k].is_dropped;
    int64_t current = r->first_step + n_before / (r->n_workers - r->backup);
    if (p->is_dropped ? p->version >= current : p->version != current) abort();
    if (p->version < r->first_step || (last >= 0 && p->version <= r->pushes[last].version)) abort();
    if (p->is_dropped && !r->backup) abort();
}

static void check_asynchronous(const wfi_record *r, int64_t i) {
    const wfi_push *p = &r->pushes[i];
    int64_t first = r->first_step * r->n_workers, last = previous(r, i);
    if (p->is_dropped || p->version > first + i || p->version < first + last + 1) abort();
    if (r->staleness > 0 && first + i - p->version > r->staleness * r->n_workers) abort();
}

static void check(const wfi_record *r) {
    int64_t n_applied = 0;
    for (int64_t i = 0; i < (int64_t)r->n_pushes; i++) {
        int64_t last = previous(r, i);
        const wfi_push *p = &r->pushes[i];
        if (p->worker < 0 || p->worker >= r->n_workers) abort();
        if (p->batch != (last < 0 ? r->first_batch[p->worker] : r->pushes[last].batch + 1)) abort();
        if (r->staleness)
            check_asynchronous(r, i);
        else
            check_synchronous(r, i);
        n_applied += !p->is_dropped;
    }
    if (n_applied % (r->n_workers - (r->staleness ? 0 : r->backup))) abort();
}

static void check_bytes(const wfi_record *r, const uint8_t *bytes, size_t n_bytes) {
    uint8_t *packed;
    size_t n_packed;
    if (wfi_record_pack(r, &packed, &n_packed) != WF_OK || n_packed != n_bytes ||
        memcmp(packed, bytes, n_bytes) != 0)
        abort();
    wfi_free(r->ctx, packed);
}

static void check_cut(wf_context *ctx, wfi_record *r) {
    uint8_t *packed;
    size_t n_packed, n_steps = wfi_record_n_steps(r) / 2;
    wfi_record again;
    if (wfi_record_cut(r, n_steps) != WF_OK || wfi_record_n_steps(r) != n_steps ||
        wfi_record_pack(r, &packed, &n_packed) != WF_OK ||
        wfi_record_unpack(ctx, "cut", packed, n_packed, &again) != WF_OK)
        abort();
    wfi_record_release(&again);
    wfi_free(ctx, packed);
}

static void read_record(wf_context *ctx, const uint8_t *bytes, size_t n_bytes) {
    wfi_record record;
    if (wfi_record_unpack(ctx, "input", bytes, n_bytes, &record) == WF_OK) {
        if (record.n_pushes <= FEW) check(&record);
        check_bytes(&record, bytes, n_bytes);
        check_cut(ctx, &record);
        wfi_record_release(&record);
    } else if (!*wf_context_error(ctx)) {
        abort(); /* no refusal without a sentence */
    }
    if (wf_context_memory(ctx).n_live) abort();
}

/* Leaves all that the rules are about as it is: workers, bounds, batches, pushes. */
static size_t repair(uint8_t *bytes, size_t n_bytes) {
    size_t n_workers = bytes[12] | bytes[13] << 8, n_fixed = HEAD + HASH + n_workers * BATCH;
    if (n_bytes < n_fixed) return n_bytes;
    size_t n_pushes = (n_bytes - n_fixed) / PUSH, n_used = n_fixed + n_pushes * PUSH;
    static const uint8_t begin[] = {'w', 'e', 'f', 't', 'p', 'u', 's', 'h', 1, 0, 0, 0};
    memcpy(bytes, begin, sizeof begin);
    bytes[14] = bytes[15] = 0;
    for (int i = 0; i < 4; i++) bytes[20 + i] = (uint8_t)(n_pushes >> 8 * i);
    crypto_hash_sha256(bytes + n_used - HASH, bytes, n_used - HASH);
    return n_used;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    read_record(ctx, bytes, n_bytes);
    if (n_bytes >= HEAD + HASH) {
        uint8_t *repaired = malloc(n_bytes);
        if (!repaired) abort();
        memcpy(repaired, bytes, n_bytes);
        read_record(ctx, repaired, repair(repaired, n_bytes));
        free(repaired);
    }
    wf_context_destroy(ctx);
    return 0;
}
