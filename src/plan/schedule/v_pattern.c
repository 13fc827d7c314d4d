#include "plan/schedule/v_pattern.h"

/* The one of the four that begins an action then; -1: none. */
static int find_begin(const wfi_schedule_request *r, const wfi_v_pattern *pattern, int time) {
    for (int k = 0; k < 4; k++) {
        int since = time - pattern->begin[k];
        if (since >= 0 && since % WFI_V_PERIOD == 0 && since / WFI_V_PERIOD < r->n_micro) return k;
    }
    return -1;
}

void wfi_v_repeat(const wfi_schedule_request *r, int device, wfi_v_pattern pattern,
                  wfi_action_list *list) {
    int up = r->n_stages - 1 - device;
    const int stages[] = {device, up, up, device};
    int late = 0; /* after the B of the latest W */
    for (int time = 0; list->n < WFI_V_PERIOD * r->n_micro; time++) {
        int k = find_begin(r, &pattern, time);
        if (k >= 0) {
            wfi_action_push(list, k < 2 ? WFI_ACTION_F : WFI_ACTION_B, stages[k],
                            (time - pattern.begin[k]) / WFI_V_PERIOD);
            continue;
        }
        while (late < list->n && list->actions[late].kind != WFI_ACTION_B) late++;
        if (late == list->n) continue;
        wfi_action b = list->actions[late++];
        wfi_action_push(list, WFI_ACTION_W, b.stage, b.micro);
    }
}
