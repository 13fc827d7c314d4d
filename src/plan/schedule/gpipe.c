/* GPipe (Huang et al., 2019): all microbatches forward, then all backward. Backward
 * runs in ascending order, because gradients are summed in that order. */
#include "plan/schedule/schedule.h"

static void rule(int n_stages, int stage, int n_micro, wfi_action_list *list) {
    (void)n_stages;
    for (int m = 0; m < n_micro; m++) wfi_action_push(list, WFI_ACTION_F, stage, m);
    for (int m = 0; m < n_micro; m++) wfi_action_push(list, WFI_ACTION_BW, stage, m);
}

const wfi_schedule wfi_schedule_gpipe = {"gpipe", "all forward, then all backward", false, rule,
                                         NULL};
