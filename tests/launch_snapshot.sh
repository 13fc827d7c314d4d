#!/usr/bin/env bash
# --snapshot: killed ranks are started again alone, the others keep their processes, and the run ends as
# if nothing had happened, with nothing left. A rank that stalls is replaced as well.
# WEFT_TEST_FULL=1: 100 random kills, under several plans.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
net="--model mlp --image 8 --data synthetic --batch 12 --micro 6 --lanes 3 --threads 1 --optimizer adam"

# ---- refusals ----
expect 2 "--snapshot needs --restarts" train $net --ranks 2 --steps 1 --snapshot 2
expect 2 "--snapshot must be at least 1" train $net --ranks 2 --steps 1 --restarts 2 --snapshot 0
expect 2 "only a checkpoint holds" train $net --ranks 2 --steps 1 --restarts 2 --snapshot 1 --update async
expect 2 "only their launcher can start them again" run -n 2 -- "$WEFT" train $net --steps 1 --restarts 3 --snapshot 2
expect 3 "with its copies of the state for" train $net --ranks 3 --steps 1 --restarts 2 --snapshot 1 --host-memory 1K
expect 3 "with its copies of the state for" plan $net --plan dp=3 --on-nan skip --host-memory 1K
bytes_of() { report plan $net --ranks 3 --plan dp=3 --restarts 2 --verify 5 "$@" | field "$key" | head -1; }
key=snapshot_bytes
[[ $(bytes_of --snapshot 2) -gt 1000000 && ! $(bytes_of) ]] || fail "weft plan: bytes of snapshots: $(bytes_of --snapshot 2)"
key=host_peak_bytes
[[ $(bytes_of --on-nan skip) -gt $(bytes_of) ]] || fail "weft plan does not count the copy of --on-nan skip"

# ---- kills ----
segments() { ls /dev/shm 2>/dev/null | grep weft; }
# The processes of the ranks, in their order.
ranks_of() {
    local r
    for ((r = 0; r < n; r++)); do pid_of "$r"; done
}
has_restarted() { [[ $(grep -c '; restart .* stay' "$folder/said") -ge $1 ]]; }
has_started() { [[ $(grep -c '^restart ' "$folder/out") -ge $1 ]]; }

