#!/usr/bin/env bash
# label: once
# Files, paths, tests and environment variables that the pages name exist; the table of docs/plans.md
# has every key of a plan; there are few pages, which are short and begin with a command; lines wrap.
source tests/cli_helpers.bash
cd "$WEFT_SOURCE" || exit 1
pages=(docs/*.md README.md CONTRIBUTING.md SECURITY.md tests/README.md)

# missing PAGES...: "PAGE: NAME" for each name that does not exist.
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

keys=$("$WEFT" plan --model mlp --plan nokey=1 2>&1 | sed -n 's/.*there are //p' | tr -d ',')
[[ $keys == *zero* ]] || fail "no keys of plans: $keys"
for key in $keys; do
    grep -qE "^\| \`$key\`" docs/plans.md || fail "docs/plans.md has no row for $key"
done

n_pages=$(find docs -name '*.md' | wc -l)
((n_pages <= 12)) || fail "docs/ has $n_pages pages, more than 12"
n_words=$(cat docs/*.md | wc -w)
((n_words < 25000)) || fail "docs/ has $n_words words, 25,000 or more"

# late PAGES...: those that show no command in a block in their first 12 lines. check-docs types those of
# console blocks, tests/readme.sh and tests/examples.sh those of docs/c.md, which compile.
late() {
    local page
    for page; do
        head -n 12 "$page" | grep -A1 -E '^```(console|sh)$' | grep -q '^\$ ' || echo "$page"
    done
}
# long_lines PAGES...: "PAGE:LINE" for each line of prose over 100 characters. Code and tables may be longer.
long_lines() {
    local page
    for page; do
        LC_ALL=C sed 's/[\x80-\xBF]//g' "$page" | awk -v page="$page" '
            /^ *```/ { is_code = !is_code }
            !is_code && !/^(    |\|)/ && length > 100 { print page ":" NR }'
    done
}
while read -r page; do
    fail "$page shows no command in its first 12 lines"
done < <(late docs/*.md)
while read -r line; do
    fail "$line has more than 100 columns"
done < <(long_lines "${pages[@]}")
for n in 100 101; do
    printf "%${n}s\n" x | tr ' ' x
done >"$folder/page.md"
[[ $(long_lines "$folder/page.md") == "$folder/page.md:2" && $(late "$folder/page.md") ]] || fail "the rules of form cannot fail"
finish
