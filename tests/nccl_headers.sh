#!/usr/bin/env bash
# label: once
# What weft declares of NCCL is what its header declares, and the real library has it; skipped where they are not.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAILED: $*" && exit 1; }
toolkit=${CUDA_HOME:-/usr/local/cuda}
[[ -e $toolkit/include/nccl.h ]] || { echo "skipped: there is no $toolkit/include/nccl.h"; exit 77; }

cat >"$folder/declared.c" <<'C'
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cuda.h>
#include <nccl.h>
#define CUdevice wfi_device_number /* device/cuda_library.h declares CUDA's types */
#define CUdeviceptr wfi_device_address
#define CUcontext wfi_context_handle
#define CUmodule wfi_module_handle
#define CUfunction wfi_function_handle
#define CUstream wfi_stream_handle
#define CUevent wfi_event_handle
#define nvrtcProgram wfi_program_handle
#define WFI_NCCL_TYPES_ARE_DECLARED
#include "comm/wire/nccl_library.h"

#define SAME_VALUE(name, value) _Static_assert((int)name == value, #name);
WFI_NCCL_CONSTANTS(SAME_VALUE)
#define SAME_TYPE(name, result, parameters)                                                                  \
    _Static_assert(__builtin_types_compatible_p(__typeof__(&nccl##name), result(*) parameters), #name);
WFI_NCCL_LIST(SAME_TYPE)
#define SAME_PLACE(member)                                                                                   \
    _Static_assert(offsetof(wfi_nccl_config, member) == offsetof(ncclConfig_t, member), #member);            \
    _Static_assert(sizeof(((wfi_nccl_config *)0)->member) == sizeof(((ncclConfig_t *)0)->member), #member);
SAME_PLACE(size) SAME_PLACE(magic) SAME_PLACE(version) SAME_PLACE(blocking)
_Static_assert(sizeof(ncclUniqueId) == 128, "an id");
static const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
unsigned magic(void) { return config.magic; }
C
compile=("${CC:-cc}" -std=gnu11 -Isrc -Iinclude -isystem "$toolkit/include")
"${compile[@]}" -fsyntax-only "$folder/declared.c" >"$folder/out" 2>&1 || fail "not as declared: $(grep -m 3 error "$folder/out")"
grep -q "0x$(sed -n 's/.*WFI_NCCL_MAGIC *0x\([0-9a-f]*\)u/\1/p' src/comm/wire/nccl_library.h)," "$toolkit/include/nccl.h" || fail "another magic number"
# What differs is seen.
sed 's/X(ncclInProgress, 7)/X(ncclInProgress, 6)/; s/(void \*, size_t, nccl/(void *, int, nccl/' \
    src/comm/wire/nccl_library.h >"$folder/wrong.h"
sed 's|comm/wire/nccl_library.h|wrong.h|' "$folder/declared.c" >"$folder/wrong.c"
"${compile[@]}" -I"$folder" -fsyntax-only "$folder/wrong.c" >"$folder/out" 2>&1 && fail "what is wrong is not seen"
for what in ncclInProgress Recv; do grep -q "error.*$what" "$folder/out" || fail "$what: $(grep -m 3 error "$folder/out")"; done

# ---- the library itself ----
library=$(ls "$toolkit"/lib*/libnccl.so.2 2>/dev/null | head -n 1)
[[ $library ]] || { echo "skipped: there is no libnccl.so.2 in $toolkit"; exit 77; }
for name in $(grep -oE 'X\([A-Z][A-Za-z]+, (const char \*|ncclResult_t)' src/comm/wire/nccl_library.h | sed 's/X(\([A-Za-z]*\).*/nccl\1/'); do
    [[ $(nm -D "$library") == *" "[TW]" $name"* ]] || fail "$library has no $name"
done
exit 0
