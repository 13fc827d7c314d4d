#include "device/cuda_events.h"

#include "base/clock.h"

static wfi_cuda_enum record(const wfi_stream_queue *stream, CUevent *event, unsigned flags) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    wfi_cuda_enum error = *event ? WFI_CUDA_SUCCESS : driver->EventCreate(event, flags);
    return error ? error : driver->EventRecord(*event, wfi_cuda_stream(stream));
}

wf_status wfi_cuda_record(wfi_stream_queue *stream, uint64_t task) {
    wfi_cuda_events *e = stream->queue;
    uint64_t place = task % WFI_MOST_IN_FLIGHT;
    e->n_marked[place] = e->n_marks;
    e->n_reports_by[place] = e->n_reports;
    return wfi_cuda_check(stream->device, "an event",
                          record(stream, &e->behind[place], WFI_CUDA_NO_TIMING));
}

static wfi_cuda_enum read_marks(const wfi_cuda *driver, wfi_cuda_events *e, uint64_t end) {
    wfi_cuda_enum error = WFI_CUDA_SUCCESS;
    for (; e->n_read < end && !error; e->n_read++) {
        const wfi_cuda_mark *m = &e->marks[e->n_read % WFI_CUDA_MARKS];
        float ms = 0;
        error = driver->EventElapsedTime(&ms, e->origin, m->event);
        e->latest_ns = wfi_max_i64(e->latest_ns, e->origin_ns + (int64_t)((double)ms * 1e6));
        *m->ns = e->latest_ns;
    }
    return error;
}

static void report(wfi_cuda_events *e, uint64_t end) {
    for (; e->n_reported < end; e->n_reported++) {
        const wfi_cuda_report *t = &e->reports[e->n_reported % WFI_CUDA_REPORTS];
        t->listener(t->self, t->number, e->words[e->n_reported % WFI_CUDA_REPORTS]);
    }
}

/* Work on a GPU that hangs is given up. The wait fails if this owner has no failure yet. */
wf_status wfi_cuda_look(wfi_stream_queue *stream, uint64_t task, bool *has_happened_out) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    wfi_cuda_events *e = stream->queue;
    uint64_t place = task % WFI_MOST_IN_FLIGHT;
    if (wfi_device_unit_hangs(wfi_device_unit_of(stream->device)))
        return wfi_failure_status(stream->owner->failure) ? WF_OK
                                                          : wfi_separate_given_up(stream->device);
    wfi_cuda_enum error = driver->EventQuery(e->behind[place]);
    *has_happened_out = error != WFI_CUDA_NOT_READY;
    if (!error) error = read_marks(driver, e, e->n_marked[place]);
    if (!error) report(e, e->n_reports_by[place]);
    return *has_happened_out ? wfi_cuda_check(stream->device, "kernels and copies", error) : WF_OK;
}

/* If a later task has reused the event's slot, the stream waits for that task, which is already
 * queued. */
wf_status wfi_cuda_follow(wfi_stream_queue *stream, const wfi_stream_queue *other, uint64_t task) {
    const wfi_cuda_events *e = other->queue;
    CUevent event = e->behind[task % WFI_MOST_IN_FLIGHT];
    return wfi_cuda_check(
        stream->device, "an event",
        wfi_cuda_driver(stream->device)->StreamWaitEvent(wfi_cuda_stream(stream), event, 0));
}

/* CUDA returns milliseconds as floats, so the origin must be recent. An idle stream reaches a new
 * origin at once. */
void wfi_cuda_mark_time(wfi_stream_queue *stream, int64_t *ns_out) {
    wfi_cuda_events *e = stream->queue;
    wfi_cuda_mark *m = &e->marks[e->n_marks % WFI_CUDA_MARKS];
    if (e->n_read == e->n_marks) {
        wfi_stream_settle(stream);
        e->origin_ns = wfi_now_ns();
        if (record(stream, &e->origin, 0)) return;
    }
    m->ns = ns_out;
    if (!record(stream, &m->event, 0)) e->n_marks++;
}

wf_status wfi_cuda_report_words(wfi_stream_queue *stream, wfi_words_listener listener, void *self,
                                int32_t number) {
    const wfi_cuda *driver = wfi_cuda_driver(stream->device);
    wfi_cuda_events *e = stream->queue;
    CUstream queue = wfi_cuda_stream(stream);
    uint64_t place = e->n_reports % WFI_CUDA_REPORTS;
    CUdeviceptr from = (CUdeviceptr)(uintptr_t)e->queue.words;
    wfi_cuda_enum error = WFI_CUDA_SUCCESS;
    if (e->n_reports - e->n_reported == WFI_CUDA_REPORTS) {
        WF_TRY(wfi_separate_finish(stream->device, stream));
        report(e, e->n_reports);
    }
    e->reports[place] = (wfi_cuda_report){listener, self, number};
    if (!e->words)
        error = driver->MemHostAlloc((void **)&e->words, WFI_CUDA_REPORTS * sizeof *e->words,
                                     WFI_CUDA_PORTABLE);
    if (!error) error = driver->MemcpyDtoHAsync(e->words[place], from, sizeof *e->words, queue);
    if (!error) error = driver->MemsetD8Async(from, 0, sizeof *e->words, queue);
    if (!error) e->n_reports++;
    return wfi_cuda_check(stream->device, "status words of kernels", error);
}

static void destroy(const wfi_cuda *driver, CUevent event) {
    if (event) driver->EventDestroy(event);
}

void wfi_cuda_events_destroy(const wfi_cuda *driver, const wfi_cuda_events *e) {
    for (int i = 0; i < WFI_MOST_IN_FLIGHT; i++) destroy(driver, e->behind[i]);
    for (int i = 0; i < WFI_CUDA_MARKS; i++) destroy(driver, e->marks[i].event);
    destroy(driver, e->origin);
    if (e->words) driver->MemFreeHost(e->words);
}
