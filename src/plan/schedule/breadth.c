/* Breadth-first (Lamy-Poirier, 2022): a device takes all microbatches through one of its stages
 * before the next, forward and then backward. On one device a stage is a unit. So the tensors of a
 * unit are needed twice a step for any number of microbatches, and its gradient is complete before
 * the next one's begins. The last stage's backward needs nothing but its forward. */
#include "plan/schedule/schedule.h"

static void rule(const wfi_schedule_request *request, int device, wfi_action_list *list) {
    int last = request->n_stages - 1, n_micro = request->n_micro;
    for (int s = 0; s <= last; s++)
        for (int m = 0; m < n_micro && wfi_request_device_of(request, s) == device; m++) {
            wfi_action_push(list, WFI_ACTION_F, s, m);
            if (s == last) wfi_action_push(list, WFI_ACTION_BW, s, m);
        }
    for (int s = last - 1; s >= 0; s--)
        for (int m = 0; m < n_micro && wfi_request_device_of(request, s) == device; m++)
            wfi_action_push(list, WFI_ACTION_BW, s, m);
}

const wfi_schedule wfi_schedule_breadth = {
    .name = "breadth",
    .help = "all microbatches through a unit, then the next",
    .rule = rule,
    .by_unit = true,
};
