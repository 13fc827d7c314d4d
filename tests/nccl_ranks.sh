#!/usr/bin/env bash
# label: serial stand_in long
# Ranks that are processes on CUDA devices, with --wire nccl: what they read of each other's GPUs NCCL moves,
# with the bits and the bytes of one rank; and what is said where it cannot. Through the stand-ins, of which
# NCCL's refuses or fails where what is sent is not what is received.
kind=cuda
source tests/gpu_train.bash
source tests/processes.bash
export WEFT_CHECK_EVENTS=1 STAND_IN_DEVICES=4
# With sanitizers one run, of all streams: it takes long.
is_sanitized=$(grep '^WEFT_SANITIZE:.*=.' "$WEFT_BUILD/CMakeCache.txt")

# by_nccl RANKS PLAN OPTIONS...: the bits of one rank, which `near` has found.
# All take leave of each other.
by_nccl() { STAND_IN_NCCL_ENDS=1 same "$1" "$2" "${@:3}" --ranks "$1" --wire nccl; }

mlp=(--model mlp --image 8 --optimizer adamw --lr 1e-3 --clip-norm 0.5)
gpt=(--model gpt2-tiny --tokens 8 --slices 2 --steps 1)
near 1e-6 "${gpt[@]}"
by_nccl 4 tp=2,pp=2 "${gpt[@]}"
[[ ! $is_sanitized ]] || exit 0
by_nccl 2 tp=2 "${gpt[@]}"
by_nccl 2 dp=2 "${gpt[@]}"

# Delays: who does not wait for a batch, or moves it too early, has other bits.
near 1e-6 "${mlp[@]}"
export WEFT_DELAY_US=2000
for algorithm in direct tree pairwise engine; do by_nccl 2 dp=2,allreduce=$algorithm "${mlp[@]}"; done
by_nccl 2 dp=2,zero=3 "${mlp[@]}" --out "$folder/run"
by_nccl 2 pp=2,schedule=zb1 "${mlp[@]}"
by_nccl 4 dp=4 "${mlp[@]}"
by_nccl 4 dp=4,zero=2,shard=2 "${mlp[@]}"
by_nccl 4 dp=2,pp=2 "${mlp[@]}"
# Two teams sum apart. Of four ranks NCCL has an order of its own, which all have.
by_nccl 4 dp=2,pp=2,allreduce=engine,bucket=64KiB "${mlp[@]}"
want=$(losses)
on cuda:4 --plan dp=4,allreduce=engine,sums=free "${mlp[@]}" --ranks 4 --wire nccl
are_near 1e-6 "$(losses)" "$want" || fail "engine: losses $(losses), one rank has $want"
[[ $(field weights_sha256 <"$folder/report") != "$one" ]] || fail "engine: NCCL has not summed"
unset WEFT_DELAY_US

# What one rank's GPU holds another process saves, and whoever resumes reads.
"$WEFT" train --resume --out "$folder/run" --steps 3 --devices cuda:1 --plan dp=1 --json "$folder/resumed" >"$folder/out" 2>&1 ||
    fail "resume: $(tail -n 1 "$folder/out")"
steps=3 on cuda:1 "${mlp[@]}"
[[ $(field weights_sha256 <"$folder/resumed") == $(field weights_sha256 <"$folder/report") ]] || fail "resumed: not one rank's bits"

