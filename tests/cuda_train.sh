#!/usr/bin/env bash
# label: serial stand_in long
# Training on CUDA devices, through the stand-in for the driver. train_plans has more plans.
kind=cuda
source tests/gpu_train.bash

# With sanitizers one run, of all streams and of graphs: it takes long.
if grep -q '^WEFT_SANITIZE:.*=.' "$WEFT_BUILD/CMakeCache.txt"; then
    on cuda:4 --plan dp=2,pp=2 --model gpt2-tiny --tokens 8 --steps 3
    exit
fi

mlp=(--model mlp --optimizer adamw --lr 1e-3 --clip-norm 0.5 --ema 0.9)
near 1e-6 "${mlp[@]}"
(export STAND_IN_PEER=0 && same 2 dp=2 "${mlp[@]}") # GPUs that do not reach each other

gpt=(--model gpt2-tiny --tokens 8 --optimizer adamw --lr 1e-3)
near 1e-6 "${gpt[@]}"
same 2 pp=2,schedule=zb2 "${gpt[@]}"
short=("${gpt[@]}" --slices 2 --steps 1)
near 1e-6 "${short[@]}"
same 2 tp=2 "${short[@]}"

# Tasks are queued ahead of what the GPUs have done.
(export STAND_IN_COUNT=1 && on cuda:2 --plan pp=2 "${short[@]}")
(($(sed -n 's/^stand-in: \([0-9]*\) events in flight$/\1/p' "$folder/out") > 2)) || fail "nothing is in flight: $(tail -n 1 "$folder/out")"

# What is the same in every step is launched as a graph: the bits are those of kernels queued one by one, under
# whatever plan, also where the driver does not let them be captured. With dropout, for some units.
# launched OPTIONS...: graphs, in a run whose bits are in $one.
launched() {
    (export STAND_IN_COUNT=1 && on "$@")
    one=$(field weights_sha256 <"$folder/report")
    n=$(sed -n 's/^stand-in: \([0-9]*\) graphs launched$/\1/p' "$folder/out")
}
for plan in dp=2,pp=2,zero=1 pp=2,recompute=all dp=2,zero=3; do
    run=(cuda:4 --plan "$plan" "${short[@]}" --steps 4 --dropout 0.1 --slices 1)
    [[ $plan == *dp*pp* ]] || run[0]=cuda:2
    WEFT_REPLAY=0 launched "${run[@]}"
    ((n == 0)) || fail "$plan: graphs are not turned off"
    want=$one
    launched "${run[@]}"
    ((n >= 12)) || fail "$plan: $n graphs in two steps after the second"
    [[ $one == "$want" ]] || fail "$plan: other bits with graphs"
done
STAND_IN_CAPTURE=0 launched "${run[@]}"
((n == 0)) && [[ $one == "$want" ]] || fail "$n graphs, or other bits, where the driver captures nothing"

# What is not finite is said as the CPU says it, though no thread waits for each update's words.
# The stand-in computes convolutions slowly: those of a residual network are for WEFT_TEST_FULL=1.
for model in mlp $(is_full && echo resnet18); do
    spoiled=("${train[@]}" --batch 4 --micro 2 --lanes 2 --model $model --image 32 --lr 1e6 --steps 9)
    expect 1 "not finite" "${spoiled[@]}" --devices cpu:1
    want=$(tail -n 1 "$folder/said")
    expect 1 "$want" "${spoiled[@]}" --devices cuda:1
done

# Stages on devices of two kinds: each has the bits of its own.
two_kinds "${short[@]}"

is_full || exit 0
# What is rounded otherwise, batch norms over few pixels make large: the rate is small.
resnet=(--model resnet18 --image 32 --micro 1 --lanes 1 --lr 1e-6 --steps 1)
near 1e-4 "${resnet[@]}"
same 2 pp=2 "${resnet[@]}"
exit 0
