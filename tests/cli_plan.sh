#!/usr/bin/env bash
# weft plan answers first; ranks and units that are equal share a row, however many they are.
source tests/cli_helpers.bash
gpt="--model gpt2-tiny --tokens 16 --batch 8 --threads 1"

# line N PATTERN: whether line N of the output is that.
line() { sed -n "$1p" "$folder/out" | grep -qE -- "$2" || fail "line $1 is not '$2': $(cat "$folder/out")"; }

# ---- the answer: peak, step, bytes sent; then the plan, the recipe and the data ----
"$WEFT" plan $gpt --plan dp=2,tp=2 --json "$folder/report" >"$folder/out" 2>"$folder/said" || fail "plan: exit $?"
line 1 '^peak    [0-9.]+ [KM]iB on ranks 0-3, in unit (embed|h\.[01]|head); --device-memory SIZE tests if it fits$'
line 2 '^step    [0-9.]+ [mu]s, [0-9.]+ M FLOP; simulated with assumed rates '
line 3 '^sent    [0-9.]+ [KM]iB a step by ranks 0-3; [0-9.]+ [KM]iB in all$'
line 4 '^plan    dp=2,pp=1,schedule=1f1b,tp=2 \(4 ranks\)$'
line 5 '^recipe  --model gpt2-tiny '
line 6 '^data    synthetic: '
[[ ! -s $folder/said ]] || fail "standard error: $(cat "$folder/said")"
[[ $(field step_ms <"$folder/report" | sort -u | wc -l) == 1 ]] || fail "step_ms: $(field step_ms <"$folder/report")"
[[ $(grep -c '"name": "h.0.pair0.0"' "$folder/report") == 2 ]] || fail "the report has not all units of all ranks"
[[ $(sed -nE 's/^ "([a-z_]+)":.*/\1/p' "$folder/report" | xargs) == "weft costs plan recipe mesh ranks fits would_fit proposals fragmentation flops sent_bytes device_memory recipe_needed step_ms simulated bytes_over_time" ]] ||
    fail "the report's fields: $(sed -nE 's/^ "([a-z_]+)":.*/\1/p' "$folder/report" | xargs)"
"$WEFT" plan $gpt --device-memory 1GiB >"$folder/out" || fail "plan that fits: exit $?"
line 1 '^fits    yes$'
line 2 '; limit 1\.00 GiB$'
"$WEFT" plan $gpt --device-memory 100KB --json - >"$folder/out" 2>/dev/null
line 1 '^\{$'
grep -q 'these would fit' "$folder/out" && fail "--json -: more than the report on standard output"
# With --quiet the table is a part of the error.
"$WEFT" plan $gpt --device-memory 1500KiB --quiet >"$folder/out" 2>"$folder/said"
[[ $? == 3 && ! -s $folder/out ]] || fail "--quiet: $(cat "$folder/out")"
grep -qx 'these would fit:' "$folder/said" || fail "--quiet: no table: $(cat "$folder/said")"

# ---- equal units: one row for each unit of the model, one for equal neighbours; --verbose has the parts, by rank ----
"$WEFT" plan $gpt --plan dp=2,tp=2 >"$folder/out"
grep -qE '^h\.0 \.\.\. h\.1 +2 x ' "$folder/out" || fail "units are not folded: $(cat "$folder/out")"
grep -q '\.pair0' "$folder/out" && fail "parts of units without --verbose"
[[ $(grep -cE '^(embed|head) ' "$folder/out") == 2 ]] || fail "not one row for embed and head: $(cat "$folder/out")"
"$WEFT" plan $gpt --plan dp=2,tp=2 --verbose >"$folder/out"
[[ $(grep -c ' h\.0\.pair0\.[0-3] ' "$folder/out") == 4 ]] || fail "--verbose: not four slices: $(cat "$folder/out")"
grep -qE '^ranks 0, 2 +embed ' "$folder/out" || fail "--verbose: replicas are not one row: $(cat "$folder/out")"
# A block's parts with names of their own are in its row.
"$WEFT" plan --model resnet18 --image 32 --batch 8 --threads 1 >"$folder/out"
grep -q 'conv' "$folder/out" && fail "resnet18 has rows of parts: $(cat "$folder/out")"
# With the optimizer's state elsewhere, the bytes that a rank holds are not negative.
"$WEFT" plan $gpt --plan offload=state --optimizer adamw >"$folder/out"
grep -q TiB "$folder/out" && fail "offload=state: $(grep TiB "$folder/out")"
grep -qE '^ +[0-9.]+ KiB of host memory$' "$folder/out" || fail "offload=state: no host memory: $(head -3 "$folder/out")"

