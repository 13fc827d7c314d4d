#!/usr/bin/env bash
# The promise as typed: without --lanes, --micro, --slices and --threads, one command has the same
# weights under every plan; a plan that needs more of them is refused, or only planned.
# label: once
source tests/cli_helpers.bash
images "$folder/images"

# says WORDS COMMAND...: exit status 0, and WORDS on standard output.
says() {
    local words=$1
    shift
    "$WEFT" "$@" >"$folder/said" || fail "weft $*: exit $?"
    tr -s ' \n' ' ' <"$folder/said" | grep -q -e "$words" || fail "weft $*: does not say '$words': $(cat "$folder/said")"
}

# same MODEL PLANS...
same() {
    local model=$1 plan one
    shift
    # shellcheck disable=SC2086 # words
    one=$(sha train $model --data synthetic --steps 2)
    [[ $one ]] || fail "$model: no weights"
    for plan; do
        # shellcheck disable=SC2086
        [[ $(sha train $model --data synthetic --steps 2 --plan "$plan") == "$one" ]] ||
            fail "weft train $model --data synthetic --steps 2 --plan $plan: other weights than without a plan"
    done
}
same "--model mlp --image 8 --batch 32" dp=2 dp=8 pp=2,schedule=zb1 dp=2,pp=2,zero=1 dataparallel=4
same "--model gpt2-tiny --tokens 8 --batch 32 --optimizer adamw" dp=8,zero=2 dp=4,zero=3,recompute=selective tp=2,dp=2,sp tp=4,pp=2
same "--model gpt --layers 1 --hidden 24 --heads 6 --vocab 40 --tokens 4 --batch 6" dp=2 tp=2
same "--model lstm --layers 1 --hidden 16 --tokens 4 --vocab 50 --batch 12" dp=4 dp=2,zero=2 pp=2
same "--model resnet18 --image 32 --batch 32" dp=2,zero=3 pp=2,schedule=zb2

# ---- --plan auto keeps the recipe, whatever memory there is ----
auto="train --model gpt --layers 2 --hidden 64 --heads 2 --tokens 32 --vocab 50 --data synthetic --batch 8 --steps 2"
for given in "" "--micro 1 --lanes 1" "--micro 4" "--lr-schedule cosine"; do
    # shellcheck disable=SC2086
    one=$(sha $auto $given)
    for more in "--device-memory 3000000" "--devices cpu:2" "--devices cpu:4"; do
        # shellcheck disable=SC2086
        [[ $(sha $auto $given $more --plan auto) == "$one" ]] || fail "$auto $given $more --plan auto: other weights than --plan ''"
    done
done
# shellcheck disable=SC2086
says "plan auto: dp=1,pp=2" $auto --batch 1 --devices cpu:2 --plan auto
# shellcheck disable=SC2086
says "plan auto: dp=1,pp=3" $auto --lanes 2 --micro 4 --slices 1 --devices cpu:3 --plan auto
# shellcheck disable=SC2086
says "micro auto: " $auto --micro auto --devices cpu:2 --plan auto
# shellcheck disable=SC2086
expect 3 "would fit" $auto --device-memory 1000000 --plan auto
# shellcheck disable=SC2086
says "plan auto: " $auto --micro 1 --lanes 1 --out "$folder/run" --plan auto --device-memory 3000000
says "step 4" train --resume --out "$folder/run" --steps 4 --plan auto --device-memory 2800000

# weft plan chooses the same plan as weft train: it adds no lanes, slices or microbatches.
for given in "mlp --image 8 --batch 6 --devices cpu:6" "resnet18 --image 32 --batch 8 --devices cpu:3" \
    "lstm --layers 2 --hidden 20 --tokens 6 --vocab 50 --batch 12 --slices 3 --devices cpu:6" "gpt2-tiny --tokens 8 --batch 4 --devices cpu:4"; do
    for command in plan "train --data synthetic --steps 1"; do
        # shellcheck disable=SC2086
        report $command --model $given --plan auto | grep -E '^ *"(plan|micro|lanes|slices)": ["0-9]' | sort >"$folder/${command%% *}"
    done
    [[ $(wc -l <"$folder/plan") == 4 ]] && diff "$folder/plan" "$folder/train" || fail "--model $given --plan auto: weft plan and weft train differ"
