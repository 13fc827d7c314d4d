#!/usr/bin/env bash
# --ranks A:B: after each loss of a rank, a run continues with the ranks that are left, and ends with the
# bits of an undisturbed run. SIGUSR1 brings all ranks back.
# WEFT_TEST_FULL=1: also replicas of tp ranks with zero=3 on disk, local updates and a stopped rank.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
net="--model mlp --data synthetic --threads 1"

# ---- programs of any kind ----
tries=$folder/tries
# Two of 4 ranks are killed, then one; fewer than 2 are left, so all are started again; then one ends with a
# status other than 4.
: >"$tries"
# shellcheck disable=SC2016
script='cd '$folder'; [ $RANK != 0 ] || echo $WORLD_SIZE >>tries; echo $$ >.$RANK; mv .$RANK pid.$RANK
case $RANK.$WEFT_RESTART in
1.0) until [ -e pid.3 ]; do sleep 0.02; done; kill -9 $(cat pid.3) $$ ;;
0.1) kill -9 $$ ;;
2.2) exit 5 ;;
esac; [ $WEFT_RESTART = 3 ] || exec sleep 600'
got=0
"$WEFT" run -n 2:4 --restarts 9 -- sh -c "$script" >"$folder/out" 2>"$folder/said" || got=$?
[[ $got == 0 && $(paste -sd, "$tries") == 4,2,4,3 ]] || fail "exit $got, ranks $(paste -sd, "$tries"), expected 4,2,4,3: $(cat "$folder/said")"
says 'restart 1 of 9 in 0.1 s with 2 of 4 ranks$' || fail "does not say that 2 ranks are left: $(cat "$folder/said")"
says 'restart 2 of 9 in 0.2 s with again 4 of 4 ranks, because fewer than 2 are left$' || fail "does not say why there are 4 again: $(cat "$folder/said")"

# ---- SIGUSR1 ----
# One of two ranks is lost; the other ends on SIGTERM when the test lets it.
# shellcheck disable=SC2016
script='cd '$folder'; [ $RANK.$WEFT_RESTART != 1.0 ] || kill -9 $$; [ $WEFT_RESTART != 2 ] || exit 0
[ $WEFT_RESTART = 0 ] || { trap "touch asked; until [ -e go ]; do sleep 0.02; done; touch saved; exit 0" TERM; touch began; }
while :; do sleep 0.02; done'
for second in TERM USR1; do
    rm -f "$folder"/{asked,go,saved,began}
    "$WEFT" run -n 1:2 --restarts 9 --grace $patience -- sh -c "$script" >"$folder/out" 2>"$folder/said" &
    launcher=$!
    until_true_of $launcher test -e "$folder/began" || fail "no rank is left: $(cat "$folder/said")"
    kill -USR1 $launcher
    until_true_of $launcher test -e "$folder/asked" || fail "SIGUSR1 has no effect: $(cat "$folder/said")"
    kill -$second $launcher
    touch "$folder/go"
    got=0
    wait $launcher || got=$?
    [[ -e $folder/saved ]] || fail "SIGUSR1 and SIG$second kill a rank"
    [[ $second != TERM || $got == 143 ]] || fail "SIGUSR1 and SIGTERM: exit $got: $(cat "$folder/said")"
    [[ $second != USR1 || $got == 0 ]] || fail "SIGUSR1 twice: exit $got: $(cat "$folder/said")"
done
says 'starting again with all 2 ranks' || fail "SIGUSR1 twice: $(cat "$folder/said")"
for restarts in "" "--restarts 2"; do
    rm -f "$folder"/{go,began}
    # shellcheck disable=SC2086
    "$WEFT" run -n 1 $restarts -- sh -c "touch $folder/began; until [ -e $folder/go ]; do sleep 0.02; done" 2>"$folder/said" &
    launcher=$!
    until_true_of $launcher test -e "$folder/began" || fail "no rank"
    kill -USR1 $launcher
    until_true_of $launcher says '^weft: SIGUSR1 has no effect here' || fail "SIGUSR1 without --ranks A:B: $(cat "$folder/said")"
    touch "$folder/go"
    wait $launcher || fail "SIGUSR1 without --ranks A:B: exit $?: $(cat "$folder/said")"
done

# ---- refusals ----
expect 2 "--ranks 4:2: A:B is at least A ranks, from 1" train $net --steps 1 --restarts 1 --ranks 4:2
expect 2 "--ranks 0:2: A:B is at least A ranks, from 1" train $net --steps 1 --restarts 1 --ranks 0:2
expect 2 "'2:x' is not a range" train $net --steps 1 --restarts 1 --ranks 2:x
expect 2 "give --restarts N, too" train $net --steps 1 --ranks 1:2
expect 2 "has no dp=N to reduce" train $net --steps 1 --restarts 1 --ranks 1:2 --plan pp=2
expect 2 "has to be that of all 2" train $net --steps 1 --restarts 1 --ranks 1:2 --plan dp=3
expect 2 "here give --ranks 2, or --ranks 1 for the fewest" plan $net --ranks 1:2
RANK=0 WORLD_SIZE=2 expect 2 "--ranks 1:2: these ranks were started by torchrun" train $net --steps 1 --ranks 1:2

