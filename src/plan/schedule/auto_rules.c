/* Candidates that follow a rule: the fixed schedules, BW as B and W, and those that lie
 * between them. One of them is often the best there is where all stages take equally long. */
#include "plan/schedule/auto.h"
#include "plan/schedule/zero_bubble.h"

#include <math.h>

static void clear(wfi_auto *a) {
    for (int d = 0; d < a->n_devices; d++) a->trial[d].n = 0;
}

/* From the end, as a list with B and W is longer. */
static void split(wfi_action_list *list) {
    int n = list->n, n_split = 0;
    for (int i = 0; i < n; i++) n_split += list->actions[i].kind == WFI_ACTION_BW;
    list->n += n_split;
    for (int i = n - 1, to = list->n; i >= 0; i--) {
        wfi_action action = list->actions[i];
        if (action.kind == WFI_ACTION_BW) {
            action.kind = WFI_ACTION_W;
            list->actions[--to] = action;
            action.kind = WFI_ACTION_B;
        }
        list->actions[--to] = action;
    }
}

/* Whether the schedule is for the stages where the request has them. */
static bool has_same_stages(const wfi_auto *a, const wfi_schedule *schedule) {
    const wfi_schedule_request *r = a->request;
    bool same = schedule->rule && !wfi_schedule_refuses_chunks(schedule, wfi_request_n_chunks(r));
    for (int s = 0; s < r->n_stages; s++)
        same &= wfi_schedule_device_of(schedule, a->n_devices, s) == wfi_request_device_of(r, s);
    return same;
}

static wf_status offer_fixed(wfi_auto *a, const wfi_schedule *schedule) {
    clear(a);
    for (int d = 0; d < a->n_devices; d++) {
        schedule->rule(a->request, d, &a->trial[d]);
        split(&a->trial[d]);
    }
    return wfi_auto_offer(a);
}

/* `factor` times as many forwards before the first B as 1F1B has; the rest of the memory goes to
 * delayed W. */
static wf_status offer_between(wfi_auto *a, double factor) {
    const wfi_schedule_request *r = a->request;
    int warm = r->n_micro; /* no stage begins more than the one before it */
    clear(a);
    for (int s = 0; s < r->n_stages; s++) {
        wfi_stage_memory memory = wfi_request_memory_of(r, s);
        int most = 1 + (int)(factor * (r->n_stages - 1 - s));
        if (most > wfi_auto_most_forward(a, s)) most = wfi_auto_most_forward(a, s);
        if (warm > most) warm = most;
        double left = r->hold - warm * memory.until_backward;
        double late = floor(left / fmax(memory.until_weight, 1e-6) + 1e-6);
        wfi_zero_bubble(s, r->n_micro, warm, (int)fmin(fmax(late, 0), r->n_micro), &a->trial[s]);
    }
    return wfi_auto_offer(a);
}

wf_status wfi_auto_rules(wfi_auto *a) {
    bool is_line = a->n_devices == a->request->n_stages;
    for (int i = 0; wfi_schedules[i]; i++)
        if (has_same_stages(a, wfi_schedules[i])) WF_TRY(offer_fixed(a, wfi_schedules[i]));
    for (int eighths = 8; eighths <= 24 && is_line && !wfi_auto_is_done(a); eighths++)
        WF_TRY(offer_between(a, eighths / 8.0));
    return WF_OK;
}
