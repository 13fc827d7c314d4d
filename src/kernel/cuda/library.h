/* cuDNN and cuBLASLt, found at run time. This file declares the functions and constants that weft
 * uses, under the libraries' own names, so that no CUDA header is needed. Private to kernel/cuda.
 *
 * A test that includes the real headers first defines WFI_CUDA_TYPES_ARE_DECLARED, and compares.
 */
#pragma once

#include "device/cuda_library.h"

/* The heuristics' estimate for an algorithm of a convolution, the same type for every direction. */
typedef struct wfi_cudnn_choice {
    int algo, status;
    float time;
    size_t memory;
    int determinism, mathType, reserved[3];
} wfi_cudnn_choice;

/* The same of a product. */
typedef struct wfi_cublaslt_choice {
    struct {
        uint64_t data[8];
    } algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
} wfi_cublaslt_choice;

/* Constants, by name and value. */
#define WFI_CUDA_MATH_CONSTANTS(X)                                                                 \
    X(CUDNN_STATUS_SUCCESS, 0)                                                                     \
    X(CUDNN_DATA_FLOAT, 0)                                                                         \
    X(CUDNN_DATA_BFLOAT16, 9)                                                                      \
    X(CUDNN_TENSOR_NCHW, 0)                                                                        \
    X(CUDNN_BATCHNORM_SPATIAL, 1)                                                                  \
    X(CUDNN_CROSS_CORRELATION, 1)                                                                  \
    X(CUDNN_DEFAULT_MATH, 0)                                                                       \
    X(CUDNN_TENSOR_OP_MATH, 1)                                                                     \
    X(CUDNN_FMA_MATH, 3)                                                                           \
    X(CUDNN_DETERMINISTIC, 1)                                                                      \
    X(CUDNN_CONVOLUTION_FWD_ALGO_FFT, 4)                                                           \
    X(CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, 2)                                                      \
    X(CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, 2)                                                    \
    X(CUBLAS_STATUS_SUCCESS, 0)                                                                    \
    X(CUBLAS_OP_T, 1)                                                                              \
    X(CUBLAS_COMPUTE_32F, 68)                                                                      \
    X(CUBLAS_COMPUTE_32F_FAST_TF32, 77)                                                            \
    X(CUDA_R_32F, 0)                                                                               \
    X(CUDA_R_16BF, 14)                                                                             \
    X(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 2)                                                   \
    X(CUBLASLT_EPILOGUE_DEFAULT, 1)                                                                \
    X(CUBLASLT_EPILOGUE_BIAS, 4)                                                                   \
    X(CUBLASLT_EPILOGUE_BGRADA, 256)                                                               \
    X(CUBLASLT_EPILOGUE_BGRADB, 512)                                                               \
    X(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, 5)                                                       \
    X(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, 6)                                              \
    X(CUBLASLT_MATMUL_DESC_TRANSA, 3)                                                              \
    X(CUBLASLT_MATMUL_DESC_TRANSB, 4)                                                              \
    X(CUBLASLT_MATMUL_DESC_EPILOGUE, 7)                                                            \
    X(CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8)                                                        \
    X(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 1)                                                 \
    X(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 3)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 5)                                               \
    X(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 8)                                               \
    X(CUBLAS_OP_N, 0)

/* Attributes that identify an algorithm of a product: the suffix of CUBLASLT_ALGO_CONFIG_, its
 * value, its bytes, its name in weft's tables. */
#define WFI_CUBLASLT_CONFIGS(X)                                                                    \
    X(ID, 0, 4, "algo")                                                                            \
    X(TILE_ID, 1, 4, ".tile")                                                                      \
    X(STAGES_ID, 6, 4, ".stages")                                                                  \
    X(SPLITK_NUM, 2, 4, ".split")                                                                  \
    X(CTA_SWIZZLING, 4, 4, ".swizzle")                                                             \
    X(CUSTOM_OPTION, 5, 4, ".custom")                                                              \
    X(INNER_SHAPE_ID, 7, 2, ".inner")                                                              \
    X(CLUSTER_SHAPE_ID, 8, 2, ".cluster")

