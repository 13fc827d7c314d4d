#!/usr/bin/env bash
# label: once long
# The program under mpirun, Open MPI's or MPICH's, whichever is there: reports, tests and files are one
# rank's; who disagrees or falls silent is named, and so is what is missing. train_plans has the plans.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# One copy of what a rank sends, or two: containers may forbid the former, with a warning each.
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
run="train --model mlp --image 8 --threads 1 --batch 16 --micro 8 --lanes 4 --seed 3 --optimizer adamw --clip-norm 0.5 --data synthetic"

# ---- without mpirun ----
expect 2 "start" $run --steps 1 --plan dp=2 --ranks 2 --wire mpi
expect 2 "no other processes" $run --steps 1 --wire shm
RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 expect 2 "ranks of several machines take mpi" \
    $run --steps 1 --plan dp=2 --wire shm
RANK=0 WORLD_SIZE=2 WEFT_MPI_LIBRARY=libmpi.so expect 2 "it takes an absolute path" $run --steps 1 --plan dp=2 --wire mpi
RANK=0 WORLD_SIZE=2 WEFT_MPI_LIBRARY=/nonexistent/libmpi.so expect 2 "/nonexistent/libmpi.so" $run --steps 1 --plan dp=2 --wire mpi

# An MPI that does not come back from its start, as MPICH waits for its ranks, and whose libraries cannot end meanwhile:
# the rank's own status says what happened.
cat >"$folder/mpich.c" <<'C'
#include <stdlib.h>
#include <unistd.h>
static volatile int starts;
__attribute__((destructor)) static void end(void) { if (starts) abort(); }
int MPI_Init_thread(int *argc, char ***argv, int level, int *level_out) { for (starts = 1;;) pause(); }
int MPI_Initialized(int *is_on) { return *is_on = 0; }
int MPI_Finalized(int *is_off) { return *is_off = 0; }
#define NEEDED(name) int name(void) { return 1; }
NEEDED(MPI_Query_thread) NEEDED(MPI_Finalize) NEEDED(MPI_Error_string) NEEDED(MPI_Comm_rank) NEEDED(MPI_Comm_size)
NEEDED(MPI_Comm_dup) NEEDED(MPI_Comm_free) NEEDED(MPI_Comm_set_errhandler) NEEDED(MPI_Isend) NEEDED(MPI_Irecv)
NEEDED(MPI_Test) NEEDED(MPI_Cancel)
C
"${CC:-cc}" -shared -fPIC -w "$folder/mpich.c" -o "$folder/libmpich.so" || fail "no library stands in for MPICH's"
WEFT_TIMEOUT_MS=300 PMI_RANK=0 PMI_SIZE=2 WEFT_MPI_LIBRARY=$folder/libmpich.so expect 4 "rank 0 waited 300 ms for MPICH to start" \
    $run --steps 1 --plan dp=2 --wire mpi

# Who starts no MPI is told what does; SLURM_* are those of srun -N 2 -n 4.
torchrun="RANK=2 WORLD_SIZE=4 LOCAL_RANK=0 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=none"
srun="SLURM_JOB_ID=17 SLURM_STEP_ID=0 SLURM_PROCID=2 SLURM_NTASKS=4 SLURM_LOCALID=0 SLURM_NODEID=1 SLURM_NNODES=2 SLURM_STEP_TASKS_PER_NODE=2(x2)"
says() {
    local words=$1 got=0
    shift
    env "$@" "$WEFT" $run --steps 1 --plan dp=4 >"$folder/said" 2>&1 || got=$?
    [[ $got == 2 ]] && grep -qF -- "$words" "$folder/said" || fail "$*: exit $got: $(cat "$folder/said")"
}
says "torchrun does not start MPI, which ranks on several machines need: start these 4 ranks with mpirun -np 4" $torchrun
says "add --mpi=pmix to srun" $srun
says "/nonexistent.so" $srun PMIX_RANK=2 WEFT_MPI_LIBRARY=/nonexistent.so

