#!/usr/bin/env bash
# --restarts: ranks that were killed or stopped are started again from the last checkpoint, and the
# run ends as if nothing had happened. Failures that would repeat at once are not tried again.
# WEFT_TEST_FULL=1: 60 random kills instead of three.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
net="--model mlp --image 8 --data synthetic --batch 12 --micro 6 --lanes 3 --threads 1 --optimizer adam"

# ---- failures that would repeat ----
tries=$folder/tries
count() { wc -l <"$tries"; }
run_counted() { # run_counted STATUS TRIES WEFT'S ARGUMENTS... SCRIPT
    local status=$1 n=$2 got=0
    : >"$tries"
    "$WEFT" run "${@:3:$#-3}" -- sh -c "echo \$WEFT_RESTART >>$tries; ${*: -1}" >"$folder/out" 2>"$folder/said" || got=$?
    [[ $got == "$status" ]] || fail "weft run: exit $got, expected $status: $(cat "$folder/said")"
    [[ $(count) == "$n" ]] || fail "weft run: $(count) attempts, expected $n"
}
run_counted 0 3 -n 1 --restarts 3 '[ $WEFT_RESTART = 2 ] || kill -9 $$'
[[ $(paste -sd, "$tries") == 0,1,2 ]] || fail "WEFT_RESTART: $(paste -sd, "$tries")"
says 'was killed by signal 9 .*; restart 2 of 3 in 0.2 s' || fail "a restart is not said: $(cat "$folder/said")"
run_counted 7 2 -n 1 --restarts 1 'exit 7'
says 'no restart is left: --restarts 1' || fail "does not say that no restart is left"
run_counted 7 1 -n 1 'exit 7'
run_counted 2 1 -n 1 --restarts 3 'exit 2'
run_counted 3 1 -n 1 --restarts 3 'exit 3'
run_counted 143 1 -n 1 --restarts 3 'exit 143'
# A signal that comes while ranks stop, because the watchdog was killed.
run_counted 143 1 -n 1 --restarts 3 'trap "kill -TERM $PPID; exit" TERM
    kill -KILL $(ps -o pid=,comm= --ppid $PPID | sed -n "s/ *\([0-9]*\) weft-watchdog$/\1/p"); while :; do sleep 0.02; done'
# An interruption before a restart.
: >"$tries"
"$WEFT" run -n 1 --restarts 100 -- sh -c "echo >>$tries; exit 7" 2>"$folder/said" &
launcher=$!
has_tried() { [[ $(count) -ge 4 ]]; }
until_true_of $launcher has_tried || fail "no restarts"
kill -TERM $launcher
got=0
wait $launcher || got=$?
[[ $got == 143 ]] || fail "SIGTERM before a restart: exit $got: $(cat "$folder/said")"

expect 2 "only their launcher can start them again" run -n 2 -- "$WEFT" train $net --steps 1 --restarts 3
for bad in "--batch -1" "--data $folder/missing"; do
    # shellcheck disable=SC2086
    "$WEFT" train $net --ranks 3 --restarts 3 --steps 1 $bad >"$folder/out" 2>"$folder/said" && fail "$bad: no failure"
    says 'restart' && fail "$bad: it is tried again: $(cat "$folder/said")"
done
expect 1 "is not finite" train --model mlp --data synthetic --batch 64 --threads 1 --ranks 2 --restarts 3 --steps 20 --lr 1e6
says 'restart [1-9]' && fail "a loss that is not finite: it is tried again"

ranks_are_gone() { local r; for r in 0 1 2; do is_gone "$(pid_of $r)" || return 1; done; }

