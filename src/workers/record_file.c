/* Records as files. All numbers are little-endian:
 *
 *      0  "weftpush"                  24  staleness, 64 bits
 *      8  version of the format       32  first step, 64 bits
 *     12  workers                     40  identity, 32 bytes
 *     16  backup workers              72  first batch of each worker, 64 bits each
 *     20  pushes                      ..  the pushes, 12 bytes each; SHA-256 of all before
 *
 * A push is its worker (16 bits), 1 if it was dropped (16 bits), its batch less the worker's first,
 * and its version less the record's first (32 bits each). */
#include "base/base.h"
#include "base/bytes.h"
#include "base/file.h"
#include "workers/record.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>

#define MAGIC        "weftpush"
#define MAGIC_BYTES  (sizeof MAGIC - 1)
#define FORMAT       1
#define HEAD_BYTES   72
#define BATCH_BYTES  8
#define PUSH_BYTES   12
#define DIGEST_BYTES crypto_hash_sha256_BYTES
#define FLAG_DROPPED 1

/* Cannot overflow: both numbers have 32 bits. */
static uint64_t file_bytes(uint32_t n_workers, uint32_t n_pushes) {
    return HEAD_BYTES + (uint64_t)n_workers * BATCH_BYTES + (uint64_t)n_pushes * PUSH_BYTES +
           DIGEST_BYTES;
}

/* ---- writing ---- */

static void put_head(const wfi_record *r, uint8_t *at) {
    memcpy(at, MAGIC, MAGIC_BYTES);
    wfi_put_number(at + 8, 4, FORMAT);
    wfi_put_number(at + 12, 4, (uint32_t)r->n_workers);
    wfi_put_number(at + 16, 4, (uint32_t)r->backup);
    wfi_put_number(at + 20, 4, (uint32_t)r->n_pushes);
    wfi_put_number(at + 24, 8, r->staleness);
    wfi_put_number(at + 32, 8, r->first_step);
    memcpy(at + 40, r->identity, WFI_IDENTITY_BYTES);
}

/* By the rules, both differences are below the number of pushes, which fits into 32 bits. */
static void put_push(const wfi_record *r, const wfi_push *p, uint8_t *at) {
    wfi_put_number(at, 2, (uint16_t)p->worker);
    wfi_put_number(at + 2, 2, p->is_dropped ? FLAG_DROPPED : 0);
    wfi_put_number(at + 4, 4, (uint32_t)(p->batch - r->first_batch[p->worker]));
    wfi_put_number(at + 8, 4, (uint32_t)(p->version - wfi_record_first_version(r)));
}

wf_status wfi_record_pack(const wfi_record *r, uint8_t **bytes_out, size_t *n_bytes_out) {
    WF_TRY(wfi_record_check_end(r));
    size_t n_bytes = (size_t)file_bytes((uint32_t)r->n_workers, (uint32_t)r->n_pushes);
    uint8_t *bytes = wfi_alloc(r->ctx, n_bytes, 1, "the file of a record");
    if (!bytes) return WF_NO_MEMORY;
    uint8_t *at = bytes + HEAD_BYTES;
    put_head(r, bytes);
    for (int32_t w = 0; w < r->n_workers; w++, at += BATCH_BYTES)
        wfi_put_number(at, 8, r->first_batch[w]);
    for (size_t i = 0; i < r->n_pushes; i++, at += PUSH_BYTES) put_push(r, &r->pushes[i], at);
    crypto_hash_sha256(at, bytes, n_bytes - DIGEST_BYTES);
    *bytes_out = bytes;
    *n_bytes_out = n_bytes;
    return WF_OK;
}

wf_status wfi_record_write(const wfi_record *r, const char *path) {
    uint8_t *bytes;
    size_t n_bytes;
    WF_TRY(wfi_record_pack(r, &bytes, &n_bytes));
    wf_status status = wf_file_replace(r->ctx, path, bytes, n_bytes);
    wfi_free(r->ctx, bytes);
    return status;
}

/* ---- reading ---- */

/* Checks the file's kind and length from its first n_head bytes, before memory is allocated. */
static wf_status check_form(wf_context *ctx, const char *path, const uint8_t *head, size_t n_head,
                            uint64_t n_bytes) {
    if (memcmp(head, MAGIC, n_head < MAGIC_BYTES ? n_head : MAGIC_BYTES) != 0)
        return wfi_fail(ctx, WF_CORRUPT, "%s is not a record of an asynchronous run", path);
    if (n_head < HEAD_BYTES)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated: %zu bytes, fewer than the %d of a header", path, n_head,
                        HEAD_BYTES);
    if ((uint32_t)wfi_get_number(head + 8, 4) != FORMAT)
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s has version %" PRIu32 " of the format; this weft reads version %d",
                        path, (uint32_t)wfi_get_number(head + 8, 4), FORMAT);
    uint32_t n_workers = (uint32_t)wfi_get_number(head + 12, 4),
             n_pushes = (uint32_t)wfi_get_number(head + 20, 4);
    if (n_bytes != file_bytes(n_workers, n_pushes))
        return wfi_fail(ctx, WF_CORRUPT,
                        "%s is truncated or damaged: %" PRIu64 " bytes, but its header announces "
                        "%" PRIu32 " workers and %" PRIu32 " pushes, which take %" PRIu64,
                        path, n_bytes, n_workers, n_pushes, file_bytes(n_workers, n_pushes));
    return WF_OK;
}

