#!/usr/bin/env bash
# label: once
# --dtype bf16: every plan gives the bits of one rank, as threads and as processes, the planned bytes
# are the measured ones, a transformer's are fewer than f32's, half as many go between stages, and a run
# goes on under another plan; a processor that does not multiply bf16 is a warning.
source tests/cli_helpers.bash

# train NAME PLAN RANKS MORE...: its report is $folder/NAME.
train() {
    local name=$1 plan=$2 launch=(--ranks "$3")
    [[ $3 == cpu:* ]] && launch=(--devices "$3")
    report train --data synthetic --steps 2 --seed 5 --threads 1 --batch 8 --micro 4 --lanes 2 --dtype bf16 \
        "${words[@]}" --plan "$plan" "${launch[@]}" "${@:4}" >"$folder/$name"
}

# bytes FIELD NAME: its numbers, a rank each.
bytes() { tr -d ' \n' <"$folder/$2" | grep -oE "\"$1\":\[[0-9,]+\]" | head -1 | sed 's/.*\[//; s/\]//; s/,/ /g'; }
same() {
    train again "$@"
    [[ $(field weights_sha256 <"$folder/again") == $(field weights_sha256 <"$folder/one") ]] ||
        fail "${words[1]}, $*: not one rank's bits"
    [[ $(bytes planned again) == "$(bytes measured again)" ]] || fail "${words[1]}, $*: planned bytes are not measured"
}
# less PLAN RANKS MORE...: than f32 needs under that plan, each rank.
less() {
    local narrow wide
    train again "$@"
    read -ra narrow <<<"$(bytes planned again)"
    train wide "$@" --dtype f32
    read -ra wide <<<"$(bytes planned wide)"
    for rank in "${!narrow[@]}"; do
        ((narrow[rank] < wide[rank])) || fail "${words[1]}, $1: ${narrow[*]} bytes of bf16, ${wide[*]} of f32"
    done
}

words=(--model resnet18 --image 32 --momentum 0.9)
train one "" cpu:1
[[ $(field dtype <"$folder/one") == bf16 ]] || fail "the report has dtype $(field dtype <"$folder/one")"
same dp=2,zero=3,recompute=all 2
same pp=2,schedule=zb1 cpu:2
train wide pp=2,schedule=zb1 cpu:2 --dtype f32
[[ $(bytes sent_bytes wide) == "$((2 * $(bytes sent_bytes again | cut -d' ' -f1))) "* ]] ||
    fail "between stages go $(bytes sent_bytes again) bytes of bf16, $(bytes sent_bytes wide) of f32"

words=(--model gpt2-tiny --tokens 32 --optimizer adamw --clip-norm 1 --dropout 0.1 --slices 2)
train one "" cpu:1
same tp=2,dp=2,zero=1 cpu:4
same tp=2,pp=2,schedule=zbv cpu:4
same dp=2,recompute=selective,offload=state+activations 2
less dp=2 cpu:2 --tokens 64
train one "" cpu:1 --kernels reference
same dp=2 2 --kernels reference
# Rows that slices do not divide: what slices sum is F32 by itself.
train one "" cpu:1 --tokens 31
same tp=2 cpu:2 --tokens 31

# As far as it goes: two steps and two, by other plans, are four.
train whole "" cpu:1 --steps 4
train first dp=2 2 --out "$folder/run"
train rest pp=2 cpu:2 --out "$folder/run" --resume --steps 4
[[ $(field weights_sha256 <"$folder/rest") == $(field weights_sha256 <"$folder/whole") ]] || fail "what goes on has other bits"

# Files have the weights that are updated, of F32.
dd if="$folder/run/model.safetensors" bs=1 skip=8 count=20000 2>/dev/null | has '"BF16"' && fail "weights in files are rounded"

# What oneDNN may use is capped, as where a processor has no more.
for isa in AVX512_CORE AVX2; do
    ONEDNN_MAX_CPU_ISA=$isa "$WEFT" train --model mlp --data synthetic --steps 2 --batch 8 --threads 1 --dtype bf16 \
        >"$folder/out" 2>"$folder/said" || fail "$isa: $(cat "$folder/said")"
    grep -q "does not multiply bf16 on this processor" "$folder/said" || fail "$isa: no warning: $(cat "$folder/said")"
done
ONEDNN_MAX_CPU_ISA=AVX2 "$WEFT" train --model mlp --data synthetic --steps 2 --batch 8 --threads 1 >"$folder/out" 2>"$folder/said"
grep -q bf16 "$folder/said" && fail "f32 warns of bf16"
finish
