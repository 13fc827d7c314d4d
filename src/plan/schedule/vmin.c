/* V-Min: a third of 1F1B's memory, the least with which stages can work without a pause. */
#include "plan/schedule/v_pattern.h"

/* B waits where it would fall on the times of F. */
static void rule(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    int p = wfi_request_n_devices(request), wait = p % 3 ? 0 : 2;
    wfi_v_pattern pattern = {
        {device, 2 * p - 1 - device, 2 * p + wait + device, 4 * p + wait - 1 - device}};
    wfi_v_repeat(request, device, pattern, list);
}

const wfi_schedule wfi_schedule_vmin = {
    .name = "vmin",
    .help = "V-Min: two stages a rank, a third of the memory of 1f1b and two thirds of its bubble",
    .splits_weight = true,
    .rule = rule,
    .n_chunks = 2,
    .is_v = true};
