/* The buffers of an operation: exchanged handles, windows, chunks. */
#include "comm/wire/run.h"

#include <string.h>

static bool is_root(const wfi_run *r) {
    return r->o->root == r->m->group->rank;
}

static int32_t n_in(const wfi_run *r) {
    return wfi_collective_n_in(r->o->collective, r->part.n, is_root(r));
}

static int32_t n_out(const wfi_run *r) {
    return wfi_collective_n_out(r->o->collective, r->part.n, is_root(r));
}

/* ---- locations of buffers ---- */

/* The handle through which other ranks find a buffer of this rank. */
static uint64_t handle_of(const wfi_run *r, const void *data, int32_t n_blocks) {
    if (!n_blocks || !r->o->n_elem) return WFI_HANDLE_NONE;
    size_t bytes = (size_t)n_blocks * (size_t)r->o->n_elem * r->elem_bytes;
    wfi_handle handle = r->m->find(r->m, data, bytes);
    return handle == WFI_HANDLE_NONE ? WFI_HANDLE_WINDOW : handle;
}

void wfi_run_write_message(wfi_run *r) {
    /* In place, other ranks would overwrite elements that this rank still reads. */
    bool is_swap = r->o->collective == WFI_COLLECTIVE_ALL_TO_ALL && r->o->in == r->o->out;
    bool is_alone = r->part.n == 1;
    r->message[WFI_ARRIVAL_FINGERPRINT] = wfi_operation_fingerprint(r->o);
    r->message[WFI_ARRIVAL_IN] = is_alone ? WFI_HANDLE_NONE : handle_of(r, r->o->in, n_in(r));
    if (is_swap && r->message[WFI_ARRIVAL_IN] != WFI_HANDLE_NONE)
        r->message[WFI_ARRIVAL_IN] = WFI_HANDLE_WINDOW;
    r->message[WFI_ARRIVAL_OUT] = WFI_HANDLE_NONE;
    if (!is_alone && wfi_collective_shares_out(r->o->how, &r->part))
        r->message[WFI_ARRIVAL_OUT] = handle_of(r, r->o->out, n_out(r));
}

static wf_status find_buffer(wfi_run *r, int32_t rank, uint64_t handle, wfi_window part, char **out,
                             bool *is_window_out) {
    *is_window_out = handle == WFI_HANDLE_WINDOW;
    if (handle == WFI_HANDLE_WINDOW) return wfi_memory_window(r->m, rank, part, out);
    return handle == WFI_HANDLE_NONE ? WF_OK : r->m->resolve(r->m, rank, handle, out);
}

wf_status wfi_run_find(wfi_run *r) {
    for (int32_t k = 0; k < r->part.n; k++) {
        const uint64_t *message = wfi_memory_message(r->m, k);
        WF_TRY(find_buffer(r, k, message[WFI_ARRIVAL_IN], WFI_WINDOW_IN, &r->of[k].in,
                           &r->of[k].in_window));
        WF_TRY(find_buffer(r, k, message[WFI_ARRIVAL_OUT], WFI_WINDOW_OUT, &r->of[k].out,
                           &r->of[k].out_window));
        if (r->has_work && !r->work_is_out)
            WF_TRY(wfi_memory_window(r->m, k, WFI_WINDOW_WORK, &r->of[k].work));
        r->is_chunked |= r->of[k].in_window || r->of[k].out_window;
    }
    int32_t own = r->part.own; /* a buffer that no other rank reads stays the caller's */
    if (!r->of[own].in) r->of[own].in = (char *)r->o->in;
    if (!r->of[own].out) r->of[own].out = r->o->out;
    return WF_OK;
}

typedef struct view {
    char *base;     /* of the chunk's first element */
    int64_t stride; /* elements from block to block */
    size_t elem_bytes;
} view;

static view view_of(const wfi_run *r, int32_t rank, wfi_window which) {
    view v = {.elem_bytes = r->elem_bytes, .stride = r->o->n_elem};
    bool is_window = true;
    if (which == WFI_WINDOW_WORK && !r->work_is_out) {
        v.base = r->of[rank].work;
        v.elem_bytes = wf_dtype_bytes(wfi_sum_dtype(r->o->dtype));
    } else {
        bool is_in = which == WFI_WINDOW_IN;
        v.base = is_in ? r->of[rank].in : r->of[rank].out;
        is_window = is_in ? r->of[rank].in_window : r->of[rank].out_window;
    }
    if (is_window)
        v.stride = r->n_chunk;
    else
        v.base += (size_t)r->at * v.elem_bytes;
    return v;
}

size_t wfi_run_elem_bytes(const wfi_run *r, wfi_window which) {
    bool is_sum = which == WFI_WINDOW_WORK && !r->work_is_out;
    return is_sum ? wf_dtype_bytes(wfi_sum_dtype(r->o->dtype)) : r->elem_bytes;
}

/* The caller's blocks are not contiguous when a chunk has only a part of each. */
int64_t wfi_run_n_side(const wfi_run *r, int32_t rank, wfi_window which, int64_t at, int64_t n) {
    bool is_in = which == WFI_WINDOW_IN, is_work = which == WFI_WINDOW_WORK && !r->work_is_out;
    if (which == WFI_WINDOW_STAGING) return n;
    bool is_window = is_work || (is_in ? r->of[rank].in_window : r->of[rank].out_window);
    if (is_window || r->n_chunk == r->o->n_elem) return n;
    return wfi_min_i64(n, r->n_chunk - at % r->n_chunk);
}

char *wfi_run_address(const wfi_run *r, int32_t rank, wfi_window which, int64_t at) {
    const wfi_message_ops *messages = r->m->messages;
    if (which == WFI_WINDOW_STAGING) return (char *)r->m->staging + (size_t)at * r->elem_bytes;
    if (messages && rank != r->part.own) return messages->find(r, rank, which, at);
    view v = view_of(r, rank, which);
    if (v.stride != r->n_chunk) at = at / r->n_chunk * v.stride + at % r->n_chunk;
    return v.base + (size_t)at * v.elem_bytes;
}

/* ---- chunks ---- */

void wfi_run_choose_chunk(wfi_run *r, int64_t at) {
    const wfi_operation *o = r->o;
    bool is_scatter = o->collective == WFI_COLLECTIVE_REDUCE_SCATTER;
    r->at = at;
    r->n_chunk = r->is_chunked ? wfi_min_i64(o->n_elem - at, r->n_most) : o->n_elem;
    r->part.n_elem = r->n_chunk * (is_scatter ? r->part.n : 1);
}

void wfi_run_fill_window(const wfi_run *r) {
    if (r->message[WFI_ARRIVAL_IN] != WFI_HANDLE_WINDOW) return;
    size_t bytes = (size_t)r->n_chunk * r->elem_bytes, block = (size_t)r->o->n_elem * r->elem_bytes;
    const char *from = (const char *)r->o->in + (size_t)r->at * r->elem_bytes;
    char *to = r->m->window; /* IN is the window's first part */
    for (int32_t b = 0; b < n_in(r); b++)
        memcpy(to + (size_t)b * bytes, from + (size_t)b * block, bytes);
}

void wfi_run_empty_window(const wfi_run *r) {
    if (r->message[WFI_ARRIVAL_OUT] != WFI_HANDLE_WINDOW) return;
    memcpy((char *)r->o->out + (size_t)r->at * r->elem_bytes, r->of[r->part.own].out,
           (size_t)r->n_chunk * r->elem_bytes);
}
