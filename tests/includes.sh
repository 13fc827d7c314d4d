#!/usr/bin/env bash
# The order of the folders holds, and the script that checks it sees each kind of violation.
# label: once
set -uo pipefail
check=scripts/check-includes
"$check" || exit 1

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0
# expect refused|accepted FILE LINE
expect() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$2")"
    echo "$3" >"$tree/$2"
    if "$check" "$tree" >"$tree/said"; then got=accepted; else got=refused; fi
    if [[ $got != "$1" ]] || [[ $got == refused && $(<"$tree/said") != "$2:1: "* ]]; then
        echo "$2 with $3: $got, should be $1; said: $(<"$tree/said")"
        failed=1
    fi
}
expect refused src/graph/a.c '#include "run/executor.h"'
expect refused src/base/a.h '#  include "device/device.h"'
expect refused src/plan/schedule/a.c '#include "program/program.h"'
expect refused src/op/a.c '#include <dnnl.h>'
expect refused src/op/a.c '#include <oneapi/dnnl/dnnl.h>'
expect refused src/run/a.c '#include <omp.h>'
expect refused src/device/a.c '#include <cuda_runtime.h>'
expect refused src/comm/a.c '#include <mpi.h>'
expect refused src/comm/a.c '#include <nccl.h>'
expect refused src/attic/a.c '#include <stdio.h>'
expect refused src/run/a.c '#include "src/base/base.h"'
expect refused include/weft/a.h '#include "base/base.h"'
expect refused cli/a.c '#include "graph/graph.h"'
expect refused examples/a.c '#include "../src/graph/graph.h"'
expect accepted src/run/a.c '#include "graph/graph.h"'
expect refused src/graph/a.c '#include "op/op_table.h"'
expect accepted src/pass/a.c '#include "op/op_table.h"'
expect accepted src/base/a.c '#include <weft/context.h>'
expect accepted src/base/a.c '#include "neighbour.h"'
expect accepted src/kernel/onednn/a.c '#include <oneapi/dnnl/dnnl.h>'
expect accepted src/device/cuda.c '#include <cuda_runtime.h>'
expect accepted cli/a.c '#include <weft/weft.h>'
expect accepted cli/a.c '#include "cli/options.h"'
exit $failed