static wf_status check_digest(wf_context *ctx, const char *path, const uint8_t *bytes,
                              size_t n_bytes) {
    unsigned char digest[DIGEST_BYTES];
    crypto_hash_sha256(digest, bytes, n_bytes - DIGEST_BYTES);
    if (memcmp(digest, bytes + n_bytes - DIGEST_BYTES, DIGEST_BYTES) == 0) return WF_OK;
    return wfi_fail(ctx, WF_CORRUPT,
                    "%s is damaged: the SHA-256 of its bytes is not the one at "
                    "its end",
                    path);
}

/* Numbers that are too large for the field stay too large. */
static int32_t get_small(const uint8_t *at) {
    uint32_t value = (uint32_t)wfi_get_number(at, 4);
    return value > INT32_MAX ? INT32_MAX : (int32_t)value;
}

static wf_status get_workers(const uint8_t *at, wfi_record *r) {
    for (int32_t w = 0; w < r->n_workers; w++)
        WF_TRY(wfi_record_set_first_batch(r, w, (int64_t)wfi_get_number(at + w * BATCH_BYTES, 8)));
    return WF_OK;
}

static wf_status get_push(const uint8_t *at, wfi_record *r) {
    uint16_t flags = (uint16_t)wfi_get_number(at + 2, 2);
    if (flags & ~FLAG_DROPPED)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "push %zu has the flags 0x%04x; only 1, dropped, has a meaning",
                        r->n_pushes, flags);
    wfi_push push = {.worker = (uint16_t)wfi_get_number(at, 2), .is_dropped = flags & FLAG_DROPPED};
    push.version = wfi_record_first_version(r) + (uint32_t)wfi_get_number(at + 8, 4);
    push.batch = (uint32_t)wfi_get_number(at + 4, 4);
    if (push.worker < r->n_workers) push.batch += r->first_batch[push.worker];
    return wfi_record_add(r, &push);
}

static wf_status get_record(wf_context *ctx, const uint8_t *bytes, wfi_record *r) {
    const uint8_t *at = bytes + HEAD_BYTES;
    WF_TRY(wfi_record_init(ctx, get_small(bytes + 12), get_small(bytes + 16),
                           (int64_t)wfi_get_number(bytes + 24, 8),
                           (int64_t)wfi_get_number(bytes + 32, 8), bytes + 40, r));
    WF_TRY(get_workers(at, r));
    at += (size_t)r->n_workers * BATCH_BYTES;
    for (uint32_t i = 0; i < (uint32_t)wfi_get_number(bytes + 20, 4); i++)
        WF_TRY(get_push(at + (size_t)i * PUSH_BYTES, r));
    return wfi_record_check_end(r);
}

wf_status wfi_record_unpack(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                            wfi_record *record_out) {
    wfi_record r = {0};
    WF_TRY(check_form(ctx, path, bytes, n_bytes, n_bytes));
    WF_TRY(check_digest(ctx, path, bytes, n_bytes));
    wf_status status = get_record(ctx, bytes, &r);
    if (status == WF_OK)
        *record_out = r;
    else
        wfi_record_release(&r);
    return status == WF_INVALID_ARG ? wfi_fail_at(ctx, WF_CORRUPT, "%s", path) : status;
}

/* A foreign file may be large: it is refused from its header. */
static wf_status check_file(wf_context *ctx, const char *path, uint64_t *n_bytes_out) {
    int fd;
    uint8_t head[HEAD_BYTES];
    WF_TRY(wf_file_open(ctx, path, &fd, n_bytes_out));
    ssize_t n = pread(fd, head, sizeof head, 0);
    int code = errno;
    close(fd);
    if (n < 0) return wfi_fail(ctx, WF_IO, "%s cannot be read: %s", path, strerror(code));
    return check_form(ctx, path, head, (size_t)n, *n_bytes_out);
}

wf_status wfi_record_read(wf_context *ctx, const char *path, wfi_record *record_out) {
    uint64_t n_bytes;
    WF_TRY(check_file(ctx, path, &n_bytes));
    uint8_t *bytes = wfi_alloc(ctx, (size_t)n_bytes, 1, path);
    if (!bytes) return WF_NO_MEMORY;
    wf_status status = wfi_file_read_into(ctx, path, bytes, (size_t)n_bytes);
    if (status == WF_OK) status = wfi_record_unpack(ctx, path, bytes, (size_t)n_bytes, record_out);
    wfi_free(ctx, bytes);
    return status;
}
