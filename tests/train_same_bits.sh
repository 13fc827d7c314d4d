#!/usr/bin/env bash
# label: once
# Whole networks, the same global batch and microbatches: every plan gives the bits of one rank, as
# threads, as processes that share memory, under Open MPI and under MPICH; a ring in free order the
# same bits in every run, and one rank's up to rounding.
# WEFT_TEST_FULL=1: both networks, five steps, every algorithm, bucket, level of zero and launcher.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

full=${WEFT_TEST_FULL:-0}
n_runs=0

# run LAUNCHER RANKS PLAN: its report.
run() {
    local words=(bench train --model "$model" --batch 8 --micro 8 --lanes 4 --threads 1 --repeat "$repeat"
        --seed 1 ${update:---optimizer adamw --lr 1e-3} --plan "$3")
    case $1 in
    threads) report "${words[@]}" --devices "cpu:$2" ;;
    processes) report "${words[@]}" --ranks "$2" ;;
    *) timeout $patience "$1" -np "$2" "$WEFT" "${words[@]}" --quiet --json - ${wire:+--wire "$wire"} 2>"$folder/said" ||
        fail "$1 -np $2, $3: exit $?: $(tail -n 1 "$folder/said")" ;;
    esac
}

# losses: of the report on standard input, side by side.
losses() { sed -n '/"losses"/,/]/p' | grep -oE '[0-9]+\.[0-9e+-]+' | tr '\n' ' '; }

same() { # same LAUNCHER RANKS PLAN...
    local launcher=$1 ranks=$2 plan
    shift 2
    for plan; do
        n_runs=$((n_runs + 1))
        [[ $(run "$launcher" "$ranks" "$plan" | field weights_sha256) == "$one" ]] ||
            fail "$model, $launcher ($ranks)${wire:+ over $wire}, $plan: not one rank's bits"
    done
}

# ring LAUNCHER RANKS TIMES: the same weights each time, and losses of one rank up to rounding; by
# SGD, as Adam's steps are as long for a small gradient, of which rounding is a large part.
ring() {
    local plan="dp=$2,allreduce=ring,sums=free" shas=() i update="--optimizer sgd --lr 1e-2"
    run threads 1 dp=1 >"$folder/plain"
    for ((i = 0; i < $3; i++)); do
        n_runs=$((n_runs + 1))
        run "$1" "$2" "$plan" >"$folder/ring"
        shas+=("$(field weights_sha256 <"$folder/ring")")
    done
    [[ $(printf '%s\n' "${shas[@]}" | sort -u | wc -l) == 1 ]] || fail "$model, $1, $plan: runs differ: ${shas[*]}"
    paste -d' ' <(losses <"$folder/plain" | tr ' ' '\n') <(losses <"$folder/ring" | tr ' ' '\n') |
        awk 'NF == 2 { n++; d = ($1 - $2) / $1; if (d > 1e-4 || d < -1e-4) bad = 1 } END { exit !n || bad }' ||
        fail "$model, $1, $plan: losses $(losses <"$folder/ring"), one rank's $(losses <"$folder/plain")"
}

models=gpt2-tiny repeat=1
[[ $full == 1 ]] && models="resnet18 gpt2-tiny" repeat=4
launchers=(threads processes)
for name in mpirun.openmpi mpirun.mpich; do
    [[ $full == 1 ]] && command -v $name >/dev/null && launchers+=($name)
done

for model in $models; do
    run threads 1 "dp=1" >"$folder/one"
    one=$(field weights_sha256 <"$folder/one")
    for launcher in "${launchers[@]}"; do
        wires=("")
        [[ $launcher == mpirun* ]] && wires=(shm mpi)
        for wire in "${wires[@]}"; do
            if [[ $full != 1 ]]; then
                same $launcher 4 dp=4 dp=2,pp=2,overlap=off dp=4,zero=3,schedule=breadth dp=2,pp=2,schedule=zbv,zero=3
                same $launcher 2 dataparallel=2 dp=2,zero=2,offload=state:disk+params dp=2,zero=3,offload=activations
                continue
            fi
            same $launcher 2 dp=2 dataparallel=2 dp=2,{bucket=1KiB,bucket=100MiB,overlap=off}
            same $launcher 4 dp=2,pp=2,schedule={interleaved,zbv,vhalf,vmin,auto}{,\,zero=1,\,zero=2,\,zero=3,\,recompute=all,\,offload=activations+params}
            same $launcher 2 pp=2,schedule={interleaved,zbv,vhalf,vmin,auto\,chunks=2}
            same $launcher 4 dp=4,allreduce={root,tree,pairwise,direct} dp=2,pp=2
            same $launcher 2 dp=2,zero={1,2,3}{,\,schedule=breadth,\,overlap=off} dp=2,zero=3,prefetch={0,4}
            same $launcher 4 {dp=4,dp=2\,pp=2}\,zero={1,2,3}{,\,bucket=1KiB} dp=4,zero={1,2,3},shard=2
            same $launcher 2 dp=2{,\,zero=1,\,zero=2,\,zero=3}\,offload={state,state:disk,params,params:disk+state,activations,activations:disk+params}
            same $launcher 4 {dp=4,dp=2\,pp=2}{,\,zero=1,\,zero=2,\,zero=3}\,offload={state:disk+params,params:disk,activations+state}
            ring $launcher 4 $([[ $launcher == threads ]] && echo 10 || echo 3)
        done
    done
    [[ $full == 1 ]] || ring processes 4 2
done
echo "$n_runs runs"
finish
