#!/usr/bin/env bash
# label: serial stand_in long
# cuBLASLt and cuDNN on CUDA devices, through their stand-ins: a network of convolutions under every plan;
# which algorithm computes a shape is the recipe's to say; without the libraries weft's own kernels do it.
# WEFT_TEST_FULL=1: the network of convolutions also in two stages and in BF16.
kind=cuda
source tests/gpu_train.bash
steps=1

resnet=(--model resnet18 --image 32 --micro 1 --lanes 1 --lr 1e-6)
near 1e-4 "${resnet[@]}"
! is_full || same 2 pp=2 "${resnet[@]}"

# In BF16 the libraries multiply what is BF16, weights rounded once a step; the same bits under every plan.
gpt=(--model gpt2-tiny --tokens 8 --dtype bf16 --optimizer adamw --lr 1e-3)
near 1e-3 "${gpt[@]}"
same 2 dp=2,zero=3 "${gpt[@]}"
near 1e-3 "${gpt[@]}" --slices 2
same 2 tp=2 "${gpt[@]}" --slices 2
on cuda:1 "${gpt[@]}" --profile
(($(grep -cE "^self_attention.* algo" "$folder/out") == 2)) || fail "attention is not cuBLASLt's: $(grep attention "$folder/out")"
! is_full || near 1e-2 "${resnet[@]}" --dtype bf16

near 1e-2 --model mlp --matmul-precision tf32
same 2 dp=2 --model mlp --matmul-precision tf32

# ---- ways ----
# chosen OPTIONS...: a step of mlp; its bits, and in $folder/said who computes what.
chosen() {
    WEFT_LOG=debug:dispatch "$WEFT" "${train[@]}" --model mlp --batch 4 --lanes 1 --steps 1 --devices cuda:1 "$@" --json "$folder/report" \
        >"$folder/said" 2>&1 || fail "$*: $(tail -n 1 "$folder/said")"
    field weights_sha256 <"$folder/report"
}
one=$(chosen)
grep -q "cublaslt declined linear" "$folder/said" && fail "cuBLASLt multiplies nothing: $(grep -m 1 declined "$folder/said")"
shape=linear:4x256:256x256:256:4x256:0.0
narrow=$(chosen --dtype bf16)
grep -E "(cublaslt declined (linear|matmul)|cudnn declined conv)" "$folder/said" | grep -v "it accumulates into its output" && fail "in bf16 weft's own kernels multiply"
[[ $narrow != "$one" ]] || fail "bf16 has the bits of f32"
[[ $(chosen --dtype bf16 --matmul-precision tf32) == "$narrow" ]] || fail "TF32 changes what is BF16"
[[ $(chosen --matmul-precision tf32) != "$one" ]] || fail "TF32 changes nothing"
grep "no effect" "$folder/said" && fail "TF32 has no effect"
other=$(chosen --tuned "$shape=cublaslt:algo2.tile0.stages0.split1")
[[ $other != "$one" ]] || fail "another algorithm has the same bits"
[[ $(chosen --tuned "$shape=cublaslt:algo2.tile0.stages0.split1.cluster4") == "$other" ]] || fail "algorithms of one number are not alike"
grep "there is no cublaslt" "$folder/said" && fail "algorithms of one number are not told apart"
[[ $(chosen --tuned "$shape=cublaslt:algo1.tile0.stages0.split2") == "$one" ]] || fail "the usual algorithm by its name has other bits"
[[ $(chosen --tuned "$shape=cublaslt:algo0.tile0.stages0.split1") == "$one" ]] || fail "one that sums in any order was taken"
grep -q "there is no cublaslt:algo0" "$folder/said" || fail "nothing is said of an algorithm that there is not"

# ---- without the libraries ----
for file in libcudnn.so.9 libcublasLt.so.13; do
    "${CC:-cc}" -shared -o "$folder/$file" -x c /dev/null || fail "an empty library"
done
export LD_LIBRARY_PATH=$folder:$LD_LIBRARY_PATH
said=$("$WEFT" info | grep " cuda: ")
[[ $said == *"cuBLASLt: libcublasLt.so.13 has no cublasLtGetVersion"*"cuDNN: libcudnn.so.9 has no cudnnGetVersion"* ]] || fail "info: $said"
[[ $(chosen) != "$one" ]] || fail "weft's own kernels have the library's bits"
grep -q "cublaslt declined linear in unit .*: cuBLASLt: libcublasLt.so.13 has no" "$folder/said" || fail "nothing says who multiplies"
near 1e-6 --model mlp
exit 0
