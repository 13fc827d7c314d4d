#!/usr/bin/env bash
# --on-nan: a step that is not finite leaves no trace (skip), or takes the run back to its last
# checkpoint (rewind), with the same bits under every plan. WEFT_FLIP_BIT makes a step not finite.
# label: once
source tests/cli_helpers.bash
net="train --model mlp --image 8 --data synthetic --batch 12 --micro 4 --lanes 2 --threads 1 --optimizer adam"
sha() { report $net "$@" | field weights_sha256; }
# spoiled ARGUMENTS...: the same, with a step 11 that is not finite.
spoiled() { WEFT_FLIP_BIT=11:0:30 report $net "$@" | field weights_sha256; }

WEFT_FLIP_BIT=11:0:30 expect 1 "step 11: " $net --steps 20 --on-nan stop --plan dp=2 --ranks 2 --restarts 2 --snapshot 1
grep -q "; restart " "$folder/said" && fail "stop: a loss that is not finite is tried again"
expect 2 "--on-nan rewind needs --out" $net --steps 1 --on-nan rewind
expect 2 "--on-nan has no effect here: workers" $net --steps 1 --on-nan skip --update async
WEFT_FLIP_BIT=11 expect 2 "it takes STEP:RANK:BIT" $net --steps 1

# ---- skip ----
[[ $(spoiled --steps 11 --on-nan skip) == $(sha --steps 10) ]] || fail "skip: the step has left something"
want=$(spoiled --steps 20 --on-nan skip --json "$folder/whole" --out "$folder/run")
[[ $want && $want != $(sha --steps 20) ]] || fail "skip: the step was made"
grep -q '"step":11,.*"skipped":1.0' "$folder/run/log.jsonl" || fail "skip: the log does not say so"
[[ $(grep -c '"skipped"' "$folder/run/log.jsonl") == 1 ]] || fail "skip: more than one step in the log"
for plan in dp=2 "dp=2,zero=3 --ranks 2" "pp=2,offload=state:disk --ranks 2"; do
    [[ $(spoiled --steps 20 --on-nan skip --plan $plan) == "$want" ]] || fail "skip, $plan: other bits"
done
WEFT_FLIP_BIT=11:0:30 report $net --steps 20 --on-nan skip | tr -d ' \n' >"$folder/skipped"
report $net --steps 20 | tr -d ' \n' >"$folder/usual"
grep -q '"skipped_steps":1,' "$folder/skipped" || fail "skipped_steps: $(grep -o '"skipped_steps[^,]*' "$folder/skipped")"
grep -q '"host_peak_bytes":{"planned":\[0\]' "$folder/usual" || fail "host memory without a copy"
grep -q '"host_peak_bytes":{"planned":\[[1-9]' "$folder/skipped" || fail "the copy is not in host_peak_bytes"
expect 3 "the copy of its state that undoes a step" $net --steps 1 --on-nan skip --host-memory 4KB
expect 1 "100 steps in a row were not finite" train --model mlp --image 8 --data synthetic --batch 64 --threads 1 --lr 1e6 --steps 300 --on-nan skip
# killed SKIPPED ARGUMENTS...: the same as spoiled, where rank 1 dies in step 14, after a snapshot.
killed() {
    WEFT_FLIP_BIT=11:0:30 WEFT_RAISE=9:load:1:53 report $net --steps 20 --plan dp=2 --ranks 2 --restarts 2 --snapshot 2 \
        "${@:2}" >"$folder/killed"
    [[ $(field weights_sha256 <"$folder/killed") == "$want" ]] || fail "${*:2}: other bits after a restart"
    [[ $(field skipped_steps <"$folder/killed"),$(field restarts <"$folder/killed") == "$1,1" ]] ||
        fail "${*:2}: a restart forgets skipped steps: $(cat "$folder/killed")"
}
killed 1 --on-nan skip

# ---- rewind ----
want=$(sha --steps 8)
[[ $(spoiled --steps 11 --on-nan rewind --out "$folder/rewound" --save-every 4) == "$want" ]] ||
    fail "rewind: not the state of step 8"
grep -q "going back to step 8 and leaving out 3 batches" "$folder/said" || fail "rewind: does not say where to: $(cat "$folder/said")"
[[ $(spoiled --steps 11 --on-nan rewind --out "$folder/begin") == $(sha --steps 0) ]] || fail "rewind: not to the beginning"
want=$(spoiled --steps 20 --on-nan rewind --out "$folder/one" --save-every 4)
[[ $(spoiled --steps 20 --on-nan rewind --out "$folder/two" --save-every 4 --save-async --plan dp=2 --ranks 2) == "$want" ]] ||
    fail "rewind, dp=2: other bits"
killed 3 --on-nan rewind --out "$folder/three" --save-every 4
"$WEFT" train --resume --out "$folder/one" --steps 24 --quiet || fail "a run that went back cannot be resumed"
finish
