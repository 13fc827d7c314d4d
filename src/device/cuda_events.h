/* A CUDA stream's events: what orders it and others on the device, when tasks began and ended
 * there, and what kernels had to tell by then. For a stream's own thread. Private to src/device.
 */
#ifndef WFI_CUDA_EVENTS_H
#define WFI_CUDA_EVENTS_H

#include "device/cuda.h"

/* Tasks mark twice at most. */
#define WFI_CUDA_MARKS (2 * WFI_MOST_IN_FLIGHT)

typedef struct wfi_cuda_mark {
    CUevent event;
    int64_t *ns;
} wfi_cuda_mark;

#define WFI_CUDA_TOLD (4 * WFI_MOST_IN_FLIGHT)

/* Who listens to what is copied into words of the host's. */
typedef struct wfi_cuda_told {
    wfi_words_listener listener;
    void *self;
    int32_t number;
} wfi_cuda_told;

/* wfi_stream_queue.queue */
typedef struct wfi_cuda_events {
    wfi_device_queue queue;
    CUevent behind[WFI_MOST_IN_FLIGHT];    /* by task; made when they are needed, as all are */
    uint64_t n_marked[WFI_MOST_IN_FLIGHT]; /* by task: marks up to its end */
    wfi_cuda_mark marks[WFI_CUDA_MARKS];
    uint64_t n_marks, n_read;
    wfi_cuda_told told[WFI_CUDA_TOLD];
    int32_t (*words)[WFI_LAUNCH_WORDS];                      /* for each of these; pinned */
    uint64_t n_told, n_heard, n_told_by[WFI_MOST_IN_FLIGHT]; /* by task: up to its end */
    CUevent origin;               /* of what marks measure, which happened at origin_ns */
    int64_t origin_ns, latest_ns; /* of a stream time does not go back, whatever the origin */
} wfi_cuda_events;

/* wfi_device_class's. */
wf_status wfi_cuda_record(wfi_stream_queue *stream, uint64_t task);
wf_status wfi_cuda_look(wfi_stream_queue *stream, uint64_t task, bool *has_happened_out);
wf_status wfi_cuda_follow(wfi_stream_queue *stream, const wfi_stream_queue *other, uint64_t task);
void wfi_cuda_mark_time(wfi_stream_queue *stream, int64_t *ns_out);
wf_status wfi_cuda_tell_words(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                              int32_t number);
/* The device's context is current. */
void wfi_cuda_events_destroy(const wfi_cuda *driver, const wfi_cuda_events *events);

#endif
