#!/usr/bin/env bash
# A signal to one rank of several processes: all stop after the same step and save what they have
# done; resumed, the run has the bits of one that never stopped.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash

for case in INT:2:130 TERM:0:143; do
    IFS=: read -r signal rank status <<<"$case"
    train --steps 100000000 --plan dp=1,pp=3
    kill -"$signal" "$(pid_of "$rank")"
    finishes "$status" "SIG$signal to rank $rank"
    step=$(sed -n 's/^weft: interrupted after step \([0-9]*\); the last checkpoint is .*, of step \1:.*/\1/p' "$folder/said")
    [[ -n $step && $(wc -l <"$folder/said") == 1 ]] || fail "SIG$signal to rank $rank: says $(cat "$folder/said")"
    [[ $(grep -c '"loss"' "$folder/run/log.jsonl") == "$step" ]] || fail "SIG$signal: the log has not $step steps"
    sha=$(report train --ranks 3 --plan pp=3 --resume --out "$folder/run" --steps $((step + 2)) | field weights_sha256)
    [[ $sha && $sha == "$(report $run --steps $((step + 2)) | field weights_sha256)" ]] ||
        fail "SIG$signal: interrupted after step $step and resumed: other bits than one rank without a pause"
done
finish
