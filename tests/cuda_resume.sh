#!/usr/bin/env bash
# label: serial stand_in
# A run that goes on on another kind of device has other bits: that is said, and refused with --strict. What
# generates from its weights prints the text alone.
source tests/cli_helpers.bash
printf 'On a loom, on a loom, weft goes over warp and under warp. %.0s' {1..20} >"$folder/text"
run() { "$WEFT" train --resume --out "$folder/run" --quiet "$@" >"$folder/said" 2>&1; }
"$WEFT" train --model gpt --layers 2 --hidden 16 --heads 2 --tokens 8 --data "$folder/text" --batch 2 --threads 1 \
    --steps 1 --out "$folder/run" --devices cuda:1 --quiet >"$folder/said" 2>&1 || fail "to begin with: $(cat "$folder/said")"

run --strict --steps 1 --devices cpu:1
code=$?
((code == 1)) && grep -q "made by weft .*CUDA C.* (cuda: .*, and this is weft .* on oneDNN [^C]*: the run would not" "$folder/said" ||
    fail "--strict on the CPU: exit $code, $(cat "$folder/said")"
run --strict --steps 2 --devices cuda:2 --plan pp=2 && [[ ! -s $folder/said ]] || fail "the same kind: $(cat "$folder/said")"
run --steps 3 --devices cpu:0,cuda:0 --plan pp=2 || fail "two kinds: exit $?"
grep -q "this is weft .* on oneDNN .* and weft's kernels (CUDA C).*may continue with other bits" "$folder/said" || fail "two kinds: $(cat "$folder/said")"
[[ $(field library <"$folder/run/report.json") == oneDNN*CUDA* ]] || fail "the report does not say both libraries"

said=$("$WEFT" generate --init "$folder/run" --prompt "On a" --steps 1 --temperature 0 --devices cuda:1) || fail "generate: exit $?"
[[ $said == "On a"* ]] || fail "generate prints more than its text: $said"
exit 0
