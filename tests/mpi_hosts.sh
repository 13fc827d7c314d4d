#!/usr/bin/env bash
# label: once
# Two hosts: network namespaces with names and addresses of their own. Ranks on both train together
# over TCP, with the bits of one rank, and nobody says how they reach each other.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
skip() {
    echo "skipped: $*"
    exit 77
}

# ---- this very test once more, in namespaces of its own; as the system allows ----
if [[ ! ${WEFT_TEST_HOST:-} ]]; then
    for tool in unshare nsenter ip mpirun; do
        command -v $tool >/dev/null || skip "$tool is missing"
    done
    mpirun --version 2>/dev/null | grep -c "Open MPI" >/dev/null || skip "mpirun is not Open MPI's"
    for how in "" "--user --map-root-user"; do
        # shellcheck disable=SC2086
        if unshare $how --net --uts sh -c 'hostname weft-a && ip link set lo up' 2>/dev/null; then
            exec env WEFT_TEST_HOST=a unshare $how --net --uts bash "$0"
        fi
    done
    skip "this system allows no network namespaces"
fi

# ---- host b, and a wire between both ----
hostname weft-a
unshare --net --uts sh -c 'hostname weft-b; echo up; exec sleep 1000' >"$folder/b" &
b=$!
trap 'status=$?; kill $b; end_test $status' EXIT
until_true_of $b test -s "$folder/b" || fail "there is no second host"
ip link add weft-a type veth peer name weft-b netns $b || skip "this system has no veth"
ip addr add 10.77.0.1/24 dev weft-a && ip link set weft-a up && ip link set lo up
nsenter --target $b --net sh -c 'ip addr add 10.77.0.2/24 dev weft-b && ip link set weft-b up && ip link set lo up'

# What ssh would do: agent HOST COMMAND...
printf '#!/bin/sh\nshift\nexec nsenter --target %s --net --uts sh -c "$*"\n' $b >"$folder/agent"
chmod +x "$folder/agent"
hosts=(timeout $patience mpirun --allow-run-as-root --host 10.77.0.1:1,10.77.0.2:1 -np 2 --mca plm_rsh_agent "$folder/agent"
    --mca btl tcp,self --mca btl_tcp_if_include 10.77.0.0/24 --mca oob_tcp_if_include 10.77.0.0/24)
"${hosts[@]}" hostname >"$folder/out" 2>"$folder/said"
[[ $(sort "$folder/out") == $'weft-a\nweft-b' ]] || fail "there are no two hosts: $(cat "$folder/out" "$folder/said")"

run="train --model mlp --image 8 --threads 1 --batch 16 --micro 4 --lanes 2 --seed 3 --optimizer adamw --data synthetic --steps 3"
one=$(report $run | field weights_sha256)
for plan in dp=2 pp=2; do
    "${hosts[@]}" "$WEFT" $run --plan $plan --quiet --json - >"$folder/report" 2>"$folder/said" ||
        fail "$plan: exit $?: $(cat "$folder/said")"
    [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$plan: other bits"
done

# Both hosts see one folder: each writes its part of the file that one rank writes, through to the disk.
"$WEFT" $run --quiet --out "$folder/one" || fail "one rank saves: exit $?"
printf '#!/bin/sh\nexec %s "$@" 2>>"%s/said"\n' \
    "strace -f -qq -e trace=open,openat -o $folder/calls.\$OMPI_COMM_WORLD_RANK" "$folder" >"$folder/traced"
chmod +x "$folder/traced"
traced=()
strace -o /dev/null true 2>/dev/null && traced=("$folder/traced")
"${hosts[@]}" "${traced[@]}" "$WEFT" $run --plan pp=2 --quiet --out "$folder/two" >"$folder/out" 2>"$folder/said" ||
    fail "two hosts save: exit $?: $(cat "$folder/said")"
cmp "$folder/one/model.safetensors" "$folder/two/model.safetensors" || fail "two hosts write another file"
for rank in 0 1; do
    ((${#traced[@]} == 0)) || grep -c O_DSYNC "$folder/calls.$rank" >/dev/null || fail "rank $rank does not write through"
done

# Host b has no such folder: what it holds goes through rank 0, there and back, with the bits of a run that
# never stopped on one host.
printf '#!/bin/sh\n[ $OMPI_COMM_WORLD_RANK = 0 ] && exec "$@"\nexec unshare --mount sh -c '\''mount -t tmpfs none %s && exec "$@"'\'' sh "$@"\n' \
    "$folder/alone" >"$folder/apart"
chmod +x "$folder/apart"
"$WEFT" $run --steps 1 --quiet --out "$folder/alone" || fail "one rank saves: exit $?"
if unshare --mount mount -t tmpfs none "$folder/alone" 2>/dev/null; then
    for more in "--plan dp=2,zero=3 --steps 2 --shard-size 4KiB" "--plan pp=2 --steps 3 --save-async"; do
        "${hosts[@]}" "$folder/apart" "$WEFT" train --resume --threads 1 $more --out "$folder/alone" --quiet --json - >"$folder/report" 2>"$folder/said" ||
            fail "two hosts, $more: exit $?: $(cat "$folder/said")"
    done
    [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "from one host to two and two others: other bits"
    cmp "$folder/one/model.safetensors" "$folder/alone/model.safetensors" || fail "what two hosts write is another file"
fi

"${hosts[@]}" "$WEFT" bench allreduce --bytes 40000 --repeat 1 --algorithm auto,engine --quiet --json - >"$folder/report" 2>"$folder/said" ||
    fail "groups: exit $?: $(cat "$folder/said")"
[[ $(field wire <"$folder/report" | xargs) == "mpi mpi" ]] || fail "groups: $(cat "$folder/report")"
"${hosts[@]}" "$WEFT" $run --plan dp=2 --quiet --wire shm >"$folder/out" 2>"$folder/said" && fail "shared memory across hosts"
grep -c "ranks of several machines take mpi" "$folder/said" >/dev/null || fail "--wire shm: $(cat "$folder/said")"
finish
