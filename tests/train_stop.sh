#!/usr/bin/env bash
# A rank that is stopped and lets the others wait is named: first in a line, at the deadline in the
# sentence that ends the run, which leaves nothing behind. A job that is suspended as a whole goes on
# afterwards. Who is named in which case: train_stall; how killed ranks end: train_kill.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash

# ---- stopped for a while: a line, and the run goes on ----
WEFT_STALL_MS=200 train --steps 100000000 --plan pp=3
pid=$(pid_of 1)
kill -STOP "$pid"
until_true_of $launcher says "^weft warn wait: rank 1 \(process $pid\) has not (moved|arrived) for [0-9.]+ s; it( was last doing|s last call:) .*; the process is stopped" ||
    fail "no line says that rank 1 is stopped: $(cat "$folder/said")"
kill -CONT "$pid"
n=$(grep -c loss "$folder/run/log.jsonl")
until_true_of $launcher has_steps $((n + 100)) || fail "after SIGCONT no more steps are made"
kill -INT $launcher
finishes 130 "Ctrl-C"
says "^weft: interrupted after step [0-9]+; the last checkpoint is .*, of step [0-9]+" || fail "Ctrl-C: $(cat "$folder/said")"

# ---- all of them, for longer than the deadline: nobody has let anybody wait ----
suspended() {
    WEFT_TIMEOUT_MS=$1 train --steps 100000000 --plan pp=3 || return
    # shellcheck disable=SC2086
    kill -STOP $launcher $all
    sleep "$(seconds $(($1 * 2)))"
    n=$(grep -c loss "$folder/run/log.jsonl")
    # shellcheck disable=SC2086
    kill -CONT $launcher $all
    until_true_of $launcher has_steps $((n + 100)) || fail "suspended and continued: no more steps are made: $(cat "$folder/said")"
    kill -INT $launcher
    finishes 130 "Ctrl-C after a suspension"
}
with_deadlines suspended 1500

# ---- for good: the deadline ends all, the stopped process too ----
stopped() {
    WEFT_STALL_MS=0 WEFT_TIMEOUT_MS=$1 train --steps 100000000 --plan dp=3 || return
    pid=$(pid_of 0)
    kill -STOP "$pid"
    finishes 4 "rank 0 stopped"
    says "waited $1 ms .* rank 0 \(process $pid\) has not (moved|come); .*; the process is stopped" ||
        fail "the sentence does not say that rank 0 is stopped: $(cat "$folder/said")"
    says "^weft warn" && fail "WEFT_STALL_MS=0, and a line: $(cat "$folder/said")"
}
with_deadlines stopped 1500
finish
