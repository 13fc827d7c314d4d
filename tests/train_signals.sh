#!/usr/bin/env bash
# Signals at random moments, half of them in the first 50 ms: to one process, to --ranks, weft run and
# mpirun. None is lost: the run ends with the signal's status and says how far it has come, and the
# checkpoint is of that step; whoever was killed leaves nothing behind but a whole checkpoint; who was
# stopped goes on. WEFT_TEST_FULL=1: 200 signals instead of 12.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
n_times=$([[ ${WEFT_TEST_FULL:-0} == 1 ]] && echo 200 || echo 12)
set -m # else SIGINT would be ignored in what runs in the background, until it catches it
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
mkdir "$folder/tmp"
ways=("" "--ranks" run)
command -v mpirun >/dev/null && mpirun --version 2>&1 | has 'Open MPI' && ways+=(mpirun)
signals=(TERM INT KILL STOP)

now_ms() { echo $(($(date +%s%N) / 1000000)); }
# Whatever the run has started finds its number in its environment.
tagged() { grep -lzx "WEFT_SIGNAL_TEST=$tag" /proc/[0-9]*/environ 2>/dev/null | cut -d/ -f3; }
none_tagged() {
    local pid
    for pid in $(tagged); do is_gone "$pid" || return 1; done
}
ranks_of() { for pid in $(tagged); do grep -zqsE "^(RANK|OMPI_COMM_WORLD_RANK)=" "/proc/$pid/environ" && echo "$pid"; done; }
# Segments of others, such as MPI's, come and go meanwhile.
shared() { ls -A /dev/shm 2>/dev/null | grep weft || true; }

before=$(shared)
n_slow=0 most=0 n_made=0
for ((i = 0; i < n_times; i++)); do
    way=${ways[$((i % ${#ways[@]}))]} signal=${signals[$((i / ${#ways[@]} % 4))]}
    [[ $((i / 16 % 2)) == $((i % 2)) ]] && ms=$((RANDOM % 50)) || ms=$((200 + RANDOM % 1500))
    tag=$$-$i
    rm -rf "$folder/run"
    words="train --model mlp --data synthetic --batch 12 --micro 6 --lanes 2 --threads 1 --steps 100000000 --save-every 20 --out $folder/run"
    case $way in
    "") before_words="" ;;
    --ranks) before_words="" words+=" --ranks 2 --plan pp=2" ;;
    run) before_words="$WEFT run -n 2 --" words+=" --plan pp=2" ;;
    mpirun) before_words="mpirun -np 2" words+=" --plan pp=2" ;;
    esac
    # shellcheck disable=SC2086
    TMPDIR=$folder/tmp WEFT_SIGNAL_TEST=$tag $before_words "$WEFT" $words >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
    what="signal $i: SIG$signal after $ms ms, ${way:-one process}"
    if [[ $signal == STOP ]]; then # all of it, and then it ends by SIGTERM
        # shellcheck disable=SC2046
        kill -STOP $launcher $(tagged) 2>/dev/null
        sleep 0.3
        # shellcheck disable=SC2046
        kill -CONT $launcher $(tagged) 2>/dev/null
        if ((ms >= 200)) && [[ $way != mpirun ]]; then
            n=$(grep -cs '"loss"' "$folder/run/log.jsonl")
            until_true_of $launcher has_steps $((${n:-0} + 40)) || fail "$what: it does not go on: $(cat "$folder/said")"
        fi
        to=$launcher send=TERM
    else
        to=$launcher send=$signal
        if [[ $signal == KILL && $((i % 3)) == 0 ]]; then # a rank, if there is one by now
            victim=$(ranks_of | tail -1)
            to=${victim:-$launcher}
        fi
    fi
    begin=$(now_ms)
    kill -$send "$to" 2>/dev/null || fail "$what: it has ended by itself: $(cat "$folder/said")"
    ends() { ! kill -0 $launcher 2>/dev/null || is_gone $launcher; }
    until_true ends || { fail "$what: lost: it still runs: $(cat "$folder/said")"; kill -KILL $launcher; }
    got=0
    { wait $launcher || got=$?; } 2>/dev/null
    took=$(($(now_ms) - begin))
    n_made=$((n_made + 1))
    ((took > most)) && most=$took
    ((took > 2000)) && n_slow=$((n_slow + 1)) && echo "$what: took $took ms"
    case $way:$send in
    mpirun:*) wanted='[1-9]*' ;;
    *:TERM) wanted=143 ;;
    *:INT) wanted=130 ;;
    --ranks:KILL) [[ $to == "$launcher" ]] && wanted=137 || wanted=4 ;;
    *) wanted=137 ;;
    esac
    # shellcheck disable=SC2053
    [[ $got == $wanted ]] || fail "$what: exit $got, not $wanted: $(cat "$folder/said")"
    if [[ $send != KILL ]]; then
        # mpirun kills a second after it has asked: then the others say so.
        [[ $way == mpirun ]] && ((took >= 1000)) && killed='^weft: rank [01] .*has died|' || killed=
        grep -vE "$killed"'^weft: interrupted|^weft warn wait: |^epoch |^mpirun|^-----|^$' "$folder/said" | grep -E '^weft' && fail "$what: says $(cat "$folder/said")"
        if [[ $way != mpirun ]] && says '^weft: interrupted after step [1-9]'; then
            says '^weft: interrupted after step ([0-9]+); the last checkpoint is .*, of step \1:' || fail "$what: says $(cat "$folder/said")"
        fi
    fi
    until_true none_tagged || { fail "$what: left: $(ps -o pid,stat,args -p "$(tagged | paste -sd,)")"; }
    # shellcheck disable=SC2046
    [[ -z $(tagged) ]] || kill -KILL $(tagged) 2>/dev/null
    [[ $(shared) == "$before" ]] || fail "$what: left in /dev/shm: $(shared)"
    [[ $way == mpirun || -z $(ls -A "$folder/tmp") ]] || fail "$what: left: $(ls -A "$folder/tmp")"
    rm -rf "$folder/tmp"/*
    # mpirun kills a second after it has asked, and may do so in the middle of saving.
    [[ $send == KILL || $way == mpirun || -z $(find "$folder/run" -name '.weft-*' 2>/dev/null) ]] || fail "$what: left: $(ls -A "$folder/run")"
    if [[ -e $folder/run/state.safetensors ]]; then
        step=$(sed -n 's/^weft: interrupted after step \([0-9]*\);.*/\1/p' "$folder/said")
        "$WEFT" train --resume --out "$folder/run" --steps 0 >"$folder/out" 2>"$folder/resumed" || fail "$what: does not load: $(cat "$folder/resumed")"
        [[ -z $step ]] || grep -q "^resume  step $step of" "$folder/out" || fail "$what: not of step $step: $(grep resume "$folder/out")"
    fi
done
echo "$n_made signals; at most $most ms to the end, $n_slow over 2 s"
finish