done
# shellcheck disable=SC2086
expect 2 "plan auto: no plan for 5 ranks suits the recipe" plan --model mlp --image 4 --batch 1 --lanes 1 --ranks 5 --plan auto
report plan --model mlp --image 8 --batch 512 --lanes 1 --cluster ethernet --plan auto | tr -d ' \n' | grep -q '"recipe_needed":{"micro":2}' ||
    fail "--cluster --plan auto: other microbatches than the recipe's are not named"
says "needs --micro 2: another recipe" plan --model mlp --image 8 --batch 512 --lanes 1 --cluster ethernet --plan auto

# ---- what training refuses, weft plan plans, and says what it takes ----
mlp="--model mlp --image 6 --batch 64"
# shellcheck disable=SC2086
expect 2 "dp=64 needs 64 lanes, and this recipe has 8; --lanes 64 is another recipe" train $mlp --data synthetic --plan dp=64
# shellcheck disable=SC2086
says "needs --lanes 64: another recipe" plan $mlp --plan dp=64
# shellcheck disable=SC2086
report plan $mlp --plan dp=64 | tr -d ' \n' | grep -q '"recipe_needed":{"lanes":64}' || fail "weft plan: recipe_needed"
# shellcheck disable=SC2086
report plan $mlp --plan dp=8 | tr -d ' \n' | grep -q '"recipe_needed":null' || fail "weft plan: something is needed"
report plan --model gpt2-tiny --batch 32 --plan dp=16,tp=2 | tr -d ' \n' | grep -q '"recipe_needed":{"lanes":16}' ||
    fail "weft plan: recipe_needed of dp=16,tp=2"
report plan --model mlp --batch 16 --plan tp=2 --image 6 | tr -d ' \n' | grep -q '"recipe_needed":{"slices":2}' ||
    fail "weft plan: recipe_needed of tp=2"

# ---- a start prints what is not a default, and --verbose all ----
says "recipe --model mlp --data synthetic --image 6 --batch 32 --micro 8 --lanes 8 --slices 1 --seed 3 plan" \
    train --model mlp --image 6 --batch 32 --data synthetic --steps 1 --seed 3
for command in "train --steps 1 --data synthetic" plan "bench train --repeat 1"; do
    # shellcheck disable=SC2086
    says "--label-smoothing 0 .*--epsilon" $command --model mlp --image 6 --optimizer adam --loss cross-entropy --verbose
done

# ---- a proposal that is typed fits; what an epoch leaves out is said; auto names itself ----
lstm="train --model lstm --layers 1 --hidden 19 --tokens 2 --tied --vocab 21 --data synthetic --batch 32 --steps 1 --device-memory 150000"
# shellcheck disable=SC2086
"$WEFT" $lstm --micro 5 --plan auto --ranks 3 >/dev/null 2>"$folder/said"
[[ $? == 3 ]] || fail "$lstm --micro 5 --plan auto --ranks 3: not exit 3"
read -r -a typed <<<"$(sed -n 's/.*  --plan/--plan/p' "$folder/said" | head -n 1)"
# shellcheck disable=SC2086
"$WEFT" $lstm "${typed[@]}" >/dev/null 2>"$folder/said" || fail "$lstm ${typed[*]}: exit $?: $(cat "$folder/said")"
says "an epoch drops the last 1, too few for 8 microbatches" \
    train --model mlp --data "$folder/images" --batch 9 --micro 8 --lanes 8 --epochs 1
expect 2 "no plan for 2 ranks suits the recipe; for example dp=1,pp=2: batch_norm 'bn1': one value" plan --model resnet18 --image 32 --batch 1 --ranks 2 --plan auto
# shellcheck disable=SC2086
expect 2 "plan auto: no plan for 4 ranks suits the recipe" train --model mlp --image 4 --batch 7 --data synthetic --plan auto --ranks 4

# ---- behind the end of its cosine a run has no rate left, and says so ----
report train --model mlp --image 6 --batch 8 --data synthetic --lr-schedule cosine --steps 2 --out "$folder/cosine" >/dev/null || fail "cosine: 2 steps"
says "lr 0 from step 2 on, where the run's cosine ends" train --resume --out "$folder/cosine" --steps 3
