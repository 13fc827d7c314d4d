/* Trace files come from anywhere: everything in them is checked before it is used. */
#include "show/timeline.h"
#include "sim/chrome.h"
#include "state/header.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NAME 512

typedef struct reader {
    wf_context *ctx;
    const char *path;
    wf_trace *trace;
    const json_t *events;
    int first_pid[WF_TRACE_MAX_PARTS + 1];
} reader;

/* ---- values; `where` says in which event or timeline ---- */

typedef struct place {
    const reader *r;
    const char *what; /* "event", "timeline", "otherData" */
    size_t i;         /* which; SIZE_MAX: there is one only */
} place;

static WFI_PRINTF(2, 3) wf_status bad(const place *at, const char *format, ...) {
    char why[200];
    va_list args;
    va_start(args, format);
    vsnprintf(why, sizeof why, format, args);
    va_end(args);
    if (at->i == SIZE_MAX)
        return wfi_fail(at->r->ctx, WF_CORRUPT, "%s: %s %s", at->r->path, at->what, why);
    return wfi_fail(at->r->ctx, WF_CORRUPT, "%s: %s %zu %s", at->r->path, at->what, at->i, why);
}

static wf_status get_us(const place *at, const json_t *object, const char *key, double *out) {
    const json_t *value = json_object_get(object, key);
    double us = json_is_number(value) ? json_number_value(value) : -1;
    if (!(us >= 0 && us <= WFI_CHROME_MAX_US))
        return bad(at, "needs a %s that is a time in microseconds", key);
    *out = us;
    return WF_OK;
}

static wf_status get_int(const place *at, const json_t *object, const char *key, int64_t low,
                         int64_t high, int64_t *out) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) return bad(at, "needs a %s that is a whole number", key);
    *out = json_integer_value(value);
    if (*out < low || *out > high)
        return bad(at, "has %s %lld, which is not from %lld to %lld", key, (long long)*out,
                   (long long)low, (long long)high);
    return WF_OK;
}

/* Borrowed from the tree. */
static wf_status get_string(const place *at, const json_t *object, const char *key,
                            const char **out) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text) return bad(at, "needs a %s that is a text", key);
    if (strlen(text) > MAX_NAME) return bad(at, "has a %s of more than %d bytes", key, MAX_NAME);
    for (size_t i = 0; text[i]; i++)
        if (wfi_chrome_is_control(text, i)) return bad(at, "has control characters in its %s", key);
    *out = text;
    return WF_OK;
}

/* ---- events ---- */

/* Of which kind: "X" a span, "C" the counters of a moment. */
static bool is_phase(const json_t *event, const char *wanted) {
    const char *phase = json_string_value(json_object_get(event, "ph"));
    return phase && !strcmp(phase, wanted);
}

static bool is_span(const json_t *event) {
    return is_phase(event, "X");
}

static int part_of(const reader *r, int64_t pid) {
    int part = 0;
    while (r->first_pid[part + 1] <= pid) part++;
    return part;
}

static wf_status read_kind(const place *at, const json_t *args, wf_span_kind *out) {
    const char *name;
    WF_TRY(get_string(at, args, "kind", &name));
    for (int k = 0; k < WF_N_SPAN_KINDS; k++)
        if (!strcmp(name, wf_span_kind_name((wf_span_kind)k))) {
            *out = (wf_span_kind)k;
            return WF_OK;
        }
    return bad(at, "is of an unknown kind");
}

