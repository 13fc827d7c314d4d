/* engine: sums inside MPI, in MPI's order, on one communicator per slot. */
#include "comm/wire/mpi.h"

#define ENGINE_ELEMS ((int64_t)1 << 30) /* per call, as MPI counts in an int */
#define ENGINE_BLOCK ((int64_t)1 << 20) /* BF16 is summed as F32 in blocks of this size */

static wf_status do_request(wfi_memory *m, wfi_request request) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    request.peer = -1;
    request.tag = g->slot;
    WF_TRY(wfi_transport_post(g->transport, &g->known.queues[WFI_QUEUE_RECEIVED], &request));
    return wfi_mpi_wait(m, WFI_QUEUE_RECEIVED);
}

/* Opens the engine once for each slot; later groups of the slot use it, too. */
wf_status wfi_mpi_open_engine(wfi_memory *m) {
    wfi_mpi_group *g = wfi_mpi_of(m);
    uint64_t *opened = &wfi_transport_slots_of(g->transport)->engines[g->slot / 64];
    uint64_t bit = UINT64_C(1) << (g->slot % 64);
    if (*opened & bit) return WF_OK;
    *opened |= bit;
    return do_request(m, (wfi_request){.kind = WFI_REQUEST_OPEN_ENGINE});
}

/* The sum is divided and rounded here, after MPI. */
static wf_status sum_elements(wfi_run *r, const char *in, char *out, int64_t n) {
    wfi_mpi_group *g = wfi_mpi_of(r->m);
    bool converts = wfi_sum_dtype(r->o->dtype) != r->o->dtype;
    void *sums = converts ? g->bounce->data : out;
    wfi_network_sum sum = {.in = converts || in == out ? NULL : in,
                           .out = sums,
                           .n_elem = (int)n,
                           .dtype = wfi_sum_dtype(r->o->dtype),
                           .op = r->o->op};
    if (converts)
        wfi_reduce_copy(&r->a, (wfi_summand){in, false}, n,
                        &(wfi_result){.data = &sums, .n = 1, .is_sum = true});
    WF_TRY(do_request(r->m, (wfi_request){.kind = WFI_REQUEST_SUM, .sum = sum}));
    void *to = out;
    if (converts || r->o->op == WF_MEAN)
        wfi_reduce_copy(&r->a, (wfi_summand){sums, true}, n, &(wfi_result){.data = &to, .n = 1});
    return WF_OK;
}

wf_status wfi_mpi_engine(wfi_run *r) {
    const wfi_operation *o = r->o;
    bool converts = wfi_sum_dtype(o->dtype) != o->dtype;
    int64_t most = converts ? ENGINE_BLOCK : ENGINE_ELEMS;
    if (converts)
        WF_TRY(wfi_mpi_grow_bounce(r->m, (size_t)wfi_min_i64(o->n_elem, most) * sizeof(float)));
    for (int64_t at = 0, n; at < o->n_elem; at += n) {
        n = wfi_min_i64(o->n_elem - at, most);
        size_t begin = (size_t)at * r->elem_bytes;
        WF_TRY(sum_elements(r, (const char *)o->in + begin, (char *)o->out + begin, n));
    }
    return WF_OK;
}
