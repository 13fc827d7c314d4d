#!/usr/bin/env bash
# label: once
# What the pages name is there: files that they link, paths of the repository, tests, environment
# variables; and every key of a plan is in the table of docs/plans.md.
source tests/cli_helpers.bash
cd "$WEFT_SOURCE" || exit 1
pages=(docs/*.md README.md CONTRIBUTING.md SECURITY.md)

# missing PAGES...: "PAGE: NAME" for all that they name and is not there.
missing() {
    local page name
    for page; do
        grep -oE '\]\([^)# ]+' "$page" | cut -c3- | grep -v '^https:' | while read -r name; do
            [[ -e $(dirname "$page")/$name ]] || echo "$page: $name"
        done
        grep -oE '`(src|tests|docs|cli|scripts|fuzz|bench|examples|include)/[A-Za-z0-9_./-]+`' "$page" | tr -d '`' | grep -v NAME |
            while read -r name; do
                [[ -e $name || -e $name.c || -e $name.h ]] || echo "$page: $name"
            done
        grep -oE '`WEFT_[A-Z_]+' "$page" | tr -d '`' | while read -r name; do
            grep -rqE "\\b$name\\b" src cli scripts tests/*.sh tests/*.c tests/*.bash cmake Makefile || echo "$page: $name"
        done
    done
}
while read -r line; do
    fail "$line is not there"
done < <(missing "${pages[@]}")
printf 'see [it](none.md), `src/none.c` and `WEFT_NONE%s`\n' _AT_ALL >"$folder/page.md"
[[ $(missing "$folder/page.md" | wc -l) == 3 ]] || fail "this test cannot fail"

keys=$("$WEFT" plan --model mlp --plan nokey=1 2>&1 | sed -n 's/.*the keys are //p' | tr -d ',')
[[ $keys == *zero* ]] || fail "no keys of plans: $keys"
for key in $keys; do
    grep -qE "^\| \`$key\`" docs/plans.md || fail "docs/plans.md has no row for $key"
done
finish
