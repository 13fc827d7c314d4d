#!/usr/bin/env bash
# label: once
# recompute=auto below a cap of memory, single units, and kernels that need more to add than to assign: the bits
# of one rank, and the planned peak is the measured one. train_plans has every mode with every plan of small networks.
source tests/cli_helpers.bash

# train PLAN MORE...: its report.
train() { report train --data synthetic --seed 12 --threads 1 --steps 2 --lanes 4 "${words[@]}" --plan "$1" "${@:2}"; }

# peaks: of all ranks, planned and then measured, of the report on standard input.
peaks() { tr -d ' \n' | grep -oE '"(planned|measured)":\[[0-9,]+\]' | sed 's/.*:\[//; s/\]//'; }

# same PLAN MORE...
same() {
    train "$@" >"$folder/again"
    [[ $(field weights_sha256 <"$folder/again") == "$one" ]] || fail "$*: not one rank's bits"
    { read -r planned && read -r measured; } < <(peaks <"$folder/again")
    [[ $planned == "$measured" ]] || fail "$*: planned $planned, measured $measured"
}

words=(--model gpt2-tiny --batch 16 --micro 8 --optimizer adamw --clip-norm .7 --dropout .1)
train "" >"$folder/one"
one=$(field weights_sha256 <"$folder/one")
kept=$(peaks <"$folder/one" | head -n 1)
same recompute=auto --ranks 1 --device-memory $((kept - 1))
((planned < kept)) || fail "recompute=auto needs $planned bytes, all kept $kept"
same dataparallel=2,recompute=h.0+head:selective --ranks 2
expect 2 "no unit is called 'h.7' (position 6); the units are embed, embed.pair0.0" \
    train "${words[@]}" --data synthetic --steps 1 --plan dp=2,recompute=h.7 --ranks 2
expect 3 "more than the 976.6 KiB given" plan "${words[@]}" --data synthetic --plan recompute=auto --device-memory 1000000
# An embedding's gradient is added to by a kernel that needs more than the one that assigns it.
words=(--model gpt --tokens 16 --layers 2 --hidden 32 --heads 2 --vocab 1000 --batch 4 --micro 3 --lanes 3 --optimizer adam)
train "" >"$folder/one"
one=$(field weights_sha256 <"$folder/one")
same dp=3,zero=3,schedule=zb1,bucket=1000,recompute=embed --devices cpu:3
finish
