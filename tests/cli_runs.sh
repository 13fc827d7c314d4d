#!/usr/bin/env bash
# Runs and what they leave: same bits again, in pieces, with tests between, interrupted.
# label: once
source tests/cli_helpers.bash
images "$folder/images"
run="train --model mlp --data $folder/images --threads 1 --batch 12 --micro 4 --seed 3 --optimizer adamw --lr 0.001"
# One that goes on until the end of this test, most of the time without the processor.
"$WEFT" $run --steps 100000000 --save-every 100000000 --out "$folder/long" >/dev/null 2>"$folder/long.said" &
long=$!
until_true_of $long test -s "$folder/long/log.jsonl" || fail "a long run: $(cat "$folder/long.said")"
kill -STOP $long

# ---- 8 steps at once = 3 and 5 more = in another folder; over an epoch's end (5.33 steps) ----
whole=$(sha $run --steps 8 --out "$folder/a")
[[ $(sha $run --steps 8) == "$whole" ]] || fail "the same command gives other bits"
report $run --steps 3 --out "$folder/b" >/dev/null
[[ $(sha $run --steps 8 --resume --out "$folder/b") == "$whole" ]] || fail "resumed: other bits"
[[ $(sha train --resume --out "$folder/b" --steps 8) == "$whole" ]] || fail "resumed at the end: other bits"
[[ $(grep -c '"loss"' "$folder/b/log.jsonl") == 8 ]] || fail "the log of a resumed run has not 8 steps"
[[ $(grep -ao 'Loss/' "$folder/b/events.out.tfevents.weft" | wc -l) == $(wc -l <"$folder/b/log.jsonl") ]] ||
    fail "the events of a resumed run are not those of its log"
cmp -s "$folder/a/model.safetensors" "$folder/b/model.safetensors" || fail "resumed: another file"
expect 2 "--lr 0.001, not 0.01" train --resume --out "$folder/b" --steps 9 --lr 0.01
[[ $(sha train --resume --out "$folder/b" --steps 9 --seed 3 --micro 4) ]] || fail "an option that agrees is refused"

# ---- a new run does not replace an old one ----
expect 2 "b holds a run of 9 steps: continue with --resume, or choose another folder" $run --steps 1 --out "$folder/b"

mkdir "$folder/junk"
echo junk >"$folder/junk/state.safetensors"
expect 2 "state.safetensors already exists" $run --steps 1 --out "$folder/junk"

# a longer run is cut short, then goes on from an earlier checkpoint: the log follows
report $run --steps 3 --out "$folder/c" >/dev/null
echo '{"step":4,"epoch":0,"loss":1}' >>"$folder/c/log.jsonl"
report train --resume --out "$folder/c" --steps 4 >/dev/null
[[ $(grep -c '"step":4,.*"ms"' "$folder/c/log.jsonl") == 1 && $(grep -c '"step":4,"epoch":0,"loss":1}' "$folder/c/log.jsonl") == 0 ]] ||
    fail "the log keeps steps that the checkpoint does not have"

# ---- a cosine's end is part of the recipe ----
report $run --steps 3 --lr-schedule cosine --lr-step 8 --out "$folder/d" >/dev/null
[[ $(sha train --resume --out "$folder/d" --steps 8) == $(sha $run --steps 8 --lr-schedule cosine) ]] ||
    fail "cosine: resumed gives other bits"

# ---- the report can be read back as a configuration ----
report $run --steps 2 >"$folder/report.json"
sed -n '/"recipe": {/,/}/p' "$folder/report.json" | sed '1s/.*/{/; $s/.*/}/' >"$folder/recipe.json"
[[ $(sha train --config "$folder/recipe.json" --steps 2) == $(field weights_sha256 <"$folder/report.json") ]] ||
    fail "the report's recipe gives another run"

# ---- the last batch, of 24 samples: divided unevenly, or left out if some would be empty ----
[[ $(report train --model mlp --data "$folder/images" --threads 1 --batch 40 --micro 8 --epochs 1 | field steps) == 2 ]] ||
    fail "64 samples in batches of 40: not 2 steps"
[[ $(report train --model mlp --data "$folder/images" --threads 1 --batch 40 --micro 20 --epochs 1 | field steps) == 2 ]] ||
    fail "24 samples in 20 microbatches: not 2 steps"
[[ $(report train --model mlp --data "$folder/images" --threads 1 --batch 40 --micro 30 --epochs 1 | field steps) == 1 ]] ||
    fail "24 samples in 30 microbatches: the batch was not left out"

# ---- a cosine's end counts the steps there are: here one, the last batch being left out ----
[[ $(report train --model mlp --data "$folder/images" --threads 1 --batch 40 --micro 30 --epochs 1 --lr-schedule cosine | field lr_step) == 1 ]] ||
    fail "cosine: it ends after the last step"

