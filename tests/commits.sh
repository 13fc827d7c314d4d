#!/usr/bin/env bash
# Commit messages since the check was added hold to it, and it refuses each kind of fault; the hook
# that `make setup-hooks` installs stops a bad message.
# label: once
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# expect refused|accepted MESSAGE [WORD OF THE FAULT]
expect() {
    printf '%b' "$2" >"$folder/message"
    if scripts/check-commits --message "$folder/message" >"$folder/output"; then got=accepted; else got=refused; fi
    [[ $got == "$1" && $(<"$folder/output") == *"${3-}"* ]] && return
    echo "'$2': $got, should be $1 ${3+because of $3}; output: $(<"$folder/output")"
    failed=1
}
body='\n\nBecause.\n'
expect accepted "cli: add an option$body"
expect accepted "kernel/onednn: pass rows in blocks$body"
expect accepted "docs: embed the picture$body# a comment of git\n"
expect accepted 'fixup! cli: adds'
expect refused "" "empty"
expect refused "# only a comment\n" "empty"
expect refused "cli: add an option\n" "body"
expect refused "cli: add an option\n\nSigned-off-by: A <a@b>\n" "body"
expect refused "cli: add an option\n\n# why\n" "body"
expect refused "add an option$body" "folder:"
expect refused "Add: an option$body" "folder:"
expect refused "cli: a knob$body" "imperative"
expect refused "cli: adds an option$body" "imperative"
expect refused "cli: added an option$body" "imperative"
expect refused "cli: adding an option$body" "imperative"
expect refused "cli: Add an option$body" "verb"
expect refused "cli: add$body" "object"
expect refused "cli: name what is missing$body" "hides"
expect refused "cli: show who waits$body" "hides"
expect refused "cli: add an option; drop another$body" "two changes"
expect accepted "cli: $(printf 'add %063d' 0)$body"
expect refused "cli: $(printf 'add %064d' 0)$body" "72"

# The hook, in a repository of its own.
repository=$folder/repository
mkdir -p "$repository/scripts"
cp scripts/check-commits scripts/setup-hooks "$repository/scripts/"
(
    cd "$repository" || exit 1
    git init -q . && git config user.name test && git config user.email test@example.org
    scripts/setup-hooks >/dev/null || exit 1
    scripts/setup-hooks >/dev/null || { echo "a second scripts/setup-hooks fails"; exit 1; }
    git add . && git commit -qm "cli: adds" 2>/dev/null && { echo "the hook accepts a bad message"; exit 1; }
    git commit -qm "cli: add scripts" -m "Because." || { echo "the hook refuses a good message"; exit 1; }
    git commit -q --allow-empty --no-verify -m "adds" || exit 1
    scripts/check-commits >output && { echo "a bad commit is accepted"; exit 1; }
    grep -q "folder: imperative" output || { cat output; exit 1; }
    echo "exit 0" >.git/hooks/commit-msg
    scripts/setup-hooks 2>/dev/null && { echo "scripts/setup-hooks replaces a hook of another project"; exit 1; }
    exit 0
) || failed=1

# This repository's own, where its history is there (an archive has none).
if git rev-parse --git-dir >/dev/null 2>&1; then
    scripts/check-commits || failed=$(($? == 77 ? failed : 1))
fi
exit $failed
