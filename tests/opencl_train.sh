#!/usr/bin/env bash
# label: once long
# Training on OpenCL devices; what has no kernel, no driver or no such device is refused with a sentence.
# train_plans has more plans.
# WEFT_TEST_FULL=1: also in BF16, and in slices, whose kernels take long to compile.
kind=opencl
source tests/gpu_train.bash

without=(OCL_ICD_VENDORS="$folder" OPENCL_VENDOR_PATH="$folder")
env "${without[@]}" "$WEFT" info >"$folder/out" || fail "info without OpenCL: exit $?"
grep -q "opencl: .*install" "$folder/out" || fail "info says nothing of what to install: $(grep opencl "$folder/out")"
(export "${without[@]}" && expect 2 install "${train[@]}" --model mlp --steps 1 --devices opencl:1)

found=$("$WEFT" info | grep -o "opencl: .*")
[[ $found == "opencl: "[1-9]* ]] || { echo "skipped: $found"; exit 77; }

mlp=(--model mlp --optimizer adamw --lr 1e-3 --clip-norm 0.5 --ema 0.9)
near 1e-6 "${mlp[@]}"
same 2 dp=2,zero=3 "${mlp[@]}"

gpt=(--model gpt2-tiny --tokens 32 --optimizer adamw --lr 1e-3)
near 1e-6 "${gpt[@]}"
same 2 pp=2,schedule=zb2 "${gpt[@]}"
# A plan is one of the devices' kernels: with the CPU's, two ranks of it have other layouts and bytes.
peaks() { python3 -c 'import json, sys; r = json.load(open(sys.argv[1])); print(*[p["peak_bytes"] for p in r["ranks"]] if r.get("proposals") is not None else r["peak_bytes"]["measured"])' "$1"; }
measured=$(peaks "$folder/report")
for devices in opencl:2 cpu:2; do
    "$WEFT" plan --data synthetic --threads 1 --batch 4 --micro 4 --lanes 4 "${gpt[@]}" --plan pp=2,schedule=zb2 --devices "$devices" --json "$folder/plan" \
        >"$folder/out" || fail "weft plan --devices $devices: $(tail -n 1 "$folder/out")"
    [[ $(peaks "$folder/plan") == "$measured" ]] && is=same || is=other
    [[ $devices:$is == opencl:2:same || $devices:$is == cpu:2:other ]] ||
        fail "weft plan --devices $devices says $(peaks "$folder/plan"), measured are $measured"
done

if is_full; then
    # BF16: all is kept in the types that it has on the CPU, so losses are nearer than a place of such a number.
    near 1e-4 "${gpt[@]}" --dtype bf16
    same 2 pp=2,schedule=zb2 "${gpt[@]}" --dtype bf16
    same 2 dp=2,zero=3 "${gpt[@]}" --dtype bf16

    # Slices of layers, and of the vocabulary.
    near 1e-6 "${gpt[@]}" --slices 2
    same 2 tp=2 "${gpt[@]}" --slices 2
fi

lstm=(--model lstm --tokens 6 --hidden 16 --layers 1)
near 1e-6 "${lstm[@]}"
same 2 pp=2 "${lstm[@]}"
if is_full; then
    near 1e-6 "${lstm[@]}" --slices 2
    same 2 tp=2 "${lstm[@]}" --slices 2
fi

# A text goes on with the CPU's words: the prompt is a block of the cache, each token after it one more.
for i in {1..9}; do echo "the warp stands still and the weft goes across number $i"; done >"$folder/a.txt"
report train --model gpt2-tiny --tokens 16 --threads 1 --batch 4 --data "$folder/a.txt" --steps 2 --out "$folder/run" >/dev/null
for devices in cpu:1 opencl:1; do
    report generate --init "$folder/run" --prompt "the weft" --steps 6 --threads 1 --devices "$devices" | field text >"$folder/${devices%:1}"
done
[[ -s $folder/cpu ]] && cmp -s "$folder/cpu" "$folder/opencl" || fail "generate: $(<"$folder/opencl"), the CPU has $(<"$folder/cpu")"
