/* ZB-H2: twice 1F1B's memory, and nearly no bubble. */
#include "plan/schedule/zero_bubble.h"

static void rule(const wfi_schedule_request *request, int stage, wfi_action_list *list) {
    wfi_zero_bubble(stage, request->n_micro, 2 * (request->n_stages - stage) - 1, 2 * stage, list);
}

const wfi_schedule wfi_schedule_zb2 = {.name = "zb2",
                                       .help = "ZB-H2: nearly no bubble, twice the memory of 1f1b",
                                       .splits_weight = true,
                                       .rule = rule};
