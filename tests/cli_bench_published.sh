#!/usr/bin/env bash
# weft bench published: errors of the published rows do not grow, its report, bad files of rows.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

# within NAME MEAN WORST WRONG: the errors of tests/published/NAME.json, in percent, and the number
# of rows whose memory is judged wrongly.
within() {
    "$WEFT" bench published --rows "tests/published/$1.json" --quiet --json "$folder/$1.json" || fail "$1: exit $?"
    awk -v mean="$2" -v worst="$3" -v wrong="$4" '
        /^ *"mean_error":/ { m = 100 * $2 } /^ *"worst_error":/ { w = 100 * $2 } /"n_wrong_fits"/ { n = $2 + 0; seen = 1 }
        END { exit !(seen && m > 0 && m <= mean && w <= worst && n == wrong) }' "$folder/$1.json" ||
        fail "$1: errors grew: $(grep -E '"(mean|worst)_error"|n_wrong' "$folder/$1.json")"
}

# ---- errors: at most those that were reached ----
within megatron-2021 3.3 8.6 0
within korthikanti-2022 3.6 6.3 0
within megascale 2.6 6.6 0
within bloom-1-to-7 1.5 3.9 0
within bloom 3.2 9.5 0
within megatron-core 4.4 6.1 0
within llama3 5.7 9.5 0
within pax 3.9 8.7 0
within fugaku 2.9 4.3 0
[[ $(ls tests/published/*.json | wc -l) == 9 ]] || fail "a file of rows has no bounds here"

# ---- the report and the table ----
"$WEFT" bench published --json "$folder/all.json" >"$folder/all.out" || fail "exit $?"
n=$(cat tests/published/*.json | grep -c '"name"')
[[ $(grep -c '"name": ' "$folder/all.json") == "$n" ]] || fail "not all rows come with weft"
[[ $(grep -c '"fits": false' "$folder/all.json") == 5 ]] || fail "not five rows are out of memory"
for name in published_s predicted_s error published_gb predicted_gb fits mfu; do
    [[ $(grep -c "\"$name\": " "$folder/all.json") == "$n" ]] || fail "a row has no $name"
done
awk '/"published_s"/ { p = $2 + 0 } /"predicted_s"/ { q = $2 + 0 } /"error":/ && p { e = q / p - 1 - $2; if (e * e > 1e-12) exit 1 }' \
    <(sed 's/,$//' "$folder/all.json") || fail "error is not predicted over published"
has "^time: mean error .* $((n - 5)) rows" <"$folder/all.out" || fail "no summary: $(tail -3 "$folder/all.out")"
has "BLOOM log 20.* out of memory" <"$folder/all.out" || fail "no row is out of memory in the table"

# ---- --cluster: on faster GPUs all rows are faster ----
"$WEFT" bench published --rows tests/published/megascale.json --cluster dgx-h100 --quiet --json "$folder/h100.json"
paste <(field predicted_s <"$folder/megascale.json") <(field predicted_s <"$folder/h100.json") |
    awk '$2 > 0.8 * $1 { exit 1 } END { exit NR != 4 }' || fail "--cluster dgx-h100 is not faster"

# ---- bad files: a sentence each ----
row() { # FIELD VALUE: a file with a row in which the field has this value; "" leaves it out
    local model='{"family": "gpt", "layers": 4, "hidden": 64, "heads": 4, "vocab": 100, "tokens": 16}'
    declare -A f=([name]='"a"' [cluster]='"dgx-a100"' [gpus]=2 [model]="$model" [dtype]='"f16"' [batch]=4 [microbatch]=1 [plan]='"dp=2"' [published_s]=1)
    f[$1]=$2
    local text=
    for key in "${!f[@]}"; do [[ -z ${f[$key]} ]] || text+="${text:+, }\"$key\": ${f[$key]}"; done
    echo "{\"rows\": [{$text}]}" >"$folder/row.json"
}
refuses() { # STATUS SENTENCE FIELD VALUE
    row "$3" "$4"
    expect "$1" "$2" bench published --rows "$folder/row.json"
}
row name '"b"'
"$WEFT" bench published --rows "$folder/row.json" --quiet || fail "a good row is refused"
refuses 2 "row.json: row 1 (a): gpus is not a whole number from 1 to" gpus 0
refuses 2 "gpus is not a whole number" gpus 1e30
refuses 2 "batch is not a whole number" batch -1
refuses 2 "batch is not a whole number" batch 4.5
refuses 2 "cp is not a whole number from 1 to 1024" cp 0
refuses 2 "row 1 (a): plan 'dp=2' has 6 ranks; gpus is 2" cp 3
refuses 2 "microbatch is not a whole number" microbatch '"two"'
refuses 2 "published_s is neither null nor a positive number" published_s -3
refuses 2 "published_s is missing" published_s null
refuses 2 "name holds a control character" name '"a\u001b[2J"'
refuses 2 "plan is missing" plan ''
refuses 2 "model is missing or not an object" model ''
refuses 2 "bert is not a family of models" model '{"family": "bert", "layers": 4, "hidden": 64, "heads": 4, "vocab": 100, "tokens": 16}'
refuses 2 "width is not a field of a row's model" model '{"family": "gpt", "width": 64}'
refuses 2 "speed is not a field of a row" speed 1
refuses 2 "fits is not true or false" fits 1
refuses 2 "row.json: row 1 (a): plan 'dp=3' has 3 ranks; gpus is 2" plan '"dp=3"'
refuses 2 "row 1 (a): plan 'dp=2' has 2 ranks; gpus is 2000000" gpus 2000000
refuses 2 "row 1: name is missing" name ''
refuses 2 "unknown key 'dq'" plan '"dq=2"'
refuses 2 "under the name 'no-such-cluster'" cluster '"no-such-cluster"'
refuses 2 "row 1 (a): dtype" dtype '"f8"'
echo '{"rows": []}' >"$folder/row.json"
expect 2 "rows is not an array of 1 to 10000 rows" bench published --rows "$folder/row.json"
echo '{"rows": [' >"$folder/row.json"
expect 2 "row.json: line 2: " bench published --rows "$folder/row.json"
echo '[1]' >"$folder/row.json"
expect 2 "rows is not an array" bench published --rows "$folder/row.json"
expect 1 "none.json" bench published --rows "$folder/none.json"
expect 1 "cannot be written" bench published --json "$folder/none/r.json"
# ---- an interruption after the script: no results ----
row name '"b"'
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    status=0
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 strace -o /dev/null -e inject=rmdir:signal=SIGTERM:when=1 \
        "$WEFT" bench published --rows "$folder/row.json" --json "$folder/none.json" >"$folder/out" 2>"$folder/said" || status=$?
    [[ $status == 143 && ! -e $folder/none.json ]] || fail "SIGTERM after the script: exit $status"
    has -x "weft: interrupted; no results have been written" <"$folder/said" || fail "SIGTERM after the script: $(cat "$folder/said")"
fi
cp "$WEFT" "$folder/weft"
LD_LIBRARY_PATH=${WEFT%/*} WEFT=$folder/weft expect 1 "run weft where it was installed or built" bench published
finish