#ifndef WFI_CUDA_TYPES_ARE_DECLARED
#define WFI_CUDA_MATH_CONSTANT(name, value) name = value,
enum { WFI_CUDA_MATH_CONSTANTS(WFI_CUDA_MATH_CONSTANT) };
#undef WFI_CUDA_MATH_CONSTANT
typedef void *cudnnHandle_t, *cudnnTensorDescriptor_t, *cudnnFilterDescriptor_t;
typedef void *cudnnConvolutionDescriptor_t, *cublasLtHandle_t, *cublasLtMatmulDesc_t;
typedef void *cublasLtMatrixLayout_t, *cublasLtMatmulPreference_t, cublasLtMatmulAlgo_t;
typedef wfi_cublaslt_choice cublasLtMatmulHeuristicResult_t;
#endif
typedef cudnnTensorDescriptor_t cudnn_tensor;
typedef cudnnConvolutionDescriptor_t cudnn_conv;

/* X: name and parameters of a function that returns a status. Y: the same and the type returned. */
#define WFI_CUDNN_LIST(X, Y)                                                                       \
    Y(GetVersion, (void), size_t)                                                                  \
    Y(GetErrorString, (wfi_cuda_enum), const char *)                                               \
    X(Create, (cudnnHandle_t *))                                                                   \
    X(Destroy, (cudnnHandle_t))                                                                    \
    X(SetStream, (cudnnHandle_t, CUstream))                                                        \
    X(CreateTensorDescriptor, (cudnn_tensor *))                                                    \
    X(DestroyTensorDescriptor, (cudnn_tensor))                                                     \
    X(SetTensor4dDescriptor, (cudnn_tensor, wfi_cuda_enum, wfi_cuda_enum, int, int, int, int))     \
    X(CreateFilterDescriptor, (cudnnFilterDescriptor_t *))                                         \
    X(DestroyFilterDescriptor, (cudnnFilterDescriptor_t))                                          \
    X(SetFilter4dDescriptor,                                                                       \
      (cudnnFilterDescriptor_t, wfi_cuda_enum, wfi_cuda_enum, int, int, int, int))                 \
    X(CreateConvolutionDescriptor, (cudnn_conv *))                                                 \
    X(DestroyConvolutionDescriptor, (cudnn_conv))                                                  \
    X(SetConvolution2dDescriptor,                                                                  \
      (cudnn_conv, int, int, int, int, int, int, wfi_cuda_enum, wfi_cuda_enum))                    \
    X(SetConvolutionMathType, (cudnn_conv, wfi_cuda_enum))                                         \
    X(SetConvolutionGroupCount, (cudnn_conv, int))                                                 \
    X(ConvolutionBackwardBias, (cudnnHandle_t, const void *, cudnn_tensor, const void *,           \
                                const void *, cudnn_tensor, void *))                               \
    X(BatchNormalizationForwardTraining,                                                           \
      (cudnnHandle_t, wfi_cuda_enum, const void *, const void *, cudnn_tensor, const void *,       \
       cudnn_tensor, void *, cudnn_tensor, const void *, const void *, double, void *, void *,     \
       double, void *, void *))                                                                    \
    X(BatchNormalizationBackward,                                                                  \
      (cudnnHandle_t, wfi_cuda_enum, const void *, const void *, const void *, const void *,       \
       cudnn_tensor, const void *, cudnn_tensor, const void *, cudnn_tensor, void *, cudnn_tensor, \
       const void *, void *, void *, double, const void *, const void *))                          \
    X(AddTensor, (cudnnHandle_t, const void *, cudnn_tensor, const void *, const void *,           \
                  cudnn_tensor, void *))

/* The functions of a convolution's direction; its operands are given in this order. */
#define WFI_CUDNN_WAY(X, algorithms, workspace, run, choice, first, second, result)                \
    X(algorithms, (cudnnHandle_t, first, second, cudnn_conv, result, int, int *, choice *))        \
    X(workspace, (cudnnHandle_t, first, second, cudnn_conv, result, wfi_cuda_enum, size_t *))      \
    X(run, (cudnnHandle_t, const void *, first, const void *, second, const void *, cudnn_conv,    \
            wfi_cuda_enum, void *, size_t, const void *, result, void *))
