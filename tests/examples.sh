#!/usr/bin/env bash
# Every command in docs/tutorial.md prints what stands below it there, in any order (ranks are
# processes), numbers to five digits (libraries differ in the last ones). Where two lines of one
# command show a loss in full, it is the same: the same bits.
# label: once
set -uo pipefail
page=$WEFT_SOURCE/docs/tutorial.md
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
    # Indented lines after the command, up to the next that is not.
    awk -v want="    \$ $command" '$0 == want { on = 1; next } on && !/^    / { exit } on { print substr($0, 5) }' \
        "$page" >"$folder/page"
    $words >"$folder/said" 2>&1 || fail "$command: exit status $?: $(tail -1 "$folder/said")"
    if ! diff <(rounded <"$folder/page") <(rounded <"$folder/said") >"$folder/differs"; then
        fail "$command does not print what the page shows:"
        cat "$folder/differs"
    fi
    n_losses=$(grep -oE 'loss [0-9.]{15,}' "$folder/said" | sort -u | wc -l)
    ((n_losses <= 1)) || fail "$command: other bits: $(cat "$folder/said")"
done < <(sed -n 's/^    \$ //p' "$page")
((n >= 8)) || fail "the page has $n commands"
[[ -z $(ls -A "$TMPDIR") ]] || fail "files are left: $(ls -A "$TMPDIR")"
for source in "$WEFT_SOURCE"/examples/*.c; do
    lines=$(wc -l <"$source")
    ((lines < 150)) || fail "$source has $lines lines"
done
((failures == 0)) || exit 1
