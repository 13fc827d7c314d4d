#!/usr/bin/env bash
# label: once
# Training on OpenCL devices: the losses of the CPU up to rounding, one rank's bits under every plan, as
# many bytes as planned; what has no kernel, no driver or no such device is refused with a sentence.
# WEFT_TEST_FULL=1: 20 steps instead of 2.
source tests/cli_helpers.bash
steps=2
[[ ${WEFT_TEST_FULL:-0} == 1 ]] && steps=20

train=(train --data synthetic --threads 1 --seed 1)

expect 2 "CUDA devices are not among them" "${train[@]}" --model mlp --steps 1 --devices cuda:1
without=(OCL_ICD_VENDORS="$folder" OPENCL_VENDOR_PATH="$folder")
env "${without[@]}" "$WEFT" info >"$folder/out" || fail "info without OpenCL: exit $?"
grep -q "opencl: .*install" "$folder/out" || fail "info says nothing of what to install: $(grep opencl "$folder/out")"
(export "${without[@]}" && expect 2 install "${train[@]}" --model mlp --steps 1 --devices opencl:1)

found=$("$WEFT" info | grep -o "opencl: .*")
[[ $found == "opencl: "[1-9]* ]] || { echo "skipped: $found"; exit 77; }

# on DEVICES OPTIONS...: trains, and leaves the report in $folder/report.
on() {
    local devices=$1
    shift
    "$WEFT" "${train[@]}" --steps "$steps" --batch 4 --micro 4 --lanes 4 "$@" --devices "$devices" --json "$folder/report" \
        >"$folder/out" 2>&1 || fail "$*, $devices: $(tail -n 1 "$folder/out")"
    python3 - "$folder/report" <<'PY' || fail "$*, $devices: planned and measured bytes differ"
import json, sys
peak = json.load(open(sys.argv[1]))["peak_bytes"]
sys.exit(peak["planned"] != peak["measured"])
PY
}
losses() { sed -n '/"losses"/,/]/p' "$folder/report" | grep -oE '[0-9]+\.[0-9e+-]+' | tr '\n' ' '; }

# near DISTANCE OPTIONS...: of each loss, relatively, to the CPU's.
near() {
    local distance=$1 want got
    shift
    on cpu:1 "$@"
    want=$(losses)
    on opencl:1 "$@"
    got=$(losses)
    one=$(field weights_sha256 <"$folder/report")
    awk -v a="$got" -v b="$want" -v most="$distance" 'BEGIN {
        n = split(a, x, " "); m = split(b, y, " ")
        for (i = 1; i <= n; i++) { d = (x[i] - y[i]) / y[i]; if (d < 0) d = -d; if (!(d <= most)) exit 1 }
        exit n != m || n == 0 }' || fail "$*: losses $got, the CPU has $want"
}
# same RANKS PLAN OPTIONS...: the bits of one rank, which `near` has found.
same() {
    local ranks=$1 plan=$2
    shift 2
    on "opencl:$ranks" --plan "$plan" "$@"
    [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$*, $plan: not one rank's bits"
}

mlp=(--model mlp --optimizer adamw --lr 1e-3 --clip-norm 0.5 --ema 0.9)
near 1e-6 "${mlp[@]}"
for plan in dp=2,offload=state dp=2,zero=3; do same 2 "$plan" "${mlp[@]}"; done
same 4 dp=2,pp=2,schedule=zb1 "${mlp[@]}"

gpt=(--model gpt2-tiny --tokens 32 --optimizer adamw --lr 1e-3)
near 1e-6 "${gpt[@]}"
for schedule in gpipe 1f1b zb2; do same 2 pp=2,schedule=$schedule "${gpt[@]}"; done
same 2 dp=2 "${gpt[@]}"

# What is rounded otherwise, batch norms over few pixels make large: the rate is small.
resnet=(--model resnet18 --image 32 --micro 1 --lanes 1 --lr 1e-6)
near 1e-4 "${resnet[@]}"
same 2 pp=2 "${resnet[@]}"

# ---- what there is no kernel for ----
expect 2 "no kernel for op cast of unit net1 on opencl devices" "${train[@]}" --model mlp --steps 1 --devices opencl:1 --dtype bf16
expect 2 "no kernel for op lstm of unit rnn.0 on opencl devices" "${train[@]}" --model lstm --steps 1 --devices opencl:1