# ---- training ----
# disturbed STEPS RANKS PLAN EVENTS OPTIONS...: kills the rank of each event, or sends SIGUSR1 for U;
# $attempts is then the ranks of each attempt. A run that ends before the last event is repeated with longer
# delays.
disturbed() { disturb 400 "$@" || disturb 4000 "$@" || disturb 40000 "$@" || fail "$3 with $4: it ends too early"; }
# disturb DELAY_US STEPS ...: whether all events came in time.
disturb() {
    local delay_us=$1 steps=$2 ranks=$3 plan=$4 events=$5 n=0 n_events
    shift 5
    n_events=$(wc -w <<<"$events")
    # shellcheck disable=SC2086
    WEFT_DELAY_US=$delay_us train --save-every 15 --steps "$steps" --restarts 9 --ranks "$ranks" --plan "$plan" --json "$folder/report" $snapshot "$@"
    for event in $events; do
        until_true_of $launcher has_begun $n || break # a signal between attempts is another case
        until_true_of $launcher has_steps $((steps * n / 4 + 10)) || break
        [[ $event == U ]] || until_true_of $launcher has_rank "$event" || break
        if [[ $event == U ]]; then kill -USR1 $launcher; else kill "-${STOP:-KILL}" "$(pid_of "$event")"; fi
        until_true_of $launcher has_attempts $((n + 1)) || break
        n=$((n + 1))
    done
    finishes 0 "$plan with $events"
    [[ $(field weights_sha256 <"$folder/report") == $("$WEFT" $run "$@" --steps "$steps" --quiet --json - 2>/dev/null | field weights_sha256) ]] ||
        fail "$plan with $events: other bits"
    attempts=$(tr -d ' \n' <"$folder/report" | sed 's/.*"ranks_per_attempt":\[\([0-9,]*\)\].*/\1/')
    [[ $n == "$n_events" ]]
}
has_begun() { [[ $(grep -c '^restart ' "$folder/out") -ge $1 ]]; }
has_attempts() { [[ $(grep -c ' restart [0-9]\|^weft: SIGUSR1' "$folder/said") -ge $1 ]]; }
gives() { [[ $attempts == "$1" ]] || fail "ranks $attempts, expected $1: $(cat "$folder/said")"; }

run="train $net --image 8 --batch 12 --micro 12 --lanes 12 --optimizer adam"
snapshot="--snapshot 6 --save-every 1000000"
disturbed 88 2:4 dp=4 "1 0 U"
gives 4,3,2,4
grep -q '^restart 1 .* from memory' "$folder/out" || fail "no restart from memory: $(cat "$folder/out")"
grep -q '^restart 3 .* repeated: 0;' "$folder/out" || fail "not from the newer checkpoint: $(cat "$folder/out")"
snapshot=""
says 'starting again with all 4 ranks' || fail "SIGUSR1 is not said: $(cat "$folder/said")"
[[ $(field restarts <"$folder/report") == 3 ]] || fail "restarts: $(field restarts <"$folder/report")"
# With zero=3, eight lanes do not divide into three: one rank idles.
run="train $net --image 8 --batch 8"
disturbed 80 2:4 dp=4,zero=3 3
gives 4,2
says 'with 2 of 4 ranks; 1 more idles, because dp=3 cannot divide the recipe.s 8 lanes' || fail "does not say why a rank idles: $(cat "$folder/said")"

# One replica is left, and has none to be compared with.
snapshot="--verify 5"
disturbed 80 1:2 dp=2 1
gives 2,1
snapshot=""

if is_full; then
    disturbed 200 1:4 dp=4 "3 2" # uneven lanes
    gives 4,3,2
    run="train $net --image 8 --batch 12 --micro 12 --lanes 12 --slices 2 --optimizer adam"
    disturbed 80 2:6 dp=3,lanes=4+4+4,tp=2,zero=3,offload=params:disk+state:disk "4 0 U"
    gives 6,4,4,6
    says 'with 4 of 6 ranks; 1 more idles, because dp=3 takes 6 ranks' || fail "does not say why a rank idles: $(cat "$folder/said")"
    run="train $net --image 8 --batch 12 --micro 12 --lanes 12"
    disturbed 200 1:4 dp=4 1 --update local --workers 12 --local-steps 4
    gives 4,2
    stalled() { WEFT_TIMEOUT_MS=$1 STOP=STOP disturbed 200 2:4 dp=4 1 && gives 4,3; }
    with_deadlines stalled 2000
fi
finish
