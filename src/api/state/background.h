/* Parts of a file that a thread writes while steps go on. Private.
 *
 * Each part is copied before the thread starts; the thread frees a copy once it is written. */
#pragma once

#include "state/header.h"

typedef struct wfi_background wfi_background;

/* Errors: NO_MEMORY. */
wf_status wfi_background_create(wf_context *ctx, wfi_background **background_out);
/* Waits for the thread. NULL is allowed. */
void wfi_background_destroy(wfi_background *b);

/* Memory for n_bytes of a tensor from `offset` on, which n_after bytes of it follow; to be filled
 * before the thread starts. NULL: NO_MEMORY. */
void *wfi_background_add(wfi_background *b, int tensor, uint64_t offset, size_t n_bytes,
                         uint64_t n_after);
/* Bytes of all parts that were added. */
size_t wfi_background_bytes(const wfi_background *b);

/* Starts a thread that writes all parts and syncs them to the disk. The thread adds the parts'
 * digests to digests[tensor]. The writer and the digests are the thread's until it has ended.
 * *n_writing (NULL is allowed) is one more until then. Errors: NO_MEMORY. */
wf_status wfi_background_start(wfi_background *b, wf_safetensors_writer *writer, uint32_t *digests,
                               int *n_writing);
bool wfi_background_is_done(const wfi_background *b);
/* Waits for the thread to end. Errors: IO, with the thread's sentence. */
wf_status wfi_background_wait(wfi_background *b);