# mpi NAME: the mpirun of that family.
mpi() {
    case $1 in
    openmpi) for name in mpirun.openmpi mpirun; do "$name" --version 2>/dev/null | grep -c "Open MPI" >/dev/null && echo "$name" && return; done ;;
    mpich) for name in mpirun.mpich mpirun; do "$name" --version 2>/dev/null | grep -c HYDRA >/dev/null && echo "$name" && return; done ;;
    esac
}

one=$(report $run --steps 3 | tee "$folder/one" | field weights_sha256)
# agree MPIRUN N PLAN...: N ranks with those plans give the bits of one.
agree() {
    local mpirun=$1 n=$2 plan
    shift 2
    for plan; do
        timeout $patience "$mpirun" -np "$n" "$WEFT" $run --steps 3 --wire mpi --plan "$plan" --quiet --json - \
            >"$folder/report" 2>"$folder/said" || fail "$mpirun -np $n, $plan: exit $?: $(cat "$folder/said")"
        [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$mpirun -np $n, $plan: other bits"
        sed -n '/"losses"/,/]/p' "$folder/report" | cmp -s - <(sed -n '/"losses"/,/]/p' "$folder/one") ||
            fail "$mpirun -np $n, $plan: other losses"
        sed -n '/"planned"/,/]/p' "$folder/report" | grep -q '[1-9]' || fail "$mpirun -np $n, $plan: no planned peak"
        [[ $(sed -n '/"planned"/,/]/p' "$folder/report" | tr -dc '0-9\n') == $(sed -n '/"measured"/,/]/p' "$folder/report" | tr -dc '0-9\n') ]] ||
            fail "$mpirun -np $n, $plan: the planned peak is not the measured one"
        [[ $(report ${run/train/plan} --wire mpi --plan "$plan" | sed -n 's/^ *"peak_bytes": //p' | head -n "$n" | tr -dc '0-9\n') == \
            $(sed -n '/"planned"/,/]/p' "$folder/report" | tr -dc '0-9\n' | sed '/^$/d' | head -n "$n") ]] || fail "$plan: weft plan --wire mpi has another peak"
    done
}

images "$folder/images"
with_tests="train --model mlp --data $folder/images --threads 1 --batch 16 --micro 8 --lanes 4 --steps 2"
tested_one=$(report $with_tests | field weights_sha256)
average_loss=$(report $with_tests --ema 0.5 --out "$folder/average" | field test_loss)

n_families=0
for family in openmpi mpich; do # the second with WEFT_TEST_FULL=1, or alone
    mpirun=$(mpi $family) && [[ $mpirun ]] || continue
    ((n_families == 0)) || is_full || continue
    n_families=$((n_families + 1))
    agree "$mpirun" 1 dp=1 # a job of one rank is a job
    agree "$mpirun" 2 dp=2,zero=3,bucket=1KiB

    # tests need room on one rank alone: the others know whether there is enough
    timeout $patience "$mpirun" -np 2 "$WEFT" $with_tests --wire mpi --plan dp=2,offload=params:disk --quiet --json - \
        >"$folder/report" 2>"$folder/said" || fail "$family: tests, offload to disk: exit $?: $(cat "$folder/said")"
    [[ $(field weights_sha256 <"$folder/report") == "$tested_one" ]] || fail "$family: tests, offload to disk: other bits"

    # and, with an average of the weights, which is put into their place meanwhile
    for plan in dp=2,zero=1 pp=2; do
        timeout $patience "$mpirun" -np 2 "$WEFT" $with_tests --ema 0.5 --wire mpi --plan $plan --quiet --out "$folder/$family-$plan" \
            --json "$folder/report" 2>"$folder/said" || fail "$family: --ema, $plan: exit $?: $(cat "$folder/said")"
        [[ $(field weights_sha256 <"$folder/report") == "$tested_one" ]] || fail "$family: --ema, $plan: other weights"
        [[ $(field test_loss <"$folder/report") == "$average_loss" ]] || fail "$family: --ema, $plan: another test"
        cmp -s "$folder/$family-$plan/model_ema.safetensors" "$folder/average/model_ema.safetensors" || fail "$family: --ema, $plan: another average"
    done

    # saved by all, resumed by one
    timeout $patience "$mpirun" -np 2 "$WEFT" $run --steps 2 --wire mpi --plan pp=2 --quiet --out "$folder/$family" 2>"$folder/said" ||
        fail "$family: --out: $(cat "$folder/said")"
    cp -r "$folder/$family" "$folder/$family-0"
    [[ $(report $run --resume --out "$folder/$family" --steps 3 | field weights_sha256) == "$one" ]] ||
        fail "$family: another run than one rank's from its checkpoint"

    # resumed over messages: rank 0 reads, and rank 1 has no checkpoint in its folder
    timeout $patience "$mpirun" -np 2 sh -c "exec $WEFT $run --resume --wire mpi --plan dp=2 --steps 3 --quiet \
        --json $folder/resumed --out $folder/$family-\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}" >"$folder/out" 2>"$folder/said" ||
        fail "$family: --resume over messages: exit $?: $(cat "$folder/said")"
    [[ $(field weights_sha256 <"$folder/resumed") == "$one" ]] || fail "$family: resumed over messages: other bits"

    # ranks that would wait for each other in different places
    both_ended() { [[ -s $folder/status-0 && -s $folder/status-1 ]]; }
    for which in 0 1; do
        # mpirun may kill a rank while it ends, and then says so by its own status
        rm -f "$folder"/status-*
        timeout $patience "$mpirun" -np 2 sh -c "rank=\${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}; [ \$rank = $which ] && wire=mpi
            $WEFT $run --wire \${wire:-shm} --plan dp=2 --steps 2 --quiet; status=\$?
            echo \$status >$folder/status-\$rank; exit \$status" >"$folder/out" 2>"$folder/said" &
        launcher=$!
        until_true_of $launcher both_ended
        for _ in {1..500}; do is_gone $launcher || sleep 0.02; done
        kill $launcher 2>/dev/null # Open MPI 4.1 sometimes misses that its ranks have ended
        wait $launcher && fail "$family: two wires: exit 0"
        [[ $(cat "$folder"/status-* | sort -u) == 4 ]] ||
            fail "$family: two wires: not exit 4: $(tail "$folder"/status-* "$folder/said")"
        grep -c "rank $which was started with the wire mpi, rank $((1 - which)) with shared memory" "$folder/said" >/dev/null ||
            fail "$family: two wires: $(cat "$folder/said")"
    done

    # a rank with another command line
    timeout $patience "$mpirun" -np 2 sh -c "exec $WEFT $run --wire mpi --plan dp=2 --steps 2 --quiet \
        --lr 0.00\$((1 + \${OMPI_COMM_WORLD_RANK:-\$PMI_RANK}))" >"$folder/out" 2>"$folder/said"
    [[ $? == 4 ]] || fail "$family: disagreement: not exit 4: $(cat "$folder/said")"
    grep -c "rank 1 was started with --lr 0.002, rank 0 with --lr 0.001" "$folder/said" >/dev/null || fail "$family: disagreement: $(cat "$folder/said")"
done

# ---- over one of them ----
mpirun=$(mpi openmpi)
if [[ $mpirun ]]; then
    RANK=0 WORLD_SIZE=2 expect 2 "start the ranks with that library's own mpirun" $run --steps 1 --plan dp=2 --wire mpi

    # a rank that stops
    silence() {
        rm -rf "$folder/silent"
        WEFT_TIMEOUT_MS=$1 timeout $patience "$mpirun" -np 2 sh -c "[ \$OMPI_COMM_WORLD_RANK = 0 ] ||
            { (until grep -q loss $folder/silent/log.jsonl; do kill -0 \$\$ || exit; sleep 0.02; done
               kill -STOP \$\$; sleep $(seconds $(($1 * 3))); kill -CONT \$\$) 2>/dev/null & }
            exec $WEFT $run --wire mpi --plan dp=2 --steps 1000000 --quiet --out $folder/silent" >"$folder/out" 2>"$folder/said"
        [[ $? != 0 ]] || fail "silence: exit 0"
        grep -c -e "rank 1 (process" -e "bytes [ot][fo] rank 1:" "$folder/said" >/dev/null || fail "silence: $(cat "$folder/said")"
    }
    with_deadlines silence 500
fi

finish
if [[ $n_families == 0 ]]; then
    echo "skipped: neither Open MPI nor MPICH is installed (Debian: openmpi-bin, mpich)"
    exit 77
fi
