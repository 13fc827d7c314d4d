#!/usr/bin/env bash
# label: once serial long
# Far more ranks than cores, as threads and as processes, with the bits of one.
source tests/cli_helpers.bash

# sha WORDS...: of the weights after two steps.
sha() {
    report train --model mlp --data synthetic --steps 2 --batch 192 --micro 96 --lanes 96 --threads 1 "$@" |
        field weights_sha256
}

one=$(sha)
[[ -n $one ]] || fail "one rank has no weights"
for allreduce in tree pairwise; do
    [[ $(sha --devices cpu:96 --plan "dp=96,allreduce=$allreduce") == "$one" ]] ||
        fail "96 threads, $allreduce: not one rank's bits"
done
[[ $(sha --ranks 16 --plan dp=16) == "$one" ]] || fail "16 processes: not one rank's bits"
