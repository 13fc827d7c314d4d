/* CUDA graphs: the work that a task queues is captured and launched as a whole. During a capture
 * this thread must not wait, poll or allocate, and it does not. */
#include "device/cuda.h"

typedef struct graph {
    wfi_cuda_graphs driver;
    CUgraphExec exec;
} graph;

/* The capture ends also after an error, so that the stream queues again. */
static wfi_cuda_enum capture(graph *g, CUstream stream, wfi_task task, void *self, void *argument) {
    CUgraph made = NULL;
    wfi_cuda_enum error = g->driver.StreamBeginCapture(stream, WFI_CUDA_THREAD_LOCAL);
    if (error) return error;
    wf_status status = task(self, argument);
    error = g->driver.StreamEndCapture(stream, &made);
    if (!error && status == WF_OK) error = g->driver.GraphInstantiate(&g->exec, made, 0);
    if (made) g->driver.GraphDestroy(made);
    return error;
}

void *wfi_cuda_capture(wfi_stream_queue *stream, wfi_task task, void *self, void *argument) {
    wf_context *ctx = stream->owner->ctx;
    graph *g = wfi_alloc(ctx, 1, sizeof *g, "a graph");
    if (!g) return NULL;
    if (wfi_cuda_graphs_load(ctx, &g->driver) == WF_OK)
        (void)wfi_cuda_check(stream->device, "a graph",
                             capture(g, wfi_cuda_stream(stream), task, self, argument));
    if (g->exec) return g;
    wfi_log(ctx, WF_LOG_DEBUG, "device", "nothing is captured: %s", wf_context_error(ctx));
    wfi_free(ctx, g);
    return NULL;
}

wf_status wfi_cuda_replay(wfi_stream_queue *stream, const void *captured) {
    const graph *g = captured;
    return wfi_cuda_check(stream->device, "kernels of a graph",
                          g->driver.GraphLaunch(g->exec, wfi_cuda_stream(stream)));
}

void wfi_cuda_forget(const wfi_device *device, void *captured) {
    const graph *g = captured;
    if (!wfi_device_unit_hangs(wfi_device_unit_of(device)) && wfi_cuda_push(device) == WF_OK) {
        g->driver.GraphExecDestroy(g->exec);
        wfi_cuda_pop(device);
    }
    wfi_free(device->owner.ctx, captured);
}
