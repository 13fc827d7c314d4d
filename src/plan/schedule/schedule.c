#include "plan/schedule/schedule.h"

#include <stddef.h>
#include <string.h>

#define DECLARE(name) extern const wfi_schedule wfi_schedule_##name
DECLARE(naive);
DECLARE(gpipe);
DECLARE(1f1b);
DECLARE(zb1);
DECLARE(zb2);
DECLARE(auto);

const wfi_schedule *const wfi_schedules[] = {&wfi_schedule_naive,
                                             &wfi_schedule_gpipe,
                                             &wfi_schedule_1f1b,
                                             &wfi_schedule_zb1,
                                             &wfi_schedule_zb2,
                                             &wfi_schedule_auto,
                                             NULL};

const wfi_schedule *wfi_schedule_find(const char *name) {
    for (int i = 0; wfi_schedules[i]; i++)
        if (!strcmp(wfi_schedules[i]->name, name)) return wfi_schedules[i];
    return NULL;
}

void wfi_schedule_free(wf_context *ctx, wfi_action_list *lists, int n_stages) {
    for (int s = 0; s < n_stages && lists; s++) wfi_free(ctx, lists[s].actions);
    wfi_free(ctx, lists);
}

wf_status wfi_schedule_make(wf_context *ctx, const wfi_schedule *schedule,
                            const wfi_schedule_request *request, wfi_action_list **lists_out) {
    int n_stages = request->n_stages, n_micro = request->n_micro;
    wfi_action_list *lists = wfi_alloc(ctx, (size_t)n_stages, sizeof *lists, "a schedule");
    wf_status status = lists ? WF_OK : WF_NO_MEMORY;
    for (int s = 0; s < n_stages && status == WF_OK; s++) {
        lists[s].actions = wfi_alloc(ctx, 3 * (size_t)n_micro, sizeof(wfi_action), "a schedule");
        if (!lists[s].actions)
            status = WF_NO_MEMORY;
        else if (schedule->rule)
            schedule->rule(n_stages, s, n_micro, &lists[s]);
    }
    if (status == WF_OK && schedule->search) status = schedule->search(ctx, request, lists);
    if (status == WF_OK) {
        *lists_out = lists;
        return WF_OK;
    }
    wfi_schedule_free(ctx, lists, n_stages);
    return status;
}
