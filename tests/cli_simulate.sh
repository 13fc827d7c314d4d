#!/usr/bin/env bash
# weft simulate: the published figures, the picture, limits, bad input, and every option; with --update,
# closed formulas and pictures of workers and servers.
# label: serial
source tests/cli_helpers.bash
unset NO_COLOR

equal="simulate --stages 4 --micro 8 --forward-ms 1 --backward-ms 1 --weight-ms 1"
tested=()

# gives OPTION FIELD VALUE ARGUMENTS: the report's field, rounded to 4 digits, has that value.
gives() {
    tested+=("$1")
    local value
    # shellcheck disable=SC2086 # words
    value=$(report $4 | field "$2" | sed -n 1p)
    [[ $(printf %.4f "$value") == "$3" ]] || fail "$1: $2 is '$value', not $3: weft $4"
}

# ---- the paper's table (arXiv 2401.10241, Table 5): its first row, as one types it ----
row="simulate --stages 8 --micro 24 --forward-ms 18.522 --backward-ms 18.086 --weight-ms 9.337 --transfer-ms 0.601"
gives --schedule bubble 0.2431 "$row --schedule 1f1b"
gives --schedule bubble 0.1585 "$row --schedule zb1"
gives --schedule bubble 0.1083 "$row --schedule zb2"
[[ $(report $row --schedule zb2 | sed -n '/peak_activations/,/]/p' | grep -c 15) == 8 ]] || fail "zb2: not 15 held on each stage"

# ---- each option changes what happens ----
gives --stages step_ms 33.0000 "$equal"
gives --stages step_ms 39.0000 "$equal --stages 6"
gives --micro step_ms 36.0000 "$equal --micro 9"
gives --forward-ms step_ms 44.0000 "$equal --forward-ms 2"
gives --backward-ms step_ms 44.0000 "$equal --backward-ms 2"
gives --weight-ms step_ms 44.0000 "$equal --weight-ms 2"
gives --forward-ms step_ms 49.0000 "$equal --forward-ms 1,3,1,1 --schedule gpipe --weight-ms 1,1,1,1"
gives --schedule step_ms 96.0000 "$equal --schedule naive"
gives --schedule makespan_ms 27.0000 "$equal --schedule zb2"
gives --transfer-ms step_ms 36.0000 "$equal --transfer-ms 0.5 --schedule gpipe"
gives --memory-limit bubble 0.0000 "$equal --schedule auto"
gives --memory-limit bubble 0.1111 "$equal --schedule auto --memory-limit 4 --chunks 1"
gives --memory-limit bubble 0.0000 "$equal --schedule auto --memory-limit 4"
# interleaved: 3 of 8 V: (p - 1)/(V m) of the ideal time
gives --chunks bubble 0.1579 "$equal --schedule interleaved"
gives --chunks bubble 0.1111 "$equal --schedule interleaved --chunks 3"
gives --chunks makespan_ms 25.5000 "$equal --schedule zbv --chunks 2"
gives --weight-held bubble 0.0436 "$row --schedule auto --chunks 1 --memory-limit 16 --weight-held 0.3664"
gives --weight-held bubble 0.1015 "$row --schedule auto --chunks 1 --memory-limit 16 --weight-held 1"
[[ $(report $equal --schedule zbv | sed -n '/peak_activations/,/]/p' | grep -c '4\.0') == 4 ]] || fail "zbv: not 4 held on each stage"
[[ $(report $equal --schedule auto --memory-limit 4 | field chunks) == 2 ]] || fail "auto: not two chunks"
"$WEFT" $equal --schedule auto --memory-limit 4 | grep -F "auto, 4 stages of 2 chunks, 8 microbatches" >/dev/null ||
    fail "auto: does not say into how many chunks"
[[ $(report $equal --schedule auto --memory-limit 3 | sed -n '/peak_activations/,/]/p' | grep -c '^ *[4-9]') == 0 ]] ||
    fail "--memory-limit 3: auto holds more"
for field in schedule stages micro bubble step_ms makespan_ms peak_activations; do
    report $equal | grep "\"$field\":" >/dev/null || fail "--json: no $field"
