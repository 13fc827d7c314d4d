/* One operation in shared memory. Private to src/comm/wire.
 *
 * A rank's elements are blocks of n_elem, one or as many as there are ranks. A chunk has a part of
 * each block. In a window the parts of a chunk are contiguous; outside of windows they stay in the
 * caller's buffers.
 */
#pragma once

#include "comm/wire/memory.h"

/* The handle of a buffer that goes through its rank's window. */
#define WFI_HANDLE_WINDOW (WFI_HANDLE_NONE - 1)

/* Addresses of a rank's buffers in this process. */
struct wfi_run_buffers {
    char *in, *out, *work;
    bool in_window, out_window; /* the buffer is the window, chunk by chunk */
};

/* One rank's part in one operation. */
typedef struct wfi_run {
    wfi_memory *m;
    const wfi_operation *o;
    wfi_arithmetic a;
    wfi_reduce_part part; /* of the chunk */
    size_t elem_bytes;
    bool has_work, work_is_out, has_staging;
    bool is_chunked;
    int64_t n_most;             /* limit of a block's elements in a chunk */
    int64_t at, n_chunk;        /* of the current chunk */
    uint64_t message[3];        /* own message, by WFI_ARRIVAL_* */
    struct wfi_run_buffers *of; /* [n] borrowed from `m` */
    bool streams;               /* large results bypass the caches (streaming stores) */
    bool has_streamed;
} wfi_run;

/* Fills run->message: the message about this rank's buffers. */
void wfi_run_write_message(wfi_run *run);
/* Resolves the buffers of all ranks, after their arrival. */
wf_status wfi_run_find(wfi_run *run);
/* The address of element `at` of the chunk. */
char *wfi_run_address(const wfi_run *run, int32_t rank, wfi_window which, int64_t at);
/* How many elements from `at` on, at most n, are contiguous there; and their size. */
int64_t wfi_run_n_side(const wfi_run *run, int32_t rank, wfi_window which, int64_t at, int64_t n);
size_t wfi_run_elem_bytes(const wfi_run *run, wfi_window which);

/* Selects the chunk that begins at element `at` of each block. */
void wfi_run_choose_chunk(wfi_run *run, int64_t at);
/* Copy between the caller's buffers and the windows. */
void wfi_run_fill_window(const wfi_run *run);
void wfi_run_empty_window(const wfi_run *run);
