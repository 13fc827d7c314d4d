/* Whether a schedule's actions are those of a step, stage by stage: the first wall, which
 * can say what is wrong in a schedule's own words. The proof (check.c) comes to the same
 * end without it.
 */
#include "program/program.h"

#include <string.h>

typedef struct walk {
    const wf_program *p;
    const wfi_action_list *list;
    int stage, n_micro;
    bool splits;
    unsigned char *done; /* [n_micro] a bit an action's kind */
} walk;

static const char *const names[] = {
    [WFI_ACTION_F] = "F", [WFI_ACTION_B] = "B", [WFI_ACTION_W] = "W", [WFI_ACTION_BW] = "BW"};

#define BIT(kind) (unsigned char)(1u << (kind))

static wf_status refuse(const walk *w, wfi_action_kind kind, int micro, const char *what) {
    return wfi_fail(w->p->ctx, WF_BUG, "schedule %s: stage %d: %s of microbatch %d %s",
                    w->p->plan->schedule->name, w->stage, names[kind], micro, what);
}

static bool is_known(const walk *w, wfi_action_kind kind) {
    if (kind == WFI_ACTION_F) return true;
    if (w->p->kind != WF_PROGRAM_TRAIN) return false;
    return w->splits ? kind == WFI_ACTION_B || kind == WFI_ACTION_W : kind == WFI_ACTION_BW;
}

/* Each action once, and no others. */
static wf_status check_set(walk *w) {
    for (int k = 0; k < w->list->n; k++) {
        const wfi_action *a = &w->list->actions[k];
        if (a->stage != w->stage) return refuse(w, a->kind, a->micro, "belongs to another stage");
        if (a->micro < 0 || a->micro >= w->n_micro)
            return refuse(w, a->kind, a->micro, "is of a microbatch that the step does not have");
        if (!is_known(w, a->kind))
            return refuse(w, a->kind, a->micro, "is no action of this schedule");
        if (w->done[a->micro] & BIT(a->kind))
            return refuse(w, a->kind, a->micro, "stands there twice");
        w->done[a->micro] |= BIT(a->kind);
    }
    for (int m = 0; m < w->n_micro; m++)
        for (int kind = WFI_ACTION_F; kind <= WFI_ACTION_BW; kind++)
            if (is_known(w, (wfi_action_kind)kind) && !(w->done[m] & BIT(kind)))
                return refuse(w, (wfi_action_kind)kind, m, "is missing");
    return WF_OK;
}

static wf_status check_order(walk *w) {
    int n_summed = 0; /* microbatches whose weight gradient is there */
    memset(w->done, 0, (size_t)w->n_micro);
    for (int k = 0; k < w->list->n; k++) {
        const wfi_action *a = &w->list->actions[k];
        bool sums = a->kind == WFI_ACTION_W || a->kind == WFI_ACTION_BW;
        if (a->kind != WFI_ACTION_F && !(w->done[a->micro] & BIT(WFI_ACTION_F)))
            return refuse(w, a->kind, a->micro, "stands before its F");
        if (a->kind == WFI_ACTION_W && !(w->done[a->micro] & BIT(WFI_ACTION_B)))
            return refuse(w, a->kind, a->micro, "stands before its B");
        if (sums && a->micro != n_summed++)
            return refuse(w, a->kind, a->micro,
                          "stands before that of an earlier one; gradients are summed in "
                          "ascending order");
        w->done[a->micro] |= BIT(a->kind);
    }
    return WF_OK;
}

wf_status wfi_program_check_actions(const wf_program *p, const wfi_action_list *lists) {
    wf_status status = WF_OK;
    for (int s = 0; s < p->n_stages && status == WF_OK; s++) {
        walk w = {.p = p,
                  .list = &lists[s],
                  .stage = s,
                  .n_micro = (int)wfi_program_micro_per_replica(p),
                  .splits = p->code->splits_weight};
        w.done = wfi_alloc(p->ctx, (size_t)w.n_micro, sizeof *w.done, "a schedule");
        status = w.done ? check_set(&w) : WF_NO_MEMORY;
        if (status == WF_OK) status = check_order(&w);
        wfi_free(p->ctx, w.done);
    }
    return status;
}
