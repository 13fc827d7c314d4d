#!/usr/bin/env bash
# label: once
# What weft declares of cuDNN and cuBLASLt is what their headers declare, and the real libraries have it;
# skipped where CUDA's toolkit is not.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*" && exit 1; }
toolkit=${CUDA_HOME:-/usr/local/cuda}
for header in cudnn.h cublasLt.h; do
    [[ -e $toolkit/include/$header ]] || { echo "skipped: there is no $toolkit/include/$header"; exit 77; }
done

cat >"$folder/declared.c" <<'C'
#include <stdbool.h>
#include <cudnn.h>
#include <cublasLt.h>
#define WFI_CUDA_TYPES_ARE_DECLARED
#include "kernel/cuda/library.h"

#define SAME_VALUE(name, value) _Static_assert((int)name == value, #name);
WFI_CUDA_MATH_CONSTANTS(SAME_VALUE)

/* Parameters that are const themselves are of the same type. */
#define SAME_TYPE(name, parameters, result)                                                                 \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&name), result(*) parameters), #name);
#define CUDNN_OTHER(name, parameters, result) SAME_TYPE(cudnn##name, parameters, result)
#define CUDNN(name, parameters) CUDNN_OTHER(name, parameters, wfi_cuda_enum)
#define CUBLASLT_OTHER(name, parameters, result) SAME_TYPE(cublasLt##name, parameters, result)
#define CUBLASLT(name, parameters) CUBLASLT_OTHER(name, parameters, wfi_cuda_enum)
WFI_CUDNN_LIST(CUDNN, CUDNN_OTHER)
WFI_CUDNN_WAYS(CUDNN)
WFI_CUBLASLT_LIST(CUBLASLT, CUBLASLT_OTHER)
#define SAME_CONFIG(name, value, bytes, text) SAME_VALUE(CUBLASLT_ALGO_CONFIG_##name, value)
WFI_CUBLASLT_CONFIGS(SAME_CONFIG)

