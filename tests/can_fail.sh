#!/usr/bin/env bash
# Tests of the program can fail: with one that does nothing and fails, and with one that does nothing
# and succeeds, each of them does, by the first thing that it finds wrong; and what fails within a pipe
# fails the test.
# label: full once long
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# They leave word that they were called: a test that is skipped before, for want of a tool, is.
for status in true false; do
    printf '#!/bin/sh\n: >"$0.$WEFT_TEST"\nexec %s\n' $status >"$folder/$status"
done
chmod +x "$folder/true" "$folder/false"

# try PROGRAM TEST: says so if the test passes, or waits for something that cannot come.
try() {
    local got=0
    WEFT_TEST=${2##*/} WEFT=$1 timeout 600 bash "$2" >"$folder/${2##*/}.${1##*/}" 2>&1 </dev/null || got=$?
    [[ $got != 77 || -e $1.${2##*/} ]] || return 0
    case $got in
    0 | 77) echo "$2 succeeds with WEFT=$1" ;;
    124) echo "$2 does not end with WEFT=$1: $(tail -n 3 "$folder/${2##*/}.${1##*/}")" ;;
    esac
}
export -f try
export folder

cat >"$folder/pipe.sh" <<'SH'
source tests/cli_helpers.bash
[[ $(report a | field x) == "$(report b | field x)" ]] || fail "never: both are empty"
finish
SH
try "$folder/false" "$folder/pipe.sh" >"$folder/wrong"
[[ ! -s $folder/wrong ]] || { cat "$folder/wrong"; exit 1; }
[[ $(grep -c '^FAILED: weft [ab]: exit 1' "$folder/pipe.sh.false") == 2 ]] || { cat "$folder/pipe.sh.false"; exit 1; }

readarray -t tests < <(grep -lE '"\$WEFT"|cli_helpers.bash' tests/*.sh | grep -v can_fail)
((${#tests[@]} >= 15)) || { echo "${#tests[@]} tests of the program are found"; exit 1; }
export WEFT_TEST_STOP=1
wrong=$(for program in "$folder"/{false,true}; do printf "$program %s\n" "${tests[@]}"; done |
    xargs -P 4 -L 1 bash -c 'try "$@"' _)
[[ -z $wrong ]] || { echo "$wrong"; exit 1; }
