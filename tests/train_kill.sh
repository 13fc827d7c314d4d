#!/usr/bin/env bash
# A rank is killed at a random moment, while ranks start, train, write checkpoints or end: the run
# ends soon with status 4 and a sentence that names the rank, and leaves nothing behind.
# WEFT_TEST_FULL=1: 50 times instead of 6.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
n_times=$([[ ${WEFT_TEST_FULL:-0} == 1 ]] && echo 50 || echo 6)
n_ranks=3
run="train --model mlp --data synthetic --batch 12 --micro 6 --threads 1 --ranks $n_ranks --plan pp=3"

now_ms() { echo $(($(date +%s%N) / 1000000)); }
# Segments of others, such as MPI's, come and go meanwhile.
shared() { ls -A /dev/shm 2>/dev/null | grep weft || true; }

before=$(shared)
times=()
n_over=0
for ((i = 0; i < n_times; i++)); do
    rm -rf "$folder/run"
    rank=$((RANDOM % n_ranks))
    # In turn: while it starts, trains, saves after every step, comes to its end.
    case $((i % 4)) in
    0) more="--steps 1000000" ms=$((RANDOM % 150)) ;;
    1) more="--steps 1000000" ms=$((300 + RANDOM % 300)) ;;
    2) more="--steps 1000000 --save-every 1 --out $folder/run" ms=$((300 + RANDOM % 300)) ;;
    3) more="--steps 40 --save-every 10 --out $folder/run" ms=$((100 + RANDOM % 400)) ;;
    esac
    # shellcheck disable=SC2086
    "$WEFT" $run $more >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher has_rank $rank || fail "rank $rank does not start"
    victim=$(pid_of $rank) all=$(children $launcher)
    sleep "$((ms / 1000)).$(printf %03d $((ms % 1000)))"
    begin=$(now_ms)
    killed=1
    kill -KILL "$victim" 2>/dev/null || killed=0
    got=0
    wait $launcher || got=$?
    what="kill $i: rank $rank (process $victim), $ms ms after its start, of: $more"
    if [[ $got == 0 ]] && ((i % 4 == 3)); then
        n_over=$((n_over + 1)) # the run was over, or this rank had nothing left to do
    else
        times+=($(($(now_ms) - begin)))
        [[ $killed == 1 ]] || fail "$what: it had ended by itself: $(cat "$folder/said")"
        [[ $got == 4 ]] || fail "$what: exit $got: $(cat "$folder/said")"
        grep -qF "rank $rank (process $victim)" "$folder/said" || fail "$what: it is not named: $(cat "$folder/said")"
        [[ $(grep -cF "rank $rank (process $victim) was killed by signal 9" "$folder/said") == 1 ]] || fail "$what: said more than once: $(cat "$folder/said")"
    fi
    # shellcheck disable=SC2086
    none_left "$what" $all
    [[ $(shared) == "$before" ]] || fail "$what: left in /dev/shm: $(shared)"
    # What a killed rank 0 was writing nobody can take away; the next checkpoint replaces it.
    for part in "$folder"/run/* "$folder"/run/.weft-*; do
        [[ $got == 0 && $part == */report.json ]] && continue # the run was over
        [[ $rank == 0 || ! -e $part || $part =~ (state|model)\.safetensors$|log.jsonl$|tfevents.weft$|run.json$|curve ]] || fail "$what: left: $part"
    done
    if [[ -e $folder/run/state.safetensors ]]; then
        "$WEFT" train --resume --out "$folder/run" --steps 0 --quiet 2>"$folder/said" ||
            fail "$what: the checkpoint does not load: $(cat "$folder/said")"
    fi
done
readarray -t sorted < <(printf '%s\n' "${times[@]}" | sort -n)
echo "$n_times kills, $n_over after the end; the run ended after ${sorted[${#sorted[@]} / 2]} ms, at most ${sorted[-1]} ms"
finish
