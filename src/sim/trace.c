#include "sim/chrome.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <weft/file.h>

static wf_status read_whole(wf_context *ctx, const char *path, FILE *file, char **bytes_out,
                            size_t *n_out) {
    size_t capacity = 0;
    while (*n_out <= WFI_CHROME_MAX_BYTES) {
        WF_TRY(WFI_GROW(ctx, *bytes_out, *n_out, capacity, "a trace"));
        size_t got = fread(*bytes_out + *n_out, 1, capacity - *n_out, file);
        *n_out += got;
        if (got) continue;
        if (!ferror(file)) return WF_OK;
        return wfi_fail(ctx, WF_IO, "%s cannot be read: %s", path, strerror(errno));
    }
    return wfi_fail(ctx, WF_CORRUPT, "%s: a trace of more than %d MiB is not read", path,
                    WFI_CHROME_MAX_BYTES >> 20);
}

wf_status wf_trace_read(wf_context *ctx, const char *path, wf_trace **trace_out) {
    char *bytes = NULL;
    size_t n = 0;
    int fd;
    WF_TRY(wf_file_open(ctx, path, &fd, NULL));
    FILE *file = fdopen(fd, "rb");
    if (!file) {
        close(fd);
        return wfi_no_memory(ctx, BUFSIZ, "a trace");
    }
    wf_status status = read_whole(ctx, path, file, &bytes, &n);
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
