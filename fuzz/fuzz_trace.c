/* Trace files. What is accepted keeps its promises. */
#include "sim/chrome.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static void check(const wf_timeline *t) {
    if (wf_timeline_n_ranks(t) < 1 || !isfinite(wf_timeline_step_us(t))) abort();
    for (int i = 0; i < wf_timeline_n_spans(t); i++) {
        wf_span span = wf_timeline_span(t, i);
        if (span.rank < 0 || span.rank >= wf_timeline_n_ranks(t)) abort();
        if (!(span.begin_us >= 0 && span.end_us >= span.begin_us)) abort();
        if (!strcmp(wf_span_kind_name(span.kind), "?") || span.micro < -1) abort();
        if (strlen(span.name) + strlen(span.unit) + strlen(span.stream) > 2000) abort();
        if (!i) continue;
        wf_span before = wf_timeline_span(t, i - 1);
        if (before.rank > span.rank) abort();
        if (before.rank == span.rank && before.stream == span.stream &&
            before.begin_us > span.begin_us)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes) {
    wf_context *ctx;
    wf_trace *trace;
    if (wf_context_create(NULL, &ctx) != WF_OK) return 0;
    if (wfi_chrome_parse(ctx, "input", (const char *)bytes, n_bytes, &trace) == WF_OK) {
        for (int k = 0; k < wf_trace_n_parts(trace); k++)
            check(wf_trace_get_part(trace, k).timeline);
        wf_trace_destroy(trace);
    } else if (!*wf_context_error(ctx)) {
        abort(); /* no refusal without a sentence */
    }
    if (wf_context_memory(ctx).n_live) abort();
    wf_context_destroy(ctx);
    return 0;
}
