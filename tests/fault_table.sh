#!/usr/bin/env bash
# The table of faults: each fault at each point of a run, drawn by a seed. The run goes on by itself
# to the bits of an undisturbed run, or ends with a sentence, and then the same command does with
# --resume. No run hangs, and nothing is left: no process, no temporary file, no shared memory.
# TEST_SEED=N begins with that seed, and TEST_RUNS=N makes so many runs, each with the next seed.
# WEFT_TEST_FULL=1: 500 runs; otherwise a sample.
# label: once long
source tests/cli_helpers.bash
source tests/processes.bash
seed=${TEST_SEED:-$RANDOM}
n_runs=${TEST_RUNS:-$(is_full && echo 500 || echo 8)}
"${CC:-cc}" -O1 -shared -fPIC -o "$folder/shim.so" tests/fault_shim.c || { echo "no shim can be compiled"; exit 77; }

# ---- networks, plans, instructions ----
declare -A nets=(
    [mlp]="--model mlp --image 8 --batch 12 --micro 6 --lanes 3 --slices 2 --optimizer adam --clip-norm 1 --steps 24"
    [gpt]="--model gpt --layers 1 --hidden 8 --heads 2 --vocab 32 --tokens 8 --batch 6 --micro 3 --lanes 3 --steps 12"
    [resnet]="--model resnet18 --image 8 --batch 6 --micro 3 --lanes 3 --steps 4"
    [local]="--model mlp --image 8 --batch 12 --micro 6 --lanes 3 --update local --workers 3 --local-steps 2 --steps 24"
    [async]="--model mlp --image 8 --batch 12 --micro 6 --lanes 3 --update async --workers 3 --steps 24"
)
plans=(dp=3 pp=2 tp=2 pp=3,schedule=zb1,recompute=all dp=3,zero=1 dp=3,zero=2 dp=3,zero=3
    dp=2,lanes=2+1,pp=2 dp=3,offload=state:disk+activations dp=3,zero=3,offload=params:disk dataparallel=3)
instructions=(load forward recompute backward weight backward+weight copy fetch evict fold norm total_norm update
    send receive report all_reduce all_gather reduce_scatter broadcast reduce tie)
is_full && instructions+=(pack fold_stats)

# ---- the table ----
cells=()
add() { # add FAULTS POINTS
    local fault at
    for fault in $1; do for at in $2; do cells+=("$fault $at"); done; done
}
faults="kill stop slow memory full torn lost flip"
add "$faults" "${instructions[*]} start save snapshot snapshot restart"
add "kill slow memory" launcher
add "flip flip flip" state
add "flip flip" "save restart"
add "refuse" "start restart"

