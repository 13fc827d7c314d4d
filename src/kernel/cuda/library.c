/* The libraries of a context, and their handles on each GPU. */
#include "kernel/cuda/library.h"

#include "base/library.h"

#include <stdio.h>
#include <stdlib.h>

#define MOST_GPUS 64

typedef struct shared {
    wfi_cuda_libraries libraries;
    wfi_cuda_handles handles[MOST_GPUS];
} shared;

/* ---- finding them ---- */

#define CUDNN_SYMBOL(name, ...)    "cudnn" #name,
#define CUBLASLT_SYMBOL(name, ...) "cublasLt" #name,

static const char *const cudnn_files[] = {"libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
                                          "libcudnn.so.8", NULL};
static const char *const cudnn_symbols[] = {WFI_CUDNN_LIST(CUDNN_SYMBOL, CUDNN_SYMBOL)
                                                WFI_CUDNN_WAYS(CUDNN_SYMBOL) NULL};
static const wfi_library cudnn = {
    "cuDNN", cudnn_files, cudnn_symbols,
    "weft's own kernels compute convolutions; install cuDNN 9 (package cudnn9-cuda of NVIDIA's)",
    "it is not cuDNN 8 or 9"};

static const char *const cublaslt_files[] = {
    "libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13",
    "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.12",
    "libcublasLt.so.11", NULL};
static const char *const cublaslt_symbols[] = {WFI_CUBLASLT_LIST(CUBLASLT_SYMBOL, CUBLASLT_SYMBOL)
                                                   NULL};
static const wfi_library cublaslt = {
    "cuBLASLt", cublaslt_files, cublaslt_symbols,
    "weft's own kernels compute products; install cuBLAS (package libcublas of NVIDIA's)",
    "it is not cuBLAS 11.4 or newer"};

/* The version of each library, or why it is not used. */
static void write_text(wfi_cuda_libraries *l) {
    size_t dnn = *l->no_dnn ? 0 : l->dnn.GetVersion(), lt = *l->no_lt ? 0 : l->lt.GetVersion();
    size_t major = dnn < 90000 ? 1000 : 10000; /* 8907 is 8.9.7, 91900 is 9.19 */
    char dnn_text[200], lt_text[200];
    snprintf(dnn_text, sizeof dnn_text, "cuDNN %zu.%zu", dnn / major, dnn % major / 100);
    snprintf(lt_text, sizeof lt_text, "cuBLASLt %zu.%zu", lt / 10000, lt % 10000 / 100);
    snprintf(l->text, sizeof l->text, "weft's kernels (CUDA C); %s; %s",
             *l->no_lt ? l->no_lt : lt_text, *l->no_dnn ? l->no_dnn : dnn_text);
}

static wf_status create_shared(wf_context *ctx, void **shared_out) {
    shared *s = calloc(1, sizeof *s);
    if (!s) return wfi_no_memory(ctx, sizeof *s, "CUDA's libraries");
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) pthread_mutex_init(&s->handles[gpu].lock, NULL);
    wfi_cuda_libraries *l = &s->libraries;
    wfi_library_try(ctx, &cudnn, &l->dnn, sizeof l->no_dnn, l->no_dnn);
    wfi_library_try(ctx, &cublaslt, &l->lt, sizeof l->no_lt, l->no_lt);
    write_text(l);
    *shared_out = s;
    return WF_OK;
}

static void destroy_shared(void *shared_object) {
    shared *s = shared_object;
    for (int gpu = 0; gpu < MOST_GPUS; gpu++) {
        wfi_cuda_handles *h = &s->handles[gpu];
        CUcontext ignored;
        pthread_mutex_destroy(&h->lock);
        if (!h->gpu || wfi_device_unit_hangs(&h->gpu->unit) ||
            h->driver->CtxPushCurrent(h->gpu->context))
            continue;
        if (h->dnn) s->libraries.dnn.Destroy(h->dnn);
        if (h->lt) s->libraries.lt.Destroy(h->lt);
        h->driver->CtxPopCurrent(&ignored);
    }
    free(s);
}

static const wfi_shared_kind shared_kind = {create_shared, destroy_shared};

const char *wfi_cuda_libraries_text(wf_context *ctx) {
    void *found;
    if (wfi_context_share(ctx, &shared_kind, &found) != WF_OK) return "";
    return ((const shared *)found)->libraries.text;
}

/* ---- handles ---- */