# Where MPI brings what the ranks say, as between machines: of their memory nothing is copied on the host.
if type mpirun >/dev/null 2>&1 && mpirun --version 2>&1 | has "Open MPI"; then
    for plan in dp=2,zero=3 pp=2; do
        mpirun --oversubscribe --allow-run-as-root -np 2 sh -c 'OMPI_COMM_WORLD_LOCAL_RANK=0 OMPI_COMM_WORLD_LOCAL_SIZE=1 exec "$@"' sh \
            "$WEFT" "${train[@]}" --steps "$steps" --batch 4 --micro 4 --lanes 4 "${mlp[@]}" --plan $plan --devices cuda:2 --wire nccl \
            --json "$folder/report" >"$folder/out" 2>&1 || fail "mpirun, $plan: $(grep weft: "$folder/out")"
        [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "mpirun, $plan: not one rank's bits"
    done
fi

# Nobody waits long for others to take leave.
begin=$SECONDS
STAND_IN_NCCL_STAYS=1 on cuda:2 --plan dp=2 "${mlp[@]}" --ranks 2 --wire nccl
((SECONDS - begin < 100)) || fail "leave: it takes long"

# ---- where it cannot be ----
# says STATUS SENTENCE OPTIONS...: and nothing is left.
says() {
    local status=$1 sentence=$2
    shift 2
    expect "$status" "$sentence" "${train[@]}" --steps 2 --batch 4 --micro 4 --lanes 4 "${mlp[@]}" "$@"
    ! grep "stand-in: left" "$folder/said" || fail "$*: the device keeps what is above"
}
two=(--plan dp=2 --ranks 2 --wire nccl)
says 2 "there are no other processes" --plan dp=2 --devices cuda:2 --wire nccl
says 2 "the wire nccl is between CUDA GPUs, but rank 0 is on a device of the kind cpu" "${two[@]}"
says 2 "but rank 0 is on a device of the kind cpu" --plan pp=2 --ranks 2 --wire nccl --devices cpu:0,cuda:0
says 2 "Duplicate GPU detected); each rank needs its own GPU" "${two[@]}" --devices cuda:0,cuda:0
says 2 "allreduce=engine is NCCL's sum, between processes on CUDA devices: give --ranks 2 --devices cuda:2 --wire nccl" \
    --plan dp=2,allreduce=engine --ranks 2 --devices cuda:2
(export STAND_IN_NCCL_VERSION=2708 && says 2 "this is NCCL 2.7, and weft needs 2.14 or newer" "${two[@]}" --devices cuda:2)
(export STAND_IN_NCCL_VERSION=21304 && says 2 "this is NCCL 2.13, and" "${two[@]}" --devices cuda:2)
mkdir "$folder/lib"
ln -s "$WEFT_BUILD"/tests/stand_in/lib{cuda,nvrtc}.so* "$folder/lib"
echo 'int ncclGetVersion(int *v) { return *v = 0; }' | "${CC:-cc}" -shared -fPIC -x c -o "$folder/lib/libnccl.so.2" -
(export LD_LIBRARY_PATH=$folder/lib && says 2 "libnccl.so.2 has no ncclGetErrorString: it is not NCCL 2.14" "${two[@]}" --devices cuda:2)
if [[ $(ldconfig -p) != *libnccl.so.2* ]]; then
    rm "$folder/lib/libnccl.so.2"
    (export LD_LIBRARY_PATH=$folder/lib && says 2 "nccl: there is no libnccl.so.2 on this machine; install NCCL" "${two[@]}" --devices cuda:2)
fi

(export STAND_IN_NCCL_REFUSE=5 && says 1 "invalid usage (a call, as ordered)" "${two[@]}" --devices cuda:2)
engine=(--plan dp=2,allreduce=engine --ranks 2 --wire nccl --devices cuda:2)
(export STAND_IN_NCCL_REFUSE=0 && says 1 "invalid usage (a call, as ordered)" "${engine[@]}")

# ---- what NCCL never ends; ranks that are stopped or killed ----
stuck() {
    (export STAND_IN_NCCL_STUCK=3 WEFT_TIMEOUT_MS=$1 && says 4 "nccl: in $(($1 * 3 / 4)) ms it has not moved what others read of, or give to, rank" "${two[@]}" --devices cuda:2)
}
with_deadlines stuck 4000
stuck_sum() {
    (export STAND_IN_NCCL_STUCK=0 WEFT_TIMEOUT_MS=$1 && says 4 "nccl: in $(($1 * 3 / 4)) ms it has not summed what its replicas have with that of rank" "${engine[@]}")
}
with_deadlines stuck_sum 2000

# begins OPTIONS...: two ranks that train for ever in the background, with such options of weft run; $victim is rank 1.
begins() {
    rm -rf "$folder/run"
    "$WEFT" run -n "${ranks:-2}" "$@" -- "$WEFT" "${train[@]}" --steps 1000000 --batch 4 --micro 4 --lanes 4 "${mlp[@]}" --plan "${plan:-dp=2}" --wire nccl --devices "cuda:${ranks:-2}" \
        --out "$folder/run" >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher has_rank 1 || fail "$*: rank 1 does not start"
    victim=$(pid_of 1) all=$(children $launcher)
}
# ends STATUS WORDS WHAT
ends() {
    finishes "$1" "$3"
    grep -qF "$2" "$folder/said" || fail "$3: does not say '$2': $(cat "$folder/said")"
    ! grep "stand-in: left" "$folder/said" || fail "$3: the device keeps what is above"
}
begins
until_true_of $launcher has_steps 2 || fail "no steps are made: $(cat "$folder/said")"
kill -KILL "$victim"
ends 137 "rank 1 (process $victim) was killed by signal 9" "killed"
# While NCCL waits for it, in a sum: the other rank ends that, and by itself.
plan=dp=2,allreduce=engine WEFT_TIMEOUT_MS=600000 STAND_IN_NCCL_STUCK=6 begins --grace 200
sleep 2
begin=$SECONDS
kill -KILL "$victim"
ends 137 "rank 1 (process $victim) was killed by signal 9" "killed in NCCL"
((SECONDS - begin < 100)) || fail "killed in NCCL: the other rank does not end by itself"
# Nobody waits in NCCL for a rank that is not as far: it is named, as for any stream.
stopped() {
    WEFT_TIMEOUT_MS=$1 begins
    until_true_of $launcher has_steps 2 || fail "no steps are made: $(cat "$folder/said")"
    kill -STOP "$victim"
    ends 4 "rank 1 (process $victim)" "stopped"
}
with_deadlines stopped 2000
# Rank 1's GPU hangs before its first batch. Rank 0 waits for its events, not within NCCL. Its streams begin
# to wait at about the same time: any of them may be the first to miss the deadline.
early() {
    # shellcheck disable=SC2016
    WEFT_TIMEOUT_MS=$1 "$WEFT" run -n 2 --grace 0.5 -- sh -c '[ "$RANK" = 0 ] || export STAND_IN_HANG_AFTER=5 WEFT_TIMEOUT_MS=600000; exec "$@"' sh \
        "$WEFT" "${train[@]}" --steps 2 --batch 4 --micro 4 --lanes 4 "${mlp[@]}" "${two[@]:0:2}" --wire nccl --devices cuda:2 >"$folder/out" 2>"$folder/said"
    [[ $? == 4 ]] || fail "a late rank: no deadline is missed: $(cat "$folder/said")"
    grep -qE "waited $1 ms for stream ((reduce|bounce) of rank 1 \(another process\), which has done [01] of|compute of rank 0, .*: rank 1 \(process [0-9]+\) has not moved)" "$folder/said" || fail "a late rank: $(cat "$folder/said")"
}
with_deadlines early 2000
# Of who is stopped where NCCL waits for it, its process tells.
stopped_within() {
    plan=dp=2,allreduce=engine WEFT_TIMEOUT_MS=$1 STAND_IN_NCCL_STUCK=0 begins
    sleep "$(seconds $(($1 / 3)))"
    kill -STOP "$victim"
    ends 4 "has not summed what its replicas have with that of rank 0; rank 1 (process $victim) does not move; the process is stopped" "stopped within"
}
with_deadlines stopped_within 3000
# With WEFT_TEST_FULL=1 four ranks also name a stopped rank for which another one waits, as in a ring.
if is_full; then
    ranks=4
    for plan in dp=4,allreduce={ring,engine},sums=free; do with_deadlines stopped 8000; done
fi
finish
