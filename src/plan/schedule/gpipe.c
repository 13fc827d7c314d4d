/* GPipe (Huang et al., 2019): all microbatches forward, then all backward. Backward
 * runs in ascending order, because gradients are summed in that order. */
#include "plan/schedule/schedule.h"

static int make(int n_stages, int stage, int n_micro, wfi_action *actions_out) {
    (void)n_stages;
    int n = 0;
    for (int m = 0; m < n_micro; m++) actions_out[n++] = (wfi_action){WFI_ACTION_F, stage, 0, m};
    for (int m = 0; m < n_micro; m++) actions_out[n++] = (wfi_action){WFI_ACTION_BW, stage, 0, m};
    return n;
}

const wfi_schedule wfi_schedule_gpipe = {"gpipe", "all forward, then all backward", false, make};