/* Makes the handles that are still missing; the device's context is current. */
static wf_status make_handles(const wfi_device *device, wfi_cuda_handles *h) {
    const wfi_cuda_libraries *l = h->libraries;
    wf_context *ctx = device->owner.ctx;
    const wfi_cuda_gpu *gpu = wfi_cuda_gpu_of(device);
    h->driver = wfi_cuda_driver(device);
    h->gpu = gpu;
    int dnn = h->dnn || *l->no_dnn ? CUDNN_STATUS_SUCCESS : l->dnn.Create(&h->dnn);
    int lt = h->lt || *l->no_lt ? CUBLAS_STATUS_SUCCESS : l->lt.Create(&h->lt);
    if (dnn)
        return wfi_fail(ctx, WF_DEVICE, "cuda: cuDNN does not start on GPU %d, %s: %s",
                        gpu->unit.number, gpu->unit.name, l->dnn.GetErrorString(dnn));
    if (lt)
        return wfi_fail(ctx, WF_DEVICE, "cuda: cuBLASLt does not start on GPU %d, %s: status %d",
                        gpu->unit.number, gpu->unit.name, lt);
    return WF_OK;
}

static wf_status take(const wfi_device *device, const wfi_stream_queue *stream,
                      wfi_cuda_handles **handles_out) {
    wf_context *ctx = device->owner.ctx;
    void *found;
    WF_TRY(wfi_context_share(ctx, &shared_kind, &found));
    shared *s = found;
    wfi_cuda_handles *h = &s->handles[wfi_device_unit_of(device)->number % MOST_GPUS];
    pthread_mutex_lock(&h->lock);
    h->libraries = &s->libraries;
    wf_status status = make_handles(device, h);
    if (status == WF_OK && h->dnn && stream &&
        h->libraries->dnn.SetStream(h->dnn, wfi_cuda_stream(stream)))
        status = wfi_fail(ctx, WF_DEVICE, "cuda: cuDNN refuses a stream");
    if (status != WF_OK) pthread_mutex_unlock(&h->lock);
    *handles_out = h;
    return status;
}

wf_status wfi_cuda_take_handles(wf_context *ctx, const wfi_stream_queue *stream,
                                wfi_cuda_handles **handles_out) {
    const wfi_owner owner = {.ctx = ctx};
    wfi_device *planner;
    if (stream) return take(stream->device, stream, handles_out);
    WF_TRY(wfi_device_create(&owner, &wfi_device_cuda, 0, 1, &planner));
    wf_status status = wfi_cuda_push(planner);
    if (status == WF_OK) {
        status = take(planner, NULL, handles_out);
        if (status == WF_OK) return (*handles_out)->planner = planner, WF_OK;
        wfi_cuda_pop(planner);
    }
    wfi_device_destroy(planner);
    return status;
}

void wfi_cuda_give_handles(wfi_cuda_handles *handles) {
    wfi_device *planner = handles->planner;
    handles->planner = NULL;
    pthread_mutex_unlock(&handles->lock);
    if (!planner) return;
    wfi_cuda_pop(planner);
    wfi_device_destroy(planner);
}

/* ---- helpers of kernels ---- */

wf_status wfi_cuda_describe(wfi_kernel *kernel, size_t state_bytes,
                            wf_status (*describe)(wfi_kernel *, const wfi_cuda_handles *,
                                                  const char **),
                            const char **reason_out) {
    wfi_cuda_handles *handles;
    if (!kernel->state) kernel->state = wfi_alloc(kernel->ctx, 1, state_bytes, "a kernel");
    if (!kernel->state) return WF_NO_MEMORY;
    WF_TRY(wfi_cuda_take_handles(kernel->ctx, NULL, &handles));
    wf_status status = describe(kernel, handles, reason_out);
    wfi_cuda_give_handles(handles);
    return status;
}

int wfi_cudnn_tensor(const wfi_cudnn *dnn, int type, const int64_t dim[4], cudnn_tensor *out) {
    wfi_cuda_enum error = dnn->CreateTensorDescriptor(out);
    return error ? error
                 : dnn->SetTensor4dDescriptor(*out, CUDNN_TENSOR_NCHW, type, (int)dim[0],
                                              (int)dim[1], (int)dim[2], (int)dim[3]);
}

wf_status wfi_cudnn_refuses(const wfi_kernel *kernel, const wfi_cudnn *dnn, int error) {
    return wfi_fail(kernel->ctx, WF_DEVICE, "cuDNN refuses %s of unit %s: %s", kernel->label,
                    kernel->graph->units[kernel->node->unit].name, dnn->GetErrorString(error));
}