# ---- the log has what a checkpoint counts as done ----
"$WEFT" $run --steps 1000000 --save-every 1 --out "$folder/l" >/dev/null 2>&1 &
pid=$!
until_true_of $pid test -s "$folder/l/model.safetensors" || fail "no checkpoint is written"
kill -KILL $pid
wait $pid 2>/dev/null
saved=$(head -c 20000 "$folder/l/state.safetensors" | grep -ao '"weft.n_steps":"[0-9]*"' | grep -o '[0-9]*')
((saved > 0 && $(grep -c '"loss"' "$folder/l/log.jsonl") >= saved)) || fail "killed: the log lacks steps of the checkpoint"

# ---- tests take a microbatch at a time; their memory is planned and printed before the run ----
seq 1 3000 >"$folder/text"
gpt="--model gpt2-tiny --data $folder/text --threads 1"
"$WEFT" train $gpt --batch 32 --micro 32 --steps 1 >"$folder/said" 2>&1 || fail "gpt2-tiny: exit $?"
peaks=$(sed -n 's/.*  *\([0-9.]* [KM]iB\) planned.*/\1/p' "$folder/said")
[[ $(wc -l <<<"$peaks") == 2 && $(uniq <<<"$peaks" | wc -l) == 1 ]] || fail "the peaks before and after the run: $peaks"
grep '^peak' "$folder/said" | sed -n 1p | grep -c measured >/dev/null && fail "a peak is measured before the run"
peak=$(report train $gpt --batch 32 --micro 32 --steps 1 --out "$folder/g" | sed -n '/"planned"/{n;p}' | head -n 1 | tr -d ' ')
[[ $(report plan $gpt --batch 32 --micro 32 | field peak_bytes | head -n 1) == "$peak" ]] || fail "weft plan has another peak than the run"
report train $gpt --batch 32 --micro 32 --steps 1 --device-memory "$peak" >/dev/null
expect 3 "iB, 1 byte more than" train $gpt --batch 32 --micro 32 --steps 1 --device-memory $((peak - 1))

# ---- eval needs no room for training; where it does not fit, it advises what it has ----
peak=$(report plan $gpt --batch 1 | field peak_bytes | head -n 1)
expect 3 "more than" train $gpt --batch 1 --steps 1 --device-memory $((peak * 3 / 4))
report eval $gpt --batch 1 --init "$folder/g/model.safetensors" --device-memory $((peak * 3 / 4)) >/dev/null
small="--model mlp --data $folder/images --threads 1 --init $folder/a/model.safetensors"
report eval $small --batch 100000 --device-memory 1MB >/dev/null # there are 16 images
expect 3 "; a smaller --batch needs less" eval $gpt --init "$folder/g/model.safetensors" --device-memory 10KB

# ---- all ranks ----
"$WEFT" $run --steps 1 --plan dp=2 >"$folder/said" 2>&1
[[ $(grep -cE '^peak    (each rank: |ranks 0-1  ).* planned' "$folder/said") == 2 ]] || fail "dp=2: not one peak before and one after: $(cat "$folder/said")"

# ---- eval says what train said ----
trained=$(report $run --steps 6 --out "$folder/e" | field test_accuracy)
[[ $(report eval --model mlp --data "$folder/images" --threads 1 --init "$folder/e/model.safetensors" | field accuracy) == "$trained" ]] ||
    fail "eval finds another accuracy than train"

# ---- the picture ----
if command -v gnuplot >/dev/null; then
    head -c 4 "$folder/e/curve.png" 2>/dev/null | grep -c PNG >/dev/null || fail "no curve.png"
fi
[[ $(head -1 "$folder/e/curve.csv") == step,loss,* ]] || fail "no curve.csv"
kill -CONT $long
until_true_of $long test -s "$folder/long/curve.csv" || fail "a run that goes on has no curve"
kill -INT $long
wait $long
[[ $? == 130 ]] || fail "a long run: $(cat "$folder/long.said")"

# ---- interrupted: the step ends, the last checkpoint is named ----
for signal in INT:130 TERM:143; do
    "$WEFT" $run --steps 1000000 --save-every 2 --out "$folder/i" >/dev/null 2>"$folder/said" &
    pid=$!
    until_true_of $pid test -s "$folder/i/model.safetensors" || fail "no checkpoint is written"
    kill -"${signal%:*}" $pid
    wait $pid
    got=$?
    [[ $got == "${signal#*:}" ]] || fail "${signal%:*}: exit $got"
    grep -q "interrupted after step \([0-9]*\); the last checkpoint is .*/i/state.safetensors, of step \1:" "$folder/said" ||
        fail "interrupted, but says: $(tail -1 "$folder/said")"
    rm -rf "$folder/i"
done

