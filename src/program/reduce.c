/* Gradients are summed over the replicas in buckets: units that are complete on this replica one
 * after the other share an instruction, if they are of one stage. That it stands behind the last
 * action does not matter: it depends on the gradients that it sums and runs on a stream of its own,
 * so it begins while backward still runs on the units in front. All replicas of a stage follow one
 * schedule, so they agree on the buckets and on their order.
 */
#include "program/lower.h"

/* Reduces finished units first to end - 1 by one instruction. */
static wf_status emit_bucket(wfi_lowering *l, int32_t first, int32_t end) {
    wf_program *p = l->p;
    int32_t n_units = end - first, named = l->finished[first], i;
    int64_t n_staged = 0;
    (void)wfi_take_stage(l, wfi_program_stage_of(p, named));
    bool to_root = p->stages[l->stage].strategy->gradient == WFI_ROOT;
    int access = to_root && l->replica ? WFI_READ : WFI_READ | WFI_WRITE;
    wfi_instruction reduce =
        wfi_make(to_root ? WFI_REDUCE : WFI_ALL_REDUCE, WFI_STREAM_REDUCE, named, 0, -1);
    const wfi_allreduce *how = wfi_reduction_of(p, &reduce);
    WF_TRY(wfi_emit(l, reduce, n_units + (how->n_staged != NULL), &i));
    wfi_join(l, i, l->stage);
    for (int32_t k = 0; k < n_units; k++) {
        int32_t unit = l->finished[first + k];
        size_t bytes = p->code->units[unit].gradient_bytes;
        int64_t n_elem = (int64_t)(bytes / sizeof(float));
        WF_TRY(wfi_refer(l, i, k, WFI_BLOCK_GRADIENT, unit, 0, -1, bytes, access));
        /* One unit after the other: they share the staging. */
        if (how->n_staged)
            n_staged = wfi_max_i64(
                n_staged, how->n_staged(p->stages[l->stage].n_replicas, l->replica, n_elem));
    }
    if (!how->n_staged) return WF_OK;
    return wfi_refer(l, i, n_units, WFI_BLOCK_STAGING, named, 0, -1,
                     (size_t)n_staged * sizeof(float), WFI_WRITE);
}

/* Not before the rank is through with its last action. */
static wf_status hold_back(wfi_lowering *l, int32_t instruction, int32_t last) {
    wfi_instruction *i = &l->p->instructions[instruction];
    i->depends = wfi_pool_alloc(&l->p->pool, 1, sizeof *i->depends);
    if (!i->depends) return WF_NO_MEMORY;
    i->depends[0] = last;
    i->n_depends = 1;
    return WF_OK;
}

wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit) {
    WF_TRY(WFI_GROW(l->p->ctx, l->finished, l->n_finished, l->finished_capacity, "lowering"));
    l->finished[l->n_finished++] = unit;
    return WF_OK;
}

/* How many of the finished units from `first` on are one bucket. */
static int32_t fill_bucket(const wfi_lowering *l, int32_t first) {
    const wf_program *p = l->p;
    size_t limit = p->plan->bucket_bytes, bytes = 0;
    int32_t k = first, stage = wfi_program_stage_of(p, l->finished[first]);
    for (; k < l->n_finished && bytes < limit; k++) {
        if (wfi_program_stage_of(p, l->finished[k]) != stage) break;
        size_t own = p->code->units[l->finished[k]].gradient_bytes;
        if (own >= limit && k > first) break; /* a bucket of its own */
        bytes += own;
    }
    return k - first;
}

wf_status wfi_lower_reductions(wfi_lowering *l) {
    wf_program *p = l->p;
    if (!l->n_finished) return WF_OK;
    int32_t last = p->n_instructions - 1;
    while (p->instructions[last].stream != WFI_STREAM_COMPUTE) last--;
    for (int32_t k = 0, n; k < l->n_finished; k += n) {
        int32_t i = p->n_instructions;
        n = fill_bucket(l, k);
        if (p->stages[wfi_program_stage_of(p, l->finished[k])].n_replicas == 1) continue;
        WF_TRY(emit_bucket(l, k, k + n));
        if (!p->plan->overlaps) WF_TRY(hold_back(l, i, last));
    }
    return WF_OK;
}
