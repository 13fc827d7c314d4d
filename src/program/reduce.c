/* When gradients are summed over the replicas: as soon as a unit's is complete here, together
 * with those that were complete shortly before, so that the sums are made while backward runs
 * on the units in front. All replicas of a stage follow one schedule, so they agree on the
 * buckets and on their order.
 */
#include "program/lower.h"

/* Reduces finished units first to end - 1 by one instruction. */
static wf_status emit_bucket(wfi_lowering *l, int32_t first, int32_t end) {
    wf_program *p = l->p;
    const wfi_allreduce *how = p->plan->allreduce;
    int32_t n_units = end - first, named = l->finished[first], i;
    int64_t n_staged = 0;
    WF_TRY(wfi_emit(l, wfi_make(WFI_ALL_REDUCE, WFI_STREAM_REDUCE, named, 0, -1),
                    n_units + (how->n_staged != NULL), &i));
    for (int32_t k = 0; k < n_units; k++) {
        int32_t unit = l->finished[first + k];
        size_t bytes = p->code->units[unit].gradient_bytes;
        int64_t n_elem = (int64_t)(bytes / sizeof(float));
        WF_TRY(wfi_refer(l, i, k, WFI_BLOCK_GRADIENT, unit, 0, -1, bytes, WFI_READ | WFI_WRITE));
        /* One unit after the other: they share the staging. */
        if (how->n_staged)
            n_staged = wfi_max_i64(n_staged, how->n_staged(p->n_replicas, l->replica, n_elem));
    }
    if (!how->n_staged) return WF_OK;
    return wfi_refer(l, i, n_units, WFI_BLOCK_STAGING, named, 0, -1,
                     (size_t)n_staged * sizeof(float), WFI_WRITE);
}

/* Reduces the buckets that are full; what is left, too, if nothing more will come. */
static wf_status emit_buckets(wfi_lowering *l, bool is_end) {
    const wf_program *p = l->p;
    size_t limit = p->plan->bucket_bytes, bytes = 0;
    for (int32_t k = l->n_reduced; k < l->n_finished; k++) {
        size_t own = p->code->units[l->finished[k]].gradient_bytes;
        if (own >= limit && bytes > 0) { /* a bucket of its own */
            WF_TRY(emit_bucket(l, l->n_reduced, k));
            l->n_reduced = k;
            bytes = 0;
        }
        bytes += own;
        if (bytes < limit) continue;
        WF_TRY(emit_bucket(l, l->n_reduced, k + 1));
        l->n_reduced = k + 1;
        bytes = 0;
    }
    if (!is_end || l->n_reduced == l->n_finished) return WF_OK;
    WF_TRY(emit_bucket(l, l->n_reduced, l->n_finished));
    l->n_reduced = l->n_finished;
    return WF_OK;
}

wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit) {
    wf_program *p = l->p;
    if (p->n_replicas == 1) return WF_OK;
    WF_TRY(WFI_GROW(p->ctx, l->finished, l->n_finished, l->finished_capacity, "lowering"));
    l->finished[l->n_finished++] = unit;
    return p->plan->overlaps ? emit_buckets(l, false) : WF_OK;
}

wf_status wfi_lower_reductions(wfi_lowering *l) {
    return emit_buckets(l, true);
}
