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
expect refused src/graph/a.c '#include "execute/executor.h"'
expect refused src/base/a.h '#  include "device/device.h"'
expect refused src/plan/schedule/a.c '#include "program/program.h"'
expect refused src/op/a.c '#include <dnnl.h>'
expect refused src/op/a.c '#include <oneapi/dnnl/dnnl.h>'
expect refused src/api/a.c '#include <omp.h>'
expect refused src/device/a.c '#include <cuda_runtime.h>'
expect refused src/comm/a.c '#include <mpi.h>'
expect refused src/comm/a.c '#include <nccl.h>'
expect refused src/attic/a.c '#include <stdio.h>'
expect refused src/api/a.c '#include "src/base/base.h"'
expect refused include/weft/a.h '#include "base/base.h"'
expect refused cli/a.c '#include "graph/graph.h"'
expect refused examples/a.c '#include "../src/graph/graph.h"'
expect accepted src/api/a.c '#include "graph/graph.h"'
expect refused src/graph/a.c '#include "op/op_table.h"'
expect accepted src/pass/a.c '#include "op/op_table.h"'
expect accepted src/base/a.c '#include <weft/context.h>'
expect accepted src/base/a.c '#include "neighbour.h"'
expect accepted src/kernel/onednn/a.c '#include <oneapi/dnnl/dnnl.h>'
expect accepted src/device/cuda.c '#include <cuda_runtime.h>'
expect accepted cli/a.c '#include <weft/weft.h>'
expect accepted cli/a.c '#include "cli/options.h"'
expect refused src/api/a.c '#include "kernel/onednn/threads.h"'
expect refused src/layout/a.c '#include "lower/emit.h"'
expect refused src/plan/schedule/a.c '#include "plan/parse.h"'
expect refused cli/a.c '#include "bench/rounds.h"'
expect accepted cli/bench/a.c '#include "bench/rounds.h"'
expect accepted src/lower/a.c '#include "lower/emit.h"'

rm -rf "${tree:?}"/*
mkdir -p "$tree/src/sim" "$tree/src/api"
printf '#include <stddef.h>\ntypedef struct wfi_step {\n' | tee "$tree/src/sim/a.h" >"$tree/src/api/a.h"
"$check" "$tree" >"$tree/said" && { echo "two types have one name, and may"; failed=1; }
grep -q "types with one name: typedef struct wfi_step" "$tree/said" || { cat "$tree/said"; failed=1; }

# circle FILE LINE FILE LINE: below the first level, too.
circle() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$1")" "$tree/$(dirname "$3")"
    echo "$2" >"$tree/$1"
    echo "$4" >"$tree/$3"
    "$check" "$tree" >"$tree/said" && { echo "$1 and $3 include each other, and may"; failed=1; }
    grep -q "include each other" "$tree/said" || { cat "$tree/said"; failed=1; }
}
circle src/comm/job/a.h '#include "comm/wire/b.h"' src/comm/wire/c.h '#include "comm/job/d.h"'
circle src/plan/a.h '#include "plan/b.h"' src/plan/b.h '#include "plan/a.h"'
circle src/plan/a.h '#include "plan/schedule/b.h"' src/plan/schedule/b.h '#include "plan/a.h"'
circle cli/a.h '#include "draw/b.h"' cli/draw/b.c '#include "a.h"'

# A header declares the functions of one file.
rm -rf "${tree:?}"/*
mkdir -p "$tree/src/base"
printf '#include <stddef.h>\nvoid wfi_a(int x);\nchar *wfi_b(void);\n' >"$tree/src/base/a.h"
printf 'void wfi_a(int x) {\n}\nchar *wfi_b(void) {\n}\n' >"$tree/src/base/a.c"
"$check" "$tree" || { echo "functions of one file are refused"; failed=1; }
printf 'char *wfi_b(void) {\n}\n' >"$tree/src/base/b.c"
sed -i 3,4d "$tree/src/base/a.c"
"$check" "$tree" >"$tree/said" && { echo "a header may declare functions of two files"; failed=1; }
grep -q "^src/base/a.h: declares functions of src/base/a.c src/base/b.c" "$tree/said" || { cat "$tree/said"; failed=1; }
exit $failed
