/* Records in memory, and the rules of their order. */
#include "workers/record.h"
#include "base/base.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

void wfi_record_identify(const char *text, unsigned char identity_out[WFI_IDENTITY_BYTES]) {
    crypto_hash_sha256(identity_out, (const unsigned char *)text, strlen(text));
}

/* ---- versions and steps ---- */

static bool is_synchronous(const wfi_record *r) {
    return r->staleness == 0;
}

static size_t pushes_per_step(const wfi_record *r) {
    return (size_t)(is_synchronous(r) ? r->n_workers - r->backup : r->n_workers);
}

static size_t pushes_per_version(const wfi_record *r) {
    return is_synchronous(r) ? pushes_per_step(r) : 1;
}

int64_t wfi_record_first_version(const wfi_record *r) {
    return is_synchronous(r) ? r->first_step : r->first_step * r->n_workers;
}

static int64_t current_version(const wfi_record *r) {
    return wfi_record_first_version(r) + (int64_t)(r->n_applied / pushes_per_version(r));
}

size_t wfi_record_n_steps(const wfi_record *r) {
    return r->n_applied / pushes_per_step(r);
}

/* ---- creation ---- */

static wf_status check_count(wf_context *ctx, const char *name, int64_t value, int64_t least) {
    if (value >= least && value <= WFI_RECORD_MAX_COUNT) return WF_OK;
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "the %s is %" PRId64 "; %" PRId64 " to %" PRId64 " are possible", name, value,
                    least, WFI_RECORD_MAX_COUNT);
}

static wf_status check_head(const wfi_record *r) {
    if (r->n_workers < 1 || r->n_workers > WFI_RECORD_MAX_WORKERS)
        return wfi_fail(r->ctx, WF_INVALID_ARG, "%" PRId32 " workers; 1 to %d are possible",
                        r->n_workers, WFI_RECORD_MAX_WORKERS);
    if (r->backup < 0 || r->backup >= r->n_workers)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "%" PRId32 " backup workers among %" PRId32 "; 0 to %" PRId32
                        " are possible",
                        r->backup, r->n_workers, r->n_workers - 1);
    WF_TRY(check_count(r->ctx, "staleness", r->staleness, -1));
    if (r->backup && !is_synchronous(r))
        return wfi_fail(r->ctx, WF_INVALID_ARG, "backup workers need staleness 0, not %" PRId64,
                        r->staleness);
    return check_count(r->ctx, "first step", r->first_step, 0);
}

/* The state of a record without pushes. */
static void forget_pushes(wfi_record *r) {
    r->n_pushes = r->n_applied = 0;
    for (int32_t w = 0; w < r->n_workers; w++) {
        r->next_batch[w] = r->first_batch[w];
        r->min_version[w] = wfi_record_first_version(r);
    }
}

wf_status wfi_record_init(wf_context *ctx, int32_t n_workers, int32_t backup, int64_t staleness,
                          int64_t first_step, const unsigned char identity[WFI_IDENTITY_BYTES],
                          wfi_record *record_out) {
    wfi_record r = {.ctx = ctx,
                    .n_workers = n_workers,
                    .backup = backup,
                    .staleness = staleness,
                    .first_step = first_step};
    WF_TRY(check_head(&r));
    memcpy(r.identity, identity, WFI_IDENTITY_BYTES);
    size_t n = (size_t)n_workers;
    r.first_batch = wfi_alloc(ctx, 3 * n, sizeof *r.first_batch, "the workers of a record");
    if (!r.first_batch) return WF_NO_MEMORY;
    r.next_batch = r.first_batch + n;
    r.min_version = r.next_batch + n;
    forget_pushes(&r);
    *record_out = r;
    return WF_OK;
}

wf_status wfi_record_set_first_batch(wfi_record *r, int32_t worker, int64_t batch) {
    if (batch < 0 || batch > WFI_RECORD_MAX_COUNT)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "the first batch of worker %" PRId32 " is %" PRId64 "; 0 to %" PRId64
                        " are possible",
                        worker, batch, WFI_RECORD_MAX_COUNT);
    r->first_batch[worker] = r->next_batch[worker] = batch;
    return WF_OK;
}

void wfi_record_release(wfi_record *r) {
    wfi_free(r->ctx, r->first_batch); /* with the other two */
    wfi_free(r->ctx, r->pushes);
    *r = (wfi_record){0};
}

/* ---- the rules of a push ---- */

#define PUSH "push %zu of worker %" PRId32

static wf_status check_batch(const wfi_record *r, const wfi_push *p) {
    if (p->worker < 0 || p->worker >= r->n_workers)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "push %zu is of worker %" PRId32 ", but the workers are 0 to %" PRId32,
                        r->n_pushes, p->worker, r->n_workers - 1);
    if (p->batch == r->next_batch[p->worker]) return WF_OK;
    return wfi_fail(r->ctx, WF_INVALID_ARG,
                    PUSH " has batch %" PRId64 ", but the worker's next batch is %" PRId64,
                    r->n_pushes, p->worker, p->batch, r->next_batch[p->worker]);
}