draw() { echo $((1 + (RANDOM * 32768 + RANDOM) % $1)); }  # from 1 to $1
pick() { shift $(((RANDOM * 32768 + RANDOM) % $#)); echo "$1"; } # one of the arguments

# program: of $plan, where one of each class of ranks is listed.
program() {
    local file=$folder/program.$net.$plan
    # shellcheck disable=SC2086
    [[ -e $file ]] || "$WEFT" plan ${nets[$net]} --data synthetic --plan "$plan" --program >"$file" 2>&1
    grep "^r[0-9]* [a-z]*\.[0-9]* " "$file"
}
# per_step INSTRUCTION RANK: how often the rank runs it in a step. Ranks that are not listed do as rank 0.
per_step() {
    local lists
    lists=$(program | grep "^r$2 " || program | grep "^r0 ")
    grep -c "^r[0-9]* [a-z]*\.[0-9]* $1 " <<<"$lists"
}
n_ranks_of() { echo $(($(tr ',' '\n' <<<"$1" | sed -n 's/^\([dpt]p\|dataparallel\)=//p' | paste -sd'*'))); }

# weights NET: of the same recipe on one rank, undisturbed.
weights() {
    # shellcheck disable=SC2086
    [[ -e $folder/oracle.$1 ]] || report train ${nets[$1]} --data synthetic --threads 1 | field weights_sha256 >"$folder/oracle.$1"
    cat "$folder/oracle.$1"
}

# ---- one run ----
# choose SEED: the cell and the moment.
choose() {
    RANDOM=$1
    read -r fault point <<<"${cells[$1 * 101 % ${#cells[@]}]}"
    net=mlp
    [[ $point == tie ]] && net=gpt plan=pp=3
    [[ $point == pack || $point == fold_stats ]] && net=resnet plan=dp=3
    [[ $net == mlp ]] && plan=$(pick "${plans[@]}")
    if [[ " ${instructions[*]} " == *" $point "* ]]; then
        until program | grep -q " $point "; do plan=$(pick "${plans[@]}"); done
    fi
    [[ $point =~ ^(start|save|restart)$ && $(draw 6) == 1 ]] && net=$(pick local async) plan=dp=3
    [[ $point == state ]] && plan=$(pick dp=3 dp=3,offload=state:disk "tp=2,dp=3" "pp=2,dp=3")
    n_ranks=$(n_ranks_of "$plan")
    rank=$((RANDOM % n_ranks))
    [[ $fault =~ full|torn|lost|flip && $point != state && $(draw 3) != 1 ]] && rank=0 # which writes most
    # Ranks as threads: the process that stops would be the only one.
    n_processes=$n_ranks
    [[ $fault != stop && $(draw 6) == 1 ]] && n_processes=1
    [[ $n_processes -gt 1 && $plan == dp=3* && $(draw 3) == 1 ]] && n_processes=1:$n_ranks # elastic
    more=$(pick "" --save-async "--shard-size 4000" "--keep 2")
    [[ $fault != refuse && $net == mlp && $(draw 3) == 1 ]] && more+=" --snapshot $(pick 1 2 4)"
    every=$(pick 1 3 5)
    steps=${nets[$net]##*--steps }
    raise="" at=signal n=1 attempt=0 deadline=600000
    [[ $fault == stop ]] && deadline=${TEST_DEADLINE_MS:-1500}
    case $point in
    start) at=start n=$(draw 6000) ;;
    save) at=save n=$(draw $((1100 / every / (1 + (rank > 0) * 4)))) ;;
    launcher) at=start rank=-1 n=$(draw 250) ;;
    state) ;;
    restart)
        at=$(pick start read save) attempt=1 n=$(draw 300)
        [[ $at != read ]] || n=$(draw 20)
        [[ $at != start ]] || n=$(draw 6000)
        raise=9:$(pick forward load update):$rank:$(draw $steps)
        ;;
    snapshot)
        more="--snapshot $(pick 1 2 4)" at=copy n=$(draw 40)
        [[ $fault != full ]] || at=reserve n=$(draw 2)
        ;;
    *)
        local name=$point
        until [[ $(per_step "$name" $rank) -gt 0 ]]; do rank=$(((rank + 1) % n_ranks)); done
        raise=10:$name:$rank:$(draw $((steps * $(per_step "$name" $rank))))
        ;;
    esac
    [[ $fault == full && $(draw 3) == 1 ]] && attempt=-1 # for good
    [[ $fault == refuse ]] && at=connect n=$(draw 5) n_processes=$n_ranks rank=$((1 + RANDOM % (n_ranks - 1)))
    return 0
}

# start: runs with the fault and sets $got.
start() {
    local process=$rank
    [[ $n_processes != 1 || $rank -lt 0 ]] || process=0
    local options="--plan $plan --ranks $n_processes --restarts 20 --save-every $every $more"
    [[ $point == state ]] && options+=" --verify 1"
    local variables=(FAULT_DIR="$out" TMPDIR="$folder/tmp" WEFT_TIMEOUT_MS=$deadline)
    if [[ $point == state ]]; then
        variables+=(WEFT_FLIP_BIT="$(draw $((steps - 1))):$rank:$(draw 2000000)")
    else
        variables+=(LD_PRELOAD="$folder/shim.so" FAULT="$fault@$at:$process:$n:$attempt" WEFT_RAISE="$raise")
    fi
    command=(env "${variables[@]}" "$WEFT" train ${nets[$net]} --data synthetic --threads 1 $options --out "$out")
    if [[ $fault == refuse ]]; then # ranks meet over a socket
        command=(env "${variables[@]}" "$WEFT" run -n "$n_ranks" --restarts 20 --
            sh -c 'exec "$@" --rendezvous tcp://127.0.0.1:$MASTER_PORT' -
            "$WEFT" train ${nets[$net]} --data synthetic --threads 1 --plan "$plan" --save-every $every $more --out "$out")
    fi
    got=0
    # In braces, so that the shell does not say that it was killed.
    { timeout -k 1 "${TEST_HANG_S:-$patience}" "${command[@]}" --json "$folder/report" >"$folder/out" 2>"$folder/said" \
        </dev/null; } 2>/dev/null || got=$?
}

