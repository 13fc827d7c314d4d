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

/* Keeps the rank's slice of the unit's sum. */
static wf_status keep_slice(wfi_lowering *l, int32_t unit) {
    wfi_extent kept = wfi_summed_extent(l->p, unit, l->rank);
    if (!kept.bytes) return WF_OK;
    l->freed[1][1] = l->p->n_instructions;
    return wfi_move_here(l, wfi_of_unit(WFI_BLOCK_GRADIENT, unit), wfi_summed_name(l->p, unit),
                         kept);
}

static wf_status free_gradients(wfi_lowering *l, int32_t n, int32_t change) {
    memcpy(l->freed[0], l->freed[1], sizeof *l->freed);
    l->freed[1][0] = change;
    l->freed[1][1] = -1;
    for (int32_t k = l->n_reduced; k < l->n_reduced + n; k++) WF_TRY(keep_slice(l, l->finished[k]));
    return WF_OK;
}

static bool frees(const wfi_lowering *l, int32_t unit) {
    return wfi_summed_name(l->p, unit).copy == WFI_COPY_PART;
}

/* The bucket is named for its first unit with bytes in the group. */
static wf_status change_bucket(wfi_lowering *l, int32_t n, int32_t group, wfi_placement to) {
    bool is_part = l->p->groups[group].part >= 0;
    int32_t unit = -1;
    for (int32_t k = l->n_reduced; k < l->n_reduced + n; k++) {
        if (is_part && !wfi_summed_extent(l->p, l->finished[k], l->rank).bytes) continue;
        WF_TRY(wfi_add_name(l, wfi_of_unit(WFI_BLOCK_GRADIENT, l->finished[k])));
        if (unit < 0) unit = l->finished[k];
    }
    return wfi_move_among(l, group, WFI_PARTIAL, to, unit);
}

/* The next n of those that are finished: the parts in each group that has all of them, then each
 * part in all groups. */
static wf_status sum_bucket(wfi_lowering *l, int32_t n, int32_t last) {
    wf_program *p = l->p;
    int32_t first = p->n_instructions, unit = l->finished[l->n_reduced];
    int32_t stage = wfi_program_stage_of(p, unit), copies = wfi_stage_copies(p, stage, l->rank);
    WF_TRY(change_bucket(l, n, wfi_stage_shards(p, stage, l->rank),
                         p->stages[stage].strategy->gradient));
    if (copies >= 0) WF_TRY(change_bucket(l, n, copies, WFI_REPLICATE));
    bool moves = p->n_instructions > first;
    if (moves && frees(l, unit)) WF_TRY(free_gradients(l, n, p->n_instructions - 1));
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
