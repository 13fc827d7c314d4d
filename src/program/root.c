/* DataParallel: what the first replica of a stage has for all of them. Parameters go from it to
 * the others at the begin of each step; statistics come back, and gradients (reduce.c).
 */
#include "program/lower.h"

wf_status wfi_lower_broadcasts(wfi_lowering *l) {
    wf_program *p = l->p;
    for (int32_t s = 0; s < p->n_stages; s++) {
        bool shares = p->stages[s].strategy->parameter == WFI_ROOT && p->stages[s].n_replicas > 1;
        if (!wfi_take_stage(l, s) || !shares) continue;
        for (int32_t u = 0; u < p->graph->n_units; u++) {
            size_t bytes = p->graph->units[u].param_bytes;
            int32_t i;
            if (!bytes || !wfi_stage_reads_parameters(p, s, u)) continue;
            WF_TRY(wfi_emit(l, wfi_make(WFI_BROADCAST, WFI_STREAM_REDUCE, u, 0, -1), 1, &i));
            wfi_join(l, i, s);
            WF_TRY(wfi_refer(l, i, 0, WFI_BLOCK_PARAM, u, 0, -1, bytes,
                             l->replica == 0 ? WFI_READ : WFI_WRITE));
        }
    }
    return WF_OK;
}

/* Of each microbatch by itself: the root folds them in their order. */
wf_status wfi_lower_statistics_to_root(wfi_lowering *l, int32_t unit) {
    wf_program *p = l->p;
    for (int64_t m = 0; m < p->recipe.n_micro; m++) {
        int32_t replica = wfi_stage_replica_of(p, l->stage, m);
        bool sends = l->replica > 0;
        if (replica == 0 || (sends && replica != l->replica)) continue;
        wfi_instruction move =
            wfi_make(sends ? WFI_SEND : WFI_RECEIVE, sends ? WFI_STREAM_SEND : WFI_STREAM_RECEIVE,
                     unit, unit, m);
        move.peer = wfi_program_rank_of(p, sends ? 0 : replica, l->stage);
        WF_TRY(wfi_emit_one(l, move, WFI_BLOCK_STATS, unit, 0, m,
                            wfi_program_code_of(p, m)->units[unit].stats_bytes,
                            sends ? WFI_READ : WFI_WRITE));
    }
    return WF_OK;
}
