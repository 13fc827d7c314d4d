/* Where a plan's ranks are: which kernels they have, and which memory those reach. */
#include "comm/job/control.h"
#include "plan/plan.h"

#include <string.h>

/* Devices with different names count as different devices on every machine: so the plan does not
 * depend on the machine. */
static int memory_of(const wfi_device_list *list, int rank, bool are_processes) {
    int first = rank;
    if (!wfi_device_kind_of(list, rank)->separate) return 0;
    for (int r = rank - 1; r >= 0 && !are_processes; r--)
        if (wfi_device_kind_of(list, r) == wfi_device_kind_of(list, rank) &&
            list->place[r] == list->place[rank])
            first = r;
    return 1 + first;
}

wf_status wfi_plan_set_devices(wf_plan *plan, const wfi_device_list *list, bool are_processes) {
    wfi_free(plan->ctx, plan->devices);
    plan->n_devices = 0;
    plan->devices = wfi_alloc(plan->ctx, (size_t)list->n, sizeof *plan->devices, "a plan");
    if (!plan->devices) return WF_NO_MEMORY;
    plan->n_devices = list->n;
    for (int r = 0; r < list->n; r++)
        plan->devices[r] =
            (wfi_rank_device){wfi_device_kind_of(list, r), memory_of(list, r, are_processes)};
    return WF_OK;
}

wfi_rank_device wfi_plan_device(const wf_plan *plan, int32_t rank) {
    if (!plan->n_devices) return (wfi_rank_device){WFI_DEFAULT_DEVICE, 0};
    if (rank < plan->n_devices) return plan->devices[rank];
    const wfi_device_class *kind = plan->devices[0].kind;
    return (wfi_rank_device){kind, kind->separate ? 1 + rank : 0};
}

bool wfi_plan_is_near(const wf_plan *plan, int32_t a, int32_t b) {
    if (plan->is_apart) return a == b;
    return wfi_plan_device(plan, a).memory == wfi_plan_device(plan, b).memory;
}

bool wfi_plan_is_one_memory(const wf_plan *plan) {
    int32_t n = wf_plan_n_ranks(plan), r = 1;
    while (r < n && wfi_plan_is_near(plan, 0, r)) r++;
    return r >= n;
}

bool wfi_plan_mixes_kinds(const wf_plan *plan) {
    int r = 1;
    while (r < plan->n_devices && plan->devices[r].kind == plan->devices[0].kind) r++;
    return r < plan->n_devices;
}

wf_status wf_plan_use_devices(wf_plan *plan, const char *devices) {
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(plan->ctx, devices, wf_plan_n_ranks(plan), &list));
    for (int r = 0; r < list.n; r++)
        if (!wfi_device_kind_of(&list, r)->has_memory)
            return wfi_fail(plan->ctx, WF_INVALID_ARG,
                            "devices '%.80s': expected a kind with memory, such as cpu:1 or "
                            "opencl:1",
                            devices);
    return wfi_plan_set_devices(plan, &list, false);
}

wf_status wf_plan_use_wire(wf_plan *plan, const char *wire) {
    if (wire) WF_TRY(wfi_check_wire(plan->ctx, wire));
    plan->is_apart = wire && !strcmp(wire, "mpi");
    plan->stages_at_once = plan->is_apart || (wire && !strcmp(wire, "nccl"));
    return WF_OK;
}