#define SAME_PLACE(own, theirs, member)                                                                     \
    _Static_assert(offsetof(own, member) == offsetof(theirs, member), #theirs "." #member);                 \
    _Static_assert(sizeof(((own *)0)->member) == sizeof(((theirs *)0)->member), #theirs "." #member);
#define SAME_CHOICE(theirs)                                                                                 \
    _Static_assert(sizeof(wfi_cudnn_choice) == sizeof(theirs), #theirs);                                    \
    SAME_PLACE(wfi_cudnn_choice, theirs, algo)                                                              \
    SAME_PLACE(wfi_cudnn_choice, theirs, status)                                                            \
    SAME_PLACE(wfi_cudnn_choice, theirs, memory)                                                            \
    SAME_PLACE(wfi_cudnn_choice, theirs, determinism)                                                       \
    SAME_PLACE(wfi_cudnn_choice, theirs, mathType)
SAME_CHOICE(cudnnConvolutionFwdAlgoPerf_t)
SAME_CHOICE(cudnnConvolutionBwdDataAlgoPerf_t)
SAME_CHOICE(cudnnConvolutionBwdFilterAlgoPerf_t)
_Static_assert(sizeof(wfi_cublaslt_choice) == sizeof(cublasLtMatmulHeuristicResult_t), "a choice");
SAME_PLACE(wfi_cublaslt_choice, cublasLtMatmulHeuristicResult_t, algo)
SAME_PLACE(wfi_cublaslt_choice, cublasLtMatmulHeuristicResult_t, workspaceSize)
SAME_PLACE(wfi_cublaslt_choice, cublasLtMatmulHeuristicResult_t, state)
C
compile=("${CC:-cc}" -std=gnu11 -Isrc -Iinclude -I"$toolkit/include" -Wno-deprecated-declarations)
"${compile[@]}" -fsyntax-only "$folder/declared.c" >"$folder/out" 2>&1 || fail "not as declared: $(grep -m 3 error "$folder/out")"
# A wrong value is seen.
sed 's/X(CUDNN_FMA_MATH, 3)/X(CUDNN_FMA_MATH, 2)/' src/kernel/cuda/library.h >"$folder/wrong.h"
sed 's|kernel/cuda/library.h|wrong.h|' "$folder/declared.c" >"$folder/wrong.c"
"${compile[@]}" -I"$folder" -fsyntax-only "$folder/wrong.c" >"$folder/out" 2>&1 && fail "a wrong constant is not seen"
grep -q CUDNN_FMA_MATH "$folder/out" || fail "a wrong constant: $(grep -m 3 error "$folder/out")"
# So is a wrong parameter, also of a direction of convolutions, and a wrong attribute.
sed 's/int, int \*, choice \*/int, choice */; s/X(AddTensor, (cudnnHandle_t, const void/X(AddTensor, (cudnnHandle_t, void/; s/X(TILE_ID, 1/X(TILE_ID, 2/' src/kernel/cuda/library.h >"$folder/wrong.h"
"${compile[@]}" -I"$folder" -fsyntax-only "$folder/wrong.c" >"$folder/out" 2>&1 && fail "wrong declarations are not seen"
for what in cudnnGetConvolutionBackwardFilterAlgorithm_v7 cudnnAddTensor CUBLASLT_ALGO_CONFIG_TILE_ID; do
    grep -q "$what" "$folder/out" || fail "$what: $(grep -m 3 error "$folder/out")"
done

# ---- the libraries themselves ----
cat >"$folder/symbols.c" <<'C'
#include "kernel/cuda/library.h"
#include <dlfcn.h>
#include <stdio.h>
#define LOOK(library, name)                                                                                 \
    if (!dlsym(library, name)) return printf("no %s\n", name), 1;
#define CUDNN(name, ...) LOOK(dnn, "cudnn" #name)
#define CUBLASLT(name, ...) LOOK(lt, "cublasLt" #name)
/* What weft describes to them, they take, as far as that needs no GPU: attributes are of their sizes. */
#define OF(library, prefix, name) ((__typeof__(((library *)0)->name))dlsym(self, prefix #name))
#define DO(call)                                                                                            \
    if (call) return printf("refused: %s\n", #call), 1
static int describe_products(void *self) {
    void *c, *l, *p, *bias = NULL;
    int32_t n = 3;
    int64_t stride = 700;
    uint64_t most = 1;
    size_t written;
    wfi_cublaslt_choice choice = {0};
    static const uint32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB};
    static const int computes[] = {CUBLAS_COMPUTE_32F, CUBLAS_COMPUTE_32F_FAST_TF32};
#define LT(name) OF(wfi_cublaslt, "cublasLt", name)
    for (int i = 0; i < 2; i++) DO(LT(MatmulDescCreate)(&c, computes[i], CUDA_R_32F));
    DO(LT(MatmulDescSetAttribute)(c, CUBLASLT_MATMUL_DESC_TRANSA, &n, 4));
    for (int i = 0; i < 4; i++) DO(LT(MatmulDescSetAttribute)(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[i], 4));
    DO(LT(MatmulDescSetAttribute)(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, 8));
    DO(LT(MatrixLayoutCreate)(&l, CUDA_R_16BF, 100, 7, 100));
    DO(LT(MatrixLayoutSetAttribute)(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &n, 4));
    DO(LT(MatrixLayoutSetAttribute)(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, 8));
    DO(LT(MatmulPreferenceCreate)(&p));
    DO(LT(MatmulPreferenceSetAttribute)(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, 8));
    DO(LT(MatmulPreferenceSetAttribute)(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &n, 4));
    DO(LT(MatmulPreferenceSetAttribute)(p, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &n, 4));
#define CONFIG(name, value, bytes, text) DO(LT(MatmulAlgoConfigGetAttribute)(&choice.algo, value, &most, bytes, &written));
    WFI_CUBLASLT_CONFIGS(CONFIG)
    return 0;
}
static int describe(void *self, void *lt) {
    void *x, *w, *c;
    int dim[4];
    int (*get_dims)(void *, void *, void *, int *, int *, int *, int *) = dlsym(self, "cudnnGetConvolution2dForwardOutputDim");
    static const int types[] = {CUDNN_DATA_FLOAT, CUDNN_DATA_BFLOAT16}, maths[] = {CUDNN_FMA_MATH, CUDNN_TENSOR_OP_MATH};
#define DNN(name) OF(wfi_cudnn, "cudnn", name)
    for (int i = 0; i < 2; i++) {
        DO(DNN(CreateTensorDescriptor)(&x));
        DO(DNN(CreateFilterDescriptor)(&w));
        DO(DNN(CreateConvolutionDescriptor)(&c));
        DO(DNN(SetTensor4dDescriptor)(x, CUDNN_TENSOR_NCHW, types[i], 2, 6, 9, 11));
        DO(DNN(SetFilter4dDescriptor)(w, types[i], CUDNN_TENSOR_NCHW, 4, 3, 3, 3));
        DO(DNN(SetConvolution2dDescriptor)(c, 1, 1, 2, 2, 1, 1, CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
        DO(DNN(SetConvolutionGroupCount)(c, 2));
        DO(DNN(SetConvolutionMathType)(c, maths[i]));
        DO(get_dims(c, x, w, &dim[0], &dim[1], &dim[2], &dim[3]));
        DO(dim[0] != 2 || dim[1] != 4 || dim[2] != 5 || dim[3] != 6);
    }
    return describe_products(lt);
}
int main(void) {
    void *dnn = dlopen("libcudnn.so.9", RTLD_LAZY), *lt = dlopen("libcublasLt.so.13", RTLD_LAZY);
    if (!dnn || !lt) return printf("%s\n", dlerror()), 77;
    WFI_CUDNN_LIST(CUDNN, CUDNN)
    WFI_CUDNN_WAYS(CUDNN)
    WFI_CUBLASLT_LIST(CUBLASLT, CUBLASLT)
    return describe(dnn, lt);
}
C
"${compile[@]}" "$folder/symbols.c" -o "$folder/symbols" -ldl || fail "it does not compile"
said=$(LD_LIBRARY_PATH=$toolkit/lib64:$toolkit/lib "$folder/symbols")
case $? in
0) ;;
77) echo "the libraries are not there: $said" ;;
*) fail "the libraries: $said" ;;
esac
