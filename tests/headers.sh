#!/usr/bin/env bash
# Each public header compiles alone, as C11 and as C++11, and each function that returns a status names its
# errors; and the check can fail.
# label: once
set -uo pipefail
command -v "${CXX:-c++}" >/dev/null || { echo "no C++ compiler"; exit 77; }
scripts/check-headers || exit 1

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/include/weft"
failed=0
expect_refused() { # WORDS HEADER
    echo "$2" >"$tree/include/weft/a.h"
    if said=$(scripts/check-headers "$tree" 2>&1) || [[ $said != *"$1"* ]]; then
        echo "'$2' went through without: $1"
        failed=1
    fi
}
expect_accepted() { # HEADER
    echo "$1" >"$tree/include/weft/a.h"
    scripts/check-headers "$tree" || { echo "'$1' was refused"; failed=1; }
}
expect_refused 'alone as C11' 'size_t wf_a(void);'
expect_refused 'alone as C++11' 'int wf_a(int class);'

start=$'/* A header. */\n#define WF_API\ntypedef int wf_status;\n'
function='WF_API wf_status wf_a(void);'
named=$'/* Does it. Errors: IO. */\n'
section=$'/* ---- calls ----\n *\n * Errors of all calls of\n * this section: IO. */\n\n'
expect_refused 'wf_a does not name its errors' "$start$function"
expect_refused 'wf_a does not name its errors' "$start/* Does it. */"$'\n'"$function"
expect_refused 'wf_a does not name its errors' "$start$named"$'\n'"$function"
expect_refused 'wf_a does not name its errors' "$start$section/* ---- others ---- */"$'\n\n'"$function"
expect_accepted "$start$named$function"
expect_accepted "$start$section$function"
expect_accepted "${start/A header./A header. Errors of all its functions: IO.}$function"
exit $failed
