/* Lists of devices, as users type them. */
#include "run/worker.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weft/trainer.h>

static wf_status refuse(wf_context *ctx, const char *text) {
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "devices '%.80s': expected KIND:N, or a list such as cpu:0,cpu:1", text);
}

/* One entry of `n` characters: "cpu" or "cpu:3"; *index_out -1 without a number. */
static wf_status parse_entry(wf_context *ctx, const char *text, const char *at, size_t n,
                             const wfi_device_list *list, int *index_out) {
    size_t n_kind = strlen(list->kind->name);
    *index_out = -1;
    if (n < n_kind || strncmp(at, list->kind->name, n_kind) || (n > n_kind && at[n_kind] != ':'))
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "devices '%.80s': '%.*s' beside '%s': devices of different kinds in one "
                        "trainer; its ranks can be on any devices of one kind, such as cpu:0,cpu:1",
                        text, (int)n, at, list->kind->name);
    if (n == n_kind) return WF_OK;
    char *end;
    long index = strtol(at + n_kind + 1, &end, 10);
    if (n == n_kind + 1 || end != at + n || index < 0 || index > WFI_MAX_DEVICES)
        return refuse(ctx, text);
    *index_out = (int)index;
    return WF_OK;
}

/* A single entry's number is how many there are. */
static wf_status fill_single(wf_context *ctx, const char *text, int n, wfi_device_list *list) {
    if (n == 0) return wfi_fail(ctx, WF_INVALID_ARG, "devices '%.80s': no device", text);
    list->n = list->n_places = n < 0 ? 1 : n;
    for (int r = 0; r < list->n; r++) list->place[r] = r;
    return WF_OK;
}

wf_status wfi_devices_parse(wf_context *ctx, const char *text, int n_ranks, wfi_device_list *list) {
    list->kind = text ? wfi_device_kind(text, strcspn(text, ":,")) : WFI_DEFAULT_DEVICE;
    if (!list->kind)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "devices '%.80s': expected a kind such as cpu:1, cuda:1 or opencl:1", text);
    if (!text) return fill_single(ctx, "", (int)wfi_min_i64(n_ranks, WFI_MAX_DEVICES), list);
    list->n = list->n_places = 0;
    bool is_list = strchr(text, ',');
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, ",");
        int index;
        if (list->n == WFI_MAX_DEVICES || (at[n] && !at[n + 1])) return refuse(ctx, text);
        WF_TRY(parse_entry(ctx, text, at, n, list, &index));
        if (!is_list) return fill_single(ctx, text, index, list);
        if (index < 0) index = list->n;
        if (index >= WFI_MAX_DEVICES) return refuse(ctx, text);
        if (index >= list->n_places) list->n_places = index + 1;
        list->place[list->n++] = index;
        at += n + (at[n] == ',');
    }
    return WF_OK;
}

wf_status wfi_device_named(wf_context *ctx, const char *name, wfi_device_list *list) {
    int index;
    list->kind = name ? wfi_device_kind(name, strcspn(name, ":")) : NULL;
    if (!list->kind || !list->kind->has_memory || list->kind->is_separate)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "device '%.80s': arrays and modules live on CPU devices, such as cpu:0",
                        name ? name : "");
    WF_TRY(parse_entry(ctx, name, name, strlen(name), list, &index));
    if (index >= WFI_MAX_DEVICES) return refuse(ctx, name);
    list->n = 1;
    list->place[0] = index < 0 ? 0 : index;
    list->n_places = list->place[0] + 1;
    return WF_OK;
}

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
    snprintf(name_out, WF_DEVICE_NAME_BYTES, "%s:%d", list.kind->name, list.place[rank]);
    return WF_OK;
}
