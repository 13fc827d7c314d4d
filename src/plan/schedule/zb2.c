/* ZB-H2: twice 1F1B's memory, and nearly no bubble. */
#include "plan/schedule/zero_bubble.h"

static void rule(int n_stages, int stage, int n_micro, wfi_action_list *list) {
    wfi_zero_bubble(stage, n_micro, 2 * (n_stages - stage) - 1, 2 * stage, list);
}

const wfi_schedule wfi_schedule_zb2 = {"zb2", "ZB-H2: nearly no bubble, twice the memory of 1f1b",
                                       true, rule, NULL};
