#!/usr/bin/env bash
# Habits of training: tests every N steps, when to stop, which checkpoints are kept, what a run's folder says.
# label: serial once
source tests/cli_helpers.bash
seq 1 400 >"$folder/text"
train="train --model gpt2-tiny --data $folder/text --tokens 8 --batch 4 --threads 1 --optimizer adam --lr 0.1 --micro 2 --lanes 2"
tests_of() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"test_loss":[0-9.]*' "$1"; }
hash_of() { "$WEFT" eval --data "$folder/text" --tokens 8 --batch 4 --lanes 2 --threads 1 --init "$1" --quiet --json - | field loss; }

# ---- tests every N steps ----
run="$folder/run"
report $train --steps 23 --test-every 5 --save-every 4 --keep 2 --keep-best --out "$run" >"$folder/first.json" || fail "train"
[[ $(tests_of "$run/log.jsonl" | grep -oE '"step":[0-9]+' | tr -dc '0-9\n' | tr '\n' ' ') == "5 10 15 20 23 " ]] ||
    fail "--test-every 5: tests of steps $(tests_of "$run/log.jsonl")"
[[ $(field best_step <"$folder/first.json") == $(tests_of "$run/log.jsonl" | head -4 | sort -t: -k4 -g | head -1 | grep -oE '"step":[0-9]+' | tr -dc '0-9') ]] ||
    fail "the best test is not $(field best_step <"$folder/first.json"): $(tests_of "$run/log.jsonl")"
cmp -s "$run/report.json" "$folder/first.json" || fail "report.json in the folder is not the report"

# ---- checkpoints that are kept ----
[[ $(cd "$run" && echo step-*) == "step-20 step-23" ]] || fail "--keep 2: $(ls "$run")"
[[ $(hash_of "$run/best") == $(tests_of "$run/log.jsonl" | head -4 | grep "\"step\":$(field best_step <"$folder/first.json")," | sed 's/.*://') ]] ||
    fail "best: loss $(hash_of "$run/best"), but the log says $(tests_of "$run/log.jsonl")"
cmp -s "$run/step-23/state.safetensors" "$run/state.safetensors" || fail "step-23 is not the last checkpoint"
mkdir "$run/step-20/mine"
report train --resume --out "$run" --steps 24 --keep 2 --keep-best --test-every 1 >"$folder/second.json" || fail "--resume --keep"
[[ $(cd "$run" && echo step-* best*) == "step-20 step-23 step-24 best" && $(ls "$run/step-20") == mine ]] || fail "--keep 2 after --resume: $(ls "$run" "$run/step-20")"
report train --resume --out "$run/step-23" --steps 24 --data "$folder/text" >"$folder/third.json" || fail "--resume of a kept checkpoint"
[[ $(field weights_sha256 <"$folder/second.json") == $(field weights_sha256 <"$folder/third.json") ]] || fail "a kept checkpoint goes on with other bits"
mkdir -p "$folder/shards/.weft-best"
mkdir -p "$folder/shards/.weft-step-3/mine"
touch "$folder/shards/.weft-best/model.safetensors" "$folder"/shards/.weft-step-3/{state.safetensors,run.json} # of a run that was killed
report $train --steps 6 --test-every 2 --save-every 2 --save-async --keep 1 --keep-best --shard-size 40KB --out "$folder/shards" >/dev/null || fail "--keep of shards"
[[ $(cd "$folder/shards" && echo step-* best* .weft-*) == "step-6 best .weft-step-3" && $(ls "$folder/shards/.weft-step-3") == mine ]] ||
    fail "--keep 1 --save-async: $(ls -A "$folder/shards" "$folder/shards/.weft-step-3")"
[[ $(hash_of "$folder/shards/step-6") == $(hash_of "$folder/shards") && -n $(hash_of "$folder/shards/best") ]] || fail "shards that are kept are others"