# start N ARGUMENTS...: a run of N ranks in the background; begin: false if it ends before all are seen.
start() { begin "$@" || fail "no ranks: $(cat "$folder/said")"; }
begin() {
    n=$1
    # shellcheck disable=SC2086
    "$WEFT" train $net --ranks "$n" --restarts 1000 --snapshot 2 --json "$folder/report" "${@:2}" \
        >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    has_all() { [[ $(ranks_of | wc -l) == "$n" ]]; }
    until_true_of $launcher has_all
}
# ends WHAT: with the bits of an undisturbed run.
ends() {
    local got=0 pids=$all
    wait $launcher || got=$?
    [[ $got == 0 ]] || fail "$1: exit $got: $(cat "$folder/said")"
    [[ $(field weights_sha256 <"$folder/report") == "$want" ]] || fail "$1: other bits"
    [[ $(tr -d ' \n' <"$folder/report" | grep -o '"losses":[^]]*') == "$want_losses" ]] || fail "$1: other losses"
    # shellcheck disable=SC2086
    none_left "$1" $pids
    [[ ! $(segments) ]] || fail "$1: shared memory is left: $(segments)"
}
# whole STEPS: an undisturbed run, by one process.
whole() {
    report train $net --steps "$1" >"$folder/whole"
    want=$(field weights_sha256 <"$folder/whole")
    want_losses=$(tr -d ' \n' <"$folder/whole" | grep -o '"losses":[^]]*')
}
# kills STEPS RANK...: after so many steps; the other ranks keep their processes. Whether that is before the end.
kills() {
    local before=() after=() i
    until_true_of $launcher has_steps "$1"
    mapfile -t before < <(ranks_of)
    ((${#before[@]} == n)) && stop_before 390 "${before[@]}" || { kill -CONT "${before[@]}" 2>/dev/null; return 1; }
    shift
    all+=" ${before[*]}"
    for i; do kill -KILL "${before[i]}"; done
    kill -CONT "${before[@]}" 2>/dev/null
    until_true_of $launcher has_restarted $((n_restarts + 1)) || fail "no restart: $(cat "$folder/said")"
    n_restarts=$(grep -c '; restart .* stay' "$folder/said")
    until_true_of $launcher has_started $((n_started + 1)) || fail "the run does not go on: $(cat "$folder/said" "$folder/out")"
    n_started=$(grep -c '^restart ' "$folder/out")
    mapfile -t after < <(ranks_of)
    ! has_steps 390 || return 1
    for ((i = 0; i < n; i++)); do
        [[ " $* " == *" $i "* || ${after[i]-} == "${before[i]}" ]] || fail "rank $i has not kept its process"
    done
}

whole 400
mkdir "$folder/bin"
printf '#!/bin/sh\necho drawn >>%s\n' "$folder/drawn" >"$folder/bin/gnuplot"
chmod +x "$folder/bin/gnuplot"
# killed DELAY_US: whether all ranks were killed in a run of so slow steps, one and then two.
killed() {
    local in_time=1
    rm -rf "$folder/run" "$folder/drawn"
    all= n_restarts=0 n_started=0 begun=$SECONDS
    WEFT_DELAY_US=$1 PATH=$folder/bin:$PATH begin 3 --steps 400 --out "$folder/run" --save-every 1000000 &&
        kills 20 1 && kills 100 0 2 || in_time=0
    ends "kills"
    ((in_time))
}
killed 0 || killed 2000 || killed 20000 || fail "kills: the run ends too early"
[[ $(grep -c '"loss"' "$folder/run/log.jsonl") == 400 ]] || fail "the log lacks steps"
# The curve is drawn at the end, and during the steps after ten seconds.
((SECONDS - begun >= 10)) || [[ $(grep -c drawn "$folder/drawn") == 1 ]] || fail "a picture delays a restart: $(cat "$folder/drawn")"
says 'restart 1 of 1000 in 0.0 s' || fail "a restart after new steps waits: $(cat "$folder/said")"
grep -qE '^restart .* from memory, [0-9]{1,3}\.[0-9]* s after the failure; steps repeated: [012];' "$folder/out" ||
    fail "no restart from memory: $(cat "$folder/out")"
keeps_useful "$folder/run/log.jsonl"
[[ $(field repeated_steps <"$folder/report") -le $((2 * n_restarts)) ]] || fail "steps are repeated: $(field repeated_steps <"$folder/report")"

# ---- damaged snapshots, and the last restart ----
# word AT: a number in the memory of snapshots, where `1` and `2` are the steps of its images.
word() { od -An -td8 -j$((8 * $1 + 8)) -N8 "$memory" | tr -d ' '; }
has_both() { [[ $(word 1) -ge 0 && $(word 2) -ge 0 ]]; }
has_line() { grep -q "$1" "$folder/out"; }
# A rank that writes a snapshot has dropped the older one.
stopped_with_both() {
    local pid
    for pid in "${all[@]}"; do kill -STOP "$pid" && until_true is_stopped "$pid"; done
    has_both || { kill -CONT "${all[@]}"; return 1; }
}
# damaged WHICH ARGUMENTS...: the newest snapshot or both, and rank 0 is killed.
damaged() {
    local k
    WEFT_DELAY_US=2000 start 3 "${@:2}"
    until_true_of $launcher has_line '^peak' || fail "no training: $(cat "$folder/said")"
    for memory in /proc/$launcher/fd/*; do [[ $(readlink "$memory") != *weft-snapshot* ]] || break; done
    mapfile -t all < <(ranks_of)
    until_true_of $launcher stopped_with_both || fail "no snapshots: $(cat "$folder/said")"
    newest=$(($(word 1) > $(word 2) ? 1 : 2)) older_step=$(word $((3 - newest)))
    for k in 1 2; do # all that follows the head
        [[ $1 == both || $k == "$newest" ]] || continue
        tr '\0' '\377' </dev/zero | dd of="$memory" conv=notrunc bs=32768 seek=$(((k << 41) / 32768 + 1)) \
            count=$(($(word 0) / 32768 - 1)) iflag=fullblock status=none
    done
    kill -KILL "${all[0]}" # which would drop the older one for the next
    kill -CONT "${all[1]}" "${all[2]}"
    until_true_of $launcher has_started 1 || fail "damaged snapshots: no restart: $(cat "$folder/said")"
}
damaged newest --steps 400
grep -q "^restart [12] after step $older_step " "$folder/out" || fail "the snapshot of step $older_step is not used: $(cat "$folder/out" "$folder/said")"
all="${all[*]}"
ends "one damaged snapshot"
damaged both --steps 100000 --restarts 3
grep -q '^restart [23] after step 0 ' "$folder/out" || fail "a damaged snapshot is read: $(cat "$folder/out")"
says 'is damaged: its sum is .*; restart [23] of 3 in 0.0 s' || fail "does not say that a snapshot is damaged: $(cat "$folder/said")"
kills_rank() { kill -KILL "$(pid_of 1)" 2>/dev/null; is_gone $launcher; }
until_true kills_rank
got=0
wait $launcher || got=$?
[[ $got == 4 ]] && says 'no restart is left: --restarts 3' || fail "more restarts than --restarts: exit $got: $(cat "$folder/said")"
none_left "the last restart" "${all[@]}"

# ---- waits double as long as no new step is made ----
has_replaced() { next=$(pid_of 1) && [[ $next && $next != "$last" ]]; }
WEFT_DELAY_US=2000 start 3 --steps 100000 --restarts 4
for memory in /proc/$launcher/fd/*; do [[ $(readlink "$memory") != *weft-snapshot* ]] || break; done
until_true_of $launcher has_both || fail "no snapshots: $(cat "$folder/said")"
mapfile -t all < <(ranks_of)
for pid in "${all[@]}"; do kill -STOP "$pid" && until_true is_stopped "$pid"; done
next=${all[1]}
for _ in 1 2 3; do
    last=$next
    kill -KILL "$last"
    until_true_of $launcher has_replaced || fail "no other rank 1: $(cat "$folder/said")"
done
[[ $(sed -n 's/.* in \([0-9.]*\) s, and the other ranks stay/\1/p' "$folder/said" | paste -sd' ') == "0.0 0.1 0.2" ]] ||
    fail "waits without a new step: $(cat "$folder/said")"
kill -CONT "${all[0]}" "${all[2]}"
kill -TERM $launcher
got=0
wait $launcher || got=$?
[[ $got == 143 ]] || fail "interrupted after three waits: exit $got: $(cat "$folder/said")"
none_left "waits" "${all[@]}"

# ---- interrupted while a rank is lost: the snapshot is saved ----
# interrupted WORDS ARGUMENTS...: the launcher sees the death of rank 1 and SIGTERM at once.
interrupted() {
    rm -rf "$folder/run"
    WEFT_DELAY_US=2000 start 3 --steps 400 "${@:2}"
    until_true_of $launcher has_line '^peak' || fail "no training: $(cat "$folder/said")"
    for memory in /proc/$launcher/fd/*; do [[ $(readlink "$memory") != *weft-snapshot* ]] || break; done
    until_true_of $launcher has_both || fail "no snapshots: $(cat "$folder/said")"
    mapfile -t all < <(ranks_of)
    kill -STOP $launcher && until_true is_stopped $launcher
    kill -KILL "${all[1]}"
    kill -TERM $launcher
    kill -CONT $launcher
    got=0
    wait $launcher || got=$?
    [[ $got == 143 ]] || fail "interrupted, $*: exit $got: $(cat "$folder/said")"
    says "^weft: interrupted by signal 15 .*; $1" || fail "interrupted, $*: $(cat "$folder/said")"
    none_left "interrupted, $*" "${all[@]}"
}
out="--out $folder/run --save-every 1000000"
interrupted "nothing has been saved, because there is no --out$"
# shellcheck disable=SC2086
interrupted "(the grace has passed before a snapshot was saved|saving the snapshot)" $out --grace 0.001
says "the grace has passed before .*" && says "nothing has been saved$" || fail "the grace has passed: $(cat "$folder/said")"
for more in "" "--save-async --grace $patience"; do
    # shellcheck disable=SC2086
    interrupted "saving the snapshot of step " $out $more
    saved=$(sed -n 's/.*saving the snapshot of step //p' "$folder/said")
    says "^weft: interrupted after step $saved; the last checkpoint is $folder/run/state.safetensors, of step $saved" ||
        fail "the snapshot is not saved: $(cat "$folder/said")"
    [[ $(report train --resume --steps 400 --out "$folder/run" | field weights_sha256) == "$want" ]] || fail "an interrupted run: other bits"
done

# ---- the data changes between two starts, in a run without --out ----
seq 1 9000 >"$folder/text"
whole_net=$net net="--model gpt --layers 1 --hidden 8 --heads 2 --tokens 8 --batch 4 --threads 1 --data $folder/text"
WEFT_DELAY_US=2000 start 2 --steps 100000
until_true_of $launcher has_line '^peak' || fail "no training: $(cat "$folder/said")"
for memory in /proc/$launcher/fd/*; do [[ $(readlink "$memory") != *weft-snapshot* ]] || break; done
until_true_of $launcher has_both || fail "no snapshots: $(cat "$folder/said")"
kill -STOP $launcher && until_true is_stopped $launcher
seq 2 9001 >"$folder/text"
kill -KILL "$(pid_of 1)"
kill -CONT $launcher
got=0
wait $launcher || got=$?
[[ $got == 1 ]] && says "^weft: --data $folder/text has changed since the run began: its hash is" || fail "other data: exit $got: $(cat "$folder/said")"
says '\(null\)|restart 2' && fail "other data: $(cat "$folder/said")"
net=$whole_net

# ---- a rank that is stopped past the deadline ----
stopped() { # stopped MS
    all= n_restarts=0
    export WEFT_TIMEOUT_MS=$1
    start 3 --steps 400
    unset WEFT_TIMEOUT_MS
    all=$(ranks_of)
    local other
    other=$(pid_of 0)
    until_true_of $launcher has_line '^peak' || fail "no training: $(cat "$folder/said")"
    kill -STOP "$(pid_of 1)"
    until_true_of $launcher has_restarted 1 || fail "a stopped rank: no restart: $(cat "$folder/said")"
    [[ $(pid_of 0) == "$other" ]] || fail "rank 0 has not kept its process"
    ends "a stopped rank"
    says 'rank 1 .*restart 1 of' || fail "the stopped rank is not named: $(cat "$folder/said")"
}
is_full && with_deadlines stopped 700

# ---- many kills at random moments ----
random_kills() { # random_kills N STEPS ARGUMENTS...
    local k pids
    whole "$2"
    all=
    start "${@:3}" --steps "$2"
    for ((k = 0; k < $1; k++)); do
        sleep 0.$((RANDOM % 9))
        mapfile -t pids < <(ranks_of)
        ((${#pids[@]})) || continue
        all+=" ${pids[*]}"
        kill -KILL "${pids[RANDOM % ${#pids[@]}]}" 2>/dev/null
    done
    ends "$1 random kills: ${*:3}"
}
if is_full; then
    random_kills 60 12000 3 --out "$folder/long" --save-every 50
    random_kills 20 4000 3 --plan dp=3,zero=3
    random_kills 20 4000 3 --plan pp=3
fi
finish
