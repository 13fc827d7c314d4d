#!/usr/bin/env bash
# Every example in docs/c.md ("$ build/...") prints the lines that the page shows below it, in any order
# (ranks are processes), numbers to five digits (libraries differ in the last ones); "..." at the end
# stands for more lines. If two lines of one command show a loss in full, the bits are the same.
# label: once
set -uo pipefail
page=$WEFT_SOURCE/docs/c.md
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/tmp"
export TMPDIR=$folder/tmp
failures=0
fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
rounded() { sed -E 's/([0-9]\.[0-9]{5})[0-9]*/\1/g' | LC_ALL=C sort; }

n=0
while read -r command; do
    n=$((n + 1))
    words=${command//build\//$WEFT_BUILD/}
    # Lines after the command, up to the next command or the end of the block.
    awk -v want="\$ $command" '$0 == want { on = 1; next } on && /^(```|\$ )/ { exit } on' "$page" >"$folder/page"
    $words >"$folder/said" 2>&1 || fail "$command: exit status $?: $(tail -1 "$folder/said")"
    if [[ $(tail -1 "$folder/page") == ... ]]; then
        sed -i '$d' "$folder/page"
        sed -i "$(($(wc -l <"$folder/page") + 1)),\$d" "$folder/said"
    fi
    if ! diff <(rounded <"$folder/page") <(rounded <"$folder/said") >"$folder/differs"; then
        fail "$command does not print what the page shows:"
        cat "$folder/differs"
    fi
    n_losses=$(grep -v '^step' "$folder/said" | grep -oE 'loss [0-9.]{15,}' | sort -u | wc -l)
    n_pairs=$(sed -nE 's/^step .*loss ([0-9.]+) on one device, ([0-9.]+) by .*/\1 \2/p' "$folder/said" | awk '$1 != $2' | wc -l)
    ((n_losses <= 1 && n_pairs == 0)) || fail "$command: other bits: $(cat "$folder/said")"
done < <(sed -n 's/^\$ \(build\/\)/\1/p' "$page")
((n >= 8)) || fail "the page has $n commands"
[[ -z $(ls -A "$TMPDIR") ]] || fail "files are left: $(ls -A "$TMPDIR")"
for source in "$WEFT_SOURCE"/examples/*.c; do
    lines=$(wc -l <"$source")
    ((lines < 150)) || fail "$source has $lines lines"
done
((failures == 0)) || exit 1