done
"$WEFT" $equal --quiet --json "$folder/report.json" >"$folder/said" 2>&1
[[ ! -s $folder/said && -s $folder/report.json ]] || fail "--quiet: says something, or --json writes nothing"
tested+=(--quiet --json)

# ---- the picture ----
"$WEFT" $equal --schedule zb1 >"$folder/out" || fail "exit $?"
grep -E '^3 \.+F0-B0-?F1' "$folder/out" >/dev/null || fail "no picture of stage 3: $(cat "$folder/out")"
grep -q $'\033' "$folder/out" && fail "colours where there is no terminal"
awk 'length > 80 { exit 1 }' "$folder/out" || fail "wider than 80 columns"
"$WEFT" $equal --schedule zbv >"$folder/out" || fail "exit $?"
grep -E '^0 .*F.*f.*b.*w.*B' "$folder/out" >/dev/null || fail "zbv: no second chunk: $(cat "$folder/out")"
grep -F "lower case: every other chunk" "$folder/out" >/dev/null || fail "zbv: no legend: $(cat "$folder/out")"
"$WEFT" $equal --stages 100 | grep -F "the first 64 of 100 stages" >/dev/null || fail "100 stages: all are drawn"
"$WEFT" $equal --forward-ms 0 --backward-ms 0 --weight-ms 0 | grep -F "step 0.000 ms" >/dev/null || fail "times of zero"
if command -v script >/dev/null; then
    TERM=xterm script -qec "stty cols 60; $WEFT $equal" /dev/null >"$folder/terminal" </dev/null
    grep -q $'\033\\[30;44m' "$folder/terminal" || fail "no colours on a terminal"
    sed $'s/\033\\[[0-9;]*m//g; s/\r//' "$folder/terminal" | grep '^[0-3] ' | awk 'length > 60 { exit 1 }' ||
        fail "wider than the terminal"
fi

# ---- too little memory: 3, and what would fit ----
expect 3 "needs stage 0 to hold 7 microbatches, but it may hold 4; these would fit: naive, 1f1b, zb1, zbv, vhalf, vmin, auto" \
    $equal --schedule zb2 --memory-limit 4
expect 3 "these would fit: naive, auto" $equal --schedule gpipe --memory-limit 1
gives --memory-limit step_ms 33.0000 "$equal --schedule gpipe --memory-limit 8"
gives --memory-limit step_ms 96.0000 "$equal --schedule naive --memory-limit 1"

# ---- bad input: 2 ----
expect 2 "--stages is missing" simulate
expect 2 "--weight-ms is missing" simulate --stages 2 --micro 2 --forward-ms 1 --backward-ms 1
expect 2 "a pipeline has 1 to 4096" $equal --stages 0
expect 2 "a pipeline has 1 to 4096" $equal --stages 4097
expect 2 "there may be 1 to 250000" $equal --micro 0
expect 2 "there may be 1 to 250000" $equal --micro 250001
expect 2 "a whole number" $equal --micro -1
expect 2 "--micro: auto; with 4 stages" $equal --micro auto
expect 2 "not a whole number" $equal --stages 1e3
for time in nan inf -1 1e300 2e9 , 1,,1,1 1,2,x,4 "$(printf '%070d' 1)"; do
    expect 2 "is not a time from 0 to 1e+09 ms" $equal --forward-ms "$time"
done
expect 2 "--forward-ms is empty; it needs a value" $equal --forward-ms ""
expect 2 "--weight-ms has 3 times for 4 stages" $equal --weight-ms 1,2,3
expect 2 "--weight-ms has 5 times for 4 stages" $equal --weight-ms 1,2,3,4,5
expect 2 "--transfer-ms: -1" $equal --transfer-ms -1
expect 2 "not a number" $equal --transfer-ms nan
expect 2 "there is no schedule 'fast'; there are naive, gpipe, 1f1b, interleaved, zb1, zb2, zbv, vhalf, vmin, breadth, auto" $equal --schedule fast
expect 2 "3 chunks do not go with schedule zbv: it has two chunks a rank" $equal --schedule zbv --chunks 3
expect 2 "2 chunks do not go with schedule 1f1b: it has one chunk a rank" $equal --chunks 2
expect 2 "--chunks: 0" $equal --schedule interleaved --chunks 0
expect 2 "1 to 31250" $equal --schedule interleaved --chunks 31251
expect 2 "--weight-held: 1.1 is not from 0 to 1" $equal --weight-held 1.1
expect 2 "--weight-held: -1 is not from 0 to 1" $equal --weight-held -1
expect 2 "must hold 1 microbatch at least" $equal --memory-limit 0
expect 2 "weft simulate has no option --model" $equal --model mlp
expect 1 "cannot be written" $equal --json "$folder/none/r.json"

