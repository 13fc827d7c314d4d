#!/usr/bin/env bash
# label: once
# GPT-2 and an LSTM in slices: however ranks divide them, beside replicas and stages, the bits are one rank's, as
# threads and as processes; a run goes on from its checkpoint with any other division, and the checkpoint is that of
# the whole. train_slices and train_plans have more plans.
source tests/cli_helpers.bash

common=(--data synthetic --batch 8 --micro 4 --lanes 2 --threads 1 --seed 1 --clip-norm 1)
# gpt2-tiny, with a vocabulary that nothing divides
model=(--model gpt --layers 2 --hidden 64 --heads 4 --vocab 251 --tokens 32 "${common[@]}"
    --optimizer adamw --lr 1e-3 --dropout 0.1)

# run LAUNCHER RANKS PLAN WORDS...: its report.
run() {
    local launcher=$1 ranks=$2 plan=$3
    shift 3
    [[ $launcher == threads ]] && set -- --devices "cpu:$ranks" "$@" || set -- --ranks "$ranks" "$@"
    report train "${model[@]}" --plan "$plan" "$@"
}

same() { # same LAUNCHER RANKS PLAN...
    local launcher=$1 ranks=$2 plan
    shift 2
    for plan; do
        run "$launcher" "$ranks" "$plan" --steps 2 --slices 4 >"$folder/got"
        [[ $(field weights_sha256 <"$folder/got") == "$one" ]] || fail "$launcher ($ranks), $plan: not one rank's bits"
    done
}

run threads 1 "" --steps 2 --slices 4 --out "$folder/one" >"$folder/report"
one=$(field weights_sha256 <"$folder/report")
[[ $one != "$(run threads 1 "" --steps 2 --slices 1 | field weights_sha256)" ]] || fail "4 slices give the bits of none"
[[ $(run threads 2 tp=2 --steps 2 | field weights_sha256) == "$one" ]] || fail "tp=2 alone is not the model's 4 slices"
same threads 4 tp=4
same processes 4 tp=4,sp
same threads 8 tp=2,sp,dp=2,pp=2,zero=1 tp=2,dp=2,pp=2,axes=dp+pp+tp,zero=3

# Where ranks are.
report plan "${model[@]}" --slices 4 --plan tp=2,dp=2,pp=2,axes=dp+tp | tr -d ' \n' >"$folder/mesh"
grep -q '"mesh":\[{"axis":"dp","size":2,"stride":1,"groups":\[\[0,1\],\[2,3\],\[4,5\],\[6,7\]\]},{"axis":"tp","size":2,"stride":2,"groups":\[\[0,2\],\[1,3\],' "$folder/mesh" ||
    fail "the mesh of axes=dp+tp in the report: $(grep -o '"mesh".*"ranks"' "$folder/mesh")"
"$WEFT" plan "${model[@]}" --slices 4 --plan tp=2,dp=2,pp=2,axes=dp+tp >"$folder/grid"
[[ $(grep -A 7 '^ranks:' "$folder/grid" | tr -s ' \n' ' ') == 'ranks: pp 0 dp 0 dp 1 tp 0 0 1 tp 1 2 3 pp 1 dp 0 dp 1 tp 0 4 5 tp 1 6 7 groups along dp: 0 1 | 2 3 | 4 5 | 6 7 ' ]] ||
    fail "the grid of axes=dp+tp: $(head -n 20 "$folder/grid")"

# Hidden units that nothing divides, and a tied vocabulary.
gpt=("${model[@]}") gpt_one=$one
model=(--model lstm --hidden 26 --tied --vocab 251 --tokens 4 "${common[@]}" --lr 1 --dropout 0.2)
one=$(run threads 1 "" --steps 2 --slices 4 | field weights_sha256)
[[ ${#one} == 64 && $one != "$(run threads 1 "" --steps 2 | field weights_sha256)" ]] || fail "lstm: 4 slices give the bits of none"
same threads 4 tp=4
same threads 8 tp=2,dp=2,pp=2,zero=1
same processes 4 tp=2,sp,dp=2,zero=3,recompute=all
model=("${gpt[@]}") one=$gpt_one

# The whole, under its own names.
head -c 8192 "$folder/one/model.safetensors" >"$folder/head"
grep -qaE '"h\.0\.attn\.c_attn\.weight":\{[^}]*\[64, ?192\]' "$folder/head" || fail "c_attn is not whole in the file"
grep -qaE '"wte\.weight":\{[^}]*\[251, ?64\]' "$folder/head" || fail "wte is not whole in the file"
! grep -qa '/4\]"' "$folder/head" || fail "a slice has a name in the file"
four=$(run threads 1 "" --steps 4 --slices 4 | field weights_sha256)
for plan in 4,tp=4,sp 4,tp=2,dp=2,zero=3,axes=dp+tp 1,; do
    rm -rf "$folder/two"
    cp -r "$folder/one" "$folder/two"
    [[ $(report train --out "$folder/two" --resume --steps 4 --plan "${plan#*,}" --devices "cpu:${plan%%,*}" | field weights_sha256) == "$four" ]] ||
        fail "resumed with plan '${plan#*,}': other bits"
done
finish
