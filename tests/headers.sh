#!/usr/bin/env bash
# Each public header compiles alone, as C11 and as C++11; and the check can fail.
# label: once
set -uo pipefail
command -v "${CXX:-c++}" >/dev/null || { echo "no C++ compiler"; exit 77; }
scripts/check-headers || exit 1

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/include/weft"
failed=0
expect_refused() { # WORD HEADER
    echo "$2" >"$tree/include/weft/a.h"
    if said=$(scripts/check-headers "$tree" 2>&1) || [[ $said != *"alone as $1"* ]]; then
        echo "'$2' went through as $1"
        failed=1
    fi
}
expect_refused C11 'size_t wf_a(void);'
expect_refused C++11 'int wf_a(int class);'
exit $failed
