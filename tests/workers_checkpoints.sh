#!/usr/bin/env bash
# Checkpoints of workers: damaged and foreign files are refused, kept ones resume, a killed run with
# --save-async resumes, and weft plan counts parts of every size.
# label: once
source tests/cli_helpers.bash
base="train --model mlp --image 4 --data synthetic --threads 1 --batch 8 --momentum 0.9"
local="$base --update local --workers 2 --local-steps 4"
list() { tr -d '\n' | sed -n "s/.*\"$1\": *\[\([^]]*\)\].*/\1/p" | tr -d ' '; }

# ---- files of one checkpoint belong together ----
whole=$(sha $local --steps 12)
report $local --steps 8 --out "$folder/run" >/dev/null
report $local --steps 8 --out "$folder/other" --seed 3 >/dev/null
# resume NAME: a copy of the run.
resume() { rm -rf "$folder/$1" && cp -r "$folder/run" "$folder/$1"; }
resume same
[[ $(sha train --resume --out "$folder/same" --steps 12) == "$whole" ]] || fail "8 and 4 steps are not 12"
bytes=$(stat -c %s "$folder/run/workers-8.safetensors")
for at in $((bytes / 4)) $((bytes / 2)) $((bytes - 9)); do
    resume bad
    printf '\125' | dd of="$folder/bad/workers-8.safetensors" bs=1 seek=$at conv=notrunc 2>/dev/null
    expect 1 "is damaged" train --resume --out "$folder/bad" --steps 12
done
resume foreign
cp "$folder/other/workers-8.safetensors" "$folder/foreign/"
expect 1 "they are of different checkpoints" train --resume --out "$folder/foreign" --steps 12
resume missing
rm "$folder/missing/workers-8.safetensors"
expect 1 "workers-8.safetensors cannot be opened" train --resume --out "$folder/missing" --steps 12

# ---- kept checkpoints, and those in the background ----
report $local --steps 12 --save-every 4 --keep 9 --out "$folder/kept" >/dev/null
[[ $(sha train --resume --out "$folder/kept/step-8" --steps 12) == "$whole" ]] || fail "step-8 of --keep resumes with other bits"
[[ $(cd "$folder/kept" && echo workers-*) == workers-12.safetensors ]] || fail "older files of workers stay in --out"
report $local --steps 12 --save-every 4 --save-async --out "$folder/async" >/dev/null
[[ $(cd "$folder/async" && echo workers-*) == workers-12.safetensors ]] || fail "--save-async: older files of workers stay"
for delay in 0.1 0.2 0.3; do
    rm -rf "$folder/killed"
    "$WEFT" ${local/--local-steps 4/--local-steps 1} --steps 100000 --save-every 1 --save-async --out "$folder/killed" --quiet &
    pid=$!
    until_true_of $pid test -f "$folder/killed/state.safetensors"
    sleep $delay
    kill -9 $pid
    wait $pid 2>/dev/null || true
    step=$(grep -aoE '"weft.n_steps":"[0-9]+"' "$folder/killed/state.safetensors" | tr -dc 0-9)
    report train --resume --out "$folder/killed" --steps $((step + 1)) >/dev/null || fail "killed after step $step: does not resume"
done

# ---- the staleness of a whole run, and its record ----
async="$base --update async --workers 2 --plan dp=2"
report $async --steps 4 --out "$folder/first" >/dev/null
report train --resume --out "$folder/first" --steps 6 --plan dp=2 >"$folder/one"
[[ $(list staleness <"$folder/one" | tr , '\n' | paste -sd+ | bc) == 12 ]] || fail "resumed: not 12 gradients: $(list staleness <"$folder/one")"
expect 1 "the record $folder/none/x cannot be written" $async --steps 4 --record "$folder/none/x"
"$WEFT" $local --steps 6 --quiet --out "$folder/short"
said=$("$WEFT" train --resume --out "$folder/short" --steps 8 --quiet 2>&1)
[[ $said == *"in a round of --local-steps 4"* ]] || fail "a resume between averages says: $said"
for choice in "--plan auto" "--micro auto" "--costs measured"; do
    expect 2 "needs --update sync; with workers" $base --steps 1 --update async --workers 2 $choice
done

# ---- files of workers that a killed run left ----
for kind in "--update async" "--update local --local-steps 2"; do
    rm -rf "$folder/left"
    report $base --steps 4 $kind --workers 2 --out "$folder/left" >/dev/null
    cp "$folder/left/workers-4.safetensors" "$folder/left/workers-2.safetensors"
    report train --resume --steps 8 --out "$folder/left" >/dev/null
    [[ $(cd "$folder/left" && echo workers-*) == workers-8.safetensors ]] || fail "$kind: left: $(ls "$folder/left")"
done

# ---- host memory ----
for command in plan "train --data synthetic"; do
    expect 3 "memory" $command --model mlp --image 4 --batch 8 --threads 1 --steps 1 --update async --workers 2 --host-memory 1KiB
done

# ---- parts of three sizes ----
uneven="--model mlp --image 6 --batch 20 --lanes 4 --micro 12 --threads 1 --momentum 0.9 --update async --workers 4 --staleness 0 --plan dp=4,ps=1"
report plan $uneven | tr -d '\n' | grep -oE '"peak_bytes": [0-9]+' | tr -dc '0-9\n' | paste -sd, >"$folder/plan"
report train --data synthetic --steps 2 $uneven >"$folder/one"
[[ $(cat "$folder/plan") == "$(sed -n '/"peak_bytes"/,/}/p' "$folder/one" | list measured)" ]] ||
    fail "uneven parts: weft plan says $(cat "$folder/plan"), measured: $(sed -n '/"peak_bytes"/,/}/p' "$folder/one" | list measured)"
