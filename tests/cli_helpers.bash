# Sourced by the tests of the command line program.
set -uo pipefail
WEFT=${WEFT:-build/weft}
folder=$(mktemp -d)
failures=$(mktemp)
trap 'end_test $?' EXIT

# However deep in subshells and pipes it is called, the test has failed. With WEFT_TEST_STOP=1 it ends
# there, as if nothing were wrong but what it has written down.
all_failures=$failures
trap 'exit 0' USR1
fail() {
    echo "FAILED: $*" | tee -a "$failures" >&2
    [[ ! ${WEFT_TEST_STOP:-} || $failures != "$all_failures" ]] || kill -USR1 $$
}

# end_test STATUS: where the script ends, wherever that is; with that status unless something failed.
end_test() {
    local n
    n=$(grep -c '^FAILED: ' "$failures")
    rm -rf "$folder" "$failures"
    ((n == 0)) || { echo "$n wrong"; exit 1; }
    exit "$1"
}

# Seconds after which what is awaited is taken to hang, however slow the machine. Nothing else is
# judged by it.
patience=600

# until_true COMMAND...: whether it succeeds at last.
until_true() {
    local end=$((SECONDS + patience))
    until "$@"; do
        ((SECONDS > end)) && return 1
        sleep 0.02
    done
}

# until_true_of PROCESS COMMAND...: whether it succeeds before the process ends.
until_true_of() {
    local pid=$1 end=$((SECONDS + patience))
    shift
    until "$@"; do
        is_gone "$pid" && { "$@"; return; }
        ((SECONDS > end)) && return 1
        sleep 0.02
    done
}

# with_deadlines FUNCTION MS: calls it with MS; where something fails, with four and with sixteen times
# as much. On a slow or busy machine, a short deadline is missed by others than the one that has to miss it.
with_deadlines() {
    local ms
    for ms in "$2" $(($2 * 4)) $(($2 * 16)); do
        : >"$folder/attempt"
        (failures=$folder/attempt && "$1" "$ms")
        [[ -s $folder/attempt ]] || return 0
    done
    cat "$folder/attempt" >>"$failures"
}
# seconds MS: for sleep and --timeout.
seconds() { printf '%d.%03d\n' $(($1 / 1000)) $(($1 % 1000)); }

state_of() { [[ ! $1 ]] || sed 's/.*) //; s/ .*//' "/proc/$1/stat" 2>/dev/null; }
# A zombie is gone: nobody may be there to reap it.
is_gone() {
    local pid
    for pid; do [[ $(state_of "$pid") == "" || $(state_of "$pid") == Z ]] || return 1; done
}

# is_full: whether each grid runs whole.
is_full() { [[ ${WEFT_TEST_FULL:-0} == 1 ]]; }

# field NAME: of the report on standard input, one line per value.
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}$/\1/p"; }

# has ARGS OF GREP: whether it finds any in its input; it reads on, so that who writes ends well.
has() { grep -c "$@" >/dev/null; }

# report COMMAND...: its report; complains if it fails.
report() {
    "$WEFT" "$@" --quiet --json - 2>"$folder/said" || fail "weft $*: exit $?: $(tail -1 "$folder/said")"
}

# sha COMMAND...: the weights in its report.
sha() { report "$@" | field weights_sha256; }

# report_of NAME COMMAND...: leaves $folder/NAME.json, and what it says in NAME.out and $folder/said.
report_of() {
    "$WEFT" "${@:2}" --json "$folder/$1.json" >"$folder/$1.out" 2>"$folder/said" || fail "$*: exit $?: $(cat "$folder/said")"
}
# has_field NAME FIELD VALUE: of $folder/NAME.json.
has_field() { field "$2" <"$folder/$1.json" | grep -cx -- "$3" >/dev/null || fail "$1: $2 is '$(field "$2" <"$folder/$1.json")', not '$3'"; }
# found NAME PATTERN: matches in $folder/NAME.json, all in one line, a line each; count: how many.
found() { tr -d ' \n' <"$folder/$1.json" | grep -oE "$2"; }
count() { found "$1" "$2" | wc -l; }

# expect_all_tested COMMAND...: each of its options is in the array `tested`.
expect_all_tested() {
    for option in $("$WEFT" "$@" --help | grep -o '^  --[a-z0-9-]*'); do
        [[ " ${tested[*]} " == *" $option "* ]] || fail "$option has no test"
    done
}

# expect STATUS WORDS COMMAND...: the exit status, and words in what it says on standard error.
expect() {
    local status=$1 words=$2 got=0
    shift 2
    "$WEFT" "$@" >"$folder/out" 2>"$folder/said" || got=$?
    [[ $got == "$status" ]] || fail "weft $*: exit $got, expected $status: $(tail -1 "$folder/said")"
    grep -qF -- "$words" "$folder/said" || fail "weft $*: does not say '$words': $(cat "$folder/said")"
}

# images FOLDER: a small set in MNIST's format, 64 training and 16 test images of 8 x 8.
images() {
    mkdir -p "$1"
    local n name
    for name in train:64:100 t10k:16:20; do
        n=$(cut -d: -f2 <<<"$name")
        name=${name%%:*}
        { printf "\\x00\\x00\\x08\\x03\\x00\\x00\\x00\\x$(printf %02x "$n")\\x00\\x00\\x00\\x08\\x00\\x00\\x00\\x08"
          seq 1 9999 | head -c $((n * 64)); } >"$1/$name-images-idx3-ubyte"
        { printf "\\x00\\x00\\x08\\x01\\x00\\x00\\x00\\x$(printf %02x "$n")"
          for ((i = 0; i < n; i++)); do printf "\\x0$((i * 7 % 10))"; done; } >"$1/$name-labels-idx1-ubyte"
    done
}

finish() { [[ ! -s $failures ]] || exit 1; }
