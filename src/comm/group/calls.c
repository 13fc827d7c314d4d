/* The public collectives: checks on this rank, before any other rank is involved. */
#include "comm/group/group.h"

/* The limit of addressable bytes. */
#define MOST_BYTES (INT64_MAX / 4)

static wf_status refuse(const wf_group *g, const wfi_operation *o, const char *why) {
    return wfi_fail(g->ctx, WF_INVALID_ARG, "wf_group_%s%s%s: %s",
                    wfi_collective_name(o->collective), o->site ? " at " : "",
                    o->site ? o->site : "", why);
}

static bool is_in_place(const wf_group *g, const wfi_operation *o, size_t block) {
    const char *in = o->in, *out = o->out;
    switch (o->collective) {
    case WFI_COLLECTIVE_ALL_GATHER:
    case WFI_COLLECTIVE_GATHER:
        return in == out + (size_t)g->rank * block;
    case WFI_COLLECTIVE_REDUCE_SCATTER:
    case WFI_COLLECTIVE_SCATTER:
        return out == in + (size_t)g->rank * block;
    default:
        return in == out;
    }
}

static wf_status check_buffers(const wf_group *g, const wfi_operation *o) {
    bool is_root = o->root == g->rank;
    size_t elem = wf_dtype_bytes(o->dtype), block = (size_t)o->n_elem * elem;
    size_t n_in = (size_t)wfi_collective_n_in(o->collective, g->n, is_root);
    size_t n_out = (size_t)wfi_collective_n_out(o->collective, g->n, is_root);
    uintptr_t in = (uintptr_t)o->in, out = (uintptr_t)o->out;
    if (!block) return WF_OK;
    if (n_in && !o->in) return refuse(g, o, "`in` is NULL");
    if (n_out && !o->out) return refuse(g, o, "`out` is NULL");
    if ((n_in && in % elem) || (n_out && out % elem))
        return refuse(g, o, "a buffer is not aligned to the size of its elements");
    bool overlap = n_in && n_out && in < out + n_out * block && out < in + n_in * block;
    if (overlap && !is_in_place(g, o, block))
        return refuse(g, o, "`in` and `out` overlap, and not in the way that is allowed in place");
    return WF_OK;
}

static wf_status check(const wf_group *g, const wfi_operation *o) {
    bool is_pair = o->collective == WFI_COLLECTIVE_SEND || o->collective == WFI_COLLECTIVE_RECV;
    bool is_float = o->dtype == WF_F32 || o->dtype == WF_F64 || o->dtype == WF_BF16;
    if ((int)o->dtype < 0 || o->dtype >= WF_N_DTYPES) return refuse(g, o, "there is no such dtype");
    if ((int)o->op < 0 || o->op > WF_MAX) return refuse(g, o, "there is no such reduction");
    if (o->n_elem < 0) return refuse(g, o, "n_elem is negative");
    if (o->n_elem > MOST_BYTES / ((int64_t)wf_dtype_bytes(o->dtype) * g->n))
        return refuse(g, o, "n_elem is more than memory can hold");
    if (o->root < 0 || o->root >= g->n) return refuse(g, o, "the group has no such rank");
    if (is_pair && o->root == g->rank)
        return refuse(g, o, "a rank cannot send to itself or receive from itself");
    if (o->op == WF_MEAN && !is_float)
        return refuse(g, o, "integers have no mean; take the sum and divide");
    return check_buffers(g, o);
}

static wf_status call(wf_group *g, wfi_operation o, wf_work **work_out) {
    if (!g) return WF_INVALID_ARG;
    o.site = g->site;
    g->site = NULL;
    WF_TRY(check(g, &o));
    if (wfi_collective_sums(o.collective)) {
        int64_t n = o.collective == WFI_COLLECTIVE_REDUCE_SCATTER ? g->n : 1;
        size_t bytes = (size_t)(n * o.n_elem) * wf_dtype_bytes(o.dtype);
        o.how = wfi_group_algorithm(g, &o, bytes);
    }
    if (work_out) return wfi_works_add(g, &o, work_out);
    if (g->works) wfi_works_drain(g->works);
    return wfi_group_run(g, &o);
}

wf_status wf_group_barrier(wf_group *g, wf_work **work_out) {
    return call(g, (wfi_operation){.collective = WFI_COLLECTIVE_BARRIER}, work_out);
}

#define OPERATION(id, ...)                                                                         \
    (wfi_operation) {                                                                              \
        .collective = WFI_COLLECTIVE_##id, .n_elem = n_elem, .dtype = dtype, __VA_ARGS__           \
    }

wf_status wf_group_broadcast(wf_group *g, const void *in, void *out, int64_t n_elem, wf_dtype dtype,
                             int root, wf_work **work_out) {
    return call(g, OPERATION(BROADCAST, .in = in, .out = out, .root = root), work_out);
}

wf_status wf_group_reduce(wf_group *g, const void *in, void *out, int64_t n_elem, wf_dtype dtype,
                          wf_reduction op, int root, wf_work **work_out) {
    return call(g, OPERATION(REDUCE, .in = in, .out = out, .op = op, .root = root), work_out);
}

wf_status wf_group_all_reduce(wf_group *g, const void *in, void *out, int64_t n_elem,
                              wf_dtype dtype, wf_reduction op, wf_work **work_out) {
    return call(g, OPERATION(ALL_REDUCE, .in = in, .out = out, .op = op), work_out);
}

wf_status wf_group_all_gather(wf_group *g, const void *in, void *out, int64_t n_elem,
                              wf_dtype dtype, wf_work **work_out) {
    return call(g, OPERATION(ALL_GATHER, .in = in, .out = out), work_out);
}

wf_status wf_group_reduce_scatter(wf_group *g, const void *in, void *out, int64_t n_elem,
                                  wf_dtype dtype, wf_reduction op, wf_work **work_out) {
    return call(g, OPERATION(REDUCE_SCATTER, .in = in, .out = out, .op = op), work_out);
}

wf_status wf_group_gather(wf_group *g, const void *in, void *out, int64_t n_elem, wf_dtype dtype,
                          int root, wf_work **work_out) {
    return call(g, OPERATION(GATHER, .in = in, .out = out, .root = root), work_out);
}

wf_status wf_group_scatter(wf_group *g, const void *in, void *out, int64_t n_elem, wf_dtype dtype,
                           int root, wf_work **work_out) {
    return call(g, OPERATION(SCATTER, .in = in, .out = out, .root = root), work_out);
}

wf_status wf_group_all_to_all(wf_group *g, const void *in, void *out, int64_t n_elem,
                              wf_dtype dtype, wf_work **work_out) {
    return call(g, OPERATION(ALL_TO_ALL, .in = in, .out = out), work_out);
}

wf_status wf_group_send(wf_group *g, const void *in, int64_t n_elem, wf_dtype dtype, int to,
                        wf_work **work_out) {
    return call(g, OPERATION(SEND, .in = in, .root = to), work_out);
}

wf_status wf_group_recv(wf_group *g, void *out, int64_t n_elem, wf_dtype dtype, int from,
                        wf_work **work_out) {
    return call(g, OPERATION(RECV, .out = out, .root = from), work_out);
}
