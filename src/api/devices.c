/* Public functions that read lists of devices. */
#include "device/list.h"

#include <stdio.h>
#include <weft/trainer.h>

wf_status wf_devices_count(wf_context *ctx, const char *devices, int *n_out) {
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(ctx, devices, 1, &list));
    *n_out = list.n;
    return WF_OK;
}

wf_status wf_devices_memory(wf_context *ctx, const char *devices, size_t *bytes_out) {
    wfi_device_list list;
    int n_on[WFI_MAX_DEVICES] = {0}, unit[WFI_MAX_DEVICES];
    size_t free_bytes[WFI_MAX_DEVICES];
    *bytes_out = 0;
    WF_TRY(wfi_devices_parse(ctx, devices, 1, &list));
    for (int r = 0; r < list.n; r++) {
        unit[r] = 0;
        if (!list.kinds[r]->find_free) continue;
        WF_TRY(list.kinds[r]->find_free(ctx, list.place[r], &unit[r], &free_bytes[r]));
        n_on[unit[r] % WFI_MAX_DEVICES]++;
    }
    for (int r = 0; r < list.n; r++) {
        if (!list.kinds[r]->find_free) continue;
        size_t own = free_bytes[r] / (size_t)n_on[unit[r] % WFI_MAX_DEVICES];
        if (!*bytes_out || own < *bytes_out) *bytes_out = own;
    }
    return WF_OK;
}

wf_status wf_devices_name(wf_context *ctx, const char *devices, int rank,
                          char name_out[WF_DEVICE_NAME_BYTES]) {
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(ctx, devices, 1, &list));
    if (rank < 0 || rank >= list.n)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "devices '%.80s' are for %d rank%s; there is no rank %d", devices, list.n,
                        list.n == 1 ? "" : "s", rank);
    snprintf(name_out, WF_DEVICE_NAME_BYTES, "%s:%d", list.kinds[rank]->name, list.place[rank]);
    return WF_OK;
}
