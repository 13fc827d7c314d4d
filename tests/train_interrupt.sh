#!/usr/bin/env bash
# A signal to one rank of several processes: all stop after the same step and save what they have
# done; resumed, the run has the bits of one that never stopped. However long that takes; nothing is
# lost before the first step or after the last, and what cannot be saved is a failure.
# label: once long
source tests/cli_helpers.bash
source tests/processes.bash

for case in INT:2:130 TERM:0:143; do
    IFS=: read -r signal rank status <<<"$case"
    train --steps 100000000 --plan dp=1,pp=3
    kill -"$signal" "$(pid_of "$rank")"
    finishes "$status" "SIG$signal to rank $rank"
    step=$(sed -n 's/^weft: interrupted after step \([0-9]*\); the last checkpoint is .*, of step \1:.*/\1/p' "$folder/said")
    [[ -n $step && $(grep -c "^weft: " "$folder/said") == 1 ]] || fail "SIG$signal to rank $rank: says $(cat "$folder/said")"
    [[ $(grep -c '"loss"' "$folder/run/log.jsonl") == "$step" ]] || fail "SIG$signal: the log has not $step steps"
    sha=$(report train --ranks 3 --plan pp=3 --resume --out "$folder/run" --steps $((step + 2)) | field weights_sha256)
    [[ $sha && $sha == "$(report $run --steps $((step + 2)) | field weights_sha256)" ]] ||
        fail "SIG$signal: interrupted after step $step and resumed: other bits than one rank without a pause"
done

# ---- steps that take longer than any grace: the launcher waits for a job that moves ----
slow="train --model mlp --data synthetic --batch 4 --micro 2 --threads 1 --plan pp=2 --steps 100000000 --save-every 1"
saved() { [[ -e $folder/run/model.safetensors ]]; }
# interrupt STATUS SIGNAL WORDS...: slow training, as those words start it, and a signal in a step.
interrupt() {
    rm -rf "$folder/run"
    WEFT_DELAY_US=300000 "${@:3}" --out "$folder/run" >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher saved || fail "$3 $4: no step is made: $(cat "$folder/said")"
    all=$(children $launcher)
    kill -"$2" $launcher
    finishes "$1" "${*:3}"
    says "^weft: interrupted after step ([0-9]+); the last checkpoint is .*, of step \\1:" || fail "${*:3:4}: not saved: $(cat "$folder/said")"
}
# shellcheck disable=SC2086
interrupt 130 INT "$WEFT" run -n 2 --grace 0.1 -- "$WEFT" $slow
# The same when ranks are started by scripts: one that waits for its rank, one that the signal ends.
# shellcheck disable=SC2016,SC2086
interrupt 130 INT "$WEFT" run -n 2 --grace 0.1 -- bash -c '"$0" "$@"; exit $?' "$WEFT" $slow
# shellcheck disable=SC2016,SC2086
interrupt 143 TERM "$WEFT" run -n 2 --grace 0.1 -- sh -c '"$0" "$@"; exit $?' "$WEFT" $slow

# ---- nobody can save: a failure, not only an interruption ----
train --steps 100000000 --plan pp=3
rm -rf "$folder/run"
kill -TERM $launcher
finishes 1 "the folder has gone"

# ---- one that a signal ends before it has come: the others are told, and need not be killed ----
"$WEFT" run -n 3 --grace $patience -- sh -c '[ $RANK != 1 ] || exec sleep 600; exec "$0" "$@"' "$WEFT" $run --plan pp=3 --steps 100000000 \
    >"$folder/out" 2>"$folder/said" </dev/null &
launcher=$!
all_wait() {
    local pid n=0
    for pid in $(children $launcher); do grep -qa futex "/proc/$pid/wchan" 2>/dev/null && n=$((n + 1)); done
    has_rank 2 && ((n >= 2))
}
patience=5 until_true all_wait || true # only to hit it better
all=$(children $launcher)
kill -INT $launcher
finishes 130 "a rank that never comes"
says 'all ranks have ended' || fail "a rank that never comes: $(cat "$folder/said")"

# ---- between the launcher's first look at signals and its own: lost once ----
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # cannot be where another tracer is
    # In the set-up: nobody makes a step first.
    for more in "" "--ranks 3"; do
        got=0
        rm -rf "$folder/run"
        # shellcheck disable=SC2086
        strace -f -o /dev/null -e inject=mkdir:signal=SIGTERM:when=1 \
            "$WEFT" $run --plan pp=3 --steps 100000000 --out "$folder/run" $more >"$folder/out" 2>"$folder/said" || got=$?
        [[ $got == 143 ]] || fail "SIGTERM in the set-up${more:+, $more}: exit $got: $(cat "$folder/said")"
        says '^weft: interrupted(; no rank has been started| before the first step)' || fail "SIGTERM in the set-up${more:+, $more}: $(cat "$folder/said")"
    done
    # Without a launcher the other rank learns it from the rank that leaves.
    hand="$run --plan pp=2 --steps 100000000 --rendezvous file://$folder/meet"
    # shellcheck disable=SC2086
    RANK=1 WORLD_SIZE=2 strace -f -o /dev/null -e inject=memfd_create:signal=SIGTERM:when=1 "$WEFT" $hand >"$folder/out" 2>&1 &
    # shellcheck disable=SC2086
    RANK=0 WORLD_SIZE=2 "$WEFT" $hand >"$folder/out" 2>"$folder/said" && fail "a rank that left in the set-up: no failure"
    wait $! || true
    says 'rank 1 was asked to stop before the first step; nothing has been lost' || fail "a rank that left in the set-up: $(cat "$folder/said")"
fi

finish
