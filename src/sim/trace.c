#include "sim/chrome.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

wf_status wf_trace_read(wf_context *ctx, const char *path, wf_trace **trace_out) {
    FILE *file = fopen(path, "rb");
    if (!file) return wfi_fail(ctx, WF_IO, "%s cannot be read: %s", path, strerror(errno));
    size_t n = 0, capacity = 0;
    char *bytes = NULL;
    wf_status status = WF_OK;
    while (status == WF_OK && n <= WFI_CHROME_MAX_BYTES) {
        status = WFI_GROW(ctx, bytes, n, capacity, "a trace");
        size_t got = status == WF_OK ? fread(bytes + n, 1, capacity - n, file) : 0;
        n += got;
        if (!got) break;
    }
    if (status == WF_OK && ferror(file))
        status = wfi_fail(ctx, WF_IO, "%s cannot be read: %s", path, strerror(errno));
    else if (status == WF_OK && n > WFI_CHROME_MAX_BYTES)
        status = wfi_fail(ctx, WF_CORRUPT, "%s: a trace of more than %d MiB is not read", path,
                          WFI_CHROME_MAX_BYTES >> 20);
    fclose(file);
    if (status == WF_OK) status = wfi_chrome_parse(ctx, path, bytes, n, trace_out);
    wfi_free(ctx, bytes);
    return status;
}

const char *wf_trace_title(const wf_trace *trace) {
    return trace->title;
}

int wf_trace_n_parts(const wf_trace *trace) {
    return trace->n_parts;
}

wf_trace_part wf_trace_get_part(const wf_trace *trace, int i) {
    return (wf_trace_part){trace->names[i], trace->timelines[i]};
}

void wf_trace_destroy(wf_trace *trace) {
    if (!trace) return;
    for (int k = 0; k < trace->n_parts; k++) {
        wfi_free(trace->ctx, trace->names[k]);
        wf_timeline_destroy(trace->timelines[k]);
    }
    wfi_free(trace->ctx, trace->title);
    wfi_free(trace->ctx, trace);
}