# ---- workers: each option changes the result, by a closed formula (more in tests/sim_updates.c) ----
workers="simulate --workers 4 --forward-ms 4 --backward-ms 6 --weight-ms 2"
gives --update step_ms 12.0000 "$workers --update sync"
gives --update step_ms 18.0000 "$workers --update sync --transfer-ms 3"
gives --update step_ms 12.6000 "$workers --update local --local-steps 10 --transfer-ms 3"
gives --update step_ms 12.0000 "$workers --update async"
gives --transfer-ms steps_per_second 83.3333 "$workers --update async"
gives --transfer-ms server_busy 0.3333 "$workers --update async --transfer-ms 3 --workers 1"
gives --workers step_ms 18.0000 "$workers --update async --transfer-ms 3 --workers 1"
gives --workers step_ms 24.0600 "$workers --update async --transfer-ms 3"
gives --servers step_ms 15.0000 "$workers --update async --transfer-ms 3 --workers 1 --servers 2"
gives --slow step_ms 14.4000 "$workers --update async --slow 3"
gives --slow worker_busy 0.5000 "$workers --update sync --slow 3"
gives --staleness step_ms 36.0000 "$workers --update async --slow 3 --staleness 0"
gives --staleness steps 100.0000 "$workers --update async --slow 3 --staleness 1"
gives --local-steps step_ms 13.2000 "$workers --update local --local-steps 5 --transfer-ms 3"
gives --update-ms step_ms 13.0000 "$workers --update sync --update-ms 1"
gives --update-ms update_busy 0.3333 "$workers --update async --update-ms 1 --steps 10000 --staleness 0 --workers 1 --forward-ms 0 --backward-ms 0"
gives --steps steps 7.0000 "$workers --update async --steps 7"
gives --forward-ms step_ms 10.0000 "$workers --update async --forward-ms 2"
gives --backward-ms step_ms 8.0000 "$workers --update async --backward-ms 2"
gives --weight-ms step_ms 11.0000 "$workers --update async --weight-ms 1"

# histogram ARGUMENTS: the pushes by staleness, as one line.
histogram() { report "$@" | sed -n '/"staleness"/,/\]/p' | tr -dc '0-9,' | tr ',' ' '; }
[[ $(histogram $workers --update async) == "1 399" ]] || fail "staleness: $(histogram $workers --update async)"
[[ $(histogram $workers --update async --slow 10 --staleness 2 | wc -w) == 3 ]] || fail "--staleness 2: not from 0 to 2"
[[ $(histogram $workers --update async --slow 10 | wc -w) == 9 ]] || fail "--slow 10: not up to 8 steps stale"
[[ $(histogram $workers --update sync) == 400 && ! $(histogram $workers --update local --local-steps 2) ]] || fail "sync, local: staleness"
for field in update workers servers steps step_ms steps_per_second worker_busy server_busy link_busy update_busy staleness; do
    report $workers --update async | has "\"$field\":" || fail "--update --json: no $field"
done

