#!/usr/bin/env bash
# label: once
# CLBlast on OpenCL devices: who multiplies, that it may be left out, be missing, too old or refuse a product; and
# that its header declares what weft does.
kind=opencl
source tests/gpu_train.bash
steps=1

header=/usr/include/clblast_c.h
compares() { "${CC:-cc}" -std=gnu11 -DCL_TARGET_OPENCL_VERSION=120 -Isrc -Iinclude "$@" -fsyntax-only "$folder/declared.c" >"$folder/out" 2>&1; }
if [[ -e $header ]]; then
    cat >"$folder/declared.c" <<'C'
#include <clblast_c.h>
#define WFI_CLBLAST_TYPES_ARE_DECLARED
#include "kernel/opencl/library.h"
#define SAME_VALUE(name, value) _Static_assert((int)name == value, #name);
WFI_CLBLAST_CONSTANTS(SAME_VALUE)
#define SAME_TYPE(name, parameters) \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&CLBlast##name), CLBlastStatusCode(*) parameters), #name);
WFI_CLBLAST_LIST(SAME_TYPE)
C
    compares || fail "not as declared: $(grep -m 3 error "$folder/out")"
    mkdir -p "$folder/kernel/opencl"
    sed 's/TransposeYes, 112/TransposeYes, 113/; s/size_t, cl_command_queue \*, size_t \*))/cl_command_queue *, size_t *))/' src/kernel/opencl/library.h \
        >"$folder/kernel/opencl/library.h"
    compares -iquote "$folder" && fail "a constant and a parameter that differ are not seen"
    for what in CLBlastTransposeYes GemmTempBufferSize; do grep -q "$what" "$folder/out" || fail "$what: $(grep -m 3 error "$folder/out")"; done
else
    echo "there is no $header to compare with"
fi

found=$("$WEFT" info | grep -o "opencl: .*")
[[ $found ]] || fail "weft info does not say whether there is OpenCL"
[[ $found == "opencl: "[1-9]* ]] || { echo "skipped: $found"; exit 77; }
[[ $found == *"; CLBlast" ]] || { echo "skipped: $found"; exit 77; }

# chosen OPTIONS...: a step of mlp; its bits, and in $folder/said who computes what.
chosen() {
    WEFT_LOG=debug:dispatch "$WEFT" "${train[@]}" --model mlp --batch 4 --steps 1 --devices opencl:1 "$@" --json "$folder/report" \
        >"$folder/said" 2>&1 || fail "$*: $(tail -n 1 "$folder/said")"
    field weights_sha256 <"$folder/report"
}
one=$(chosen)
grep "clblast declined linear" "$folder/said" | grep -v "it accumulates into its output" && fail "CLBlast does not multiply"
own=$(chosen --kernels reference)
[[ $own != "$one" ]] || fail "--kernels reference does not leave CLBlast out"
chosen --dtype bf16 >/dev/null
grep -q "clblast declined linear .*: it is BF16" "$folder/said" || fail "BF16 is not weft's own kernels'"

# ---- a convolution's scratch memory is planned, and plans have one rank's bits ----
near 1e-4 --model resnet18 --image 32 --micro 1 --lanes 1 --lr 1e-6
same 2 pp=2,schedule=zb2 --model resnet18 --image 32 --micro 1 --lanes 1 --lr 1e-6
grep "clblast declined conv" <(WEFT_LOG=debug:dispatch "$WEFT" "${train[@]}" --model resnet18 --image 32 --batch 4 --micro 1 --lanes 1 \
    --steps 1 --devices opencl:1 2>&1) | grep -v "it accumulates into its output" && fail "CLBlast does not convolve"

# ---- an old library, and one that refuses ----
"${CC:-cc}" -shared -o "$folder/libclblast.so.1" -x c /dev/null || fail "an empty library"
export LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
says() { [[ $("$WEFT" info) == *"$1"* ]] || fail "info does not say '$1': $("$WEFT" info | grep opencl)"; }
says "CLBlast: libclblast.so.1 has no CLBlastSGemmTempBufferSize: it is older than 1.5"
[[ $(chosen) == "$own" ]] || fail "without CLBlast, other bits than weft's own kernels'"
grep -q "clblast declined linear in unit .*: CLBlast: libclblast.so.1 has no" "$folder/said" || fail "nothing says who multiplies"
echo "not a library" >"$folder/libclblast.so.1"
says "libclblast.so.1: file too short; weft's own kernels compute products; install it"
cat >"$folder/refuses.c" <<'C'
#include <stddef.h>
int CLBlastSGemmTempBufferSize(int l, int a, int b, size_t m, size_t n, size_t k, size_t o, size_t p, size_t q, size_t r, size_t s,
                               size_t t, void *queue, size_t *bytes) { return *bytes = 0, 0; }
int CLBlastSgemmWithTempBuffer(void) { return -11; }
int CLBlastSgemmStridedBatched(void) { return -11; }
int CLBlastClearCache(void) { return 0; }
C
"${CC:-cc}" -shared -fPIC -w -o "$folder/libclblast.so.1" "$folder/refuses.c" || fail "a library that refuses"
expect 1 "the build failed (-11); --kernels reference leaves it out" \
    "${train[@]}" --model mlp --batch 4 --steps 1 --devices opencl:1
[[ $(chosen --kernels reference) == "$own" ]] || fail "it cannot be left out"
finish
