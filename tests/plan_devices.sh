#!/usr/bin/env bash
# label: once stand_in
# weft plan for devices that this machine does not have: by their kind's own kernels, and it says so. And
# what of a recipe has no effect on a plan's devices.
source tests/cli_helpers.bash
model="plan --model resnet18 --data synthetic --image 32 --batch 8 --threads 1"
# plans VARIABLE=VALUE OPTIONS...: the report, in $folder/report, and what is printed, in $folder/out.
plans() {
    # shellcheck disable=SC2086
    env "$1" "$WEFT" $model "${@:2}" --json "$folder/report" >"$folder/out" 2>"$folder/said"
}
peak() { field peak_bytes <"$folder/report" | head -n 1; }
says() { grep -qF -- "$1" "$folder/out" || fail "$2: does not say '$1': $(cat "$folder/out" "$folder/said")"; }

# ---- a machine that has the devices ----
plans A=1 --devices cuda:2 --plan dp=2 || fail "cuda:2: $(tail -1 "$folder/said")"
grep -q "not on this machine" "$folder/out" && fail "a machine that has a GPU: $(grep devices "$folder/out")"
grep -q missing_devices "$folder/report" && fail "a machine that has a GPU: the report names what is missing"

# ---- one that does not ----
none=$folder/none
mkdir "$none" && : >"$none/libcuda.so.1"
of_cpu=$(plans A=1 && peak)
plans LD_LIBRARY_PATH="$none" --devices cuda:1 || fail "cuda:1 without a driver: $(tail -1 "$folder/said")"
of_cuda=$(peak)
[[ $(grep -c "^devices not on this machine (cuda: .*file too short" "$folder/out") == 1 ]] || fail "cuda:1 without a driver says $(cat "$folder/out")"
says "what a device has is not known, --device-memory SIZE says it" "no --device-memory"
field missing_devices <"$folder/report" | has "file too short" || fail "the report does not say what is missing"
[[ $(field device_memory <"$folder/report") == null ]] || fail "memory that nobody knows: $(field device_memory <"$folder/report")"
OPENCL_VENDOR_PATH=$none plans OCL_ICD_VENDORS="$none" --devices opencl:1 || fail "opencl:1 without a driver: $(tail -1 "$folder/said")"
grep -q "^devices not on this machine (opencl: " "$folder/out" || fail "opencl:1 without a driver says $(cat "$folder/out")"
[[ $(peak) == "$of_cuda" && $of_cuda != "$of_cpu" ]] || fail "kernels of a GPU's kind need $of_cuda, $(peak) bytes; the CPU's $of_cpu"
plans LD_LIBRARY_PATH="$none" --devices cpu:0,cuda:0 --plan pp=2 --device-memory 1GiB || fail "mixed: $(tail -1 "$folder/said")"
says "not on this machine" "mixed"
grep -q "is not known" "$folder/out" && fail "--device-memory is given, and not known"
[[ $(field device_memory <"$folder/report") == 1073741824 ]] || fail "--device-memory is not in the report"
plans LD_LIBRARY_PATH="$none" --devices cuda:1 --device-memory 4MB
[[ $? == 3 && $(field fits <"$folder/report") == false ]] || fail "4 MB: it fits"

# ---- what has no effect ----
warned() { grep -c "matmul-precision tf32 has no effect here: .*; here .* computes, in f32" "$folder/said"; }
for more in "" "--devices cpu:2 --plan auto"; do
    # shellcheck disable=SC2086
    plans A=1 --matmul-precision tf32 $more
    [[ $(warned) == 1 ]] || fail "TF32 on CPUs $more: $(cat "$folder/said")"
done
plans A=1 --matmul-precision tf32 --devices cuda:1
[[ $(warned) == 0 ]] || fail "TF32 on a GPU: $(cat "$folder/said")"
finish