# ---- workers: text and pictures ----
"$WEFT" $workers --update async --servers 2 --slow 3 --update-ms 1 --transfer-ms 1 --staleness 1 --draw "$folder/rows.txt" >"$folder/out" || fail "exit $?"
title="async, 4 workers (worker 0 slowed 3 x), 2 servers, staleness at most 1"
[[ $(head -1 "$folder/out") == "$title" ]] || fail "no title: $(head -1 "$folder/out")"
has -E '^step [0-9.]+ ms, [0-9.]+ steps/s in 100 steps; workers compute [0-9.]+ %' <"$folder/out" || fail "no throughput: $(sed -n 2p "$folder/out")"
has -E "^a server's link is busy [0-9.]+ %" <"$folder/out" || fail "no load of servers"
awk '/^staleness/ { getline; n = $2; getline; exit n + $2 != 400 }' "$folder/out" || fail "not all pushes: $(cat "$folder/out")"
awk 'length > 80 && !/F forward/ { exit 1 }' "$folder/out" || fail "wider than 80 columns"
[[ $(head -1 "$folder/rows.txt") == "$title" && $(sed -n 2p "$folder/rows.txt") == "the first 8 of 100 steps" ]] || fail "picture: $(head -2 "$folder/rows.txt")"
[[ $(cut -d'|' -f1 "$folder/rows.txt" | grep -c '^worker [0-3] *$') == 4 && $(grep -c '^server [01] *|.*U' "$folder/rows.txt") == 2 ]] ||
    fail "not a row each: $(cat "$folder/rows.txt")"
has "number is the version of the parameters" <"$folder/rows.txt" || fail "no legend: $(tail -1 "$folder/rows.txt")"
tested+=(--draw)
"$WEFT" $workers --update local --local-steps 3 | has -F "the first 9 of 100 steps" || fail "local: not whole rounds are drawn"
"$WEFT" $workers --update local --local-steps 3 | has "number is the step" || fail "local: no legend"
"$WEFT" $workers --update async --workers 80 | has "the picture of 81 rows is left out" || fail "80 workers: all are drawn"
if command -v gnuplot >/dev/null; then
    "$WEFT" $workers --update async --update-ms 1 --quiet --draw "$folder/rows.svg" || fail "--draw rows.svg: exit $?"
    for word in "worker 3" "server 0" "version of the parameters" "time, ms"; do
        has -F "$word" <"$folder/rows.svg" || fail "rows.svg does not show '$word'"
    done
fi

# ---- workers: bad input ----
expect 2 "--workers is missing: M" simulate --update async --forward-ms 1
expect 2 "--forward-ms is missing" simulate --update async --workers 2
expect 2 "--local-steps is missing: H" $workers --update local
expect 2 "--update: 'fast' is not one of sync|async|local" $workers --update fast
expect 2 "0 workers; there may be 1 to 256" $workers --update async --workers 0
expect 2 "1000 servers; there may be 1 to 256" $workers --update async --servers 1000
expect 2 "0 steps; there may be 1 to 250000" $workers --update async --steps 0
expect 2 "101 local steps; there may be 1 to 100" $workers --update local --local-steps 101
expect 2 "slower by 0.5; the factor is from 1 to 1000" $workers --update async --slow 0.5
expect 2 "a transfer takes -1 ms" $workers --update async --transfer-ms -1
expect 2 "an update takes -1 ms" $workers --update async --update-ms -1
expect 2 "--forward-ms: '1,2' is not a time" $workers --update async --forward-ms 1,2
expect 2 "must take some time to compute" simulate --workers 2 --update sync --forward-ms 0
expect 2 "not a whole number" $workers --update async --staleness -1
expect 2 "a picture is a file .svg, .png or .txt" $workers --update async --draw "$folder/rows.gif"
for option in "--servers 2" "--staleness 1"; do
    expect 2 "${option% *} has no effect here: it is an option of --update async" $workers --update sync $option
    expect 2 "${option% *} has no effect here: it is an option of --update async" $workers --update local --local-steps 2 $option
done
expect 2 "--local-steps has no effect here: it is an option of --update local" $workers --update async --local-steps 2
for option in "--stages 2" "--micro 2" "--schedule zb1" "--chunks 2" "--memory-limit 2" "--weight-held 1"; do
    expect 2 "${option% *} has no effect here: --update simulates workers, not a pipeline" $workers --update async $option
done
for option in "--workers 2" "--slow 2" "--update-ms 1" "--steps 2" "--draw $folder/rows.txt"; do
    expect 2 "${option%% *} has no effect here: --update is not given" $equal $option
done

# ---- none was forgotten ----
"$WEFT" simulate --help | awk 'length > 79 { exit 1 }' || fail "--help is wider than 79 columns"
expect_all_tested simulate
finish
