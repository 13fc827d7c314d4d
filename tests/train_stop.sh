#!/usr/bin/env bash
# A rank that is stopped and lets the others wait is named: first in a line, at the deadline in the
# sentence that ends the run, which leaves nothing behind. How killed ranks end: train_kill.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash

# ---- a rank is stopped: a line says so, then the deadline ends all ----
for case in dp=3:1 pp=3:2; do
    IFS=: read -r plan rank <<<"$case"
    WEFT_STALL_MS=200 WEFT_TIMEOUT_MS=500 train --steps 100000000 --plan $plan
    pid=$(pid_of $rank)
    kill -STOP "$pid"
    finishes 4 "$plan, rank $rank stopped"
    says "^weft warn wait: rank $rank \(process $pid\) has not (moved|come) for 0.2 s; it (was last doing .* in step|last came to step) [0-9]+; the process is stopped" ||
        fail "$plan: no line says that rank $rank is stopped: $(cat "$folder/said")"
    says "waited 500 ms .* rank $rank \(process $pid\) has not (moved|come); .*; the process is stopped" ||
        fail "$plan: the sentence does not say that rank $rank is stopped: $(cat "$folder/said")"
    [[ $(grep -c '^weft warn' "$folder/said") == 1 ]] || fail "$plan: not one line: $(cat "$folder/said")"
done

# ---- stopped for a while: a line, and the run goes on ----
WEFT_STALL_MS=100 train --steps 100000000 --plan pp=3
pid=$(pid_of 1)
kill -STOP "$pid"
until_true 20 says "rank 1 \(process $pid\) has not (moved|come) for 0.1 s" || fail "no line: $(cat "$folder/said")"
kill -CONT "$pid"
n=$(grep -c loss "$folder/run/log.jsonl")
until_true 20 has_steps $((n + 100)) || fail "after SIGCONT no more steps are made"
kill -INT $launcher
finishes 130 "Ctrl-C"
says "^weft: interrupted after step [0-9]+; the last checkpoint is .*, of step [0-9]+" || fail "Ctrl-C: $(cat "$folder/said")"

finish