# A folder is whole, or has another name, whenever the run that removes it is killed.
if command -v strace >/dev/null; then
    for number in 5 6 7; do # behind those that each new checkpoint makes
        rm -rf "$folder/killed"
        # shellcheck disable=SC2086
        (strace -f -qq -o /dev/null -e trace=unlinkat -e inject=unlinkat:signal=KILL:when=$number \
            "$WEFT" $train --steps 6 --save-every 1 --keep 1 --keep-best --test-every 2 --quiet --out "$folder/killed"; exit $?) 2>/dev/null && break
        for kept in "$folder"/killed/step-* "$folder"/killed/best; do
            [[ ! -e $kept || $(cd "$kept" && echo *) == "config.json model.safetensors run.json state.safetensors" ]] ||
                fail "killed at unlinkat number $number: $kept has $(ls "$kept")"
        done
    done
    [[ $number -gt 5 ]] || fail "no run was killed while it removed what it had kept"
    report train --resume --steps 8 --keep 1 --out "$folder/killed" >/dev/null || fail "--resume after a kill"
    [[ $(cd "$folder/killed" && find . -maxdepth 1 -name '.weft-*') == "" ]] || fail "left: $(ls -A "$folder/killed")"
fi

# ---- the average of the weights ----
average="train --model gpt2-tiny --data $folder/text --tokens 8 --batch 4 --threads 1 --optimizer adam --lr 0.01 --micro 2 --lanes 2 --ema 0.9 --test-every 3"
last() { tests_of "$1/log.jsonl" | tail -1 | sed 's/.*://'; }
one=$(report $average --steps 8 --keep-best --out "$folder/ema") || fail "--ema"
[[ $(hash_of "$folder/ema") == "$(last "$folder/ema")" ]] || fail "--ema: tests are not of the average: $(hash_of "$folder/ema"), $(last "$folder/ema")"
[[ $(hash_of "$folder/ema/model.safetensors") != "$(last "$folder/ema")" ]] || fail "--ema: the weights are their average"
[[ $(hash_of "$folder/ema/best") == "$(field best_loss <<<"$one")" ]] || fail "--ema --keep-best: $(hash_of "$folder/ema/best"), not $(field best_loss <<<"$one")"
"$WEFT" eval --data "$folder/text" --tokens 8 --batch 4 --threads 1 --init "$folder/ema" 2>&1 | grep -c "reading .*model_ema.safetensors, the average of the weights" >/dev/null || fail "a folder's average is not named"
# With --threads 0 an evaluation's ranks share the cores, as a training's do.
"$WEFT" eval --data "$folder/text" --tokens 8 --batch 4 --lanes 1 --threads 0 --plan dp=64 --init "$folder/ema" --quiet --json - | grep -q '"threads": 1,' || fail "64 ranks do not share the cores"
for plan in "--ranks 2 --plan dp=2,zero=1" "--ranks 2 --plan zero=3,dp=2,offload=state:disk --save-async" "--devices cpu:2 --plan pp=2"; do
    rm -rf "$folder/averaged"
    report $average --steps 8 $plan --out "$folder/averaged" >/dev/null || fail "--ema $plan"
    cmp -s "$folder/ema/model_ema.safetensors" "$folder/averaged/model_ema.safetensors" || fail "--ema $plan: another average"
    cmp -s "$folder/ema/model.safetensors" "$folder/averaged/model.safetensors" || fail "--ema $plan: other weights"
done
rm -rf "$folder/averaged"
report $average --steps 5 --out "$folder/averaged" --shard-size 60KB >/dev/null || fail "--ema: 5 steps"
rm "$folder"/averaged/model_ema* # a run may be killed before they are written
report train --resume --steps 5 --ranks 2 --out "$folder/averaged" >/dev/null || fail "--ema --resume"
[[ $(hash_of "$folder/averaged") == "$(last "$folder/averaged")" ]] || fail "--ema: --resume does not write the average again"
report train --resume --steps 8 --ranks 2 --out "$folder/averaged" >/dev/null || fail "--ema --resume to 8"
cmp -s "$folder/ema/model_ema.safetensors" "$folder/averaged/model_ema.safetensors" || fail "--ema --resume: another average"
expect 2 "has --ema 0.9, not 0.5" train --resume --steps 9 --ema 0.5 --out "$folder/averaged"
expect 2 "recipe: ema is 1" $train --steps 1 --ema 1
[[ $(tests_of "$folder/averaged/log.jsonl" | wc -l) == 3 ]] || fail "a test is logged twice: $(tests_of "$folder/averaged/log.jsonl")"

