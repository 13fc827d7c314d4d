#!/usr/bin/env bash
# label: once
# GPT-2 and an LSTM in slices: every division of them among ranks, beside replicas and stages, gives one rank's
# bits, as threads, as processes and, with WEFT_TEST_FULL=1, under both MPIs; a run goes on from its
# checkpoint with any other division, and the checkpoint is that of the whole.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none

common=(--data synthetic --batch 8 --micro 4 --lanes 2 --threads 1 --seed 1 --clip-norm 1)
# gpt2-tiny, with a vocabulary that nothing divides
model=(--model gpt --layers 2 --hidden 64 --heads 4 --vocab 251 --tokens 32 "${common[@]}"
    --optimizer adamw --lr 1e-3 --dropout 0.1)

# run LAUNCHER RANKS PLAN WORDS...: its report.
run() {
    local launcher=$1 ranks=$2 plan=$3
    shift 3
    case $launcher in
    threads) report train "${model[@]}" --plan "$plan" --devices "cpu:$ranks" "$@" ;;
    processes) report train "${model[@]}" --plan "$plan" --ranks "$ranks" "$@" ;;
    *) timeout $patience "$launcher" -np "$ranks" "$WEFT" train "${model[@]}" --plan "$plan" --wire "$wire" --quiet --json - "$@" \
        2>"$folder/said" || fail "$launcher -np $ranks, $plan: exit $?: $(tail -n 1 "$folder/said")" ;;
    esac
}

same() { # same LAUNCHER RANKS PLAN...
    local launcher=$1 ranks=$2 plan
    shift 2
    for plan; do
        run "$launcher" "$ranks" "$plan" --steps 2 --slices 4 >"$folder/got"
        [[ $(field weights_sha256 <"$folder/got") == "$one" ]] || fail "$launcher ($ranks), $plan: not one rank's bits"
    done
}

run threads 1 "" --steps 2 --slices 4 --out "$folder/one" >"$folder/report"
one=$(field weights_sha256 <"$folder/report")
[[ $one != "$(run threads 1 "" --steps 2 --slices 1 | field weights_sha256)" ]] || fail "4 slices give the bits of none"
[[ $(run threads 2 tp=2 --steps 2 | field weights_sha256) == "$one" ]] || fail "tp=2 alone is not the model's 4 slices"
same threads 4 tp=4 tp=2,pp=2 tp=2,sp,dp=2,zero=3
same processes 4 tp=4,sp tp=2,dp=2,zero=2,recompute=all
same threads 8 tp=2,sp,dp=2,pp=2,zero=1 tp=2,dp=2,pp=2,axes=dp+pp+tp,zero=3
same processes 4 tp=2,dp=2,axes=dp+tp

# Where ranks are.
report plan "${model[@]}" --slices 4 --plan tp=2,dp=2,pp=2,axes=dp+tp | tr -d ' \n' >"$folder/mesh"
grep -q '"mesh":\[{"axis":"dp","size":2,"stride":1,"groups":\[\[0,1\],\[2,3\],\[4,5\],\[6,7\]\]},{"axis":"tp","size":2,"stride":2,"groups":\[\[0,2\],\[1,3\],' "$folder/mesh" ||
    fail "the mesh of axes=dp+tp in the report: $(grep -o '"mesh".*"ranks"' "$folder/mesh")"
"$WEFT" plan "${model[@]}" --slices 4 --plan tp=2,dp=2,pp=2,axes=dp+tp >"$folder/grid"
[[ $(grep -A 7 '^ranks:' "$folder/grid" | tr -s ' \n' ' ') == 'ranks: pp 0 dp 0 dp 1 tp 0 0 1 tp 1 2 3 pp 1 dp 0 dp 1 tp 0 4 5 tp 1 6 7 groups along dp: 0 1 | 2 3 | 4 5 | 6 7 ' ]] ||
    fail "the grid of axes=dp+tp: $(head -n 20 "$folder/grid")"
if [[ ${WEFT_TEST_FULL:-0} == 1 ]]; then
    same threads 2 tp=2,{,sp\,}{schedule=breadth,recompute=selective,offload=state+params+activations,allreduce=root,overlap=off}
    same threads 4 tp=4,{,sp\,}allreduce={tree,pairwise,direct} tp=2,{,sp\,}pp=2,schedule={gpipe,zb1,zb2,auto,zbv} tp=2,dp=2,zero={1,2,3}{,\,shard=1,\,offload=params:disk}
    same processes 8 tp=2,dp=2,pp=2{,\,zero=3\,offload=params}
    for name in mpirun.openmpi mpirun.mpich; do
        command -v $name >/dev/null || continue
        for wire in shm mpi; do same $name 4 tp=4{,\,sp} tp=2,sp,pp=2 tp=2,dp=2,zero=3{,\,axes=dp+tp} tp=2,pp=2,axes=pp+tp; done
    done
fi

# Hidden units that nothing divides, and a tied vocabulary.
gpt=("${model[@]}") gpt_one=$one
model=(--model lstm --hidden 26 --tied --vocab 251 --tokens 4 "${common[@]}" --lr 1 --dropout 0.2)
one=$(run threads 1 "" --steps 2 --slices 4 | field weights_sha256)
[[ ${#one} == 64 && $one != "$(run threads 1 "" --steps 2 | field weights_sha256)" ]] || fail "lstm: 4 slices give the bits of none"
same threads 2 tp=2
same threads 4 tp=4 tp=2,dp=2 tp=2,pp=2 tp=2,sp,dp=2,zero=3
same threads 8 tp=2,dp=2,pp=2,zero=1
same processes 4 tp=4 tp=2,dp=2,zero=3,recompute=all
if [[ ${WEFT_TEST_FULL:-0} == 1 ]]; then
    same threads 2 tp=2,{schedule=breadth,recompute=selective,offload=state+params+activations,allreduce=root,overlap=off}
    same threads 4 tp=2,pp=2,schedule={gpipe,zb1,zb2,auto,zbv} tp=2,dp=2,zero={1,2,3}{,\,shard=1,\,offload=params:disk}
    same processes 8 tp=2,dp=2,pp=2,zero=1
    for name in mpirun.openmpi mpirun.mpich; do
        command -v $name >/dev/null || continue
        for wire in shm mpi; do same $name 4 tp=4 tp=2,pp=2 tp=2,sp,dp=2,zero=3; done
    done
fi
model=("${gpt[@]}") one=$gpt_one

# The whole, under its own names.
head -c 8192 "$folder/one/model.safetensors" >"$folder/head"
grep -qaE '"h\.0\.attn\.c_attn\.weight":\{[^}]*\[64, ?192\]' "$folder/head" || fail "c_attn is not whole in the file"
grep -qaE '"wte\.weight":\{[^}]*\[251, ?64\]' "$folder/head" || fail "wte is not whole in the file"
! grep -qa '/4\]"' "$folder/head" || fail "a slice has a name in the file"
four=$(run threads 1 "" --steps 4 --slices 4 | field weights_sha256)
for plan in 4,tp=4,sp 4,tp=2,dp=2,zero=3,axes=dp+tp 1,; do
    rm -rf "$folder/two"
    cp -r "$folder/one" "$folder/two"
    [[ $(report train --out "$folder/two" --resume --steps 4 --plan "${plan#*,}" --devices "cpu:${plan%%,*}" | field weights_sha256) == "$four" ]] ||
        fail "resumed with plan '${plan#*,}': other bits"
done
finish
