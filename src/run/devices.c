/* Lists of devices, of those who ask what they say. */
#include "device/list.h"

#include <stdio.h>
#include <weft/trainer.h>

wf_status wf_devices_count(wf_context *ctx, const char *devices, int *n_out) {
    wfi_device_list list;
    WF_TRY(wfi_devices_parse(ctx, devices, 1, &list));
    *n_out = list.n;
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
