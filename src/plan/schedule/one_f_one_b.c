/* 1F1B (PipeDream-Flush; Narayanan et al., 2021): after a warm-up of one forward per
 * later stage, forward and backward alternate, so a stage holds at most n_stages -
 * stage microbatches. On one stage it is plain gradient accumulation. */
#include "plan/schedule/schedule.h"

static int make(int n_stages, int stage, int n_micro, wfi_action *actions_out) {
    int n_warm = n_stages - 1 - stage < n_micro ? n_stages - 1 - stage : n_micro, n = 0;
    for (int m = 0; m < n_warm; m++) actions_out[n++] = (wfi_action){WFI_ACTION_F, stage, 0, m};
    for (int m = n_warm; m < n_micro; m++) {
        actions_out[n++] = (wfi_action){WFI_ACTION_F, stage, 0, m};
        actions_out[n++] = (wfi_action){WFI_ACTION_BW, stage, 0, m - n_warm};
    }
    for (int m = n_micro - n_warm; m < n_micro; m++)
        actions_out[n++] = (wfi_action){WFI_ACTION_BW, stage, 0, m};
    return n;
}

const wfi_schedule wfi_schedule_1f1b = {"1f1b", "one forward, one backward", false, make};
