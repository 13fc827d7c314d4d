#!/usr/bin/env bash
# label: once
# What device/cuda_library.h declares of CUDA's interfaces is what CUDA's headers declare.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*" && exit 1; }
toolkit=${CUDA_HOME:-/usr/local/cuda}
[[ -e $toolkit/include/cuda.h && -e $toolkit/include/nvrtc.h ]] || { echo "skipped: there are no headers in $toolkit/include"; exit 77; }

# compares OPTIONS...: compiles nothing but comparisons.
compares() {
    cat >"$folder/compare.c" <<'C'
#include <cuda.h>
#include <nvrtc.h>

#include "device/cuda_library.h"

#define FUNCTION(name, symbol, parameters)                                                        \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), wfi_cuda_enum(*) parameters), \
                   #symbol);
WFI_CUDA_FUNCTIONS(FUNCTION)
WFI_CUDA_GRAPH_FUNCTIONS(FUNCTION)
WFI_NVRTC_FUNCTIONS(FUNCTION)
#define CONSTANT(name, cuda, value) _Static_assert((int)(name) == (int)(cuda), #cuda);
WFI_CUDA_CONSTANTS(CONSTANT)
C
    "${CC:-cc}" -std=c11 -fsyntax-only -isystem "$toolkit/include" -I include -I src "$@" "$folder/compare.c" 2>"$folder/errors"
}
compares || fail "$(grep -m 3 error "$folder/errors")"

# What differs is seen.
mkdir -p "$folder/device"
sed 's/(CUdeviceptr \*, size_t)/(CUdeviceptr *, unsigned)/; s/NO_DEVICE, 100/NO_DEVICE, 101/' src/device/cuda_library.h >"$folder/device/cuda_library.h"
compares -iquote "$folder" && fail "a parameter and a constant that differ are not seen"
for what in cuMemAlloc_v2 CUDA_ERROR_NO_DEVICE; do grep -q "$what" "$folder/errors" || fail "$what: $(cat "$folder/errors")"; done
exit 0
