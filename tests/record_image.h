/* A second encoder of record files; it also writes pushes that wfi_record_add refuses. */
#pragma once

#include "data_folder.h"
#include "test.h"

#include "base/base.h"
#include "workers/record.h"

#include <sodium.h>

enum { MOST_WORKERS = 16, MOST_PUSHES = 40, MOST_BYTES = 1024, HEAD = 72 };

typedef struct image { /* the fields of a file, right or wrong */
    uint32_t format, n_workers, backup;
    int64_t staleness, first_step, first_batch[MOST_WORKERS];
    uint32_t n_pushes;
    struct {
        uint16_t worker, flags;
        uint32_t batch, version;
    } push[MOST_PUSHES];
} image;

static const unsigned char identity[WFI_IDENTITY_BYTES] = {1, 2, 3, [31] = 32};

static inline uint8_t *put(uint8_t *at, uint64_t value, int n_bytes) {
    for (int i = 0; i < n_bytes; i++) *at++ = (uint8_t)(value >> 8 * i);
    return at;
}

static inline void seal(uint8_t *bytes, size_t n_bytes) {
    crypto_hash_sha256(bytes + n_bytes - 32, bytes, n_bytes - 32);
}

static inline size_t encode(const image *m, uint8_t bytes[MOST_BYTES]) {
    uint8_t *at = bytes;
    memcpy(at, "weftpush", 8);
    at = put(at + 8, m->format, 4);
    at = put(at, m->n_workers, 4);
    at = put(at, m->backup, 4);
    at = put(at, m->n_pushes, 4);
    at = put(at, (uint64_t)m->staleness, 8);
    at = put(at, (uint64_t)m->first_step, 8);
    memcpy(at, identity, sizeof identity);
    at += sizeof identity;
    for (uint32_t w = 0; w < m->n_workers && w < MOST_WORKERS; w++)
        at = put(at, (uint64_t)m->first_batch[w], 8);
    for (uint32_t i = 0; i < m->n_pushes && i < MOST_PUSHES; i++) {
        at = put(at, m->push[i].worker, 2);
        at = put(at, m->push[i].flags, 2);
        at = put(at, m->push[i].batch, 4);
        at = put(at, m->push[i].version, 4);
    }
    size_t n_bytes = (size_t)(at - bytes) + 32;
    seal(bytes, n_bytes);
    return n_bytes;
}

/* "WORKER:BATCH:VERSION" for each push, "-" after a dropped one. */
static inline image image_of(uint32_t n_workers, uint32_t backup, int64_t staleness,
                             const char *pushes) {
    image m = {.format = 1, .n_workers = n_workers, .backup = backup, .staleness = staleness};
    unsigned worker, batch, version;
    int n;
    for (; sscanf(pushes, " %u:%u:%u%n", &worker, &batch, &version, &n) == 3; m.n_pushes++) {
        pushes += n;
        m.push[m.n_pushes].worker = (uint16_t)worker;
        m.push[m.n_pushes].batch = batch;
        m.push[m.n_pushes].version = version;
        m.push[m.n_pushes].flags = *pushes == '-';
        pushes += *pushes == '-';
    }
    assert_int_equal(*pushes, 0);
    return m;
}

/* Adds the pushes of an image, up to the first that is refused. */
static inline wf_status record_image(wf_context *ctx, const image *m, wfi_record *record_out) {
    int64_t first_version = m->first_step * (m->staleness ? m->n_workers : 1);
    wf_status status = wfi_record_init(ctx, (int32_t)m->n_workers, (int32_t)m->backup, m->staleness,
                                       m->first_step, identity, record_out);
    for (uint32_t w = 0; w < m->n_workers && status == WF_OK; w++)
        status = wfi_record_set_first_batch(record_out, (int32_t)w, m->first_batch[w]);
    for (uint32_t i = 0; i < m->n_pushes && status == WF_OK; i++) {
        uint16_t w = m->push[i].worker;
        wfi_push push = {.worker = w,
                         .is_dropped = m->push[i].flags & 1,
                         .batch = m->push[i].batch + (w < m->n_workers ? m->first_batch[w] : 0),
                         .version = m->push[i].version + first_version};
        status = wfi_record_add(record_out, &push);
    }
    return status;
}

static const char async_pushes[] = "0:0:0 1:0:0 0:1:1 2:0:2 1:1:3 1:2:5 2:1:4 0:2:6 0:3:8";
/* Workers 3 and 0 are late once each, the latter after the last step. */
static const char sync_pushes[] = "0:0:0 1:0:0 2:0:0 3:0:0- 2:1:1 1:1:1 3:1:1 0:1:1-";

static inline void refuse_file(wf_context *ctx, const image *m, const char *words) {
    uint8_t bytes[MOST_BYTES];
    wfi_record record;
    char sentence[300];
    size_t n_bytes = encode(m, bytes);
    snprintf(sentence, sizeof sentence, "a/b: %s", words);
    TEST_REFUSED(ctx, wfi_record_unpack(ctx, "a/b", bytes, n_bytes, &record), WF_CORRUPT, sentence);
}
