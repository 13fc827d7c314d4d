/* One operation on its way through shared memory. Private to run.c and buffers.c.
 *
 * A rank's elements are blocks of n_elem, one or as many as there are ranks. A chunk is some of
 * each block; who brings its elements through a window has those of the chunk side by side there,
 * for the others they lie where the caller has them.
 */
#ifndef WFI_WIRE_RUN_H
#define WFI_WIRE_RUN_H

#include "comm/wire/memory.h"

/* What a rank says of a buffer that goes through its window. */
#define WFI_HANDLE_WINDOW (WFI_HANDLE_NONE - 1)

/* Where another rank's buffers lie, or the own one's. */
struct wfi_run_buffers {
    char *in, *out, *work;
    bool in_window, out_window; /* whether chunked there */
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
    int64_t n_most;             /* elements of a block in a chunk */
    int64_t at, n_chunk;        /* this chunk's */
    uint64_t says[3];           /* own; SAYS_* */
    struct wfi_run_buffers *of; /* [n] the memory's */
    bool streams;               /* large results go past the caches */
    bool has_streamed;
} wfi_run;

/* Fills run->says: what this rank tells the others of its buffers. */
void wfi_run_say(wfi_run *run);
/* Finds everybody's buffers, after all have come. */
wf_status wfi_run_find(wfi_run *run);
/* Element `at` of the chunk. */
char *wfi_run_address(const wfi_run *run, int32_t rank, wfi_window which, int64_t at);
/* How many elements from `at` on, at most n, lie side by side there; and how large they are. */
int64_t wfi_run_n_side(const wfi_run *run, int32_t rank, wfi_window which, int64_t at, int64_t n);
size_t wfi_run_elem_bytes(const wfi_run *run, wfi_window which);

/* The chunk that begins at element `at` of each block. */
void wfi_run_choose_chunk(wfi_run *run, int64_t at);
/* Between the caller's buffers and the windows. */
void wfi_run_fill_window(const wfi_run *run);
void wfi_run_empty_window(const wfi_run *run);

#endif
