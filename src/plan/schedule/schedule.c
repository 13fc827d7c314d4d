#include "plan/schedule/schedule.h"

#include <stddef.h>
#include <string.h>

const wfi_schedule *const wfi_schedules[] = {
    &wfi_schedule_naive, &wfi_schedule_gpipe,   &wfi_schedule_1f1b, &wfi_schedule_interleaved,
    &wfi_schedule_zb1,   &wfi_schedule_zb2,     &wfi_schedule_zbv,  &wfi_schedule_vhalf,
    &wfi_schedule_vmin,  &wfi_schedule_breadth, &wfi_schedule_auto, NULL};

const wfi_schedule *wfi_schedule_find(const char *name) {
    for (int i = 0; wfi_schedules[i]; i++)
        if (!strcasecmp(wfi_schedules[i]->name, name)) return wfi_schedules[i];
    return NULL;
}

const char *wfi_schedule_refuses_chunks(const wfi_schedule *schedule, int n_chunks) {
    if (schedule->any_chunks || n_chunks == wfi_schedule_n_chunks(schedule, 0)) return NULL;
    return schedule->n_chunks == 2 ? "it has two chunks a rank" : "it has one chunk a rank";
}

void wfi_schedule_free(wf_context *ctx, wfi_action_list *lists, int n_devices) {
    for (int d = 0; d < n_devices && lists; d++) wfi_free(ctx, lists[d].actions);
    wfi_free(ctx, lists);
}

wf_status wfi_schedule_make(wf_context *ctx, const wfi_schedule *schedule,
                            const wfi_schedule_request *request, wfi_action_list **lists_out) {
    int n_devices = wfi_request_n_devices(request);
    wfi_action_list *lists = wfi_alloc(ctx, (size_t)n_devices, sizeof *lists, "a schedule");
    wf_status status = lists ? WF_OK : WF_NO_MEMORY;
    for (int d = 0; d < n_devices && status == WF_OK; d++) {
        size_t n_own = 0;
        for (int s = 0; s < request->n_stages; s++) n_own += wfi_request_device_of(request, s) == d;
        lists[d].actions =
            wfi_alloc(ctx, 3 * n_own * (size_t)request->n_micro, sizeof(wfi_action), "a schedule");
        if (!lists[d].actions)
            status = WF_NO_MEMORY;
        else if (schedule->rule)
            schedule->rule(request, d, &lists[d]);
    }
    if (status == WF_OK && schedule->search) status = schedule->search(ctx, request, lists);
    if (status == WF_OK) {
        *lists_out = lists;
        return WF_OK;
    }
    wfi_schedule_free(ctx, lists, n_devices);
    return status;
}
