/* Events of a CUDA stream: they order streams on the device, measure when tasks begin and end
 * there, and mark when words of kernels have been copied. For the stream's own thread. Private to
 * src/device. */
#pragma once

#include "device/cuda.h"

/* A task has at most two marks. */
#define WFI_CUDA_MARKS (2 * WFI_MOST_IN_FLIGHT)

typedef struct wfi_cuda_mark {
    CUevent event;
    int64_t *ns;
} wfi_cuda_mark;

#define WFI_CUDA_REPORTS (4 * WFI_MOST_IN_FLIGHT)

/* The listener of words that are copied to the host. */
typedef struct wfi_cuda_report {
    wfi_words_listener listener;
    void *self;
    int32_t number;
} wfi_cuda_report;

/* wfi_stream_queue.queue */
typedef struct wfi_cuda_events {
    wfi_device_queue queue;
    CUevent behind[WFI_MOST_IN_FLIGHT];    /* by task; created at first use, as all events */
    uint64_t n_marked[WFI_MOST_IN_FLIGHT]; /* by task: marks until its end */
    wfi_cuda_mark marks[WFI_CUDA_MARKS];
    uint64_t n_marks, n_read;
    wfi_cuda_report reports[WFI_CUDA_REPORTS];
    int32_t (*words)[WFI_LAUNCH_WORDS]; /* for each of `reports`; pinned */
    uint64_t n_reports, n_reported, n_reports_by[WFI_MOST_IN_FLIGHT]; /* by task: until its end */
    CUevent origin;               /* marks measure from here; it occurred at origin_ns */
    int64_t origin_ns, latest_ns; /* monotonic over changes of the origin */
} wfi_cuda_events;

/* Functions of wfi_device_class. */
wf_status wfi_cuda_record(wfi_stream_queue *stream, uint64_t task);
wf_status wfi_cuda_look(wfi_stream_queue *stream, uint64_t task, bool *has_happened_out);
wf_status wfi_cuda_follow(wfi_stream_queue *stream, const wfi_stream_queue *other, uint64_t task);
void wfi_cuda_mark_time(wfi_stream_queue *stream, int64_t *ns_out);
wf_status wfi_cuda_report_words(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                                int32_t number);
/* Called with the device's context current. */
void wfi_cuda_events_destroy(const wfi_cuda *driver, const wfi_cuda_events *events);
