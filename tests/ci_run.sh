#!/usr/bin/env bash
# .ci/run adds up what its verbs count, fails where one of them fails or runs nothing, and fails above its
# budget of processor time. A pretended make counts, and takes time.
# label: once
set -uo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder"/{.ci,bin,build,scripts}
cp .ci/run "$folder/.ci"
printf '#!/bin/sh\necho "setup $*" >>calls\n' >"$folder/scripts/setup"
cat >"$folder/bin/make" <<'SH'
#!/usr/bin/env bash
[[ ${ONLY-} != build ]] || exit 0
echo "make $1" >>calls
printf '\t<testcase name="slow_one" classname="" time="12.5" status="run">\n' >build/tests.xml
[[ ! ${BUSY-} ]] || while (($(ps -o cputimes= -p $$) < 2)); do for ((i = 0; i < 20000; i++)); do :; done; done
echo "${!1-2 passed, 0 failed}"
[[ ${!1-} != *[1-9]" failed"* ]]
SH
chmod +x "$folder"/{bin/make,scripts/setup}
export PATH=$folder/bin:$PATH
unset WEFT_TEST_FULL WEFT_CI_BUDGET_S check asan tsan fuzz BUSY ONLY

failed=0
# expect STATUS CLOSING-LINE VARIABLE=VALUE...
expect() {
    local status=0
    : >"$folder/calls"
    said=$(env "${@:3}" "$folder/.ci/run" 2>&1) || status=$?
    [[ $status == "$1" && $(tail -n 1 <<<"$said") == "$2" ]] && return
    echo "${*:3}: wanted '$2', status $1; got status $status and: $said"
    failed=1
}
calls() { tr '\n' ',' <"$folder/calls"; }
expect 0 "6 passed, 0 failed"
[[ $(calls) == "setup --tests,make check,make asan,make tsan," ]] || { echo "it calls $(calls)"; failed=1; }
grep -qE '^ +12\.5  slow_one, make check$' <<<"$said" || { echo "no list of slow tests: $said"; failed=1; }
grep -qE '^[0-9]+ s of processor time, builds included, of [0-9]{4} s allowed' <<<"$said" || { echo "no processor time: $said"; failed=1; }
expect 0 "7 passed, 0 failed, 1 skipped" asan="3 passed, 0 failed, 1 skipped"
expect 1 "5 passed, 2 failed" tsan="1 passed, 2 failed"
expect 1 "4 passed, 1 failed" tsan="0 passed, 0 failed"
expect 1 "4 passed, 1 failed" asan="a build that failed"
expect 0 "8 passed, 0 failed" WEFT_TEST_FULL=1
[[ $(calls) == "setup --tests,setup --fuzz,make check,make asan,make tsan,make fuzz," ]] || { echo "all of it calls $(calls)"; failed=1; }
expect 1 "6 passed, 1 failed" BUSY=1 WEFT_CI_BUDGET_S=1
grep -q "more than its budget" <<<"$said" || { echo "above the budget: $said"; failed=1; }
said=$(WEFT_CI_BUDGET_S=much "$folder/.ci/run" 2>&1)
[[ $? == 2 && $said == *"not a number of seconds"* ]] || { echo "a budget of much: $said"; failed=1; }
exit $failed
