/* ZB-H1: 1F1B's memory on the first stage, and on every other as much; a third of its bubble. */
#include "plan/schedule/zero_bubble.h"

static void rule(int n_stages, int stage, int n_micro, wfi_action_list *list) {
    wfi_zero_bubble(stage, n_micro, n_stages - stage, stage, list);
}

const wfi_schedule wfi_schedule_zb1 = {
    "zb1", "ZB-H1: weight gradients fill the bubble, memory of 1f1b", true, rule, NULL};
