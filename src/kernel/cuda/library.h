/* cuDNN and cuBLASLt, found at run time: what of their interfaces is used, by the names that they
 * have there. Declared here, so that no header of CUDA's is needed. Private to kernel/cuda.
 *
 * A test that includes the real headers first defines WFI_CUDA_TYPES_ARE_DECLARED, and compares.
 */
#ifndef WFI_CUDA_MATH_H
#define WFI_CUDA_MATH_H

#include "base/base.h"

/* What heuristics say of an algorithm of a convolution, whatever its direction. */
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
    X(CUBLASLT_ALGO_CONFIG_ID, 0)                                                                  \
    X(CUBLASLT_ALGO_CONFIG_TILE_ID, 1)                                                             \
    X(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, 2)                                                          \
    X(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, 4)                                                       \
    X(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, 5)                                                       \
    X(CUBLASLT_ALGO_CONFIG_STAGES_ID, 6)                                                           \
    X(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, 7)                                                      \
    X(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, 8)                                                    \
    X(CUBLAS_OP_N, 0)

#ifndef WFI_CUDA_TYPES_ARE_DECLARED
#define WFI_CUDA_MATH_CONSTANT(name, value) name = value,
enum { WFI_CUDA_MATH_CONSTANTS(WFI_CUDA_MATH_CONSTANT) };
#undef WFI_CUDA_MATH_CONSTANT
typedef int cudnnStatus_t, cudnnTensorFormat_t, cudnnDataType_t, cudnnConvolutionMode_t;
typedef int cudnnMathType_t, cudnnConvolutionFwdAlgo_t, cudnnConvolutionBwdDataAlgo_t;
typedef int cudnnConvolutionBwdFilterAlgo_t, cudnnBatchNormMode_t;
typedef int cublasStatus_t, cublasComputeType_t, cudaDataType, cublasLtMatrixLayoutAttribute_t;
typedef int cublasLtMatmulDescAttributes_t, cublasLtMatmulPreferenceAttributes_t;
typedef int cublasLtMatmulAlgoConfigAttributes_t;
typedef void *cudnnHandle_t, *cudnnTensorDescriptor_t, *cudnnFilterDescriptor_t;
typedef void *cudnnConvolutionDescriptor_t, *cudaStream_t, *cublasLtHandle_t;
typedef void *cublasLtMatmulDesc_t, *cublasLtMatrixLayout_t, *cublasLtMatmulPreference_t;
typedef wfi_cudnn_choice cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionBwdDataAlgoPerf_t;
typedef wfi_cudnn_choice cudnnConvolutionBwdFilterAlgoPerf_t;
typedef wfi_cublaslt_choice cublasLtMatmulHeuristicResult_t;
typedef void cublasLtMatmulAlgo_t;
#endif