# processes: that belong to the run, whoever has started them.
processes() {
    local file
    for file in $(grep -lzx "FAULT_DIR=$out" /proc/[0-9]*/environ 2>/dev/null); do
        file=${file%/environ}
        [[ ${file#/proc/} == "$BASHPID" ]] || echo "${file#/proc/}"
    done
}
is_empty() { [[ -z $(processes) ]]; }

# finish_by_hand: the same command without the fault.
finish_by_hand() {
    local again=""
    if [[ $fault == kill && $point == launcher ]]; then
        [[ $got == 137 ]] || wrong "status $got, though the launcher was killed"
    else
        [[ $got == 1 || $got == 4 ]] || wrong "status $got"
        says '^weft: ' || wrong "ends with status $got and no sentence"
    fi
    [[ -e $out/state.safetensors || -e $out/state.safetensors.index.json ]] && again=--resume
    # shellcheck disable=SC2086
    "$WEFT" train ${nets[$net]} --data synthetic --threads 1 --plan "$plan" --save-every $every ${more%%--snapshot*} $again --out "$out" \
        --json "$folder/report" >"$folder/out" 2>"$folder/again" </dev/null || wrong "cannot be finished: $(tail -1 "$folder/again")"
}

wrong() {
    fail "$*
  repeat: TEST_RUNS=1 TEST_SEED=$now ctest --test-dir build -V -R '^fault_table\$'
  fault: $fault at $point, rank $rank; ${command[*]}
  $(head -c 2000 "$folder/said")"
}

# is_whole: the last checkpoint has all steps. Async updates have other bits in each run.
is_whole() {
    local file=$out/state.safetensors bits
    [[ -e $file ]] || file+=.index.json
    head -c 1000 "$file" | tr -d '\0' | grep -q "\"weft.n_steps\": *\"$steps\"" || return 1
    bits=$(field weights_sha256 <"$folder/report")
    [[ $bits && ($net == async || $bits == "$(weights $net)") ]]
}

# leftovers: temporary files, in the run's folder and elsewhere.
leftovers() { find "$out" -name '.weft-*'; find "$folder/tmp" -mindepth 1; ls /dev/shm 2>/dev/null | grep weft; }

one() { # one SEED
    now=$1
    choose "$now"
    check
}
# check: the chosen run.
check() {
    out=$folder/run
    rm -rf "$out" "$out.hit" "$folder/tmp" "$folder/report"
    mkdir "$folder/tmp"
    start
    [[ $got != 124 ]] || wrong "hangs"
    until_true is_empty || wrong "processes are left: $(processes)"
    if [[ $got != 0 ]]; then finish_by_hand; n_by_hand=$((n_by_hand + 1)); fi
    is_whole || wrong "other bits, or no checkpoint of the last step"
    [[ -z $(leftovers) ]] || wrong "left: $(leftovers)"
    if [[ -e $out.hit || $point == state ]]; then n_hits=$((n_hits + 1)); fi
    if [[ ${TEST_TABLE:-} ]]; then
        local hit=0
        [[ ! -e $out.hit ]] || hit=1
        echo "$now $fault $point rank=$rank $plan/$n_processes $more hit=$hit exit=$got" \
            "restarts=$(field restarts <"$folder/report") $(tail -1 "$folder/said")"
    fi
}

[[ -n $(weights mlp) ]] || { fail "no weights are reported"; finish; }
n_hits=0 n_by_hand=0
# In each series: a death in the last save, after the snapshot of the last step.
choose $((now = seed))
fault=kill point=save net=mlp plan=dp=3 rank=0 n_processes=3 more="--snapshot 1" every=1000000 steps=24
raise="" at=rename n=1 attempt=0 deadline=600000
check
((n_hits == 1)) && says 'the other ranks stay' || fail "no death in the last save"
for ((k = 0; k < n_runs; k++)); do one $((seed + k)); done
echo "$n_runs runs from seed $seed: $n_hits faults, $n_by_hand runs finished with --resume"
((n_hits > 0)) || fail "no fault has come"
finish
