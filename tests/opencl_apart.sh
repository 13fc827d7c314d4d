#!/usr/bin/env bash
# label: once
# Ranks whose kernels do not reach each other's memory: on two OpenCL devices, and on devices of two kinds.
# Planned are the bytes that are staged, and the happens-before checker sees each access.
kind=opencl
source tests/gpu_train.bash
export POCL_DEVICES="pthread pthread" WEFT_CHECK_EVENTS=1
found=$("$WEFT" info | grep -o "opencl: .*")
[[ $found ]] || fail "weft info does not say whether there is OpenCL"
[[ $found == "opencl: 2 "* ]] || { echo "skipped: PoCL shows no two devices: $found"; exit 77; }

# ---- one kind ----
mlp=(--model mlp --optimizer adamw --lr 1e-3 --clip-norm 0.5)
on opencl:1 "${mlp[@]}"
one=$(field weights_sha256 <"$folder/report")
same 4 dp=4,allreduce=tree "${mlp[@]}"
# Two of four are on one device.
on opencl:0,opencl:1,opencl:0,opencl:1 --plan dp=4 "${mlp[@]}"
[[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "two devices for four ranks: not one rank's bits"
expect 2 "choose allreduce=tree, without zero" \
    "${train[@]}" --steps 1 --batch 9 --micro 9 --lanes 9 --image 6 "${mlp[@]}" --plan dp=9,zero=1 --devices opencl:9
for plan in dp=9,zero=1 dp=9,allreduce=direct; do
    expect 2 "choose allreduce=tree, without zero" \
        plan --batch 9 --model mlp --data synthetic --plan "$plan" --devices opencl:9
done
"$WEFT" plan --batch 9 --micro 9 --lanes 9 --model mlp --data synthetic --plan auto --devices opencl:9 >"$folder/said" 2>&1 &&
    grep -q "allreduce=tree" "$folder/said" || fail "nine ranks: no plan that sums as a tree: $(tail -1 "$folder/said")"
POCL_CACHE_DIR=/proc/none expect 2 "offers no device: it has none (-1)" \
    "${train[@]}" --steps 1 "${mlp[@]}" --devices opencl:1
OCL_ICD_VENDORS=/proc expect 2 "finds no driver" "${train[@]}" --steps 1 "${mlp[@]}" --devices opencl:1
gpt=(--model gpt2-tiny --tokens 32 --optimizer adamw --lr 1e-3 --clip-norm 0.5)
# Kernels for slices of a vocabulary take long to compile.
sliced=("${mlp[@]}") && is_full && sliced=("${gpt[@]}")
on opencl:1 "${sliced[@]}" --slices 2
one=$(field weights_sha256 <"$folder/report")
same 2 tp=2 "${sliced[@]}" --slices 2

# ---- two kinds: each stage has the bits of its own ----
two_kinds "${gpt[@]}"
on cpu:0,opencl:0 --plan auto "${gpt[@]}"
has "^plan    auto: dp=1,pp=2" <"$folder/out" || fail "--plan auto: $(grep plan "$folder/out")"
expect 2 "share unit embed, but are on cpu and on opencl devices" \
    "${train[@]}" --steps 1 --batch 4 "${gpt[@]}" --plan dp=2 --devices cpu:0,opencl:0
finish