# Measured times differ; equal layers are one row all the same.
"$WEFT" plan $gpt --costs measured >"$folder/out" 2>"$folder/said" || fail "--costs measured: exit $?"
grep -q '; simulated with measured costs$' "$folder/out" || fail "--costs measured: $(head -2 "$folder/out")"
grep -qE '^h\.0 \.\.\. h\.1 +2 x ' "$folder/out" || fail "measured units are not folded: $(cat "$folder/out")"
[[ ! -s $folder/said ]] || fail "less than two seconds show progress: $(cat "$folder/said")"

# ---- equal ranks: 384 are few lines, in tables, in the mesh and in pictures ----
"$WEFT" plan --model gpt --layers 24 --hidden 32 --heads 4 --vocab 100 --tokens 16 --batch 64 --threads 1 --plan dp=8,pp=12,tp=4 \
    --draw "$folder/large.txt" >"$folder/out" || fail "384 ranks: exit $?"
(($(wc -l <"$folder/out") < 80)) || fail "384 ranks print $(wc -l <"$folder/out") lines"
grep -qE '^ranks 0-3, 48-51 \.\.\. 336-339 \(32\) +embed ' "$folder/out" || fail "384 ranks: the first stage is not a row: $(cat "$folder/out")"
grep -q '^  groups along pp: 0 4 \.\.\. 44 (12) | 1 5 .* | \.\.\. (32 groups)$' "$folder/out" || fail "384 ranks: groups: $(grep groups "$folder/out")"
grep -qE '^h\.1 \.\.\. h\.2[23] +2[23] x ' "$folder/out" || grep -qE '^h\.0 \.\.\. h\.23 +24 x ' "$folder/out" || fail "24 layers are not a row: $(cat "$folder/out")"
(($(grep -c '|$' "$folder/large.txt") <= 24)) || fail "384 ranks are drawn as $(grep -c '|$' "$folder/large.txt") rows"
grep -q "the number is the first rank's microbatch" "$folder/large.txt" || fail "the legend of folded rows: $(tail -1 "$folder/large.txt")"
# ---- a start of training prints five lines at most ----
train="train --model mlp --image 6 --data synthetic --threads 1 --batch 32 --steps 2 --optimizer adamw"
images "$folder/images"
# starts WORDS...: how many lines there are before the run's end.
starts() {
    "$WEFT" "$@" >"$folder/out" 2>"$folder/said" || fail "$*: exit $?: $(cat "$folder/said")"
    local n
    n=$(sed '/^done /,$d; /^epoch .*test loss/d' "$folder/out" | wc -l)
    ((n >= 4 && n <= 5)) || fail "$*: a start of $n lines: $(cat "$folder/out")"
    [[ ! -s $folder/said ]] || fail "$*: standard error: $(cat "$folder/said")"
}
starts $train
starts $train --ranks 2
grep -qE '^peak    each rank: [0-9.]+ MiB planned$' "$folder/out" || fail "the peak of equal ranks: $(cat "$folder/out")"
grep -qE '^peak    ranks 0-1  [0-9.]+ MiB planned, [0-9.]+ MiB measured$' "$folder/out" || fail "equal peaks are not one line: $(cat "$folder/out")"
starts $train --devices cpu:4 --plan dp=2,zero=3,offload=state+params:disk,pp=2 --device-memory 1GiB
starts $train --micro auto --plan auto --devices cpu:2
starts train --model mlp --data "$folder/images" --threads 1 --batch 9 --micro 8 --lanes 8 --epochs 1 --out "$folder/run"
starts train --resume --out "$folder/run" --epochs 2
grep -q '^resume  step 7 of 14$' "$folder/out" || fail "a resumed start: $(cat "$folder/out")"

# ---- progress: a line that changes on a terminal, steps of the search in the log ----
search="plan $gpt --optimizer adamw --device-memory 300KiB"
WEFT_LOG=info:progress "$WEFT" $search >"$folder/out" 2>"$folder/said"
grep -qE 'progress: trying plan 1 of about [0-9]+: dp=' "$folder/said" || fail "the search shows no progress"
if command -v script >/dev/null; then
    TERM=xterm script -qec "stty cols 100; $WEFT plan $gpt --micro auto" /dev/null </dev/null | tr '\r' '\n' >"$folder/terminal"
    grep -qE 'measuring --micro 8, 1 of at most 1, 0:00 so far' "$folder/terminal" || fail "--micro auto on a terminal: $(cat "$folder/terminal")"
fi
finish
