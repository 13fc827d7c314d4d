/* Lists of devices in the syntax of the command line. Private. */
#pragma once

#include "device/device.h"

#define WFI_MAX_DEVICES 4096

/* The devices of ranks: rank r is on the device `place[r]` of its kind. CPU devices, `n_places` in
 * all, divide the cores. Lists are on stacks, so their numbers are small. */
typedef struct wfi_device_list {
    int n, n_places;
    uint8_t kind[WFI_MAX_DEVICES]; /* into wfi_device_kinds */
    int16_t place[WFI_MAX_DEVICES];
} wfi_device_list;

static inline const wfi_device_class *wfi_device_kind_of(const wfi_device_list *list, int rank) {
    return wfi_device_kinds[list->kind[rank]];
}

/* "cpu", "cpu:N" (N ranks, a device each) or a list such as "cpu:1,opencl:0" (rank 0 on CPU device
 * 1; two ranks may name the same). NULL: `n_ranks` of the default kind. Errors: INVALID_ARG. */
wf_status wfi_devices_parse(wf_context *ctx, const char *text, int n_ranks,
                            wfi_device_list *list_out);

/* One device by its own name: "cpu" (the first) or "cpu:3", in a list of one rank. Errors:
 * INVALID_ARG, UNSUPPORTED (no such kind, or one without memory that the host sees). */
wf_status wfi_device_named(wf_context *ctx, const char *name, wfi_device_list *list_out);
