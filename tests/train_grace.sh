#!/usr/bin/env bash
# --grace: SIGTERM lets the step end and saves, with exit status 143, after restarts too; a step that
# takes longer than the grace is cut off.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash

# ---- within the grace ----
train --steps 100000000 --grace $patience --restarts 3
kill -KILL "$(pid_of 1)"
until_true_of $launcher says '; restart 1 of 3' || fail "no restart: $(cat "$folder/said")"
until_true_of $launcher grep -q '^restart 1 after' "$folder/out" || fail "no second attempt: $(cat "$folder/said")"
until_true_of $launcher has_steps 1 || fail "no steps after the restart: $(cat "$folder/said")"
all+=" $(children $launcher)"
kill -TERM $launcher
finishes 143 "SIGTERM"
step=$(sed -n 's/^weft: interrupted after step \([0-9]*\); .*, of step \([0-9]*\): --resume.*/\1 \2/p' "$folder/said")
[[ $step && ${step% *} == "${step#* }" ]] || fail "the last step is not saved: $(cat "$folder/said")"
says 'restart 2' && fail "an interrupted run is started again"
"$WEFT" train --resume --out "$folder/run" --steps "${step% *}" --quiet || fail "the checkpoint does not load"

# ---- a step that takes longer: up to half a minute before each instruction ----
is_stepping() { [[ -s $folder/slow/run.json ]]; }
for launch in "--ranks 2 --plan dp=2" "--plan dp=2"; do
    rm -rf "$folder/slow"
    raise='' # ranks of a job stop after a step; a single process would also stop before its first
    [[ $launch == --ranks* ]] || raise=15:load:0:1
    # shellcheck disable=SC2086
    WEFT_RAISE=$raise WEFT_DELAY_US=30000000 WEFT_STALL_MS=0 "$WEFT" train --model mlp --data synthetic --batch 4 --threads 1 \
        $launch --steps 3 --out "$folder/slow" --grace 0.3 >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher is_stepping || fail "no step begins: $(cat "$folder/said")"
    all="$launcher $(children $launcher)"
    [[ $raise ]] || kill -TERM $launcher
    finishes 143 "a step longer than the grace, $launch"
    says "the grace has passed" || fail "$launch: the grace is not mentioned: $(cat "$folder/said")"
done
expect 2 "--grace needs --out" train --model mlp --data synthetic --steps 1 --grace 3
finish
