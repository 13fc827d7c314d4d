#!/usr/bin/env bash
# examples/ring.c: its picture is the one in docs/c.md, and its sums are right; several times, as its
# ranks are threads.
# label: once
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for n in 1 2 3 4 5; do
    "$WEFT_BUILD/examples/ring" >"$folder/said" 2>"$folder/errors" || { echo "run $n: exit $?: $(tail -1 "$folder/said") $(cat "$folder/errors")"; exit 1; }
done
tail -1 "$folder/said" | grep -cx "each rank has sent 6 chunks of 4, 1.5 of its vector; all have wf_group_all_reduce's bits" >/dev/null ||
    { echo "it ends with: $(tail -1 "$folder/said")"; exit 1; }
# The page leaves some lines out ("..."): those it shows are printed, in its order.
sed 's/ *$//' "$folder/said" >"$folder/printed"
sed -n '/^begin$/,/^each rank has sent/p' docs/c.md | grep -vx '\.\.\.' >"$folder/shown"
(($(wc -l <"$folder/shown") > 10)) || { echo "docs/c.md shows no picture of a ring"; exit 1; }
differs=$(diff "$folder/shown" "$folder/printed" | grep '^<' || true)
[[ ! $differs ]] || { echo "docs/c.md shows another picture:"; echo "$differs"; exit 1; }
