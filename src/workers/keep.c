/* The record of a run: server 0 keeps it, rank 0 writes and reads its file. */
#include "workers/run.h"

#include <string.h>
#include <unistd.h>
#include <weft/file.h>

static int64_t bound_of(const wf_workers *w) {
    return w->recipe.staleness < WF_STALENESS_UNBOUNDED ? w->recipe.staleness : -1;
}

static wf_status check_match(const wf_workers *w, const wfi_record *r, const char *path) {
    return wfi_record_matches(r, path, w->identity, w->n_workers, bound_of(w),
                              (int32_t)w->recipe.n_backup);
}

/* A record that begins with the run. */
static wf_status begin_record(wf_workers *w) {
    wfi_record_release(&w->record);
    WF_TRY(wfi_record_init(w->ctx, w->n_workers, (int32_t)w->recipe.n_backup, bound_of(w),
                           w->n_steps, w->identity, &w->record));
    for (int k = 0; k < w->n_workers; k++)
        WF_TRY(wfi_record_set_first_batch(&w->record, k, wf_workers_batch(w, k)));
    return WF_OK;
}

wf_status wfi_workers_open_record(wf_workers *w) {
    wfi_record_identify(w->config.identity ? w->config.identity : "", w->identity);
    w->replays = w->config.replay != NULL;
    w->records = w->config.record && w->n_servers_here && !w->servers->number;
    if (w->records) return begin_record(w);
    if (!w->replays) return WF_OK;
    WF_TRY(wfi_record_read(w->ctx, w->config.replay, &w->record));
    return check_match(w, &w->record, w->config.replay);
}

/* ---- between processes ---- */

/* Copies the bytes of process `from` to all; theirs are freed by wfi_free. */
static wf_status share_bytes(wf_workers *w, int from, uint8_t **bytes, size_t *n_bytes) {
    int64_t n = (int64_t)*n_bytes;
    if (!w->job) return WF_OK;
    WF_TRY(wfi_workers_tell(w, from, &n, sizeof n));
    size_t n_room = wfi_round_up((size_t)n + 1, 4);
    uint8_t *room = wfi_alloc(w->ctx, n_room, 1, "a record");
    if (!room) return WF_NO_MEMORY;
    if (*bytes) memcpy(room, *bytes, (size_t)n);
    wfi_free(w->ctx, *bytes);
    *bytes = room;
    *n_bytes = (size_t)n;
    return wfi_workers_tell(w, from, room, n_room);
}

wf_status wfi_workers_write_record(wf_workers *w) {
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (!w->config.record) return WF_OK;
    wf_status status = w->records ? wfi_record_pack(&w->record, &bytes, &n_bytes) : WF_OK;
    if (status == WF_OK) status = share_bytes(w, wfi_workers_server_rank(w, 0), &bytes, &n_bytes);
    if (status == WF_OK && wfi_workers_is_root(w))
        status = wf_file_replace(w->ctx, w->config.record, (const char *)bytes, n_bytes);
    wfi_free(w->ctx, bytes);
    return status;
}

/* ---- a run that is resumed ---- */

static wf_status check_batches(const wf_workers *w, const wfi_record *r, const char *path) {
    for (int k = 0; k < w->n_workers; k++)
        if (r->next_batch[k] != wf_workers_batch(w, k))
            return wfi_fail(w->ctx, WF_INVALID_ARG,
                            "%s: after step %lld worker %d is at batch %lld, and in the checkpoint "
                            "at batch %lld: they are of different runs",
                            path, (long long)w->n_steps, k, (long long)r->next_batch[k],
                            (long long)wf_workers_batch(w, k));
    return WF_OK;
}

static wf_status check_begin(const wf_workers *w, const wfi_record *r, const char *path) {
    if (r->first_step <= w->n_steps) return WF_OK;
    return wfi_fail(w->ctx, WF_INVALID_ARG, "%s begins after step %lld, and this run after %lld",
                    path, (long long)r->first_step, (long long)w->n_steps);
}

/* The record up to the run's step; its owner still releases it. */
static wf_status cut(const wf_workers *w, const char *path, wfi_record *r) {
    WF_TRY(check_match(w, r, path));
    WF_TRY(check_begin(w, r, path));
    WF_TRY(wfi_record_cut(r, (size_t)(w->n_steps - r->first_step)));
    return check_batches(w, r, path);
}

/* Goes on with the file, if there is one. */
static wf_status continue_record(wf_workers *w, const uint8_t *bytes, size_t n_bytes) {
    wfi_record before;
    if (!w->records) return WF_OK;
    if (!n_bytes) return begin_record(w);
    WF_TRY(wfi_record_unpack(w->ctx, w->config.record, bytes, n_bytes, &before));
    wf_status status = cut(w, w->config.record, &before);
    wfi_record old = w->record;
    if (status == WF_OK) w->record = before;
    wfi_record_release(status == WF_OK ? &old : &before);
    return status;
}

static wf_status continue_replay(wf_workers *w) {
    wfi_record before;
    WF_TRY(wfi_record_read(w->ctx, w->config.replay, &before));
    wf_status status = cut(w, w->config.replay, &before);
    if (status == WF_OK) w->order.replayed = before.n_pushes;
    wfi_record_release(&before);
    return status;
}

wf_status wfi_workers_resume_record(wf_workers *w) {
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    if (w->replays) return continue_replay(w);
    if (!w->config.record) return WF_OK;
    wf_status status = WF_OK;
    wfi_record file;
    bool exists = wfi_workers_is_root(w) && access(w->config.record, F_OK) == 0;
    if (exists) status = wfi_record_read(w->ctx, w->config.record, &file);
    if (status == WF_OK && exists) {
        status = wfi_record_pack(&file, &bytes, &n_bytes);
        wfi_record_release(&file);
    }
    if (status == WF_OK) status = share_bytes(w, 0, &bytes, &n_bytes);
    if (status == WF_OK) status = continue_record(w, bytes, n_bytes);
    wfi_free(w->ctx, bytes);
    return status;
}
