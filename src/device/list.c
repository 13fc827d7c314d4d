#include "device/list.h"

#include <stdlib.h>
#include <string.h>

static wf_status refuse(wf_context *ctx, const char *text) {
    return wfi_fail(ctx, WF_INVALID_ARG,
                    "devices '%.80s': expected KIND:N, or a list such as cpu:0,cpu:1", text);
}

/* One entry of `n` characters: "cpu" or "cpu:3"; *index_out -1 without a number. */
static wf_status parse_entry(wf_context *ctx, const char *text, const char *at, size_t n,
                             const wfi_device_class **kind_out, int *index_out) {
    size_t n_kind = strcspn(at, ":,");
    *index_out = -1;
    *kind_out = wfi_device_kind(at, n_kind);
    if (!*kind_out)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "devices '%.80s': expected a kind such as cpu:1, cuda:1 or opencl:1", text);
    if (n == n_kind) return WF_OK;
    char *end;
    long index = strtol(at + n_kind + 1, &end, 10);
    if (n == n_kind + 1 || end != at + n || index < 0) return refuse(ctx, text);
    if (index > WFI_MAX_DEVICES)
        return wfi_fail(ctx, WF_INVALID_ARG, "devices '%.80s': there are at most %d", text,
                        WFI_MAX_DEVICES);
    *index_out = (int)index;
    return WF_OK;
}

static void put(wfi_device_list *list, int rank, const wfi_device_class *kind, int place) {
    list->kind[rank] = 0;
    while (wfi_device_kinds[list->kind[rank]] != kind) list->kind[rank]++;
    list->place[rank] = (int16_t)place;
}

/* The number of a single entry is a count of devices. */
static wf_status fill_single(wf_context *ctx, const char *text, int n, const wfi_device_class *kind,
                             wfi_device_list *list) {
    if (n == 0)
        return wfi_fail(ctx, WF_INVALID_ARG,
                        "devices '%.80s': the number counts devices; %s:1 is one device", text,
                        kind->name);
    list->n = list->n_places = n < 0 ? 1 : n;
    for (int r = 0; r < list->n; r++) put(list, r, kind, r);
    return WF_OK;
}

wf_status wfi_devices_parse(wf_context *ctx, const char *text, int n_ranks, wfi_device_list *list) {
    if (!text)
        return fill_single(ctx, "", (int)wfi_min_i64(n_ranks, WFI_MAX_DEVICES), WFI_DEFAULT_DEVICE,
                           list);
    list->n = list->n_places = 0;
    bool is_list = strchr(text, ',');
    for (const char *at = text; at == text || *at;) {
        size_t n = strcspn(at, ",");
        const wfi_device_class *kind;
        int index;
        bool is_alone = at == text; /* the comma of cuda:3, makes a list of one device */
        if (list->n == WFI_MAX_DEVICES || (at[n] && !at[n + 1] && !is_alone))
            return refuse(ctx, text);
        WF_TRY(parse_entry(ctx, text, at, n, &kind, &index));
        if (!is_list) return fill_single(ctx, text, index, kind, list);
        if (index < 0) index = list->n;
        if (index >= WFI_MAX_DEVICES) return refuse(ctx, text);
        if (!kind->separate && index >= list->n_places) list->n_places = index + 1;
        put(list, list->n++, kind, index);
        at += n + (at[n] == ',');
    }
    return WF_OK;
}

wf_status wfi_device_named(wf_context *ctx, const char *name, wfi_device_list *list) {
    const wfi_device_class *kind = name ? wfi_device_kind(name, strcspn(name, ":")) : NULL;
    int index;
    if (!kind || !kind->has_memory || kind->separate)
        return wfi_fail(ctx, WF_UNSUPPORTED,
                        "device '%.80s': arrays and modules live on CPU devices, such as cpu:0",
                        name ? name : "");
    WF_TRY(parse_entry(ctx, name, name, strlen(name), &kind, &index));
    if (index >= WFI_MAX_DEVICES) return refuse(ctx, name);
    list->n = 1;
    put(list, 0, kind, index < 0 ? 0 : index);
    list->n_places = list->place[0] + 1;
    return WF_OK;
}
