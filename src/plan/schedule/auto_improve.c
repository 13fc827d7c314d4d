/* Local search: only a change on the critical path, which leads without a pause from the
 * begin to the end that is to be earlier, can help. Two neighbours there change places, or
 * W moves into the stage's next pause. */
#include "plan/schedule/auto.h"

#include <string.h>

/* Work is bounded by a number of actions looked at, not by a clock: the same request gives
 * the same schedule on every machine. About half a second on a core of 2020. */
#define MAX_ACTIONS 20e6
#define MAX_TRIALS  20000

typedef struct improve {
    wfi_auto *a;
    int *place; /* [n_stages][3][n_micro] where in its list an action stands */
    int *path;  /* triples, from the last: stage, place, and where W there could go */
    int n_path;
    double actions_left;
} improve;

static int *place_of(improve *i, const wfi_action *action) {
    size_t n = (size_t)i->a->request->n_micro;
    return &i->place[((size_t)action->stage * 3 + (size_t)action->kind) * n +
                     (size_t)action->micro];
}

/* The best becomes the trial, with its times. */
static wf_status restore(improve *i) {
    wfi_auto *a = i->a;
    for (int s = 0; s < a->request->n_stages; s++) {
        a->trial[s].n = a->best[s].n;
        memcpy(a->trial[s].actions, a->best[s].actions,
               (size_t)a->best[s].n * sizeof *a->best[s].actions);
        for (int k = 0; k < a->trial[s].n; k++) *place_of(i, &a->trial[s].actions[k]) = k;
    }
    return wfi_timing_run(a->request, a->trial, &a->timing);
}

static int last_stage(const wfi_auto *a) {
    int last = 0;
    double most = -1;
    for (int s = 0; s < a->request->n_stages; s++) {
        double end = wfi_timing_moment(&a->timing, s, a->trial[s].n - 1)->end - a->offset[s];
        if (end > most) most = end, last = s;
    }
    return last;
}

/* Whether two neighbours may change places: B needs its F, W its B, and F the W that makes
 * room. */
static bool may_pass(const wfi_auto *a, const wfi_action *first, const wfi_action *second) {
    if (first->kind == second->kind) return false;
    if (first->kind == WFI_ACTION_W)
        return second->kind != WFI_ACTION_F || second->micro - first->micro < a->hold;
    if (second->kind == WFI_ACTION_F) return true;
    return first->micro != second->micro ||
           (first->kind == WFI_ACTION_F && second->kind == WFI_ACTION_W);
}

/* How far W may move: to the next pause, the next W, or the F that needs its memory. */
static int next_pause(const wfi_auto *a, int stage, int from) {
    const wfi_action_list *list = &a->trial[stage];
    int to = from;
    if (list->actions[from].kind != WFI_ACTION_W) return from;
    while (to + 1 < list->n && may_pass(a, &list->actions[from], &list->actions[to + 1])) {
        to++;
        if (to + 1 < list->n && wfi_timing_moment(&a->timing, stage, to + 1)->begin >
                                    wfi_timing_moment(&a->timing, stage, to)->end)
            break;
    }
    return to;
}

static void find_path(improve *i) {
    const wfi_auto *a = i->a;
    int stage = last_stage(a), place = a->trial[stage].n - 1;
    for (i->n_path = 0;; i->n_path++) {
        int *at = &i->path[3 * i->n_path];
        at[0] = stage, at[1] = place, at[2] = next_pause(a, stage, place);
        if (place && wfi_timing_moment(&a->timing, stage, place - 1)->end >=
                         wfi_timing_moment(&a->timing, stage, place)->begin) {
            place--;
            continue;
        }
        wfi_action action = a->trial[stage].actions[place];
        stage += action.kind == WFI_ACTION_F ? -1 : 1;
        if (stage < 0 || stage == a->request->n_stages) break;
        action.stage = stage;
        place = *place_of(i, &action);
    }
    i->n_path++;
}

/* The action at `from` goes to `to`, those between move up. */
static void move(wfi_action_list *list, int from, int to) {
    wfi_action moved = list->actions[from];
    int step = from < to ? 1 : -1;
    for (int k = from; k != to; k += step) list->actions[k] = list->actions[k + step];
    list->actions[to] = moved;
}

/* *better_out: the trial was kept as the best; otherwise it is as before. */
static wf_status try_move(improve *i, int stage, int from, int to, bool *better_out) {
    wfi_auto *a = i->a;
    double cost = a->cost, tie = a->tie;
    move(&a->trial[stage], from, to);
    i->actions_left -= 3.0 * a->request->n_stages * a->request->n_micro;
    wf_status status = wfi_auto_offer(a);
    *better_out = a->cost < cost || a->tie < tie;
    if (*better_out) return status;
    move(&a->trial[stage], to, from);
    /* Where actions take no time, exchanging two may make stages wait for each other. */
    return status == WF_INVALID_ARG ? WF_OK : status;
}

static wf_status try_place(improve *i, const int *at, bool *better_out) {
    const wfi_auto *a = i->a;
    int stage = at[0], place = at[1];
    const wfi_action *actions = a->trial[stage].actions;
    if (place + 1 == a->trial[stage].n) return WF_OK;
    if (may_pass(a, &actions[place], &actions[place + 1]))
        WF_TRY(try_move(i, stage, place, place + 1, better_out));
    if (*better_out || at[2] <= place + 1) return WF_OK;
    return try_move(i, stage, place, at[2], better_out);
}

static wf_status improve_once(improve *i, bool *better_out) {
    WF_TRY(restore(i));
    find_path(i);
    for (int k = 0; k < i->n_path && i->actions_left > 0 && !*better_out; k++)
        WF_TRY(try_place(i, &i->path[3 * k], better_out));
    return WF_OK;
}

wf_status wfi_auto_improve(wfi_auto *a) {
    size_t n = 3 * (size_t)a->request->n_stages * (size_t)a->request->n_micro;
    improve i = {.a = a};
    i.actions_left = n > MAX_ACTIONS / MAX_TRIALS ? MAX_ACTIONS : (double)n * MAX_TRIALS;
    i.place = wfi_alloc(a->ctx, n, sizeof *i.place, "a schedule");
    i.path = wfi_alloc(a->ctx, 3 * n, sizeof *i.path, "a schedule");
    wf_status status = i.place && i.path ? WF_OK : WF_NO_MEMORY;
    bool better = true;
    while (status == WF_OK && better && i.actions_left > 0 && !wfi_auto_is_done(a)) {
        better = false;
        status = improve_once(&i, &better);
    }
    wfi_free(a->ctx, i.place);
    wfi_free(a->ctx, i.path);
    return status;
}
