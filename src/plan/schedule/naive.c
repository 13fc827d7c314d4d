/* Model parallelism without a pipeline: one microbatch passes all stages, forward and
 * backward, before the next begins. Only one stage works at a time; it needs the memory
 * of one microbatch. */
#include "plan/schedule/schedule.h"

static void rule(int n_stages, int stage, int n_micro, wfi_action_list *list) {
    (void)n_stages;
    for (int m = 0; m < n_micro; m++) {
        wfi_action_push(list, WFI_ACTION_F, stage, m);
        wfi_action_push(list, WFI_ACTION_BW, stage, m);
    }
}

const wfi_schedule wfi_schedule_naive = {"naive", "one microbatch after the other, no overlap",
                                         false, rule, NULL};
