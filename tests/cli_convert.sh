#!/usr/bin/env bash
# label: once
# weft convert: weights in other types and in shards, which go on as what they are.
source tests/cli_helpers.bash
net="train --model gpt2-tiny --data synthetic --batch 4 --threads 1 --optimizer adamw"
report $net --steps 1 --out "$folder/run" >"$folder/trained"
sha() { report $net --steps 0 --init "$1" | field weights_sha256; }
# converts OPTIONS...: its report.
converts() { report convert --init "$folder/run" --out "$folder/to.safetensors" "$@"; }

all=$(converts)
[[ $(field tensors <<<"$all") == 28 && $(field bytes <<<"$all") == 482304 ]] || fail "the report is $all"
[[ $(sha "$folder/to.safetensors") == $(field weights_sha256 <"$folder/trained") ]] || fail "a copy has other weights"
[[ $(converts --dtype f32 | field bytes) == 482304 ]] || fail "f32 is not as long as it was"
for dtype in f16 bf16; do
    [[ $(converts --dtype $dtype | field bytes) == 241152 ]] || fail "$dtype is not half as long"
    one=$(sha "$folder/to.safetensors")
    [[ $one != $(field weights_sha256 <"$folder/trained") ]] || fail "$dtype rounds nothing"
    converts --dtype $dtype --shard-size 64KiB >/dev/null
    [[ -f $folder/to.safetensors.index.json && ! -e $folder/to.safetensors ]] || fail "$dtype: no shards"
    [[ $(sha "$folder/to.safetensors.index.json") == "$one" ]] || fail "$dtype: shards have other weights"
done

# A training state in shards is one; rounded it would not be.
cp -r "$folder/run" "$folder/more"
report convert --init "$folder/run/state.safetensors" --out "$folder/more/state.safetensors" --shard-size 100KiB >/dev/null
for run in run more; do
    report train --resume --out "$folder/$run" --steps 2 --threads 1 | field weights_sha256 >"$folder/$run.sha"
done
cmp -s "$folder/run.sha" "$folder/more.sha" || fail "a state in shards goes on otherwise"
expect 2 "is a training state" convert --init "$folder/run/state.safetensors" --out "$folder/x" --dtype f16
expect 2 "--init is missing" convert --out "$folder/x"
expect 2 "--out is missing" convert --init "$folder/run"
expect 2 "--out is empty; it needs a value: DIR" convert --init "$folder/run" --out ""
expect 2 "not one of f16|bf16|f32" convert --init "$folder/run" --out "$folder/x" --dtype f64
expect 2 "has no option --batch" convert --init "$folder/run" --out "$folder/x" --batch 2
expect 1 "cannot be opened" convert --init "$folder/none" --out "$folder/x"
expect 1 "No such file" convert --init "$folder/run" --out "$folder/none/x"
[[ ! -e $folder/x ]] || fail "a file is left of what was refused"
"$WEFT" convert --init "$folder/run" --out "$folder/x" --quiet | has . && fail "--quiet prints"
"$WEFT" convert --init "$folder/run" --out "$folder/x" | has "28 tensors" || fail "nothing is said"
"$WEFT" convert --help | has -- "--dtype f16|bf16|f32" || fail "--help has no --dtype"
finish
