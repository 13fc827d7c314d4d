/* The order of work where stages have different numbers of replicas, and a rank may be on several:
 * rounds of microbatches, one for each replica of the widest stage.
 */
#include "lower/schedule.h"
#include "program/stage.h"

/* In each round the widest stage's replicas have a microbatch each. */
static void push_stage(const wf_program *p, wfi_action_list *lists, int64_t round, int32_t stage,
                       wfi_action_kind kind) {
    for (int32_t k = 0; k < p->n_replicas; k++) {
        int64_t micro = k * (p->recipe.n_micro / p->n_replicas) + round;
        for (int32_t g = 0; g < wfi_mesh_n_groups(&p->mesh, WFI_STAGE_AXES); g++) {
            int32_t first = wfi_mesh_first(&p->mesh, WFI_STAGE_AXES, g);
            wfi_action_push(&lists[wfi_stage_rank_of(p, stage, micro, first)], kind, stage,
                            (int)micro);
        }
    }
}

/* All stages forward, then all backward: a value to gather is complete before the loss is computed,
 * and before its gradient is scattered. */
static void push_round(const wf_program *p, wfi_action_list *lists, int64_t round) {
    for (int32_t s = 0; s < p->n_stages; s++) push_stage(p, lists, round, s, WFI_ACTION_F);
    for (int32_t s = p->n_stages - 1; s >= 0 && wfi_differentiates(p); s--)
        push_stage(p, lists, round, s, WFI_ACTION_BW);
}

/* A forward and a backward for each microbatch of the rank's replicas. */
static wf_status allocate_list(const wf_program *p, int32_t rank, wfi_action_list *list) {
    int64_t n = 1;
    for (int32_t s = 0; s < p->n_stages; s++) {
        int32_t replica = wfi_stage_replica_on(p, s, rank);
        if (replica >= 0) n += 2 * wfi_replica_n_micro(p, s, replica);
    }
    list->actions = wfi_alloc(p->ctx, (size_t)n, sizeof *list->actions, "a schedule");
    return list->actions ? WF_OK : WF_NO_MEMORY;
}

wf_status wfi_program_rounds(const wf_program *p, wfi_action_list *lists) {
    for (int32_t k = 0; k < p->n_ranks; k++) WF_TRY(allocate_list(p, k, &lists[k]));
    for (int64_t round = 0; round < p->recipe.n_micro / p->n_replicas; round++)
        push_round(p, lists, round);
    return WF_OK;
}
