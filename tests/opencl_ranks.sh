#!/usr/bin/env bash
# label: once
# Ranks that are processes on OpenCL devices: what they read of each other's memory goes by bounce buffers, of
# shared memory or by MPI, with the bits and the bytes of one process.
kind=opencl
source tests/gpu_train.bash
found=$("$WEFT" info | grep -o "opencl: .*")
[[ $found ]] || fail "weft info does not say whether there is OpenCL"
[[ $found == "opencl: "[1-9]* ]] || { echo "skipped: $found"; exit 77; }
export WEFT_CHECK_EVENTS=1
is_one() { [[ $(field weights_sha256 <"$folder/report") == "$one" ]] || fail "$*: not one rank's bits"; }

mlp=(--model mlp --optimizer adamw --lr 1e-3 --clip-norm 0.5)
on opencl:1 "${mlp[@]}"
one=$(field weights_sha256 <"$folder/report")
# Delays: who does not wait for a bounce buffer reads it too early.
(export WEFT_DELAY_US=2000; on opencl:2 "${mlp[@]}" --ranks 2 --plan dp=2,zero=3 --out "$folder/run")
is_one dp=2,zero=3
on opencl:4 "${mlp[@]}" --ranks 4 --plan dp=2,pp=2,schedule=zb1
is_one dp=2,pp=2

# What one rank's device holds another process saves, and whoever resumes reads.
"$WEFT" train --resume --out "$folder/run" --steps 3 --devices opencl:1 --plan dp=1 --json "$folder/resumed" >"$folder/out" 2>&1 ||
    fail "resume: $(tail -n 1 "$folder/out")"
steps=3 on opencl:1 "${mlp[@]}"
one=$(field weights_sha256 <"$folder/resumed")
is_one resumed

# A stage on the CPU, in a process of its own.
on cpu:0,opencl:0 "${mlp[@]}" --plan pp=2
one=$(field weights_sha256 <"$folder/report")
on cpu:0,opencl:0 "${mlp[@]}" --ranks 2 --plan pp=2
is_one cpu:0,opencl:0
expect 2 "puts ranks on threads" "${train[@]}" --steps 1 "${mlp[@]}" --plan dp=2 --ranks 2 --devices cpu:2

if type mpirun >/dev/null 2>&1 && mpirun --version 2>&1 | has "Open MPI"; then
    on opencl:1 "${mlp[@]}"
    one=$(field weights_sha256 <"$folder/report")
    mpirun --oversubscribe --allow-run-as-root -np 2 "$WEFT" "${train[@]}" --wire mpi --steps "$steps" --batch 4 --micro 4 --lanes 4 \
        "${mlp[@]}" --plan dp=2,zero=3 --devices opencl:2 --json "$folder/report" >"$folder/out" 2>&1 || fail "mpirun: $(tail -n 1 "$folder/out")"
    is_one "mpirun, dp=2,zero=3"
fi
finish
