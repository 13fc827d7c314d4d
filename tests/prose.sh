#!/usr/bin/env bash
# Comments and docs name their subjects: at most one sentence in a hundred may not.
# label: once
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
git rev-parse --git-dir >/dev/null 2>&1 || { echo "skipped: not a clone"; exit 77; }
scripts/check-prose || { echo "scripts/check-prose PATH... shows them"; exit 1; }

# It can fail: a page of such sentences.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/docs"
printf 'What is written here hides its subject. Of ranks nobody knows how many.\n' >"$folder/docs/page.md"
(cd "$folder" && git init -q . && git add docs && "$OLDPWD/scripts/check-prose") >"$folder/out" && { echo "a wrong page passes"; exit 1; }
grep -qx 'docs: 2 of 2 sentences hide their subject' "$folder/out" || { cat "$folder/out"; exit 1; }
