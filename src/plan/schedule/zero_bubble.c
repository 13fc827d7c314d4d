/* ZB-H1: 1F1B's memory on the first stage, and on every other as much; a third of its bubble.
 * ZB-H2: twice 1F1B's memory, and nearly no bubble. */
#include "plan/schedule/zero_bubble.h"

void wfi_zero_bubble(int stage, int n_micro, int n_warm, int n_late, wfi_action_list *list) {
    int f = 0, w = 0;
    while (f < n_warm && f < n_micro) wfi_action_push(list, WFI_ACTION_F, stage, f++);
    for (int b = 0; b < n_micro; b++) {
        wfi_action_push(list, WFI_ACTION_B, stage, b);
        if (b >= n_late) wfi_action_push(list, WFI_ACTION_W, stage, w++);
        if (f < n_micro) wfi_action_push(list, WFI_ACTION_F, stage, f++);
    }
    while (w < n_micro) wfi_action_push(list, WFI_ACTION_W, stage, w++);
}

static void zb1(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    wfi_zero_bubble(stage, request->n_micro, request->n_stages - stage, stage, list);
}

const wfi_schedule wfi_schedule_zb1 = {
    .name = "zb1",
    .help = "ZB-H1: weight gradients fill the bubble, memory of 1f1b",
    .splits_weight = true,
    .rule = zb1};

static void zb2(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    wfi_zero_bubble(stage, request->n_micro, 2 * (request->n_stages - stage) - 1, 2 * stage, list);
}

const wfi_schedule wfi_schedule_zb2 = {.name = "zb2",
                                       .help = "ZB-H2: nearly no bubble, twice the memory of 1f1b",
                                       .splits_weight = true,
                                       .rule = zb2};
