#!/usr/bin/env bash
# label: once stand_in long
# weft tune on other devices than the CPU: the libraries' algorithms are measured there, the slow one is left
# out, and what the table says is what runs.
source tests/cli_helpers.bash
mlp=(--model mlp --data synthetic --batch 4 --lanes 1)
net=(--model resnet18 --data synthetic --image 32 --batch 2)
# tune TABLE VARIABLE=VALUE OPTIONS...: the table, and nothing is left on the device. On a busy machine each
# run of a fast algorithm may take longer than a slow one's: then it is measured again.
tune() {
    for _ in 1 2 3; do
        env "$2" "$WEFT" tune "${@:3}" --repeat 3 --out "$folder/$1" >"$folder/out" 2>"$folder/said" || fail "tune ${*:2}: $(tail -1 "$folder/said")"
        ! grep "stand-in: left" "$folder/said" || fail "tune ${*:2}: the device keeps what is above"
        [[ $2 == STAND_IN_SLOW=1 ]] && rows "$1" | awk '{ print $2 }' | grep -q "algo1" || break
    done
}
# rows TABLE: "SHAPE CHOICE USUAL", a line a shape.
rows() { awk -F'"' '/"shape"/ { shape = $4 } /"choice"/ { choice = $4 } /"usual"/ { print shape, choice, $4 }' "$folder/$1"; }
train() { report train --threads 1 --seed 1 --steps 1 "$@"; }

# ---- an algorithm that is slow is the usual one, and is not chosen ----
tune slow STAND_IN_SLOW=1 "${mlp[@]}" --devices cuda:1
[[ $(field processor <"$folder/slow") == "Stand-in 0 (sm_90)" && $(field threads <"$folder/slow") == 1 ]] || fail "where was it measured? $(head -6 "$folder/slow")"
grep -q '"library": ".*CUDA C.*cuBLASLt.*cuDNN' "$folder/slow" || fail "with which libraries? $(head -6 "$folder/slow")"
[[ $(rows slow | wc -l) -ge 6 ]] || fail "few shapes: $(rows slow)"
rows slow | has " cublaslt:algo1.*split2$" || fail "the slow algorithm is nowhere the usual one: $(rows slow)"
rows slow | awk '{ print $2 }' | grep "algo1" && fail "the slow algorithm is chosen"
grep null "$folder/slow" && fail "an algorithm is wrong"
shape=linear:4x256:256x256:256:4x256:0.0
tune not STAND_IN_SLOW=2 "${mlp[@]}" --devices cuda:1
rows not | has "^$shape cublaslt:algo2[^ ]*split1 " && fail "another slow algorithm is chosen: $(rows not)"
tune bf16 STAND_IN_SLOW=1 "${mlp[@]}" --devices cuda:1 --dtype bf16
rows bf16 | awk '{ print $2 }' | grep -E "algo1|^$" && fail "bf16: the slow algorithm is chosen"
rows bf16 | has "^linear:4x256h" || fail "bf16 is not measured as bf16: $(rows bf16)"
tune tf32 STAND_IN_SLOW=1 "${mlp[@]}" --devices cuda:1 --matmul-precision tf32
grep null "$folder/tf32" && fail "TF32: an algorithm is wrong"

# cuDNN's: forward has a second one.
tune net STAND_IN_SLOW=1 "${net[@]}" --devices cuda:1
rows net | grep "^conv2d:" | awk '{ print $2 }' | sort -u | has -x cudnn:algo0 || fail "convolutions: $(rows net)"
rows net | grep "^conv2d:" | grep " cudnn:algo1 " && fail "the slow convolution is chosen"

# ---- what it says is what runs, the same under every plan ----
usual=$(train "${mlp[@]}" --devices cuda:1 | field weights_sha256)
tuned=$(train "${mlp[@]}" --devices cuda:1 --kernels "$folder/slow" | field weights_sha256)
grep "was measured with" "$folder/said" && fail "the table is of this very GPU"
[[ $tuned != "$usual" ]] || fail "the table changes nothing"
text=$(rows slow | awk '$2 != $3 { printf "%s%s=%s", n++ ? "+" : "", $1, $2 }')
[[ $(train "${mlp[@]}" --devices cuda:1 --tuned "$text" | field weights_sha256) == "$tuned" ]] || fail "--tuned and the table differ"
[[ $(train "${mlp[@]}" --devices cuda:2 --plan pp=2 --kernels "$folder/slow" | field weights_sha256) == "$tuned" ]] || fail "pp=2 has other bits"
train "${mlp[@]}" --kernels "$folder/slow" >"$folder/report"
grep -q "was measured with weft's kernels (CUDA C).*Stand-in 0.*and this is oneDNN" "$folder/said" || fail "a GPU's table on a CPU: $(cat "$folder/said")"

# ---- other places ----
"$WEFT" tune "${mlp[@]}" --devices cpu:0,cuda:0 --plan pp=2 >"$folder/out" 2>"$folder/said" && fail "two kinds have a table"
grep -q "devices of one kind" "$folder/said" || fail "two kinds: $(cat "$folder/said")"
mkdir "$folder/none" && : >"$folder/none/libcuda.so.1"
LD_LIBRARY_PATH=$folder/none expect 2 "file too short; install the driver" tune "${mlp[@]}" --devices cuda:1
STAND_IN_MEMORY=3000000 expect 1 "CUDA_ERROR_OUT_OF_MEMORY" tune "${mlp[@]}" --devices cuda:1
grep "stand-in: left" "$folder/said" && fail "a GPU that is full keeps what is above"
if "$WEFT" info | has "opencl: [1-9]"; then
    tune opencl A=1 "${mlp[@]}" --devices opencl:1
    grep -q '"library": "weft.s kernels (OpenCL C)' "$folder/opencl" || fail "OpenCL: $(head -6 "$folder/opencl")"
fi
finish
