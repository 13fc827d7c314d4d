#include "sim/chrome.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <weft/file.h>

static bool has_control(const char *value) {
    for (size_t i = 0; value[i]; i++)
        if (wfi_chrome_is_control(value, i)) return true;
    return false;
}

/* Quoted as JSON wants it. A string that is not UTF-8, or would control a terminal, loses all bytes
 * except plain ASCII. */
static void add_string(wfi_text *text, const char *value) {
    json_t *string = has_control(value) ? NULL : json_string(value);
    if (!string) {
        char *plain = wfi_strdup(text->ctx, value);
        for (char *c = plain; c && *c; c++)
            if ((unsigned char)*c > 126 || (unsigned char)*c < 0x20) *c = '?';
        string = json_string(plain ? plain : "");
        wfi_free(text->ctx, plain);
    }
    char *quoted = json_dumps(string, JSON_ENCODE_ANY | JSON_ENSURE_ASCII);
    wfi_text_add(text, "%s", quoted ? quoted : "\"\"");
    text->failed |= !quoted;
    free(quoted);
    json_decref(string);
}

/* Whole nanoseconds, so that an end is where the next begin is. */
static long long ns_of(double us) {
    return llround(us * 1e3);
}

static void add_us(wfi_text *text, const char *key, long long ns) {
    wfi_text_add(text, "\"%s\":%lld.%03lld", key, ns / 1000, ns % 1000);
}

static void add_about(wfi_text *text, const wf_trace_part *part) {
    wfi_text_add(text, "\n  {\"name\":");
    add_string(text, part->name);
    wfi_text_add(text, ",");
    add_us(text, "step_us", ns_of(wf_timeline_step_us(part->timeline)));
    wfi_text_add(text, ",\"ranks\":[");
    for (int r = 0; r < wf_timeline_n_ranks(part->timeline); r++) {
        wf_rank_time time = wf_timeline_rank(part->timeline, r);
        wfi_text_add(text, "%s\n   {", r ? "," : "");
        add_us(text, "compute_us", ns_of(time.compute_us));
        wfi_text_add(text, ",");
        add_us(text, "transfer_us", ns_of(time.transfer_us));
        wfi_text_add(text, ",");
        add_us(text, "bubble_us", ns_of(time.bubble_us));
        wfi_text_add(text, ",");
        add_us(text, "wait_us", ns_of(time.wait_us));
        wfi_text_add(text, "}");
    }
    wfi_text_add(text, "]}");
}

static void add_metadata(wfi_text *text, const char *what, int pid, int tid, const char *name) {
    wfi_text_add(text,
                 "\n {\"ph\":\"M\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"args\":{\"name\":", what,
                 pid, tid);
    add_string(text, name);
    wfi_text_add(text, "}},");
}

static void add_names(wfi_text *text, const wf_trace_part *part, int first_pid) {
    for (int r = 0; r < wf_timeline_n_ranks(part->timeline); r++) {
        char name[120];
        bool measured = !strcmp(part->name, "measured");
        snprintf(name, sizeof name, "rank %d%s%.60s", r, measured ? "" : " ",
                 measured ? "" : part->name);
        add_metadata(text, "process_name", first_pid + r, 0, name);
        for (int s = 0; s < WFI_N_STREAMS; s++)
            add_metadata(text, "thread_name", first_pid + r, s, wfi_stream_name((wfi_stream)s));
    }
}

static int stream_of(const wf_span *span) {
    int s = 0;
    while (s + 1 < WFI_N_STREAMS && strcmp(span->stream, wfi_stream_name((wfi_stream)s))) s++;
    return s;
}

static void add_span(wfi_text *text, const wf_span *span, int first_pid) {
    long long begin = ns_of(span->begin_us), end = ns_of(span->end_us);
    wfi_text_add(text, "\n {\"ph\":\"X\",\"name\":");
    add_string(text, span->name);
    wfi_text_add(text, ",\"pid\":%d,\"tid\":%d,", first_pid + span->rank, stream_of(span));
    add_us(text, "ts", begin > 0 ? begin : 0);
    wfi_text_add(text, ",");
    add_us(text, "dur", end > begin ? end - (begin > 0 ? begin : 0) : 0);
    wfi_text_add(text, ",\"args\":{\"kind\":\"%s\",\"unit\":", wf_span_kind_name(span->kind));
    add_string(text, span->unit);
    wfi_text_add(text, ",\"micro\":%lld,\"chunk\":%d}},", (long long)span->micro, span->chunk);
}

