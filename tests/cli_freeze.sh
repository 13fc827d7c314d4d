#!/usr/bin/env bash
# label: once
# --freeze: what is named stays, the plan needs less, every way to start ranks gives one rank's bits,
# and a run goes on with what it froze, or not at all. Names that no parameter has are the user's
# mistake.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
net="--model gpt2-tiny --data synthetic --batch 8 --micro 4 --lanes 4 --threads 1 --optimizer adamw --clip-norm .5 --dropout .1"
frozen="--freeze wte,wpe,h.0"
peak() { report plan "$@" | field peak_bytes | head -1; }

# ---- names ----
expect 2 "no parameter is called 'h.7'" plan $net --freeze h.0,h.7
expect 2 "no parameter is called 'wt'" train $net --steps 1 --freeze wt
for names in , h.0, h.0,,h.1; do
    expect 2 "--freeze: a name is missing in '$names'" plan $net --freeze "$names"
done
expect 2 "leaves nothing to train" plan $net --freeze wte,wpe,h.0,h.1,ln_f
expect 2 "more than the 1023" plan $net --freeze "$(printf 'h.0,%.0s' {1..300})"
expect 2 "has no option --freeze" eval --model gpt2-tiny --freeze h.0 --init none

# ---- less memory, less work ----
all=$(peak $net) some=$(peak $net $frozen)
((some < all)) || fail "frozen parts need $some bytes, all $all"
[[ $(report plan $net $frozen | tr -d ' \n') == *'"freeze":"wte+wpe+h.0"'* ]] || fail "the report does not say what is frozen"

# ---- ranks: threads, processes with samples of their own, what is divided and what is elsewhere ----
report train $net $frozen --steps 3 --out "$folder/one" >"$folder/report"
one=$(field weights_sha256 <"$folder/report")
[[ $one != "$(sha train $net --steps 3)" ]] || fail "nothing is frozen"
for plan in dp=2 dp=2,zero=2 dp=2,zero=3,offload=params+state:disk pp=2,recompute=all dataparallel=2; do
    [[ $(sha train $net $frozen --steps 3 --plan $plan --ranks 2) == "$one" ]] || fail "processes, $plan: not one rank's bits"
done
[[ $(sha train $net $frozen --steps 3 --plan dp=2,pp=2,zero=1 --devices cpu:4) == "$one" ]] || fail "threads: not one rank's bits"

# ---- the log has the norm also where rank 0's process updates nothing ----
mlp="--model mlp --data synthetic --image 12 --batch 8 --micro 2 --lanes 2 --threads 1 --clip-norm .5 --freeze net1,net2 --steps 1"
norm() { "$WEFT" train $mlp --quiet --out "$folder/norm" "$@" && grep -o '"gradient_norm":[^,}]*' "$folder/norm/log.jsonl"; rm -rf "$folder/norm"; }
[[ $(norm --plan pp=2 --ranks 2) == "$(norm)" && -n $(norm) ]] || fail "the norm in the log is '$(norm --plan pp=2 --ranks 2)', not '$(norm)'"

# ---- going on ----
report train $net $frozen --steps 1 --out "$folder/run" >/dev/null
expect 2 "has --freeze wte+wpe+h.0, not none" train --resume --out "$folder/run" --steps 3 --threads 1 --freeze ''
expect 2 "has --freeze wte+wpe+h.0, not wte" train --resume --out "$folder/run" --steps 3 --threads 1 --freeze wte
[[ $(sha train --resume --out "$folder/run" --steps 3 --threads 1 --freeze wte,wpe,h.0 --plan dp=2,zero=3 --ranks 2) == "$one" ]] ||
    fail "a run that goes on has other bits"
finish