# ---- no room while saving: said, and the old checkpoint survives ----
report $run --steps 2 --out "$folder/full" >/dev/null
before=$(cat "$folder/full/"*.safetensors | cksum)
(trap '' XFSZ; ulimit -f 100; "$WEFT" train --resume --out "$folder/full" --steps 4 >/dev/null 2>"$folder/said")
[[ $? == 1 && -s $folder/said ]] || fail "no room: exit status, or nothing is said"
[[ $(cat "$folder/full/"*.safetensors | cksum) == "$before" ]] || fail "no room: the old checkpoint is gone"
[[ $(ls -A "$folder/full" | grep -vc 'safetensors$\|log.jsonl$\|tfevents.weft$\|run.json$\|report.json$\|curve') == 0 ]] || fail "no room: something is left behind"

# ---- the log can be followed: slow steps do not wait for a full buffer ----
WEFT_DELAY_US=300000 "$WEFT" train --model mlp --data synthetic --image 4 --batch 4 --threads 1 --out "$folder/slow" >/dev/null 2>&1 &
pid=$!
for name in log.jsonl events.out.tfevents.weft; do
    until_true_of $pid grep -qai loss "$folder/slow/$name" || fail "$name says nothing while steps go on"
done
lines=$(wc -l <"$folder/slow/log.jsonl")
((lines < 20)) || fail "$lines steps were logged: too fast to tell"
kill -9 $pid
wait $pid 2>/dev/null

# ---- profile, plans of more ranks ----
report plan --model gpt2-tiny --batch 8 --threads 1 --plan dp=2,pp=2 --micro 4 >"$folder/plan.json"
[[ $(grep -c '"host_peak_bytes"' "$folder/plan.json") == 4 ]] || fail "dp=2,pp=2 has not four ranks"
[[ $(field fits <"$folder/plan.json") == true ]] || fail "a plan without a cap does not fit"
report plan --model mlp --image 8 --batch 6 --lanes 3 --threads 1 --plan dp=3,allreduce=root >"$folder/plan.json"
read -r -d '' root other another total < <(field sent_bytes <"$folder/plan.json"; printf '\0')
[[ $root == $((2 * other)) && $other == "$another" && $total == $((4 * other)) ]] ||
    fail "the root of 3 sends $root bytes, the others $other and $another, all $total"
for name in sent_bytes received_bytes; do
    planned=$(field $name <"$folder/plan.json" | head -3 | xargs)
    counted=$(report train --model mlp --data synthetic --image 8 --batch 6 --lanes 3 --threads 1 --plan dp=3,allreduce=root --steps 1 |
        sed -n "/\"$name\": \[/,/\]/p" | tr -dc '0-9\n' | xargs)
    [[ $planned && $counted == "$planned" ]] || fail "$name of a training's report: '$counted', planned: $planned"
done
expect 2 "add sums=free" plan --model mlp --plan dp=3,allreduce=ring
report plan --model resnet18 --image 64 --batch 32 --threads 1 >"$folder/plan.json"
peak=$(field peak_bytes <"$folder/plan.json" | head -n 1)
report plan --model resnet18 --image 64 --batch 32 --threads 1 --device-memory "$peak" >/dev/null
expect 3 "iB, 1 byte more than" plan --model resnet18 --image 64 --batch 32 --threads 1 --device-memory $((peak - 1))

# ---- a model that does not fit: all goes by disk, with the same bits ----
deep="--model gpt --layers 24 --hidden 64 --heads 4 --vocab 256 --data synthetic --tokens 32 --batch 1 --threads 1 --optimizer adamw --steps 2"
# Plans are found slowly under a sanitizer.
if ! grep -q '^WEFT_SANITIZE:.*=.' "${WEFT_BUILD:-build}/CMakeCache.txt"; then
    # shellcheck disable=SC2086
    report train $deep --plan auto --device-memory 1600KiB --host-memory 4KiB --out "$folder/deep" >"$folder/capped"
    grep -q 'offload=state:disk+params:disk' "$folder/capped" || fail "--plan auto keeps nothing on disk: $(field plan <"$folder/capped")"
    # shellcheck disable=SC2086
    [[ $(field weights_sha256 <"$folder/capped") == "$(report train $deep | field weights_sha256)" ]] || fail "a model by disk has other weights"
    # bytes NAME: planned and measured, of the one rank, and what else is said of them.
    bytes() { sed -n "/^ \"$1\": {/,/^ }/s/^ *\([0-9]\{1,\}\),\{0,1\}$/\1/p" "$folder/capped" | xargs; }
    read -r planned measured _ <<<"$(bytes peak_bytes)"
    read -r disk_planned disk_measured _ <<<"$(bytes disk_peak_bytes)"
    ((measured > 0 && planned == measured && disk_planned == disk_measured && measured <= 1600 * 1024 && disk_measured > 8 * measured)) ||
        fail "a model by disk: other bytes than planned, or more than may be: $planned $measured, $disk_planned $disk_measured"
fi

finish