/* Of a direction of convolutions, whose operands are described in that order. */
#define WFI_CUDNN_WAY(X, name, kind, first, second, result)                                        \
    X(GetConvolution##name##Algorithm_v7, cudnnStatus_t,                                           \
      (cudnnHandle_t, first, second, cudnnConvolutionDescriptor_t, result, int, int *,             \
       cudnnConvolution##kind##AlgoPerf_t *))                                                      \
    X(GetConvolution##name##WorkspaceSize, cudnnStatus_t,                                          \
      (cudnnHandle_t, first, second, cudnnConvolutionDescriptor_t, result,                         \
       cudnnConvolution##kind##Algo_t, size_t *))                                                  \
    X(Convolution##name, cudnnStatus_t,                                                            \
      (cudnnHandle_t, const void *, first, const void *, second, const void *,                     \
       cudnnConvolutionDescriptor_t, cudnnConvolution##kind##Algo_t, void *, size_t, const void *, \
       result, void *))

/* name, result, parameters */
#define WFI_CUDNN_LIST(X)                                                                          \
    X(GetVersion, size_t, (void))                                                                  \
    X(GetErrorString, const char *, (cudnnStatus_t))                                               \
    X(Create, cudnnStatus_t, (cudnnHandle_t *))                                                    \
    X(Destroy, cudnnStatus_t, (cudnnHandle_t))                                                     \
    X(SetStream, cudnnStatus_t, (cudnnHandle_t, cudaStream_t))                                     \
    X(CreateTensorDescriptor, cudnnStatus_t, (cudnnTensorDescriptor_t *))                          \
    X(DestroyTensorDescriptor, cudnnStatus_t, (cudnnTensorDescriptor_t))                           \
    X(SetTensor4dDescriptor, cudnnStatus_t,                                                        \
      (cudnnTensorDescriptor_t, cudnnTensorFormat_t, cudnnDataType_t, int, int, int, int))         \
    X(CreateFilterDescriptor, cudnnStatus_t, (cudnnFilterDescriptor_t *))                          \
    X(DestroyFilterDescriptor, cudnnStatus_t, (cudnnFilterDescriptor_t))                           \
    X(SetFilter4dDescriptor, cudnnStatus_t,                                                        \
      (cudnnFilterDescriptor_t, cudnnDataType_t, cudnnTensorFormat_t, int, int, int, int))         \
    X(CreateConvolutionDescriptor, cudnnStatus_t, (cudnnConvolutionDescriptor_t *))                \
    X(DestroyConvolutionDescriptor, cudnnStatus_t, (cudnnConvolutionDescriptor_t))                 \
    X(SetConvolution2dDescriptor, cudnnStatus_t,                                                   \
      (cudnnConvolutionDescriptor_t, int, int, int, int, int, int, cudnnConvolutionMode_t,         \
       cudnnDataType_t))                                                                           \
    X(SetConvolutionMathType, cudnnStatus_t, (cudnnConvolutionDescriptor_t, cudnnMathType_t))      \
    X(SetConvolutionGroupCount, cudnnStatus_t, (cudnnConvolutionDescriptor_t, int))                \
    WFI_CUDNN_WAY(X, Forward, Fwd, cudnnTensorDescriptor_t, cudnnFilterDescriptor_t,               \
                  cudnnTensorDescriptor_t)                                                         \
    WFI_CUDNN_WAY(X, BackwardData, BwdData, cudnnFilterDescriptor_t, cudnnTensorDescriptor_t,      \
                  cudnnTensorDescriptor_t)                                                         \
    WFI_CUDNN_WAY(X, BackwardFilter, BwdFilter, cudnnTensorDescriptor_t, cudnnTensorDescriptor_t,  \
                  cudnnFilterDescriptor_t)                                                         \
    X(ConvolutionBackwardBias, cudnnStatus_t,                                                      \
      (cudnnHandle_t, const void *, cudnnTensorDescriptor_t, const void *, const void *,           \
       cudnnTensorDescriptor_t, void *))                                                           \
    X(BatchNormalizationForwardTraining, cudnnStatus_t,                                            \
      (cudnnHandle_t, cudnnBatchNormMode_t, const void *, const void *, cudnnTensorDescriptor_t,   \
       const void *, cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, const void *,       \
       const void *, double, void *, void *, double, void *, void *))                              \
    X(BatchNormalizationBackward, cudnnStatus_t,                                                   \
      (cudnnHandle_t, cudnnBatchNormMode_t, const void *, const void *, const void *,              \
       const void *, cudnnTensorDescriptor_t, const void *, cudnnTensorDescriptor_t, const void *, \
       cudnnTensorDescriptor_t, void *, cudnnTensorDescriptor_t, const void *, void *, void *,     \
       double, const void *, const void *))                                                        \
    X(AddTensor, cudnnStatus_t,                                                                    \
      (cudnnHandle_t, const void *, cudnnTensorDescriptor_t, const void *, const void *,           \
       cudnnTensorDescriptor_t, void *))

#define WFI_CUBLASLT_LIST(X)                                                                       \
    X(GetVersion, size_t, (void))                                                                  \
    X(Create, cublasStatus_t, (cublasLtHandle_t *))                                                \
    X(Destroy, cublasStatus_t, (cublasLtHandle_t))                                                 \
    X(MatmulDescCreate, cublasStatus_t,                                                            \
      (cublasLtMatmulDesc_t *, cublasComputeType_t, cudaDataType))                                 \
    X(MatmulDescDestroy, cublasStatus_t, (cublasLtMatmulDesc_t))                                   \
    X(MatmulDescSetAttribute, cublasStatus_t,                                                      \
      (cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t, const void *, size_t))                \
    X(MatrixLayoutCreate, cublasStatus_t,                                                          \
      (cublasLtMatrixLayout_t *, cudaDataType, uint64_t, uint64_t, int64_t))                       \
    X(MatrixLayoutDestroy, cublasStatus_t, (cublasLtMatrixLayout_t))                               \
    X(MatrixLayoutSetAttribute, cublasStatus_t,                                                    \
      (cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t, const void *, size_t))             \
    X(MatmulPreferenceCreate, cublasStatus_t, (cublasLtMatmulPreference_t *))                      \
    X(MatmulPreferenceDestroy, cublasStatus_t, (cublasLtMatmulPreference_t))                       \
    X(MatmulPreferenceSetAttribute, cublasStatus_t,                                                \
      (cublasLtMatmulPreference_t, cublasLtMatmulPreferenceAttributes_t, const void *, size_t))    \
    X(MatmulAlgoGetHeuristic, cublasStatus_t,                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,     \
       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatmulPreference_t, int,            \
       cublasLtMatmulHeuristicResult_t *, int *))                                                  \
    X(MatmulAlgoConfigGetAttribute, cublasStatus_t,                                                \
      (const cublasLtMatmulAlgo_t *, cublasLtMatmulAlgoConfigAttributes_t, void *, size_t,         \
       size_t *))                                                                                  \
    X(Matmul, cublasStatus_t,                                                                      \
      (cublasLtHandle_t, cublasLtMatmulDesc_t, const void *, const void *, cublasLtMatrixLayout_t, \
       const void *, cublasLtMatrixLayout_t, const void *, const void *, cublasLtMatrixLayout_t,   \
       void *, cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t *, void *, size_t,               \
       cudaStream_t))

#define WFI_CUDA_MATH_MEMBER(name, result, parameters) result(*name) parameters;
typedef struct wfi_cudnn {
    WFI_CUDNN_LIST(WFI_CUDA_MATH_MEMBER)
} wfi_cudnn;
typedef struct wfi_cublaslt {
    WFI_CUBLASLT_LIST(WFI_CUDA_MATH_MEMBER)
} wfi_cublaslt;
#undef WFI_CUDA_MATH_MEMBER

#ifndef WFI_CUDA_TYPES_ARE_DECLARED
#include "device/cuda.h"
#include "kernel/kernel.h"

#include <pthread.h>

/* Of a wf_context. A library that cannot be used has a sentence that says why, else "". */
typedef struct wfi_cuda_libraries {
    wfi_cudnn dnn;
    wfi_cublaslt lt;
    char no_dnn[200], no_lt[200];
    char text[450]; /* for reports */
} wfi_cuda_libraries;

/* Handles of the libraries on a GPU; NULL: there is no such library. */
typedef struct wfi_cuda_handles {
    const wfi_cuda_libraries *libraries;
    cudnnHandle_t dnn;
    cublasLtHandle_t lt;
    const wfi_cuda *driver;
    const wfi_cuda_gpu *gpu;
    wfi_device *planner; /* while there is no stream, but a plan is made */
    pthread_mutex_t lock;
} wfi_cuda_handles;

/* Makes a GPU's handles the calling thread's alone, until it gives them back: those of the
 * stream's, on which cuDNN queues what it is asked for; `stream` NULL: at planning, of the first.
 * Errors: UNSUPPORTED; DEVICE. */
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

/* What is multiplied as BF16, which a node's first input says. */
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
/* A descriptor of an image, or of other things of 4 dims. Returns cuDNN's status. */
int wfi_cudnn_tensor(const wfi_cudnn *dnn, int type, const int64_t dim[4],
                     cudnnTensorDescriptor_t *out);
const char *const *wfi_cudnn_forms(const wfi_op *op);
/* Records that it does not do what it was asked for. Errors: DEVICE. */
wf_status wfi_cudnn_refuses(const wfi_kernel *kernel, const wfi_cudnn *dnn, int error);
/* n numbers of BF16 into F32, or added to them. */
wf_status wfi_cuda_widen(wfi_stream_queue *stream, const void *from, int64_t n, bool adds,
                         void *to);

/* Implementations of nodes; what they decline, kernel/gpu computes. */
extern const wfi_kernel_impl wfi_kernel_cublaslt, wfi_kernel_cudnn, wfi_kernel_cudnn_norm;
#endif

#endif
