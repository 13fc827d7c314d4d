/* Gradients are summed over the replicas in buckets: units that are complete on this replica one
 * after the other share an instruction, if they are of one stage. That it stands behind the last
 * action does not matter: it depends on the gradients that it sums and runs on a stream of its own,
 * so it begins while backward still runs on the units in front. All replicas of a stage follow one
 * schedule, so they agree on the buckets and on their order.
 */
#include "program/lower.h"

/* Not before the rank is through with its last action. */
static wf_status put_off(wfi_lowering *l, int32_t instruction, int32_t last) {
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
        int32_t i = p->n_instructions, stage = wfi_program_stage_of(p, l->finished[k]);
        n = fill_bucket(l, k);
        for (int32_t u = k; u < k + n; u++)
            WF_TRY(wfi_add_thing(l, WFI_BLOCK_GRADIENT, l->finished[u], -1));
        WF_TRY(wfi_lower_change(l, stage, WFI_PARTIAL, p->stages[stage].strategy->gradient,
                                l->finished[k]));
        if (!p->plan->overlaps && p->n_instructions > i) WF_TRY(put_off(l, i, last));
    }
    return WF_OK;
}
