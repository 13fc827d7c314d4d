#!/usr/bin/env bash
# scripts/run-tests counts what passes, fails and is skipped, and its exit status tells.
# label: once
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
echo "WEFT_SANITIZE:STRING=" >"$folder/CMakeCache.txt"

failed=0
expect() { # STATUS CLOSING-LINE, tests on standard input
    cat >"$folder/CTestTestfile.cmake"
    said=$(scripts/run-tests "$folder" 2>&1)
    status=$?
    [[ $((status != 0)) == "$1" && $(tail -n 1 <<<"$said") == "$2" ]] && return
    echo "wanted '$2', status $1; got status $status and:"
    echo "$said"
    failed=1
}
expect 0 "1 passed, 0 failed" <<'TESTS'
add_test(good true)
TESTS
expect 0 "3 passed, 0 failed, 1 skipped" <<'TESTS'
add_test(good true)
add_test(cases printf "[       OK ] one\n[       OK ] two\n[  PASSED  ] 2 test(s).\n")
add_test(other sh -c "echo it is missing; exit 77")
set_tests_properties(other PROPERTIES SKIP_RETURN_CODE 77)
TESTS
grep -q '^  other: it is missing$' <<<"$said" || { echo "no line says why 'other' is skipped: $said"; failed=1; }
grep -qE '^ +[0-9]+\.[0-9]  cases$' <<<"$said" || { echo "no line says how long 'cases' took: $said"; failed=1; }
partly() {
    cat <<'TESTS'
add_test(good true)
add_test(grid true)
set_tests_properties(grid PROPERTIES LABELS full)
TESTS
}
WEFT_TEST_FULL='' expect 0 "1 passed, 0 failed" < <(partly)
WEFT_TEST_FULL=1 expect 0 "2 passed, 0 failed" < <(partly)
expect 1 "2 passed, 4 failed" <<'TESTS'
add_test(good true)
add_test(bad false)
add_test(slow sleep 20)
set_tests_properties(slow PROPERTIES TIMEOUT 1)
add_test(gone /no/such/program)
add_test(cases sh -c "printf '[       OK ] one\n[  FAILED  ] two\n[  FAILED  ] tests: 1 test(s), listed below:\n[  FAILED  ] two\n'; exit 1")
TESTS
grep -q '^  ctest --test-dir .* -R "^bad$"' <<<"$said" || { echo "no line repeats 'bad'"; failed=1; }
expect 1 "0 passed, 0 failed" </dev/null

# A pattern that no case of a C test matches is an error.
if [[ -x $WEFT_BUILD/tests/run ]]; then
    said=$("$WEFT_BUILD/tests/run" base_crc32 'no such*' 2>&1)
    [[ $? == 2 && $said == "no case of "*"base_crc32.c matches 'no such*'; its cases are:"*$'\n  '* ]] ||
        { echo "a case that is not there: $said"; failed=1; }
fi
exit $failed