static wf_status read_span(const reader *r, size_t i, const json_t *event) {
    place at = {r, "event", i};
    const json_t *args = json_object_get(event, "args");
    const char *name, *unit;
    int64_t pid, tid, chunk = 0;
    double us;
    wf_span span = {0};
    WF_TRY(get_int(&at, event, "pid", 0, r->first_pid[r->trace->n_parts] - 1, &pid));
    WF_TRY(get_int(&at, event, "tid", 0, WFI_N_STREAMS - 1, &tid));
    WF_TRY(get_us(&at, event, "ts", &span.begin_us));
    WF_TRY(get_us(&at, event, "dur", &us));
    WF_TRY(get_string(&at, event, "name", &name));
    WF_TRY(get_string(&at, args, "unit", &unit));
    WF_TRY(get_int(&at, args, "micro", -1, INT64_MAX, &span.micro));
    /* Traces of earlier versions have none. */
    if (json_object_get(args, "chunk"))
        WF_TRY(get_int(&at, args, "chunk", 0, WFI_CHROME_MAX_RANKS, &chunk));
    span.chunk = (int)chunk;
    WF_TRY(read_kind(&at, args, &span.kind));
    int part = part_of(r, pid);
    wf_timeline *t = r->trace->timelines[part];
    if (span.chunk >= t->n_chunks) t->n_chunks = span.chunk + 1;
    span.rank = (int)pid - r->first_pid[part];
    span.stream = wfi_stream_name((wfi_stream)tid);
    span.end_us = span.begin_us + us;
    if (span.end_us > t->step_us + 0.01)
        return bad(&at, "ends at %.3f us, after its step of %.3f us", span.end_us, t->step_us);
    span.name = wfi_pool_format(&t->pool, "%s", name);
    span.unit = wfi_pool_format(&t->pool, "%s", unit);
    if (!span.name || !span.unit) return WF_NO_MEMORY;
    t->spans[t->n_spans++] = span;
    return WF_OK;
}

/* In the order of time. */
static wf_status read_moment(const reader *r, size_t i, const json_t *event) {
    place at = {r, "event", i};
    wf_memory_moment moment = {0};
    int64_t pid, bytes;
    WF_TRY(get_int(&at, event, "pid", 0, r->first_pid[r->trace->n_parts] - 1, &pid));
    WF_TRY(get_us(&at, event, "ts", &moment.us));
    for (int k = 0; k < WF_N_MEMORY_KINDS; k++) {
        const char *kind = wf_memory_kind_name((wf_memory_kind)k);
        WF_TRY(
            get_int(&at, json_object_get(event, "args"), kind, 0, WFI_CHROME_MAX_MEMORY, &bytes));
        moment.bytes[k] = (size_t)bytes;
    }
    int part = part_of(r, pid);
    wf_timeline *t = r->trace->timelines[part];
    wfi_moments *m = &t->moments[pid - r->first_pid[part]];
    if (!m->items) m->items = wfi_pool_alloc(&t->pool, WFI_MAX_MOMENTS, sizeof *m->items);
    if (!m->items) return WF_NO_MEMORY;
    if (m->n == WFI_MAX_MOMENTS) return bad(&at, "is one memory sample too many");
    if (m->n && moment.us < m->items[m->n - 1].us)
        return bad(&at, "is before the last memory sample");
    m->items[m->n++] = moment;
    return WF_OK;
}

static int stream_order(const char *name) {
    int s = 0;
    while (strcmp(name, wfi_stream_name((wfi_stream)s))) s++;
    return s;
}

static int compare_spans(const void *a, const void *b) {
    const wf_span *x = a, *y = b;
    if (x->rank != y->rank) return x->rank - y->rank;
    if (x->stream != y->stream) return stream_order(x->stream) - stream_order(y->stream);
    if (x->begin_us != y->begin_us) return x->begin_us < y->begin_us ? -1 : 1;
    return (x->end_us > y->end_us) - (x->end_us < y->end_us);
}

static wf_status read_events(reader *r) {
    size_t i;
    json_t *event;
    json_array_foreach(r->events, i, event) {
        if (!json_is_object(event)) return bad(&(place){r, "event", i}, "is not an object");
        if (is_span(event)) WF_TRY(read_span(r, i, event));
        if (is_phase(event, "C")) WF_TRY(read_moment(r, i, event));
    }
    for (int k = 0; k < r->trace->n_parts; k++) {
        wf_timeline *t = r->trace->timelines[k];
        if (t->n_spans) qsort(t->spans, (size_t)t->n_spans, sizeof *t->spans, compare_spans);
    }
    return WF_OK;
}

/* ---- data before the spans ---- */

/* How many spans each process has; room for no more is made. */
static wf_status count_spans(const reader *r, int64_t n_spans[WF_TRACE_MAX_PARTS]) {
    size_t i;
    json_t *event;
    json_array_foreach(r->events, i, event) {
        int64_t pid;
        if (!is_span(event)) continue;
        WF_TRY(get_int(&(place){r, "event", i}, event, "pid", 0,
                       r->first_pid[r->trace->n_parts] - 1, &pid));
        n_spans[part_of(r, pid)]++;
    }
    return WF_OK;
}