#define WFI_CUDNN_NAMED_WAY(X, name, kind, first, second, result)                                  \
    WFI_CUDNN_WAY(X, GetConvolution##name##Algorithm_v7, GetConvolution##name##WorkspaceSize,      \
                  Convolution##name, cudnnConvolution##kind##AlgoPerf_t, first, second, result)
#define WFI_CUDNN_WAYS(X)                                                                          \
    WFI_CUDNN_NAMED_WAY(X, Forward, Fwd, cudnn_tensor, cudnnFilterDescriptor_t, cudnn_tensor)      \
    WFI_CUDNN_NAMED_WAY(X, BackwardData, BwdData, cudnnFilterDescriptor_t, cudnn_tensor,           \
                        cudnn_tensor)                                                              \
    WFI_CUDNN_NAMED_WAY(X, BackwardFilter, BwdFilter, cudnn_tensor, cudnn_tensor,                  \
                        cudnnFilterDescriptor_t)

#define WFI_CUBLASLT_LIST(X, Y)                                                                    \
    Y(GetVersion, (void), size_t)                                                                  \
    X(Create, (cublasLtHandle_t *))                                                                \
    X(Destroy, (cublasLtHandle_t))                                                                 \
    X(MatmulDescCreate, (cublasLtMatmulDesc_t *, wfi_cuda_enum, wfi_cuda_enum))                    \
    X(MatmulDescDestroy, (cublasLtMatmulDesc_t))                                                   \
    X(MatmulDescSetAttribute, (cublasLtMatmulDesc_t, wfi_cuda_enum, const void *, size_t))         \
    X(MatrixLayoutCreate, (cublasLtMatrixLayout_t *, wfi_cuda_enum, uint64_t, uint64_t, int64_t))  \
    X(MatrixLayoutDestroy, (cublasLtMatrixLayout_t))                                               \
    X(MatrixLayoutSetAttribute, (cublasLtMatrixLayout_t, wfi_cuda_enum, const void *, size_t))     \
    X(MatmulPreferenceCreate, (cublasLtMatmulPreference_t *))                                      \
    X(MatmulPreferenceDestroy, (cublasLtMatmulPreference_t))                                       \
    X(MatmulPreferenceSetAttribute,                                                                \
      (cublasLtMatmulPreference_t, wfi_cuda_enum, const void *, size_t))                           \
    X(MatmulAlgoGetHeuristic,                                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,            \
       cublasLtMatmulHeuristicResult_t *, int *))                                                  \
    X(MatmulAlgoConfigGetAttribute,                                                                \
      (const cublasLtMatmulAlgo_t *, wfi_cuda_enum, void *, size_t, size_t *))                     \
    X(Matmul,                                                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,   \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t, CUstream))

#ifndef WFI_CUDA_TYPES_ARE_DECLARED
#define WFI_CUDA_MATH_OTHER(name, parameters, result) result(*name) parameters;
#define WFI_CUDA_MATH_STATUS(name, parameters)        wfi_cuda_enum(*name) parameters;
typedef struct wfi_cudnn_way {
    WFI_CUDNN_WAY(WFI_CUDA_MATH_STATUS, algorithms, workspace, run, wfi_cudnn_choice, void *,
                  void *, void *)
} wfi_cudnn_way;
typedef struct wfi_cudnn {
    WFI_CUDNN_LIST(WFI_CUDA_MATH_STATUS, WFI_CUDA_MATH_OTHER)
    wfi_cudnn_way ways[3];
} wfi_cudnn;
typedef struct wfi_cublaslt {
    WFI_CUBLASLT_LIST(WFI_CUDA_MATH_STATUS, WFI_CUDA_MATH_OTHER)
} wfi_cublaslt;
#undef WFI_CUDA_MATH_STATUS
#undef WFI_CUDA_MATH_OTHER

