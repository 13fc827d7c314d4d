/* V-Half: half of 1F1B's memory. F goes down at half the speed at which it comes up. */
#include "plan/schedule/v_pattern.h"

/* B waits where it would fall on the times of F. */
static void rule(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    int p = wfi_request_n_devices(request), wait = p % 2 ? 0 : 3;
    wfi_v_pattern pattern = {
        {2 * device, 3 * p - 2 - device, 3 * p + wait + 2 * device - 1, 6 * p + wait - 2 - device}};
    wfi_v_repeat(request, device, pattern, list);
}

const wfi_schedule wfi_schedule_vhalf = {
    .name = "vhalf",
    .help = "V-Half: two stages a rank, half the memory of 1f1b and two thirds of its bubble",
    .splits_weight = true,
    .rule = rule,
    .n_chunks = 2,
    .is_v = true};
