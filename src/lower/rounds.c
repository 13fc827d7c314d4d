/* The order of work where stages have different numbers of replicas, and a rank may be on several:
 * rounds of microbatches, one for each replica of the widest stage.
 */
#include "lower/schedule.h"
#include "program/stage.h"

typedef struct rounds {
    const wf_program *p;
    wfi_action_list *lists; /* [n_ranks] */
    int64_t n_rounds;
} rounds;

/* Without lists it only counts: a rank of a wide stage has few of the step's actions. */
static void push(wfi_action_list *list, wfi_action_kind kind, int32_t stage, int64_t micro) {
    if (list->actions)
        wfi_action_push(list, kind, stage, (int)micro);
    else
        list->n++;
}

/* In each round the widest stage's replicas have a microbatch each. */
static void push_stage(rounds *r, int64_t round, int32_t stage, wfi_action_kind kind) {
    const wfi_mesh *mesh = &r->p->mesh;
    for (int32_t k = 0; k < r->p->n_replicas; k++) {
        int64_t micro = k * r->n_rounds + round;
        for (int32_t g = 0; g < wfi_mesh_n_groups(mesh, WFI_STAGE_AXES); g++) {
            int32_t first = wfi_mesh_first(mesh, WFI_STAGE_AXES, g);
            push(&r->lists[wfi_stage_rank_of(r->p, stage, micro, first)], kind, stage, micro);
        }
    }
}

/* All stages forward, then all backward: a value to gather is complete before the loss is computed,
 * and before its gradient is scattered. */
static void push_round(rounds *r, int64_t round) {
    const wf_program *p = r->p;
    for (int32_t s = 0; s < p->n_stages; s++) push_stage(r, round, s, WFI_ACTION_F);
    for (int32_t s = p->n_stages - 1; s >= 0 && wfi_differentiates(p); s--)
        push_stage(r, round, s, WFI_ACTION_BW);
}

wf_status wfi_program_rounds(const wf_program *p, wfi_action_list **lists_out) {
    rounds r = {.p = p, .n_rounds = p->recipe.n_micro / p->n_replicas};
    r.lists = wfi_alloc(p->ctx, (size_t)p->n_ranks, sizeof *r.lists, "a schedule");
    wf_status status = r.lists ? WF_OK : WF_NO_MEMORY;
    for (int64_t round = 0; round < r.n_rounds && status == WF_OK; round++) push_round(&r, round);
    for (int32_t k = 0; k < p->n_ranks && status == WF_OK; k++) {
        wfi_action_list *list = &r.lists[k];
        list->actions = wfi_alloc(p->ctx, (size_t)list->n + 1, sizeof *list->actions, "a schedule");
        list->n = 0;
        if (!list->actions) status = WF_NO_MEMORY;
    }
    if (status != WF_OK) {
        wfi_schedule_free(p->ctx, r.lists, p->n_ranks);
        return status;
    }
    for (int64_t round = 0; round < r.n_rounds; round++) push_round(&r, round);
    *lists_out = r.lists;
    return WF_OK;
}