/* An arrow from a send to its receive: each end is inside its span. `first` is the file's number
 * before those of the timeline. */
static void add_flow(wfi_text *text, const wf_span *span, int first_pid, int first) {
    bool sends = stream_of(span) == WFI_STREAM_SEND;
    long long begin = ns_of(span->begin_us);
    if (!span->transfer) return;
    wfi_text_add(
        text,
        "\n {\"ph\":\"%s\",%s\"cat\":\"transfer\",\"name\":\"transfer\",\"id\":%d,\"pid\":%d,"
        "\"tid\":%d,",
        sends ? "s" : "f", sends ? "" : "\"bp\":\"e\",", first + span->transfer,
        first_pid + span->rank, stream_of(span));
    add_us(text, "ts", begin > 0 ? begin : 0);
    wfi_text_add(text, "},");
}

/* Counters of the bytes of each kind. */
static void add_moments(wfi_text *text, const wf_timeline *timeline, int rank, int pid) {
    for (int i = 0; i < wf_timeline_n_moments(timeline, rank); i++) {
        wf_memory_moment moment = wf_timeline_moment(timeline, rank, i);
        wfi_text_add(text, "\n {\"ph\":\"C\",\"name\":\"memory\",\"pid\":%d,\"tid\":0,", pid);
        add_us(text, "ts", ns_of(moment.us));
        wfi_text_add(text, ",\"args\":{");
        for (int k = 0; k < WF_N_MEMORY_KINDS; k++)
            wfi_text_add(text, "%s\"%s\":%zu", k ? "," : "", wf_memory_kind_name((wf_memory_kind)k),
                         moment.bytes[k]);
        wfi_text_add(text, "}},");
    }
}

static void add_trace(wfi_text *text, const char *title, const wf_trace_part *parts, int n_parts) {
    int pid = 0, n_flows = 0;
    wfi_text_add(text, "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"format\":\"%s\",\"title\":",
                 WFI_CHROME_FORMAT);
    add_string(text, title);
    wfi_text_add(text, ",\"timelines\":[");
    for (int k = 0; k < n_parts; k++) {
        wfi_text_add(text, k ? "," : "");
        add_about(text, &parts[k]);
    }
    wfi_text_add(text, "]},\n\"traceEvents\":[");
    for (int k = 0; k < n_parts; k++) {
        int most = 0;
        add_names(text, &parts[k], pid);
        for (int64_t i = 0; i < wf_timeline_n_spans(parts[k].timeline); i++) {
            wf_span span = wf_timeline_span(parts[k].timeline, i);
            add_span(text, &span, pid);
            add_flow(text, &span, pid, n_flows);
            if (span.transfer > most) most = span.transfer;
        }
        n_flows += most;
        for (int r = 0; r < wf_timeline_n_ranks(parts[k].timeline); r++)
            add_moments(text, parts[k].timeline, r, pid + r);
        pid += wf_timeline_n_ranks(parts[k].timeline);
    }
    if (!text->failed) text->data[--text->n] = 0; /* the last comma */
    wfi_text_add(text, "\n]}\n");
}

wf_status wf_trace_write(wf_context *ctx, const char *path, const char *title,
                         const wf_trace_part *parts, int n_parts) {
    wfi_text text = {.ctx = ctx};
    if (n_parts < 1 || n_parts > WF_TRACE_MAX_PARTS)
        return wfi_fail(ctx, WF_INVALID_ARG, "a trace of %d timelines; it takes 1 to %d", n_parts,
                        WF_TRACE_MAX_PARTS);
    add_trace(&text, title, parts, n_parts);
    wf_status status = wfi_text_status(&text);
    if (status == WF_OK) status = wf_file_replace(ctx, path, text.data, text.n);
    wfi_free(ctx, text.data);
    return status;
}
