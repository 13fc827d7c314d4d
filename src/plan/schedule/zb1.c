/* ZB-H1: 1F1B's memory on the first stage, and on every other as much; a third of its bubble. */
#include "plan/schedule/zero_bubble.h"

static void rule(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    wfi_zero_bubble(stage, request->n_micro, request->n_stages - stage, stage, list);
}

const wfi_schedule wfi_schedule_zb1 = {
    .name = "zb1",
    .help = "ZB-H1: weight gradients fill the bubble, memory of 1f1b",
    .splits_weight = true,
    .rule = rule};