static wf_status read_ranks(const place *at, const json_t *ranks, wf_timeline *t) {
    for (int k = 0; k < t->n_ranks; k++) {
        const json_t *rank = json_array_get(ranks, (size_t)k);
        wf_rank_time *time = &t->times[k];
        WF_TRY(get_us(at, rank, "compute_us", &time->compute_us));
        WF_TRY(get_us(at, rank, "transfer_us", &time->transfer_us));
        WF_TRY(get_us(at, rank, "bubble_us", &time->bubble_us));
        WF_TRY(get_us(at, rank, "wait_us", &time->wait_us));
    }
    return WF_OK;
}

static wf_status read_about(reader *r, const json_t *timelines) {
    int64_t n_spans[WF_TRACE_MAX_PARTS] = {0};
    for (int k = 0; k < r->trace->n_parts; k++) {
        size_t n = json_array_size(json_object_get(json_array_get(timelines, (size_t)k), "ranks"));
        if (n < 1 || n > WFI_CHROME_MAX_RANKS)
            return bad(&(place){r, "timeline", (size_t)k}, "has %zu ranks, not 1 to %d", n,
                       WFI_CHROME_MAX_RANKS);
        r->first_pid[k + 1] = r->first_pid[k] + (int)n;
    }
    WF_TRY(count_spans(r, n_spans));
    for (int k = 0; k < r->trace->n_parts; k++) {
        place at = {r, "timeline", (size_t)k};
        const json_t *about = json_array_get(timelines, (size_t)k);
        const char *name;
        wf_timeline **t = &r->trace->timelines[k];
        WF_TRY(get_string(&at, about, "name", &name));
        r->trace->names[k] = wfi_strdup(r->ctx, name);
        if (!r->trace->names[k]) return WF_NO_MEMORY;
        WF_TRY(wfi_timeline_allocate(r->ctx, r->first_pid[k + 1] - r->first_pid[k], n_spans[k], t));
        (*t)->n_spans = 0;
        WF_TRY(get_us(&at, about, "step_us", &(*t)->step_us));
        WF_TRY(read_ranks(&at, json_object_get(about, "ranks"), *t));
    }
    return WF_OK;
}

static wf_status read_trace(reader *r, const json_t *root) {
    const json_t *other = json_object_get(root, "otherData");
    const char *format = json_string_value(json_object_get(other, "format"));
    const char *title;
    const json_t *timelines = json_object_get(other, "timelines");
    r->events = json_object_get(root, "traceEvents");
    if (!format || strcmp(format, WFI_CHROME_FORMAT))
        return wfi_fail(r->ctx, WF_CORRUPT,
                        "%s: otherData.format is not \"" WFI_CHROME_FORMAT
                        "\": weft did not write this trace",
                        r->path);
    WF_TRY(get_string(&(place){r, "otherData", SIZE_MAX}, other, "title", &title));
    size_t n_parts = json_array_size(timelines);
    if (n_parts < 1 || n_parts > WF_TRACE_MAX_PARTS)
        return wfi_fail(r->ctx, WF_CORRUPT, "%s: otherData.timelines has %zu entries, not 1 to %d",
                        r->path, n_parts, WF_TRACE_MAX_PARTS);
    if (!json_is_array(r->events))
        return wfi_fail(r->ctx, WF_CORRUPT, "%s: traceEvents is not an array", r->path);
    r->trace->n_parts = (int)n_parts;
    r->trace->title = wfi_strdup(r->ctx, title);
    if (!r->trace->title) return WF_NO_MEMORY;
    WF_TRY(read_about(r, timelines));
    return read_events(r);
}

wf_status wfi_chrome_parse(wf_context *ctx, const char *path, const char *bytes, size_t n_bytes,
                           wf_trace **trace_out) {
    json_error_t error;
    json_t *root = json_loadb(bytes, n_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        char shown[WFI_NAME_TEXT];
        return wfi_fail(ctx, WF_CORRUPT, "%s: line %d, column %d: %s", path, error.line,
                        error.column, wfi_name_text(error.text, shown));
    }
    reader r = {.ctx = ctx, .path = path};
    r.trace = wfi_alloc(ctx, 1, sizeof *r.trace, "a trace");
    wf_status status = r.trace ? WF_OK : WF_NO_MEMORY;
    if (status == WF_OK) {
        r.trace->ctx = ctx;
        status = read_trace(&r, root);
    }
    json_decref(root);
    if (status == WF_OK)
        *trace_out = r.trace;
    else
        wf_trace_destroy(r.trace);
    return status;
}
