/* A trace: timelines in a file, as Chrome trace JSON (docs/timeline.md), which Perfetto
 * opens and `weft draw` draws. A track a stream, a process a rank.
 */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include <weft/timeline.h>

typedef struct wf_trace wf_trace;

/* One timeline of a trace. Name and timeline are borrowed from their owner. */
typedef struct wf_trace_part {
    const char *name; /* "measured", "simulated" */
    const wf_timeline *timeline;
} wf_trace_part;

/* More would not be wrong, only of no use: they are drawn one above the other. */
#define WF_TRACE_MAX_PARTS 8

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces `path` in one step. Times are rounded to nanoseconds. `title` says what was run.
 * Errors: INVALID_ARG (n_parts), IO; the file there is as it was. */
WF_API WF_NODISCARD wf_status wf_trace_write(wf_context *ctx, const char *path, const char *title,
                                             const wf_trace_part *parts, int n_parts);

/* Reads what wf_trace_write wrote; the file is not trusted. Errors: IO; CORRUPT, the sentence
 * names the event. */
WF_API WF_NODISCARD wf_status wf_trace_read(wf_context *ctx, const char *path,
                                            wf_trace **trace_out);
WF_API const char *wf_trace_title(const wf_trace *trace);
WF_API int wf_trace_n_parts(const wf_trace *trace);
WF_API wf_trace_part wf_trace_get_part(const wf_trace *trace, int i);
WF_API void wf_trace_destroy(wf_trace *trace); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
