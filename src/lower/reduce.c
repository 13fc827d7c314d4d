/* Gradients are summed over the replicas in buckets: units that are complete on this replica one
 * after the other share an instruction, if they are of one stage. That it stands behind the last
 * action does not matter: it depends on the gradients that it sums and runs on a stream of its own,
 * so it begins while backward still runs on the units in front. All replicas of a stage follow one
 * schedule, so they agree on the buckets and on their order.
 *
 * Where only a slice of a sum is kept, it is copied to a place of its own, and later instructions
 * wait for that copy: so the memory of the full sum can be used again.
 */
#include "lower/reduce.h"
#include "lower/move.h"
#include "lower/update.h"

#include <string.h>

/* How many of the finished units from `first` on are one bucket; *full_out: it takes no more. */
static int32_t fill_bucket(const wfi_lowering *l, int32_t first, bool *full_out) {
    const wf_program *p = l->p;
    int32_t k = first, stage = wfi_program_stage_of(p, l->finished[first]);
    bool is_alone = p->stages[stage].n_members == 1; /* there is nothing to wait for */
    size_t limit = is_alone ? 1 : p->plan->bucket_bytes, bytes = 0;
    *full_out = true;
    for (; k < l->n_finished && bytes < limit; k++) {
        if (wfi_program_stage_of(p, l->finished[k]) != stage) return k - first;
        size_t own = p->graph->units[l->finished[k]].trained_bytes;
        if (own >= limit && k > first) return k - first; /* a bucket of its own */
        bytes += own;
    }
    *full_out = bytes >= limit;
    return k - first;
}

static bool frees(const wfi_lowering *l, int32_t unit) {
    return wfi_summed_name(l->p, unit).copy == WFI_COPY_PART;
}

/* The last change and the last copy of this bucket. */
static void note_freed(wfi_lowering *l, int32_t first) {
    memcpy(l->freed[0], l->freed[1], sizeof *l->freed);
    memset(l->freed[1], -1, sizeof *l->freed);
    for (int32_t i = first; i < l->p->n_instructions; i++)
        l->freed[1][l->p->instructions[i].kind != WFI_CHANGE] = i;
}

/* The next n of those that are finished. */
static wf_status sum_bucket(wfi_lowering *l, int32_t n, int32_t last) {
    wf_program *p = l->p;
    int32_t first = p->n_instructions, unit = l->finished[l->n_reduced];
    for (int32_t k = 0; k < n; k++)
        WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_GRADIENT, l->finished[l->n_reduced + k])));
    WF_TRY(wfi_move_added(l, WFI_MADE, WFI_KEPT));
    bool moves = p->n_instructions > first;
    if (moves && frees(l, unit)) note_freed(l, first);
    for (int32_t i = first; i < p->n_instructions && !frees(l, unit) && !p->plan->overlaps; i++)
        WF_TRY(wfi_depend_on(l, i, last)); /* not before the rank's last action */
    l->n_reduced += n;
    /* With `overlap`, one bucket may be summed during computation. */
    return wfi_lower_early_updates(l, l->n_reduced - (moves && p->plan->overlaps ? n : 0));
}

wf_status wfi_depend_on_freed(wfi_lowering *l, int32_t instruction) {
    for (int k = 0; k < 2; k++)
        WF_TRY(wfi_depend_on(l, instruction, l->freed[!l->p->plan->overlaps][k]));
    return WF_OK;
}

wf_status wfi_lower_finished(wfi_lowering *l, int32_t unit) {
    bool is_full = true;
    WF_TRY(WFI_GROW(l->p->ctx, l->finished, l->n_finished, l->finished_capacity, "lowering"));
    l->finished[l->n_finished++] = unit;
    bool is_early = frees(l, unit) || wfi_is_updated_early(l->p, unit);
    while (is_early && is_full && l->n_reduced < l->n_finished) {
        int32_t n = fill_bucket(l, l->n_reduced, &is_full);
        if (is_full) WF_TRY(sum_bucket(l, n, l->last_compute));
    }
    return WF_OK;
}

wf_status wfi_lower_reductions(wfi_lowering *l) {
    int32_t last = l->p->n_instructions - 1;
    while (last >= 0 && l->p->instructions[last].stream != WFI_STREAM_COMPUTE) last--;
    while (l->n_reduced < l->n_finished) {
        bool is_full;
        WF_TRY(sum_bucket(l, fill_bucket(l, l->n_reduced, &is_full), last));
    }
    return WF_OK;
}
