/* The record of an asynchronous run: the order in which pushes were applied. A push is a worker's
 * gradient of one of its batches, computed from one version of the parameters. A replay reads the
 * record. Private.
 *
 *     wfi_record_init(ctx, 4, 0, 2, first_step, identity, &record);
 *     wfi_record_add(&record, &push);     for each push, in order
 *     wfi_record_write(&record, path);
 *
 * One order holds for all servers, so a push is one entry, however many servers divide it. A
 * version is a number of updates. Each push that is added or read must keep these rules:
 *
 * - The worker's batches are consecutive, from its first_batch.
 * - The version is not newer than the current one.
 * - staleness != 0: each push is an update; the first version is first_step * n_workers; a step is
 *   n_workers pushes. After its own push a worker reads the parameters again, so its next version
 *   includes that update. With staleness > 0 a push misses at most staleness * n_workers updates.
 * - staleness 0: an update is a step; the first version is first_step. The first n_workers - backup
 *   pushes of the current version make the next one. A push of an older version is dropped, and no
 *   other push is. A worker pushes at most once from each version; its versions ascend.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <weft/context.h>

#define WFI_RECORD_MAX_WORKERS 65535
/* The largest first step, first batch and bound of staleness: all products fit into 64 bits. */
#define WFI_RECORD_MAX_COUNT (INT64_C(1) << 46)
#define WFI_IDENTITY_BYTES   32

typedef struct wfi_push {
    int32_t worker;
    bool is_dropped; /* too late for its step: it changed nothing (recipe.backup) */
    int64_t batch;   /* number of the worker's batch, from 0 */
    int64_t version; /* of the parameters that the gradient was computed from */
} wfi_push;

typedef struct wfi_record {
    wf_context *ctx;
    int32_t n_workers, backup; /* backup workers are among n_workers */
    int64_t staleness;         /* bound in steps; -1: none */
    int64_t first_step;        /* steps before the recorded run */
    unsigned char identity[WFI_IDENTITY_BYTES];
    int64_t *first_batch; /* [n_workers] */
    wfi_push *pushes;     /* read only: wfi_record_add keeps the members below in step */
    size_t n_pushes, capacity;
    size_t n_applied;     /* pushes that are not dropped */
    int64_t *next_batch;  /* [n_workers] */
    int64_t *min_version; /* [n_workers] that the worker's next push may have */
} wfi_record;

/* SHA-256 of a text that names model, data and recipe. */
void wfi_record_identify(const char *text, unsigned char identity_out[WFI_IDENTITY_BYTES]);

/* An empty record; each worker begins with batch 0. Errors: INVALID_ARG (a number out of range;
 * backup workers without staleness 0), NO_MEMORY; after them there is nothing to release. */
wf_status wfi_record_init(wf_context *ctx, int32_t n_workers, int32_t backup, int64_t staleness,
                          int64_t first_step, const unsigned char identity[WFI_IDENTITY_BYTES],
                          wfi_record *record_out);
/* Before the first push. Errors: INVALID_ARG (negative, too large). */
wf_status wfi_record_set_first_batch(wfi_record *record, int32_t worker, int64_t batch);
void wfi_record_release(wfi_record *record); /* also of a zeroed struct */

/* Errors: INVALID_ARG (the push breaks a rule; the record is unchanged), NO_MEMORY. */
wf_status wfi_record_add(wfi_record *record, const wfi_push *push);

int64_t wfi_record_first_version(const wfi_record *record);
/* Complete steps since first_step. */
size_t wfi_record_n_steps(const wfi_record *record);
/* Checks that the last step is complete. Errors: INVALID_ARG. */
wf_status wfi_record_check_end(const wfi_record *record);
/* Keeps the first n_steps steps, with the dropped pushes right after the last of them. Errors:
 * INVALID_ARG (the record has fewer). */
wf_status wfi_record_cut(wfi_record *record, size_t n_steps);

/* Checks that this run may replay the record or add to it. The sentence begins with `path` and
 * names the first difference. Errors: INVALID_ARG. */
wf_status wfi_record_matches(const wfi_record *record, const char *path,
                             const unsigned char identity[WFI_IDENTITY_BYTES], int32_t n_workers,
                             int64_t staleness, int32_t backup);

/* ---- the file (record_file.c; docs/files.md has the layout) ---- */

/* The file's bytes; free with wfi_free. Errors: INVALID_ARG (the record ends inside a step),
 * NO_MEMORY. */
wf_status wfi_record_pack(const wfi_record *record, uint8_t **bytes_out, size_t *n_bytes_out);
/* `path` begins each sentence. Errors: CORRUPT (differs from any output of wfi_record_pack),
 * NO_MEMORY; after them there is nothing to release. */
wf_status wfi_record_unpack(wf_context *ctx, const char *path, const uint8_t *bytes, size_t n_bytes,
                            wfi_record *record_out);

/* Replaces the file in one step. Errors: those of wfi_record_pack and wf_file_replace. */
wf_status wfi_record_write(const wfi_record *record, const char *path);
/* Errors: IO, and those of wfi_record_unpack. If the length of a file contradicts its header, it is
 * refused before it is read. */
wf_status wfi_record_read(wf_context *ctx, const char *path, wfi_record *record_out);
