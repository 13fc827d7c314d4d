#!/usr/bin/env bash
# label: once long
# Workers and servers as ranks of mpirun: staleness 0 and local steps have one rank's bits, and one
# rank replays the record of an asynchronous run.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none OMPI_MCA_rmaps_base_oversubscribe=1
base="train --model mlp --image 8 --data synthetic --threads 1 --batch 8 --micro 4 --lanes 4 --steps 3 --optimizer adamw --seed 2"

# Before the skip: a program that does nothing fails here.
sync=$(report $base | field weights_sha256)
[[ $sync ]] || fail "no bits of one rank"
averaged=$(report $base --update local --workers 2 --local-steps 2 | field weights_sha256)

mpirun=
for name in mpirun.openmpi mpirun mpirun.mpich; do
    [[ $mpirun ]] || { "$name" --version 2>/dev/null | grep -cE "Open MPI|HYDRA" >/dev/null && mpirun=$name; }
done
if [[ ! $mpirun ]]; then
    finish
    echo "skipped: neither Open MPI nor MPICH is installed (Debian: openmpi-bin, mpich)"
    exit 77
fi

# over N ARGUMENTS...: N ranks of mpirun; the weights' hash.
over() {
    timeout $patience "$mpirun" -np "$1" "$WEFT" $base --wire mpi "${@:2}" --quiet --json - >"$folder/report" 2>"$folder/said" ||
        fail "$mpirun -np $*: exit $?: $(cat "$folder/said")"
    field weights_sha256 <"$folder/report"
}
[[ $(over 3 --update async --staleness 0 --workers 2 --plan dp=2,ps=1) == "$sync" ]] || fail "staleness 0: other bits"
[[ $(over 2 --update async --staleness 0 --clip-norm 0.1 --workers 4 --plan dp=2,ps=2@workers) == \
    "$(report $base --clip-norm 0.1 | field weights_sha256)" ]] || fail "staleness 0, two servers: other bits"
recorded=$(over 4 --update async --workers 2 --plan dp=2,ps=2 --record "$folder/record")
[[ $recorded && $(report $base --update async --replay "$folder/record" | field weights_sha256) == "$recorded" ]] ||
    fail "one rank replays with other bits"
[[ $(over 2 --update async --replay "$folder/record" --plan dp=1,ps=1) == "$recorded" ]] || fail "mpirun replays with other bits"
[[ $(over 2 --update local --workers 2 --local-steps 2 --plan dp=2) == "$averaged" ]] || fail "local steps: other bits"
finish
