/* 1F1B (PipeDream-Flush; Narayanan et al., 2021): after a warm-up of one forward per
 * later stage, forward and backward alternate, so a stage holds at most n_stages -
 * stage microbatches. On one stage it is plain gradient accumulation. */
#include "plan/schedule/schedule.h"

static void rule(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    int n_warm = (int)wfi_min_i64(request->n_stages - 1 - stage, request->n_micro);
    for (int m = 0; m < n_warm; m++) wfi_action_push(list, WFI_ACTION_F, stage, m);
    for (int m = n_warm; m < request->n_micro; m++) {
        wfi_action_push(list, WFI_ACTION_F, stage, m);
        wfi_action_push(list, WFI_ACTION_BW, stage, m - n_warm);
    }
    for (int m = request->n_micro - n_warm; m < request->n_micro; m++)
        wfi_action_push(list, WFI_ACTION_BW, stage, m);
}

const wfi_schedule wfi_schedule_1f1b = {
    .name = "1f1b", .help = "one forward, one backward", .rule = rule};
