/* Model parallelism without a pipeline: one microbatch passes all stages, forward and
 * backward, before the next begins. Only one stage works at a time; it needs the memory
 * of one microbatch. */
#include "plan/schedule/schedule.h"

static void rule(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    for (int m = 0; m < request->n_micro; m++) {
        wfi_action_push(list, WFI_ACTION_F, stage, m);
        wfi_action_push(list, WFI_ACTION_BW, stage, m);
    }
}

const wfi_schedule wfi_schedule_naive = {
    .name = "naive", .help = "one microbatch after the other, no overlap", .rule = rule};
