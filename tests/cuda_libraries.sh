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
#define SAME_TYPE(library, name, result, parameters)                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&library##name), result(*) parameters), #name);
#define CUDNN(name, result, parameters) SAME_TYPE(cudnn, name, result, parameters)
#define CUBLASLT(name, result, parameters) SAME_TYPE(cublasLt, name, result, parameters)
WFI_CUDNN_LIST(CUDNN)
WFI_CUBLASLT_LIST(CUBLASLT)

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

# ---- the libraries themselves ----
cat >"$folder/symbols.c" <<'C'
#include "kernel/cuda/library.h"
#include <dlfcn.h>
#include <stdio.h>
#define LOOK(library, name)                                                                                 \
    if (!dlsym(library, name)) return printf("no %s\n", name), 1;
#define CUDNN(name, result, parameters) LOOK(dnn, "cudnn" #name)
#define CUBLASLT(name, result, parameters) LOOK(lt, "cublasLt" #name)
int main(void) {
    void *dnn = dlopen("libcudnn.so.9", RTLD_LAZY), *lt = dlopen("libcublasLt.so.13", RTLD_LAZY);
    if (!dnn || !lt) return printf("%s\n", dlerror()), 77;
    WFI_CUDNN_LIST(CUDNN)
    WFI_CUBLASLT_LIST(CUBLASLT)
    return 0;
}
C
"${compile[@]}" "$folder/symbols.c" -o "$folder/symbols" -ldl || fail "it does not compile"
said=$(LD_LIBRARY_PATH=$toolkit/lib64:$toolkit/lib "$folder/symbols")
case $? in
0) ;;
77) echo "the libraries are not there: $said" ;;
*) fail "the libraries: $said" ;;
esac