# ---- images that are mixed ----
mixed="train --model mlp --data synthetic --image 8 --batch 16 --micro 4 --lanes 2 --threads 1 --seed 3 --mixup 0.4 --label-smoothing 0.1"
want=$(sha $mixed --steps 6 --out "$folder/mixed")
[[ -n $want && $want != "$(sha ${mixed/--mixup 0.4/} --steps 6)" && $want != "$(sha ${mixed/0.4/0.5} --steps 6)" ]] || fail "--mixup changes nothing"
for plan in "--devices cpu:2 --plan dp=2" "--ranks 2 --plan dp=2,zero=2" "--ranks 2 --plan pp=2" "--devices cpu:2 --plan dataparallel=2"; do
    [[ $(sha $mixed --steps 6 $plan) == "$want" ]] || fail "--mixup $plan: other bits"
done
report $mixed --steps 4 --out "$folder/mixed2" >/dev/null
[[ $(sha train --resume --steps 6 --out "$folder/mixed2" --ranks 2) == "$want" ]] || fail "--mixup --resume: other bits"
expect 2 "--mixup has no effect here: the model reads tokens" $train --steps 1 --mixup 0.2
expect 2 "mixup is -1" ${mixed/0.4/-1} --steps 1
expect 2 "mixup is -1, but must be 0 to 1000" plan --model mlp --mixup -1
expect 2 "--mixup has no effect here: --loss is mse" ${mixed/--label-smoothing 0.1/} --loss mse --steps 1

# ---- when to stop ----
one=$(report $train --steps 300 --test-every 4 --patience 3 --out "$folder/whole")
step=$(field steps <<<"$one")
[[ $(field stopped_early <<<"$one") == true && $(field since <<<"$one") == 3 && $step -lt 300 ]] || fail "--patience 3: $(field stopped_early <<<"$one"), step $step"
[[ $step == $(($(field best_step <<<"$one") + 12)) ]] || fail "--patience 3 stops at step $step, the best is $(field best_step <<<"$one")"
for plan in "--ranks 2" "--plan pp=2,schedule=zb1"; do
    got=$(report $train --steps 300 --test-every 4 --patience 3 $plan)
    [[ $(field weights_sha256 <<<"$got") == $(field weights_sha256 <<<"$one") ]] || fail "--patience with $plan: step $(field steps <<<"$got"), not $step"
done
# A run that is stopped in between, before a test that it owes and after, tests and stops where the whole one does.
for stop in $((step - 8)) $((step - 2)) "$step"; do
    report $train --steps $stop --test-every 4 --out "$folder/parts" >/dev/null || fail "train to step $stop"
    got=$(report train --resume --steps 300 --test-every 4 --patience 3 --out "$folder/parts")
    [[ $(field weights_sha256 <<<"$got") == $(field weights_sha256 <<<"$one") ]] || fail "stopped at $stop: step $(field steps <<<"$got"), not $step"
    rm -r "$folder/parts"
done

# ---- what makes no sense ----
expect 2 "--test-every must be at least 1" $train --steps 1 --test-every 0
expect 2 "--keep needs --out" $train --steps 1 --keep 2
expect 2 "--keep-best needs --out" $train --steps 1 --keep-best
expect 2 "--patience has no effect here: the data has no test split" train --model mlp --data synthetic --image 6 --steps 1 --patience 3
expect 2 "here it is weft eval, a command of its own" train --model mlp --eval-only
mkdir -p "$folder/shards/.weft-step-7/mine"
expect 1 "step-7 cannot be kept: File exists" train --resume --out "$folder/shards" --steps 7 --keep 1

finish
