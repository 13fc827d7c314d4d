#!/usr/bin/env bash
# label: once stand_in
# bench/train_vs_pytorch on a GPU: weft on the driver's stand-in with tiny models, PyTorch by a script in its
# place that checks what it is asked for. What counts is wall time. Where PyTorch has no GPU, a sentence.
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
bench() { bench/train_vs_pytorch --weft "$WEFT" --rounds 1 --repeat 1 --out "$folder/it.json" "$@" >"$folder/out" 2>&1 || fail "$*: $(cat "$folder/out")"; }
gpt=(--device cuda --case gpt2-1024 --weft-options "--model gpt2-tiny --tokens 8 --batch 2")

# ---- PyTorch with a GPU: 4 ms eagerly, 3 compiled; more CPU time than either takes ----
cat >"$folder/python" <<'END'
#!/bin/sh
[ "$1" != -c ] || exit 0
case "$*" in
*"--model gpt2 --batch 8 --tokens 1024 --dtype "*"--matmul-precision "*"--device cuda"*) ;;
*) echo "asked for $*" >&2; exit 1 ;;
esac
case "$*" in *--compile*) ms=3 ;; *) ms=4 ;; esac
echo "{\"tokens_per_second\": 9, \"step_ms\": {\"median\": 5, \"min\": $ms}, \"cpu_ms\": 70}"
END
chmod +x "$folder/python"
bench "${gpt[@]}" --dtype bf16 --python "$folder/python"
grep -E "^gpt2-1024 .* 1\.00   compiled$" "$folder/out" >/dev/null || fail "the table: $(cat "$folder/out")"
grep -q "tuned" "$folder/out" && fail "ways of malloc on a GPU: $(cat "$folder/out")"
python3 - "$folder/it.json" <<'END' || fail "the report: $(cat "$folder/it.json")"
import json, sys
it = json.load(open(sys.argv[1]))
case = it["cases"][0]
run = case["runs"]["weft"][0]
assert it["device"] == "cuda" and case["pytorch"]["step_ms"] == 3 and case["best_way"] == "compiled"
assert run["device"] == "Stand-in 0 (sm_90)" and "cuBLASLt" in run["device_library"], run["device"]
assert run["recipe"]["dtype"] == "bf16" and run["recipe"]["threads"] >= 1
assert run["peak_bytes"]["planned"] == run["peak_bytes"]["measured"]
assert abs(case["wall_ratio"] - 3 / run["step_ms"]["min"]) < 1e-9
END
bench "${gpt[@]}" --matmul-precision tf32 --python "$folder/python"
grep -q '"matmul_precision": "tf32"' "$folder/it.json" || fail "TF32 is not measured"

# ---- a Python without PyTorch, none, and OpenCL ----
printf '#!/bin/sh\necho "no CUDA device" >&2; exit 1\n' >"$folder/python"
bench "${gpt[@]}" --python "$folder/python"
grep -q "^PyTorch is not measured: .*python says: no CUDA device; bench/setup-peers installs one" "$folder/out" || fail "a PyTorch without CUDA: $(cat "$folder/out")"
grep -E "^gpt2-1024 .* -$" "$folder/out" >/dev/null || fail "weft alone: $(cat "$folder/out")"
bench "${gpt[@]}" --python "$folder/nowhere"
grep -q "^PyTorch is not measured: .*No such file" "$folder/out" || fail "no Python: $(cat "$folder/out")"
bench --device cuda --case resnet50-224 --weft-options "--model resnet18 --image 32 --batch 2" --no-peer --dtype f32
grep -E "^resnet50-224 " "$folder/out" >/dev/null || fail "ResNet: $(cat "$folder/out")"
bench/train_vs_pytorch --weft "$WEFT" --rounds 1 --repeat 1 --out "$folder/it.json" --device opencl --case gpt2-1024 \
    --weft-options "--model mlp" >"$folder/out" 2>&1 && fail "a run that is refused, and exit 0: $(cat "$folder/out")"
grep -q "^a case of weft's failed" "$folder/out" || fail "a run that is refused: $(cat "$folder/out")"
if "$WEFT" info | has "opencl: [1-9]"; then
    bench --device opencl --case resnet50-224 --weft-options "--model mlp --image 8 --batch 2"
    grep -q "^PyTorch is not measured: it has no OpenCL devices" "$folder/out" || fail "OpenCL: $(cat "$folder/out")"
    grep -q '"device_library": "weft.s kernels (OpenCL C)' "$folder/it.json" || fail "OpenCL: $(cat "$folder/it.json")"
fi
finish
