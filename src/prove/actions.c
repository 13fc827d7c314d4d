/* Checks that a schedule's actions are those of a step, stage by stage. This check comes first
 * because its error names the stage and the action. The proof (check.c) does not depend on it. */
#include "prove/actions.h"
#include "program/stage.h"

#include <string.h>

typedef struct stage_check {
    const wf_program *p;
    const wfi_action_list *list; /* of a rank */
    int32_t stage;               /* one of its stages */
    int64_t first_micro, n_micro;
    bool splits;
    unsigned char *done; /* [n_micro] a bit an action's kind */
} stage_check;

static const char *const names[] = {
    [WFI_ACTION_F] = "F", [WFI_ACTION_B] = "B", [WFI_ACTION_W] = "W", [WFI_ACTION_BW] = "BW"};

#define BIT(kind) (unsigned char)(1u << (kind))

static wf_status refuse(const stage_check *c, wfi_action_kind kind, int micro, const char *what) {
    return wfi_fail(c->p->ctx, WF_BUG, "schedule %s: stage %d: %s of microbatch %d %s",
                    c->p->plan->schedule->name, c->stage, names[kind], micro, what);
}

static bool is_known(const stage_check *c, wfi_action_kind kind) {
    if (kind == WFI_ACTION_F) return true;
    if (!wfi_differentiates(c->p)) return false;
    return c->splits ? kind == WFI_ACTION_B || kind == WFI_ACTION_W : kind == WFI_ACTION_BW;
}

static bool is_other_stage(const stage_check *c, const wfi_action *a) {
    return a->stage != c->stage;
}

static unsigned char *done_of(const stage_check *c, const wfi_action *a) {
    return &c->done[a->micro - c->first_micro];
}

/* Each action once, and no others. */
static wf_status check_set(stage_check *c) {
    for (int k = 0; k < c->list->n; k++) {
        const wfi_action *a = &c->list->actions[k];
        if (is_other_stage(c, a)) continue;
        if (a->micro < c->first_micro || a->micro >= c->first_micro + c->n_micro)
            return refuse(c, a->kind, a->micro,
                          "belongs to a microbatch that the step does not have");
        if (!is_known(c, a->kind))
            return refuse(c, a->kind, a->micro, "is not an action of this schedule");
        if (*done_of(c, a) & BIT(a->kind)) return refuse(c, a->kind, a->micro, "is listed twice");
        *done_of(c, a) |= BIT(a->kind);
    }
    for (int64_t m = 0; m < c->n_micro; m++)
        for (int kind = WFI_ACTION_F; kind <= WFI_ACTION_BW; kind++)
            if (is_known(c, (wfi_action_kind)kind) && !(c->done[m] & BIT(kind)))
                return refuse(c, (wfi_action_kind)kind, (int)(c->first_micro + m), "is missing");
    return WF_OK;
}

/* Whether the microbatch in front of it, if it is of the same lane, has been summed. */
static bool is_next_in_lane(const stage_check *c, const wfi_action *a) {
    int64_t per_lane = c->p->recipe.n_micro / c->p->recipe.n_lanes;
    return a->micro % per_lane == 0 ||
           *(done_of(c, a) - 1) & (BIT(WFI_ACTION_W) | BIT(WFI_ACTION_BW));
}

static wf_status check_order(stage_check *c) {
    memset(c->done, 0, (size_t)c->n_micro);
    for (int k = 0; k < c->list->n; k++) {
        const wfi_action *a = &c->list->actions[k];
        if (is_other_stage(c, a)) continue;
        bool sums = a->kind == WFI_ACTION_W || a->kind == WFI_ACTION_BW;
        if (a->kind != WFI_ACTION_F && !(*done_of(c, a) & BIT(WFI_ACTION_F)))
            return refuse(c, a->kind, a->micro, "comes before its F");
        if (a->kind == WFI_ACTION_W && !(*done_of(c, a) & BIT(WFI_ACTION_B)))
            return refuse(c, a->kind, a->micro, "comes before its B");
        if (sums && !is_next_in_lane(c, a))
            return refuse(c, a->kind, a->micro,
                          "comes before that of an earlier one; the gradients of a lane are summed "
                          "in ascending order");
        *done_of(c, a) |= BIT(a->kind);
    }
    return WF_OK;
}

static wf_status check_stage(const wf_program *p, const wfi_action_list *list, int32_t stage,
                             int32_t replica) {
    stage_check c = {.p = p,
                     .list = list,
                     .stage = stage,
                     .first_micro = wfi_first_micro(p, stage, replica),
                     .n_micro = wfi_replica_n_micro(p, stage, replica),
                     .splits = p->code->splits_weight};
    c.done = wfi_alloc(p->ctx, (size_t)c.n_micro, sizeof *c.done, "a schedule");
    wf_status status = c.done ? check_set(&c) : WF_NO_MEMORY;
    if (status == WF_OK) status = check_order(&c);
    wfi_free(p->ctx, c.done);
    return status;
}

static wf_status check_stages_known(const wf_program *p, int32_t rank,
                                    const wfi_action_list *list) {
    for (int k = 0; k < list->n; k++) {
        const wfi_action *a = &list->actions[k];
        stage_check c = {.p = p, .stage = a->stage};
        bool exists = a->stage >= 0 && a->stage < p->n_stages;
        if (!exists || wfi_stage_replica_on(p, a->stage, rank) < 0)
            return refuse(&c, a->kind, a->micro, "belongs to a stage of another rank");
    }
    return WF_OK;
}

wf_status wfi_program_check_actions(const wf_program *p, const wfi_action_list *lists) {
    for (int32_t k = 0; k < p->n_lowered; k++) {
        int32_t rank = p->lowered[k];
        WF_TRY(check_stages_known(p, rank, &lists[rank]));
        for (int32_t s = 0; s < p->n_stages; s++) {
            int32_t replica = wfi_stage_replica_on(p, s, rank);
            if (replica >= 0) WF_TRY(check_stage(p, &lists[rank], s, replica));
        }
    }
    return WF_OK;
}