#include "device/cuda.h"
#include "kernel/kernel.h"

#include <pthread.h>

/* The libraries of a wf_context. no_dnn and no_lt hold the reason if a library cannot be used, else
 * "". */
typedef struct wfi_cuda_libraries {
    wfi_cudnn dnn;
    wfi_cublaslt lt;
    char no_dnn[200], no_lt[200];
    char text[450]; /* for reports */
} wfi_cuda_libraries;

/* Handles of the libraries on a GPU; NULL: the library is missing. */
typedef struct wfi_cuda_handles {
    const wfi_cuda_libraries *libraries;
    cudnnHandle_t dnn;
    cublasLtHandle_t lt;
    const wfi_cuda *driver;
    const wfi_cuda_gpu *gpu;
    wfi_device *planner; /* used at planning, when there is no stream */
    pthread_mutex_t lock;
} wfi_cuda_handles;

/* Gives the calling thread exclusive use of a GPU's handles until it returns them. cuDNN then
 * queues its work on `stream`. NULL, at planning: the handles of the first GPU. Errors:
 * UNSUPPORTED; DEVICE. */
wf_status wfi_cuda_take_handles(wf_context *ctx, const wfi_stream_queue *stream,
                                wfi_cuda_handles **handles_out);
void wfi_cuda_give_handles(wfi_cuda_handles *handles);

/* For reports, once the driver has been asked for. */
const char *wfi_cuda_libraries_text(wf_context *ctx);

/* The libraries work in memory that begins at a multiple of 256 bytes; scratch memory does so of
 * fewer. How much of it is asked for, and where in it they begin. */
#define WFI_CUDA_WORKSPACE_ALIGN 256
static inline size_t wfi_cuda_scratch_bytes(size_t workspace_bytes) {
    size_t spare = WFI_CUDA_WORKSPACE_ALIGN - WFI_ALIGN_BYTES;
    return workspace_bytes ? wfi_round_up(workspace_bytes, WFI_ALIGN_BYTES) + spare : 0;
}
static inline void *wfi_cuda_workspace(void *scratch) {
    size_t off = (uintptr_t)scratch % WFI_CUDA_WORKSPACE_ALIGN;
    return off ? (char *)scratch + (WFI_CUDA_WORKSPACE_ALIGN - off) : scratch;
}

/* Whether the node multiplies in BF16: its first input has that type. */
static inline bool wfi_cuda_is_narrow(const wfi_kernel *kernel) {
    return wfi_operand_value(kernel, 0)->dtype == WF_BF16;
}
/* Whether an operand is, or a parameter's that counts as if it were. */
bool wfi_cuda_can_round(const wfi_kernel *kernel, int operand);
/* Such a parameter is rounded once a step: its operand's format, if it is one. */
void wfi_cuda_round(wfi_kernel *kernel, int operand, wfi_format *format_out);
/* Makes kernel->state, if there is none, and has it filled in with the first GPU's handles. */
wf_status wfi_cuda_describe(wfi_kernel *kernel, size_t state_bytes,
                            wf_status (*describe)(wfi_kernel *kernel,
                                                  const wfi_cuda_handles *handles,
                                                  const char **reason_out),
                            const char **reason_out);
/* Makes a descriptor of an image or another tensor of 4 dims. Returns cuDNN's status. */
int wfi_cudnn_tensor(const wfi_cudnn *dnn, int type, const int64_t dim[4], cudnn_tensor *out);
/* Records that cuDNN refused a call. Errors: DEVICE. */
wf_status wfi_cudnn_refuses(const wfi_kernel *kernel, const wfi_cudnn *dnn, int error);
/* n numbers of BF16 into F32, or added to them. */
wf_status wfi_cuda_widen(wfi_stream_queue *stream, const void *from, int64_t n, bool adds,
                         void *to);

/* Implementations of nodes; kernel/gpu computes the nodes that these decline. */
extern const wfi_kernel_impl wfi_kernel_cublaslt, wfi_kernel_cudnn, wfi_kernel_cudnn_norm;
#endif
