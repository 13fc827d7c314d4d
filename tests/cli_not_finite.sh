#!/usr/bin/env bash
# Numbers that are not finite end a run with status 1 and a sentence, and no checkpoint after it.
# label: once
source tests/cli_helpers.bash
run=$folder/run
train=(train --model mlp --data synthetic --threads 1 --batch 64 --quiet)

# last_number FILE BYTES: the last weight of a safetensors file gets these bytes.
last_number() { printf "$2" | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") - 4)) conv=notrunc 2>/dev/null; }
# unchecked FILE: renames the checksums beside the weights, which are to be read as they are.
unchecked() { LC_ALL=C sed -i 's/weft\.crc32/weft.other/g' "$1"; }
nan='\x00\x00\xc0\x7f' huge='\x99\x76\x96\x7e' # 1e38

"$WEFT" "${train[@]}" --steps 1 --out "$run" || fail "train: exit $?"
good=$(sha256sum "$run/state.safetensors")
unchecked "$run/model.safetensors"
cp "$run/model.safetensors" "$folder/huge" && last_number "$folder/huge" "$huge"
cp "$run/model.safetensors" "$folder/nan" && last_number "$folder/nan" "$nan"

# ---- the last step's weights ----
decay=(--steps 1 --weight-decay 1 --lr 1e6)
expect 1 "step 1: the new weights of unit" "${train[@]}" --init "$folder/huge" "${decay[@]}" --out "$folder/last"
grep -qF "nothing has been saved" "$folder/said" || fail "does not say that nothing is saved"
grep -qF "(the loss of every microbatch is finite)" "$folder/said" || fail "blames a loss: $(cat "$folder/said")"
[[ ! -e $folder/last/model.safetensors && ! -e $folder/last/state.safetensors ]] || fail "spoiled weights are saved"
expect 1 "step 1: the new weights of unit" "${train[@]}" --init "$folder/huge" "${decay[@]}" --ranks 2 --plan pp=2

# ---- the last whole checkpoint is kept ----
expect 1 "is not finite" "${train[@]}" --steps 20 --lr 1e6 --save-every 1 --out "$folder/kept"
[[ $(tail -1 "$folder/said") == *"the last checkpoint is $folder/kept/state.safetensors, of step "[1-9]* ]] ||
    fail "does not say what is kept: $(cat "$folder/said")"
expect 1 "the last checkpoint is $folder/parts/state.safetensors.index.json, of step " "${train[@]}" --steps 20 --lr 1e6 --save-every 1 --shard-size 8KiB --out "$folder/parts"
"$WEFT" "${train[@]}" --steps 20 --lr 1e6 --save-every 1 --out "$folder/again" >/dev/null 2>"$folder/said"
last=$(sed 's/.* of step //' "$folder/said" | tail -1)
failed=$(sed -n 's/^weft: step \([0-9]*\): .*/\1/p' "$folder/said" | tail -1)
[[ $failed == $((last + 1)) ]] || fail "step $failed fails, step $last is kept"
"$WEFT" "${train[@]}" --steps "$last" --resume --out "$folder/kept" --json "$folder/kept.json" || fail "the kept checkpoint cannot be resumed"
want=$(report "${train[@]}" --steps "$last" --lr 1e6 | field weights_sha256)
[[ $want && $(field weights_sha256 <"$folder/kept.json") == "$want" ]] || fail "the kept checkpoint is not that of step $last"

# ---- all ranks, all with status 1 ----
for plan in dp=2 pp=2 dataparallel=2; do
    expect 1 "step $failed: " "${train[@]}" --steps 20 --lr 1e6 --ranks 2 --plan "$plan"
    expect 1 "step $failed: " "${train[@]}" --steps 20 --lr 1e6 --plan "$plan"
done

# ---- bench ----
expect 1 " not finite" bench train --model mlp --batch 64 --threads 1 --lr 1e6 --repeat 20 --json "$folder/bench.json"
[[ ! -e $folder/bench.json ]] || fail "bench: a report of no numbers"

# ---- weights that are read ----
eval=(eval --model mlp --data synthetic --threads 1 --batch 64)
expect 1 " is nan" "${eval[@]}" --init "$folder/nan"
grep -q "$folder/nan: element [0-9]* of net[0-9].[a-z]* is nan" "$folder/said" || fail "eval names no tensor: $(cat "$folder/said")"
expect 1 " is nan" "${train[@]}" --init "$folder/nan"
"$WEFT" "${eval[@]}" --init "$folder/huge" --quiet || fail "eval: large weights are refused"
header=$((8 + $(od -An -tu8 -N8 "$run/model.safetensors"))) size=$(stat -c %s "$run/model.safetensors")
printf "$huge" >"$folder/numbers"
while (($(stat -c %s "$folder/numbers") < size)); do
    cat "$folder/numbers" "$folder/numbers" >"$folder/more" && mv "$folder/more" "$folder/numbers"
done
{ head -c $header "$run/model.safetensors" && head -c $((size - header)) "$folder/numbers"; } >"$folder/all"
expect 1 "the loss of microbatch 0 is" "${eval[@]}" --init "$folder/all" --json "$folder/eval.json"
grep -qF "weft: $folder/all: " "$folder/said" || fail "eval does not name the file"
[[ ! -e $folder/eval.json ]] || fail "eval: a report of no loss"
[[ $(sha256sum "$run/state.safetensors") == "$good" ]] || fail "a checkpoint has changed"
finish
