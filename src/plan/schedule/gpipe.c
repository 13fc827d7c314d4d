/* GPipe (Huang et al., 2019): all microbatches forward, then all backward. Backward
 * runs in ascending order, because gradients are summed in that order. */
#include "plan/schedule/schedule.h"

static void rule(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    for (int m = 0; m < request->n_micro; m++) wfi_action_push(list, WFI_ACTION_F, stage, m);
    for (int m = 0; m < request->n_micro; m++) wfi_action_push(list, WFI_ACTION_BW, stage, m);
}

const wfi_schedule wfi_schedule_gpipe = {
    .name = "gpipe", .help = "all forward, then all backward", .rule = rule};