# ---- kills of random ranks ----
n_kills=$(is_full && echo 60 || echo 3)
n_steps=$((n_kills * 60))
report train $net --steps $n_steps | tr -d ' \n' >"$folder/whole"
has_all() { # of $ranks, which it sets
    mapfile -t ranks < <(for r in 0 1 2; do pid_of $r; done)
    ((${#ranks[@]} == 3))
}
has_restarted() { [[ $(grep -c '; restart ' "$folder/said") -ge $1 ]]; }
# killed DELAY_US: whether the first kill comes before the end of a run of so slow steps.
killed() {
    local ranks=() kill
    WEFT_DELAY_US=$1 train --image 8 --optimizer adam --steps $n_steps --save-every 20 --restarts 1000 --json "$folder/report"
    for ((kill = 1; kill <= n_kills; kill++)); do
        # The log shrinks with each restart, and then grows by steps that are new.
        until_true_of $launcher has_steps $((kill * 50 - 20)) || break
        until_true_of $launcher has_all || break # between two attempts there are none
        all+=" ${ranks[*]}"
        stop_before $((n_steps - 5)) "${ranks[@]}" && kill -KILL "${ranks[RANDOM % 3]}"
        kill -CONT "${ranks[@]}" 2>/dev/null
        until_true_of $launcher has_restarted $kill || break # the end was near
    done
    finishes 0 "kills"
    has_restarted 1
}
killed 0 || killed 2000 || killed 20000 || fail "no restart: $(cat "$folder/said")"
n_kills=$(grep -c '; restart ' "$folder/said")
[[ $(field weights_sha256 <"$folder/report") == $(grep -o 'weights_sha256":"[^"]*' "$folder/whole" | cut -d'"' -f3) ]] ||
    fail "other bits after $n_kills kills"
[[ $(tr -d ' \n' <"$folder/report" | grep -o '"losses":[^]]*') == $(grep -o '"losses":[^]]*' "$folder/whole") ]] ||
    fail "other losses than those of an undisturbed run"
[[ $(field restarts <"$folder/report") == "$n_kills" ]] || fail "restarts: $(field restarts <"$folder/report")"
[[ $(field effective <"$folder/report") == 0.* ]] || fail "effective: $(field effective <"$folder/report")"
[[ $(grep -c '"loss"' "$folder/run/log.jsonl") == "$n_steps" ]] || fail "steps are logged twice"
keeps_useful "$folder/run/log.jsonl"
grep -q "^lost .* in $n_kills restarts*, which repeated" "$folder/out" || fail "does not say what was lost"
ls -A "$folder/run" | grep -E '^\.weft|tmp' && fail "temporary files are left"

# ---- a damaged checkpoint: the restart goes back to the one before ----
# damaged NAME ARGUMENTS...: of a run of 8 steps, one bit of the file, in its header and in its tensors.
damaged() {
    local at
    for at in 300 -9; do
        rm -rf "$folder/run"
        report train $net --steps 8 --save-every 2 --keep 3 --out "$folder/run" "${@:2}" >/dev/null
        perl -e 'open(my $f, "+<:raw", $ARGV[0]) or die; my $end = $ARGV[1] < 0 ? 2 : 0; seek($f, $ARGV[1], $end);
            read($f, my $c, 1); seek($f, $ARGV[1], $end); print $f chr(ord($c) ^ 2)' "$folder/run/$1" $at
        expect 1 "is damaged" train --resume --out "$folder/run" --steps 12
        [[ ! -e $folder/run/damaged-$1 ]] || fail "without --restarts, a checkpoint is set aside"
        want=$(report train $net --steps 12 | field weights_sha256)
        got=$(WEFT_RESTART=1 report train $net --steps 12 --ranks 1 --restarts 1 --out "$folder/run" "${@:2}")
        says "is now $folder/run/damaged-$1" || fail "does not say that $1 is set aside: $(cat "$folder/said")"
        [[ $(field weights_sha256 <<<"$got") == "$want" ]] || fail "after a damaged checkpoint: other bits"
        [[ $(grep -c . <<<"$(tr -d ' \n' <<<"$got" | grep -o '"losses":[^]]*' | tr ',' '\n')") == 6 ]] ||
            fail "does not continue from step 6: $(grep -A20 losses <<<"$got")"
    done
}
damaged state.safetensors
damaged state.safetensors.index.json --shard-size 4000
# Kept checkpoints of an older run are not this run's.
rm -f "$folder/run/"*state*
got=$(WEFT_RESTART=1 report train $net --steps 3 --out "$folder/run")
[[ $(field weights_sha256 <<<"$got") == "$(report train $net --steps 3 | field weights_sha256)" ]] ||
    fail "a restart continues from another run's checkpoint"

# ---- another run's checkpoint has taken the place of this run's ----
# shellcheck disable=SC2086
"$WEFT" $run --steps 4 --seed 7 --out "$folder/other" --quiet || fail "no other run"
train --steps 100000000 --save-every 20 --restarts 3
until_true_of $launcher test -e "$folder/run/model.safetensors" || fail "no checkpoint"
for rank in 0 1 2; do kill -STOP "$(pid_of $rank)"; done
cp "$folder/other/state.safetensors" "$folder/run/.copy"
mv "$folder/run/.copy" "$folder/run/state.safetensors"
kill -KILL "$(pid_of 0)" # which may be about to rename a checkpoint of its own
for rank in 1 2; do kill -CONT "$(pid_of $rank)" 2>/dev/null; done
finishes 2 "another run's checkpoint"
says "the checkpoint in $folder/run is of another run" || fail "another run's checkpoint: $(cat "$folder/said")"

# ---- between two attempts, no other run gets the folder ----
train --steps 1000000 --restarts 1
kill -STOP $launcher
until_true is_stopped $launcher
killed=$(children $launcher)
for rank in 2 1 0; do kill -KILL "$(pid_of $rank)"; done
until_true ranks_are_gone
expect 2 "is writing to $folder/run; wait for its end" $run --steps 1 --out "$folder/run"
kill -CONT $launcher
has_begun() { grep -q '^restart 1 ' "$folder/out"; }
until_true_of $launcher has_begun || fail "the folder is lost between attempts: $(cat "$folder/said")"
# The last failure: the launcher removes what the ranks have left.
mkdir "$folder/run/.weft-step-7"
touch "$folder/run/.weft-1-0.tmp" "$folder/run/.weft-step-7/state.safetensors"
all="$killed $(children $launcher)"
kill -KILL "$(pid_of 0)"
finishes 4 "the last failure"
[[ -z $(find "$folder/run" -name '.weft-*') ]] || fail "left: $(ls -A "$folder/run")"

# ---- a refused run leaves no folder ----
expect 1 "no data set and no file called" $run --ranks 2 --data $folder/missing --steps 1 --out "$folder/new/folder/"
[[ ! -e $folder/new ]] || fail "a refused run leaves $folder/new"

# ---- a rank dies, and the launcher is interrupted before it starts another ----
for every in 2 1000000; do
    train --steps 1000000 --restarts 3 --save-every $every
    [[ $every != 2 ]] || until_true_of $launcher test -e "$folder/run/model.safetensors" || fail "no checkpoint"
    kill -STOP $launcher
    until_true is_stopped $launcher
    kill -KILL "$(pid_of 1)"
    kill -TERM $launcher
    kill -CONT $launcher
    finishes 143 "interrupted before a restart"
    [[ $every == 2 ]] && words="the last checkpoint is $folder/run/state.safetensors, of step [0-9]*" || words="nothing has been saved$"
    says "^weft: interrupted by signal 15 .*(before a restart; no rank ran|all ranks have ended); $words" || fail "interrupted before a restart: $(cat "$folder/said")"
done

# ---- no checkpoint, and a rank that is stopped past the deadline ----
stopped() { # stopped MS
    rm -rf "$folder/report" "$folder/run"
    WEFT_DELAY_US=$(($1 / 4)) WEFT_TIMEOUT_MS=$1 "$WEFT" train $net --ranks 2 --plan dp=2,lanes=2+1 --steps 400 --restarts 9 --json "$folder/report" \
        --out "$folder/run" >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher has_steps 1 || { fail "no steps are made: $(cat "$folder/said")"; return; }
    kill -STOP "$(pid_of 1)"
    wait $launcher || fail "a stopped rank: exit $?: $(cat "$folder/said")"
    [[ $(field restarts <"$folder/report") -ge 1 ]] || fail "a stopped rank: no restart"
}
with_deadlines stopped 700
want=$(report train $net --steps 400 | field weights_sha256)
[[ $(field weights_sha256 <"$folder/report") == "$want" ]] || fail "other bits after a stopped rank"
[[ $(field repeated_steps <"$folder/report") -ge 1 ]] || fail "no step is repeated"
finish
