#!/usr/bin/env bash
# label: once
# What is computed again gives the bits of what was kept: dropout's masks, batch statistics (running
# ones are updated once), clipping, a tied weight. The planned peak is the measured one, and below that
# of a run that keeps all. train_plans has every mode with every plan of small networks.
source tests/cli_helpers.bash

n_runs=0

# train PLAN MORE...: its report.
train() {
    local plan=$1
    shift
    report train --data synthetic --seed 12 --threads 1 --steps 2 --lanes 4 "${words[@]}" --plan "$plan" "$@"
}

# peaks: of all ranks, planned and then measured, of the report on standard input.
peaks() { tr -d ' \n' | grep -oE '"(planned|measured)":\[[0-9,]+\]' | sed 's/.*:\[//; s/\]//'; }
largest() { tr ',' '\n' | sort -n | tail -1; }

# same MODE GRID RANKS LAUNCHER MORE...
same() {
    local plan="$2recompute=$1" launch=(--ranks "$3")
    [[ $4 == threads ]] && launch=(--devices "cpu:$3")
    n_runs=$((n_runs + 1))
    train "$plan" "${launch[@]}" "${@:5}" >"$folder/again"
    [[ $(field weights_sha256 <"$folder/again") == "$one" ]] || fail "$name, $4, $plan: not one rank's bits"
    peaks <"$folder/again" >"$folder/peaks"
    { read -r planned && read -r measured; } <"$folder/peaks"
    [[ $planned == "$measured" ]] || fail "$name, $4, $plan: planned $planned, measured $measured"
}

# below PEAKS: those of the last run are less in all.
below() { ((${planned//,/+} < ${1//,/+})) || fail "$name: peaks $planned, of a run that keeps all $1"; }

# What is tried: network, what is computed again, grid, how ranks are started.
some="gpt2-tiny all dp=1, threads
gpt2-tiny auto dp=1, processes
gpt2-tiny h.1 dp=2, processes
gpt2-tiny auto pp=2, threads
resnet18 all dp=1, threads"

name=
while read -r network mode grid launcher <&3; do
    if [[ $network != "$name" ]]; then
        name=$network
        words=(--model gpt2-tiny --batch 16 --micro 8 --optimizer adamw --clip-norm .7 --dropout .1)
        [[ $name == resnet18 ]] &&
            words=(--model resnet18 --image 32 --batch 32 --micro 8 --momentum .9 --clip-norm 50)
        train "" >"$folder/one"
        one=$(field weights_sha256 <"$folder/one")
    fi
    ranks=1
    [[ $grid == *dp=2* ]] && ranks=$((2 * ranks))
    [[ $grid == *pp=2* ]] && ranks=$((2 * ranks))
    kept=$("$WEFT" plan --data synthetic --lanes 4 --threads 1 "${words[@]}" --plan "${grid%,}" --quiet --json - |
        tr -d ' \n' | grep -oE '"peak_bytes":[0-9]+' | sed 's/.*://' | paste -sd,)
    more=()
    [[ $mode == auto ]] && more=(--device-memory $(($(largest <<<"$kept") - 1)))
    same "$mode" "$grid" "$ranks" "$launcher" "${more[@]}"
    [[ $grid != *pp=2* && $mode =~ ^(all|auto)$ ]] && below "$kept"
done 3<<<"$some"

# Parameters that are gathered, other schedules, replicas that take turns.
name=gpt2-tiny words=(--model gpt2-tiny --batch 16 --micro 8 --optimizer adamw --clip-norm .7 --dropout .1)
train "" >"$folder/one"
one=$(field weights_sha256 <"$folder/one")
same all dp=2,zero=3,schedule=breadth, 2 threads
same selective dp=2,pp=2,zero=3,schedule=gpipe, 4 threads
same h.0+head:selective dataparallel=2, 2 processes
expect 2 "no unit is called 'h.7' (position 6); the units are embed, embed.pair0.0" \
    train "${words[@]}" --data synthetic --steps 1 --plan dp=2,recompute=h.7 --ranks 2
expect 3 "more than the 976.6 KiB given" plan "${words[@]}" --data synthetic --plan recompute=auto --device-memory 1000000
# An embedding's gradient is added to by a kernel that needs more than the one that assigns it.
name=gpt words=(--model gpt --tokens 16 --layers 2 --hidden 32 --heads 2 --vocab 1000 --batch 4 --micro 3 --lanes 3 --optimizer adam)
train "" >"$folder/one"
one=$(field weights_sha256 <"$folder/one")
same embed dp=3,zero=3,schedule=zb1,bucket=1000, 3 threads
echo "$n_runs runs"
finish
