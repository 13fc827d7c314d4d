#!/usr/bin/env bash
# Habits of training: tests every N steps, when to stop, which checkpoints are kept, what a run's folder says.
# label: serial once
source tests/cli_helpers.bash
seq 1 400 >"$folder/text"
train="train --model gpt2-tiny --data $folder/text --tokens 8 --batch 4 --threads 1 --optimizer adam --lr 0.1 --micro 2 --lanes 2"
tests_of() { grep -o '"step":[0-9]*,"epoch":[0-9]*,"test_loss":[0-9.]*' "$1"; }
hash_of() { "$WEFT" eval --data "$folder/text" --tokens 8 --batch 4 --threads 1 --init "$1" --quiet --json - | field loss; }

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
mkdir -p "$folder/shards/best.new"
touch "$folder/shards/best.new/model.safetensors" # of a run that was killed
report $train --steps 6 --test-every 2 --save-every 2 --save-async --keep 1 --keep-best --shard-size 40KB --out "$folder/shards" >/dev/null || fail "--keep of shards"
[[ $(cd "$folder/shards" && echo step-* best*) == "step-6 best" ]] || fail "--keep 1 --save-async: $(ls "$folder/shards")"
[[ $(hash_of "$folder/shards/step-6") == $(hash_of "$folder/shards") && -n $(hash_of "$folder/shards/best") ]] || fail "shards that are kept are others"

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
expect 2 "--test-every wants at least 1" $train --steps 1 --test-every 0
expect 2 "--keep wants --out" $train --steps 1 --keep 2
expect 2 "--keep-best wants --out" $train --steps 1 --keep-best
expect 2 "--patience has no effect here: the data has no test split" train --model mlp --data synthetic --image 6 --steps 1 --patience 3
expect 2 "here it is weft eval, a command of its own" train --model mlp --eval-only
mkdir -p "$folder/shards/step-7.new/mine"
expect 1 "step-7 cannot be kept: File exists" train --resume --out "$folder/shards" --steps 7 --keep 1

finish
