#!/usr/bin/env bash
# The README's C program compiles without a warning by the README's commands, its loss falls and has
# the values that the page names; the page stays short.
# label: once
set -euo pipefail
# shellcheck source=tests/install_helpers.bash
. tests/install_helpers.bash
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

lines=$(wc -l <README.md)
((lines <= 190)) || { echo "README.md has $lines lines, more than 190"; exit 1; }

sed -n '/^```c$/,/^```$/{/^```/!p}' README.md >"$folder/toy.c"
[[ -s $folder/toy.c ]] || { echo "README.md holds no program in C"; exit 1; }
"${CC:-cc}" -std=c11 -Wall -Wextra -Wpedantic -Werror -Iinclude -c "$folder/toy.c" -o "$folder/toy.o"

# Literally, with a folder for DIR.
install=$(grep -o '`cmake --install build --prefix DIR`' README.md | tr -d '`')
compile=$(grep -o '`cc toy\.c [^`]*`' README.md | tr -d '`')
[[ -n $install && -n $compile ]] || { echo "README.md does not say how to install and to compile"; exit 1; }
own_installer "$folder/build"
(cd "$folder" && eval "${install//DIR/$folder/prefix}") >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
unset LD_LIBRARY_PATH PKG_CONFIG_PATH
(cd "$folder" && eval "${compile//DIR/$folder/prefix}" && mv a.out toy) || { echo "fails: $compile"; exit 1; }
"$folder/toy" >"$folder/said"
awk '{ loss = $4 } NR == 1 { first = loss } END { exit !(NR == 50 && loss < first / 2) }' "$folder/said" ||
    { echo "the loss does not fall:"; cat "$folder/said"; exit 1; }
# The losses that the page names, but for another processor's rounding.
for line in $(grep -oE '`step [0-9]+, loss [0-9.]+`' README.md | tr -d '`,' | tr ' ' _); do
    read -r _ step _ loss <<<"${line//_/ }"
    awk -v step="$step," -v want="$loss" '$2 == step { near = ($4 - want) ^ 2 < (want / 100) ^ 2 } END { exit !near }' "$folder/said" ||
        { echo "README.md: step $step does not have the loss $loss"; exit 1; }
done
