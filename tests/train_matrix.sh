#!/usr/bin/env bash
# label: once long
# What divides, repeats and offloads, with each other: {zero 1, 2, 3, shard 2 of dp 4} x {recompute none,
# all, selective} x {offload none, state, params and state on disk, activations} x {dp 2, dp 4, dp 2 x pp
# 2 in either order} x {1, 4 microbatches a rank, breadth-first, too} for a residual network (SGD with momentum, batch
# norm) and a transformer (AdamW, clipping, dropout, a tied weight), of f32 and of bf16, as threads, processes and over MPI:
# the weights of one rank, and in each space the bytes that were planned. WEFT_TEST_FULL=1: all of
# them; WEFT_TEST_PART=K/N: each Nth of these, from the Kth on.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none
n_runs=0

declare -A words=(
    [gpt2-tiny]="--model gpt2-tiny --batch 16 --tokens 16 --optimizer adamw --lr 1e-3 --clip-norm .5 --dropout .1"
    [resnet18]="--model resnet18 --batch 32 --image 32 --lr .01 --momentum .9")
for model in gpt2-tiny resnet18; do words[$model-bf16]="${words[$model]} --dtype bf16"; done

# train LAUNCHER RANKS PLAN MICRO LANES: its report.
train() {
    # shellcheck disable=SC2206 # words
    local all=(train --data synthetic --steps 2 --seed 3 --threads 1 ${words[$model]} --plan "$3" --micro "$4" --lanes "$5")
    case $1 in
    threads) report "${all[@]}" --devices "cpu:$2" ;;
    processes) report "${all[@]}" --ranks "$2" ;;
    *) timeout $patience "$1" -np "$2" "$WEFT" "${all[@]}" --quiet --json - --wire mpi 2>"$folder/said" </dev/null ||
        fail "$1 -np $2, $3: exit $?: $(tail -n 1 "$folder/said")" ;;
    esac
}

# plans: of all combinations, a line each: ranks, plan, microbatches, lanes.
plans() {
    local mesh zero recompute offload each dp lanes schedule
    for mesh in dp=2 dp=4 dp=2,pp=2 dp=2,pp=2,axes=dp+pp; do
        dp=${mesh#dp=} lanes=${dp%%,*}
        for zero in zero=1 zero=2 zero=3 $([[ $mesh == dp=4 ]] && echo zero={1,2,3},shard=2); do
            for recompute in none all selective; do
                for offload in "" ,offload=state:host ,offload=params+state:disk ,offload=activations; do
                    for each in 1 4 4,schedule=breadth; do
                        schedule=${each#[14]}
                        echo "$([[ $mesh == dp=2 ]] && echo 2 || echo 4) $mesh,$zero,recompute=$recompute$offload$schedule $((lanes * ${each%%,*})) $lanes"
                    done
                done
            done
        done
    done
}

# one MICRO LANES: the weights of one rank, found once.
declare -A ones=()
one() {
    [[ ${ones[$model $1 $2]:-} ]] || ones[$model $1 $2]=$(train threads 1 dp=1 "$1" "$2" | field weights_sha256)
    want=${ones[$model $1 $2]}
}

# run LAUNCHER EVERY FIRST
run() {
    local launcher=$1 ranks plan micro lanes n_before=$n_runs
    plans | awk -v every="$2" -v first="$3" 'NR % every == first % every' >"$folder/plans"
    while read -r ranks plan micro lanes; do
        one "$micro" "$lanes"
        n_runs=$((n_runs + 1))
        train "$launcher" "$ranks" "$plan" "$micro" "$lanes" >"$folder/again"
        [[ $want && $(field weights_sha256 <"$folder/again") == "$want" ]] || fail "$model, $launcher, $plan, --micro $micro: not one rank's bits"
        tr -d ' \n' <"$folder/again" | grep -oE '"planned":\[[0-9,]*\],"measured":\[[^]]*\]' >"$folder/peaks"
        [[ $(wc -l <"$folder/peaks") == 3 ]] || fail "$model, $launcher, $plan: not three spaces: $(cat "$folder/peaks")"
        grep -vE '"planned":(\[[0-9,]*\]),"measured":\1$' "$folder/peaks" && fail "$model, $launcher, $plan: planned bytes are not measured"
    done <"$folder/plans"
    ((n_runs - n_before == $(wc -l <"$folder/plans"))) || fail "$model, $launcher: $((n_runs - n_before)) runs, not $(wc -l <"$folder/plans")"
}

for model in gpt2-tiny resnet18 gpt2-tiny-bf16 resnet18-bf16; do
    for launcher in threads processes mpirun.openmpi mpirun.mpich; do
        [[ $launcher != mpirun* ]] || command -v $launcher >/dev/null || continue
        if [[ ${WEFT_TEST_FULL:-0} == 1 ]]; then
            part=${WEFT_TEST_PART:-0/1}
            run $launcher "${part#*/}" "${part%/*}"
        else
            # The larger network takes most of the time: it runs as processes, in f32.
            [[ $launcher == mpirun.mpich || ($model == *bf16 && $launcher != threads) ||
                ($model == resnet18* && $model:$launcher != resnet18:processes) ]] ||
                run $launcher $([[ $model == gpt2-tiny ]] && echo 131 || echo 271) ${#launcher}
        fi
    done
done
echo "$n_runs runs"
finish
