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
    int16_t n_on[WFI_MAX_DEVICES] = {0}; /* by unit */
    *bytes_out = 0;
    WF_TRY(wfi_devices_parse(ctx, devices, 1, &list));
    for (int pass = 0; pass < 2; pass++) {
        for (int r = 0, unit; r < list.n; r++) {
            const wfi_device_class *kind = wfi_device_kind_of(&list, r);
            size_t bytes;
            if (!kind->find_free) continue;
            WF_TRY(kind->find_free(ctx, list.place[r], &unit, &bytes));
            int16_t *n = &n_on[unit % WFI_MAX_DEVICES];
            if (pass == 0) ++*n;
            if (pass && (!*bytes_out || bytes / (size_t)*n < *bytes_out))
                *bytes_out = bytes / (size_t)*n;
        }
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
    snprintf(name_out, WF_DEVICE_NAME_BYTES, "%s:%d", wfi_device_kind_of(&list, rank)->name,
             list.place[rank]);
    return WF_OK;
}
