#!/usr/bin/env bash
# label: once long
# The commands of README.md and of each page under docs/ print the output that the page shows;
# scripts/check-docs types them, in the order of the page, in an empty folder.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
cd "$WEFT_SOURCE" || exit 1
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
export WEFT PYTHONPATH=$WEFT_SOURCE/python WEFT_LIBRARY=$WEFT_BUILD/libweft.so PYTHONDONTWRITEBYTECODE=1

n_checked=0
for page in README.md docs/*.md; do
    grep -q '^```console$' "$page" || continue
    if [[ ! -d /usr/share/datasets/fashion-mnist ]] && grep -q '^\$.*fashion-mnist' "$page"; then
        echo "skipped: $page uses Fashion-MNIST, which is not installed"
        continue
    fi
    scripts/check-docs "$page" >"$folder/diff" 2>&1 || fail "$page: $(cat "$folder/diff")"
    n_checked=$((n_checked + 1))
done

# A page passes if only measured numbers differ. Another word, or another hash among equal ones, is refused.
page=$folder/page.md
printf '```console\n$ echo done in 1.5 s\n%s in 2.5 s\n```\n' "done" >"$page"
scripts/check-docs "$page" >/dev/null || fail "another measured time is refused"
printf '```console\n$ echo "rank 0  |F0B0 |"\n%s\n```\n' "rank 0 |F0-B|" >"$page"
scripts/check-docs "$page" >/dev/null || fail "a timeline of another processor is refused"
sed -i 's/^rank 0/rank 1/' "$page"
! scripts/check-docs "$page" >/dev/null || fail "a timeline of another rank is accepted"
printf '```console\n$ echo done in 1.5 s\n%s in 2.5 s\n```\n' "done" >"$page"
sed -i 's/^done/ended/' "$page"
! scripts/check-docs "$page" >/dev/null || fail "another word is accepted"
awk '/^```console$/ { block = "" } { block = block $0 "\n" } /^```$/ && block ~ /sha256/ { printf "%s", block; exit }' README.md >"$page"
grep -q '^ "weights_sha256"' "$page" || fail "README.md shows no hashes"
sed -i '0,/"weights_sha256": "./s//&0/; 0,/.",$/s//",/' "$page"
! scripts/check-docs "$page" >/dev/null || fail "another hash is accepted"

# refused DIFFERENCE COMMAND SHOWN: check-docs must refuse a page that shows this output.
refused() {
    printf '```console\n$ %s\n%s\n```\n' "$2" "$3" >"$page"
    scripts/check-docs "$page" >"$folder/diff"
    [[ $? == 1 && $(tail -1 "$folder/diff") == "1 commands, 1 differ" ]] || fail "$1 is accepted: $(cat "$folder/diff")"
}
refused "another integer" "echo ranks: 3" "ranks: 4"
refused "another integer before a word that is not a unit" "echo 3 layers" "4 layers"
refused "a line after the last one shown" "printf 'one\ntwo\n'" one
refused "another beginning of a shortened line" "echo one two three" "another two ..."

((n_checked)) || { echo "skipped: no page can be checked"; exit 77; }
finish