static wf_status check_version(const wfi_record *r, const wfi_push *p) {
    int64_t oldest = r->min_version[p->worker], current = current_version(r);
    if (p->version < oldest)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        PUSH " has version %" PRId64 ", but the worker could read version %" PRId64
                             " or newer ones only",
                        r->n_pushes, p->worker, p->version, oldest);
    if (p->version > current)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        PUSH " has version %" PRId64 ", but the parameters had version %" PRId64
                             " then",
                        r->n_pushes, p->worker, p->version, current);
    return WF_OK;
}

static wf_status check_staleness(const wfi_record *r, const wfi_push *p) {
    int64_t age = current_version(r) - p->version;
    if (r->staleness <= 0 || age <= r->staleness * r->n_workers) return WF_OK;
    return wfi_fail(r->ctx, WF_INVALID_ARG,
                    PUSH " is %" PRId64 " updates old; staleness %" PRId64 " of %" PRId32
                         " workers allows %" PRId64,
                    r->n_pushes, p->worker, age, r->staleness, r->n_workers,
                    r->staleness * r->n_workers);
}

static wf_status check_dropped(const wfi_record *r, const wfi_push *p) {
    bool is_late = is_synchronous(r) && p->version < current_version(r);
    if (p->is_dropped == is_late) return WF_OK;
    if (is_late)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        PUSH
                        " is not marked as dropped, but came after the update of version %" PRId64,
                        r->n_pushes, p->worker, p->version);
    return wfi_fail(r->ctx, WF_INVALID_ARG, PUSH " is marked as dropped, but came in time",
                    r->n_pushes, p->worker);
}

static wf_status check_push(const wfi_record *r, const wfi_push *p) {
    WF_TRY(check_batch(r, p));
    WF_TRY(check_version(r, p));
    WF_TRY(check_dropped(r, p));
    return check_staleness(r, p);
}

/* An asynchronous worker reads again after its push made a version. A synchronous one waits for the
 * next version; that may exist already if its push was dropped. */
static void count_push(wfi_record *r, const wfi_push *p) {
    r->next_batch[p->worker] = p->batch + 1;
    r->min_version[p->worker] = 1 + (is_synchronous(r) ? p->version : current_version(r));
    r->n_applied += !p->is_dropped;
    r->n_pushes++;
}

wf_status wfi_record_add(wfi_record *r, const wfi_push *push) {
    if (r->n_pushes >= UINT32_MAX)
        return wfi_fail(r->ctx, WF_INVALID_ARG, "a record holds at most %" PRIu32 " pushes",
                        UINT32_MAX);
    WF_TRY(check_push(r, push));
    WF_TRY(WFI_GROW(r->ctx, r->pushes, r->n_pushes, r->capacity, "a record of pushes"));
    r->pushes[r->n_pushes] = *push;
    count_push(r, push);
    return WF_OK;
}

/* ---- the whole record ---- */

wf_status wfi_record_check_end(const wfi_record *r) {
    size_t n_left = r->n_applied % pushes_per_step(r);
    if (!n_left) return WF_OK;
    return wfi_fail(r->ctx, WF_INVALID_ARG,
                    "the record ends inside step %" PRId64 ", after %zu of its %zu pushes",
                    r->first_step + (int64_t)wfi_record_n_steps(r), n_left, pushes_per_step(r));
}

wf_status wfi_record_cut(wfi_record *r, size_t n_steps) {
    size_t n_kept = r->n_pushes;
    if (n_steps > wfi_record_n_steps(r))
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "the record has %zu steps, fewer than the %zu that are to be kept",
                        wfi_record_n_steps(r), n_steps);
    size_t n_wanted = n_steps * pushes_per_step(r);
    forget_pushes(r);
    for (size_t i = 0; i < n_kept; i++) {
        if (r->n_applied == n_wanted && !r->pushes[i].is_dropped) break;
        count_push(r, &r->pushes[i]);
    }
    return WF_OK;
}

static void staleness_text(char text[40], int64_t staleness) {
    if (staleness < 0)
        snprintf(text, 40, "unbounded staleness");
    else
        snprintf(text, 40, "staleness %" PRId64, staleness);
}

wf_status wfi_record_matches(const wfi_record *r, const char *path,
                             const unsigned char identity[WFI_IDENTITY_BYTES], int32_t n_workers,
                             int64_t staleness, int32_t backup) {
    char recorded[40], own[40];
    if (n_workers != r->n_workers)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "%s was recorded with %" PRId32 " workers; this run has %" PRId32, path,
                        r->n_workers, n_workers);
    staleness_text(recorded, r->staleness);
    staleness_text(own, staleness);
    if (strcmp(recorded, own) != 0)
        return wfi_fail(r->ctx, WF_INVALID_ARG, "%s was recorded with %s; this run has %s", path,
                        recorded, own);
    if (backup != r->backup)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "%s was recorded with %" PRId32 " backup workers; this run has %" PRId32,
                        path, r->backup, backup);
    if (memcmp(identity, r->identity, WFI_IDENTITY_BYTES) != 0)
        return wfi_fail(r->ctx, WF_INVALID_ARG,
                        "%s was recorded with another model, other data or another recipe", path);
    return WF_OK;
}
