#!/usr/bin/env bash
# label: once stand_in
# What is said of a CUDA driver that is missing, old or broken, of a GPU that is lost or full, and of kernels
# that do not compile; with which exit status; and that nothing is left.
source tests/cli_helpers.bash
stand_in=$WEFT_BUILD/tests/stand_in
train=(train --model mlp --data synthetic --threads 1 --seed 1 --steps 2 --batch 4 --micro 4 --lanes 4)
export XDG_CACHE_HOME=$folder/cache STAND_IN_DELAY_US=0

# says STATUS SENTENCE VARIABLE=VALUE... -- OPTIONS...: and nothing is left.
says() {
    local status=$1 sentence=$2 variables=()
    shift 2
    while [[ $1 != -- ]]; do variables+=("$1"); shift; done
    shift
    (export "${variables[@]}" && expect "$status" "$sentence" "${train[@]}" "$@" --json "$folder/report")
    ! grep "stand-in: left" "$folder/said" || fail "${variables[*]}: the device keeps what is above"
}

# ---- no driver, or none that can be used ----
if ! ldconfig -p | has libcuda.so.1; then
    says 2 "cuda: there is no libcuda.so.1 on this machine; install the driver" LD_LIBRARY_PATH= -- --devices cuda:1
    LD_LIBRARY_PATH= "$WEFT" info >"$folder/info"
    grep -q "cuda: there is no libcuda.so.1" "$folder/info" || fail "info says nothing of what is missing: $(grep cuda "$folder/info")"
fi
mkdir "$folder/broken"
echo >"$folder/broken/libcuda.so.1"
says 2 "broken/libcuda.so.1: file too short; install the driver" LD_LIBRARY_PATH="$folder/broken" -- --devices cuda:1
echo 'int cuInit(unsigned flags) { return (int)flags; }' | "${CC:-cc}" -shared -fPIC -x c -o "$folder/broken/libcuda.so.1" -
says 2 "libcuda.so.1 has no cuDriverGetVersion: it is not a driver of CUDA 11.2" LD_LIBRARY_PATH="$folder/broken" -- --devices cuda:1
says 2 "the driver supports CUDA 10.1, and weft needs 11.2" STAND_IN_VERSION=10010 -- --devices cuda:1
says 2 "the driver does not start (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: " STAND_IN_INIT=803 -- --devices cuda:1
says 2 "finds no GPU (CUDA_ERROR_NO_DEVICE: " STAND_IN_DEVICES=0 -- --devices cuda:1
STAND_IN_DEVICES=1 "$WEFT" info >"$folder/info"
grep -q "cuda: 1 device: 0 Stand-in 0 (sm_90)" "$folder/info" || fail "info does not list the GPU: $(grep cuda "$folder/info")"

# ---- kernels ----
says 2 "cuda: there is no libnvrtc.so.11.2 on this machine; install CUDA's compiler" STAND_IN_VERSION=11040 -- --devices cuda:1
STAND_IN_VERSION=11040 "$WEFT" info >"$folder/info"
grep -q "Stand-in 1 (sm_90); cuda: there is no libnvrtc.so.11.2" "$folder/info" || fail "info does not say that the compiler is missing: $(grep cuda "$folder/info")"
says 1 "does not compile for Stand-in 0 (CUDA 13.99, --gpu-architecture=sm_90): weft.cu(1): error" STAND_IN_COMPILE=0 -- --devices cuda:1
says 2 "the compiler of CUDA 13.99 cannot compile for Stand-in 0 (sm_61); install an older NVRTC" STAND_IN_CAPABILITY=61 -- --devices cuda:1
# A compiler that is older than the GPU gives what the driver compiles; what was compiled is kept.
trains() { "$WEFT" "${train[@]}" "$@" >"$folder/out" 2>&1 || fail "$*: $(tail -n 1 "$folder/out")"; }
STAND_IN_CAPABILITY=103 trains --devices cuda:1
trains --devices cuda:1
STAND_IN_COMPILE=0 trains --devices cuda:1
for file in "$folder"/cache/weft/cuda-*; do echo damaged >>"$file"; done
says 1 "does not compile" STAND_IN_COMPILE=0 -- --devices cuda:1

# ---- a GPU that is too small, full because of others, or lost at some launch; whatever the plan ----
says 3 "more than the 3.3 MiB given" STAND_IN_MEMORY=4000000 -- --devices cuda:1
STAND_IN_DEVICES=1 STAND_IN_MEMORY=17000000 trains --devices cuda:1
says 3 "more than the 6.7 MiB given" STAND_IN_DEVICES=1 STAND_IN_MEMORY=16000000 -- --devices cuda:2 --plan dp=2
says 1 "bytes of device memory (of 4000000, 3999" STAND_IN_MEMORY=4000000 -- --devices cuda:1 --device-memory 1GiB
says 1 "CUDA_ERROR_OUT_OF_MEMORY: out of memory" STAND_IN_MEMORY=40 -- --devices cuda:1 --device-memory 1GiB
for after in 0 7 60; do
    says 1 "on GPU 0, Stand-in 0: CUDA_ERROR_LAUNCH_FAILED: unspecified launch failure" STAND_IN_DEVICES=1 \
        STAND_IN_LOST_AFTER=$after -- --devices cuda:2 --plan dp=2
done
says 1 "CUDA_ERROR_ILLEGAL_ADDRESS" STAND_IN_LOST=700 STAND_IN_LOST_AFTER=20 -- --devices cuda:2 --plan pp=2

# ---- a GPU that hangs: its task is named, nothing waits for it, no process is left ----
# Its stream for copies hangs as well as that for compute: whichever is seen first.
hangs() {
    says 4 "cuda: GPU 0, Stand-in 0, hangs: in $(($1 * 3 / 4)) ms it has not completed the work of " \
        WEFT_TIMEOUT_MS="$1" STAND_IN_DEVICES=1 STAND_IN_HANG_AFTER=2 -- --devices cuda:1
    says 4 "hangs: in $(($1 * 3 / 4)) ms" WEFT_TIMEOUT_MS="$1" STAND_IN_HANG_AFTER=30 -- --devices cuda:2 --plan dp=2,offload=state
}
with_deadlines hangs 2000

# ---- GPUs that do not reach each other ----
STAND_IN_PEER=0 trains --devices cuda:2 --plan pp=2
exit 0
