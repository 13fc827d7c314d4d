#!/usr/bin/env bash
# The README's C program compiles as it stands there, without a warning, and learns; the
# page stays short.
# label: once
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

lines=$(wc -l <README.md)
((lines <= 90)) || { echo "README.md has $lines lines, more than 90"; exit 1; }

sed -n '/^```c$/,/^```$/{/^```/!p}' README.md >"$folder/toy.c"
[[ -s $folder/toy.c ]] || { echo "README.md holds no program in C"; exit 1; }
"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude "$folder/toy.c" -o "$folder/toy" \
    -L"$WEFT_BUILD" -Wl,-rpath,"$WEFT_BUILD" -lweft
"$folder/toy" >"$folder/said"
awk '{ loss = $4 } NR == 1 { first = loss } END { exit !(NR == 50 && loss < first / 2) }' "$folder/said" ||
    { echo "the loss does not fall:"; cat "$folder/said"; exit 1; }
