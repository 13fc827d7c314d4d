/* Traces: timelines in a file, as Chrome trace JSON (docs/plans.md).
 *
 * Perfetto opens a trace, and `weft draw` draws it. A process is a rank; a track is a stream.
 */
#ifndef WEFT_TRACE_H
#define WEFT_TRACE_H

#include <weft/timeline.h>

typedef struct wf_trace wf_trace;

/* One timeline of a trace. In a call to write, name and timeline are the caller's; in a trace that
 * was read, they are borrowed from the trace. */
typedef struct wf_trace_part {
    const char *name; /* "measured", "simulated" */
    const wf_timeline *timeline;
} wf_trace_part;

/* The limit of timelines in one file, which are drawn one above the other. */
#define WF_TRACE_MAX_PARTS 8

#ifdef __cplusplus
extern "C" {
#endif

/* Replaces `path` atomically with a trace; `title` describes the run. Times are rounded to
 * nanoseconds. Errors: INVALID_ARG (n_parts is not 1 to WF_TRACE_MAX_PARTS), IO (the old file is
 * untouched), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_trace_write(wf_context *ctx, const char *path, const char *title,
                                             const wf_trace_part *parts, int n_parts);

/* Reads a trace of wf_trace_write, and checks it strictly. Errors: IO, CORRUPT (the sentence names
 * the event), NO_MEMORY. */
WF_API WF_NODISCARD wf_status wf_trace_read(wf_context *ctx, const char *path,
                                            wf_trace **trace_out);
/* The title, the number of timelines, and one of them, with 0 <= i < n_parts; i is not checked.
 * Borrowed. */
WF_API const char *wf_trace_title(const wf_trace *trace);
WF_API int wf_trace_n_parts(const wf_trace *trace);
WF_API wf_trace_part wf_trace_get_part(const wf_trace *trace, int i);
WF_API void wf_trace_destroy(wf_trace *trace); /* NULL is allowed */

#ifdef __cplusplus
}
#endif
#endif
