#include "comm/runtime/step.h"

#include "base/race.h"

#include <string.h>

/* Copies elements unchanged; divides and rounds partial sums. */
static void copy(const wfi_step_memory *m, wfi_summand in, int64_t n, const wfi_result *out) {
    size_t bytes = (size_t)n * wf_dtype_bytes(m->arithmetic->dtype);
    if (in.is_sum)
        wfi_reduce_copy(m->arithmetic, in, n, out);
    else if (out->streams)
        wfi_stream_copy(out->data[0], in.data, bytes);
    else
        memcpy(out->data[0], in.data, bytes);
}

/* The work window has elements of the sum type. */
static size_t elem_bytes(const wfi_step_memory *m, wfi_window window) {
    wf_dtype dtype = m->arithmetic->dtype;
    return wf_dtype_bytes(window == WFI_WINDOW_WORK ? wfi_sum_dtype(dtype) : dtype);
}

bool wfi_reduce_run(const wfi_step_memory *m, const wfi_reduce_part *part,
                    const wfi_reduce_step *step) {
    const void *in[WFI_REDUCE_RANKS];
    void *to[WFI_REDUCE_RANKS];
    wfi_summand pair[2] = {{NULL, false}};
    wfi_result out = {.data = to, .is_sum = !step->ends};
    wfi_access a;
    int64_t n = step->end - step->begin;
    int32_t n_in = 0;
    bool sums = step->kind == WFI_REDUCE_SUM || step->kind == WFI_REDUCE_STAGED ||
                step->kind == WFI_REDUCE_ADD;
    for (int32_t i = 0; wfi_reduce_access(part, step, i, &a); i++) {
        char *data = m->address(m->self, a.rank, a.window, a.begin);
        /* A copy to its own address accesses nothing. */
        if (a.writes && !sums && !pair[0].is_sum && data == pair[0].data) return false;
        wfi_touches(data, (size_t)a.n * elem_bytes(m, a.window), a.writes);
        if (a.writes) {
            to[out.n++] = data;
        } else {
            if (n_in < 2) pair[n_in] = (wfi_summand){data, a.window == WFI_WINDOW_WORK};
            in[n_in++] = data;
        }
    }
    size_t bytes = (size_t)n * wf_dtype_bytes(m->arithmetic->dtype);
    out.streams = m->stream_bytes && bytes >= m->stream_bytes && step->kind != WFI_REDUCE_STAGE;
    if (step->kind == WFI_REDUCE_SUM || step->kind == WFI_REDUCE_STAGED)
        wfi_reduce_all(m->arithmetic, in, n_in, n, &out);
    else if (step->kind == WFI_REDUCE_ADD)
        wfi_reduce_pair(m->arithmetic, pair[0], pair[1], n, &out);
    else
        copy(m, pair[0], n, &out);
    return out.streams;
}
