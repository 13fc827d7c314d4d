#!/usr/bin/env bash
# Timelines: simulated by weft plan, measured by weft train, drawn by both and by weft draw.
# label: serial
source tests/cli_helpers.bash
model="--model mlp --image 8 --data synthetic --batch 16 --micro 4 --lanes 1 --threads 1"
here=$folder/pictures
mkdir "$here"

left_over() { find "$folder" -name '.weft-*' | grep -c . >/dev/null && fail "$1 leaves its working files behind"; }
is_png() { [[ $(head -c 4 "$1" | tail -c 3) == PNG ]] || fail "$1 is no PNG"; }
is_svg() {
    { head -c 200 "$1" | grep -c '<?xml' >/dev/null && grep -q '</svg>' "$1"; } || fail "$1 is no whole SVG"
}

# ---- weft plan: text for several ranks, none for one; numbers in the report for all ----
"$WEFT" plan $model --plan pp=2,schedule=gpipe >"$folder/out" || fail "plan: exit $?"
grep -q '^simulated: .* [mu]s a step; compute .* %, bubble' "$folder/out" || fail "plan: no heading"
grep -q '^rank 0  |.*F.*B0.*B1' "$folder/out" || fail "plan: no picture: $(cat "$folder/out")"
grep -q '^rank 1  | .*F0.*B0' "$folder/out" || fail "plan: the second stage does not begin later"
"$WEFT" plan $model >"$folder/out"
grep -q '^rank 0  |' "$folder/out" && fail "plan: a picture of one rank"
report plan $model --plan pp=2 >"$folder/report"
[[ $(grep -c '"bubble_ms"' "$folder/report") == 2 ]] || fail "plan: the report has not two ranks' bubbles"
awk '/"simulated"/ { on = 1 } on && /"(compute|bubble|transfer|wait)_ms"/ { sum += $2 }
     /"step_ms"/ { step = $2 + 0 } END { exit !(step > 0 && sum / step > 1.999 && sum / step < 2.001) }' \
    "$folder/report" || fail "plan: the parts of a step do not add up: $(cat "$folder/report")"

# ---- a schedule that splits the backward pass is drawn with W ----
"$WEFT" plan $model --plan pp=2,schedule=zb1 --draw "$here/zb1.txt" >/dev/null || fail "plan --draw .txt"
grep -q 'W gradient of weights' "$here/zb1.txt" || fail "zb1.txt does not say what W is"
grep -q $'\033' "$here/zb1.txt" && fail "a file with colours of a terminal"

# ---- stages of one rank are told apart, also in a trace that is read ----
report train --model gpt2-tiny --data synthetic --batch 4 --micro 4 --threads 1 --plan pp=2,schedule=zbv --devices cpu:2 \
    --steps 2 --trace "$here/zbv.json" >"$folder/report"
"$WEFT" draw "$here/zbv.json" --draw "$here/zbv.txt" >/dev/null || fail "draw of zbv"
grep -q '; lower case: every other chunk$' "$here/zbv.txt" || fail "zbv.txt does not say what lower case is"
grep -qE '^rank [01]  \|.*[fbw]' "$here/zbv.txt" || fail "zbv: chunks are not told apart: $(cat "$here/zbv.txt")"
sed 's/"chunk":1}/"chunk":-1}/' "$here/zbv.json" >"$here/bad.json"
expect 1 'has chunk -1, which is not from 0 to' draw "$here/bad.json"

# ---- train --trace, weft draw ----
report train $model --plan pp=2 --devices cpu:2 --steps 3 --trace "$here/trace.json" >"$folder/report"
grep -q '"timeline": {' "$folder/report" || fail "train --trace: no timeline in the report"
for words in '"name":"rank 0"' '"name":"rank 1 simulated"' '"thread_name"' '"ph":"X"' '"kind":"forward"'; do
    tr -d ' ' <"$here/trace.json" | grep -c "${words// /}" >/dev/null || fail "the trace has no $words"
done
report train $model --plan pp=2 --ranks 2 --steps 3 --trace "$here/processes.json" >"$folder/report"
grep -q '"timeline": {' "$folder/report" || fail "train --trace of processes: no timeline in the report"
n_events() { tr -d ' ' <"$1" | grep -o '"ph":"X"' | wc -l; }
[[ $(n_events "$here/processes.json") == $(n_events "$here/trace.json") && $(n_events "$here/trace.json") -gt 10 ]] ||
    fail "processes are traced as $(n_events "$here/processes.json") events, threads as $(n_events "$here/trace.json")"
# Arrows from sends to receives of other processes: each id begins and ends once.
arrows() { tr -d ' ' <"$1" | grep -oE '"ph":"[sf]".*"id":[0-9]+' | sed 's/.*"ph":"\(.\)".*"id":/\1 /' | sort; }
[[ $(arrows "$here/processes.json") == "$(arrows "$here/trace.json")" && $(arrows "$here/trace.json" | wc -l) -gt 6 ]] ||
    fail "processes have the arrows $(arrows "$here/processes.json"), threads $(arrows "$here/trace.json")"
[[ -z $(arrows "$here/processes.json" | uniq -d) && $(arrows "$here/processes.json" | sed 's/..//' | sort | uniq -u) == "" ]] ||
    fail "an arrow has not one begin and one end: $(arrows "$here/processes.json")"
grep -q '"bytes_over_time": {' "$folder/report" || fail "train --trace: no bytes over time in the report"
report train $model --steps 1 --trace "$here/one.json" >/dev/null
report bench train $model --repeat 1 --trace "$here/bench.json" >"$folder/report"
grep -q '"timeline": {' "$folder/report" || fail "bench train --trace: no timeline in the report"
"$WEFT" draw "$here/trace.json" >"$folder/out" || fail "draw: exit $?"
[[ $(grep -c '^rank . *|' "$folder/out") == 4 ]] || fail "draw: not two ranks, measured and simulated"
report draw --trace "$here/trace.json" | grep -c '"measured": {' >/dev/null || fail "draw: no measured times in the report"
"$WEFT" draw "$here/one.json" --draw "$here/one.txt" >/dev/null || fail "draw of a single step"
grep -q '^simulated' "$here/one.txt" && fail "one step cannot tell what units take"

# Many short boxes, the longest far shorter than a column: each row shows some.
"$WEFT" plan --model gpt --layers 3 --hidden 32 --heads 4 --vocab 40 --tokens 8 --batch 256 --micro 256 --plan pp=3 --draw "$here/short.txt" --quiet || fail "plan --draw of short boxes"
awk '/^rank/ { n = gsub(/[FBU=+-]/, ""); if (n < 20) exit 1; rows++ } END { exit rows != 3 }' "$here/short.txt" || fail "short boxes: $(cat "$here/short.txt")"

# ---- pictures ----
if command -v gnuplot >/dev/null; then
    "$WEFT" draw "$here/trace.json" --draw "$here/a.svg" --quiet || fail "draw .svg"
    "$WEFT" plan $model --plan pp=2 --draw "$here/b.png" --quiet || fail "plan --draw .png"
    is_svg "$here/a.svg"
    is_png "$here/b.png"
    grep -q 'memory of rank' "$here/a.svg" || fail "a.svg has no panel of memory"
    for words in measured simulated 'time in the step, ms' 'stage 1' forward '#E69F00\|230, 159,   0'; do
        grep -qi "$words" "$here/a.svg" || fail "a.svg has no $words"
    done
    # Replicas that do the same are one row, which says what they are.
    "$WEFT" plan $model --lanes 2 --plan dp=2,pp=2 --draw "$here/roles.svg" --quiet || fail "plan --draw of replicas"
    for words in 'replicas 0-1, stage 0' 'replicas 0-1, stage 1' 'memory of rank [01] (replica 0, stage [01])' 'microbatch of the first rank'; do
        grep -q "$words" "$here/roles.svg" || fail "roles.svg has no '$words'"
    done
    "$WEFT" draw "$here/zbv.json" --draw "$here/zbv.svg" --quiet || fail "draw of zbv as a picture"
    for words in 'pp rank 1' 'paler: later stages of a rank'; do
        grep -q "$words" "$here/zbv.svg" || fail "zbv.svg has no '$words'"
    done
    for words in 'some run' dp=3,pp=2; do
        sed "s/, dp=[^\"]*\"/, $words\"/" "$here/trace.json" >"$here/untitled.json"
        "$WEFT" draw "$here/untitled.json" --draw "$here/untitled.svg" --quiet || fail "draw with '$words' in the title"
        grep -q '>rank 1<' "$here/untitled.svg" || fail "with '$words' in the title ranks have no numbers"
    done
    # The host's memory is not the device's, in the picture and in the report.
    report plan $model --optimizer adamw --plan offload=state --draw "$here/host.svg" >"$folder/report"
    grep -q 'host memory of rank 0: at most' "$here/host.svg" || fail "host.svg has no panel of the host"
    read -r -d '' device drawn <<<"$(field peak_bytes <"$folder/report" | tr '\n' ' ')"
    ((drawn <= device)) || fail "the device has at most $device bytes, the picture $drawn"
    # The curve says why the loss of training is above that of tests.
    mkdir "$folder/fake"
    printf '#!/bin/bash\ncat >>"%s"\n' "$here/script" >"$folder/fake/gnuplot"
    chmod +x "$folder/fake/gnuplot"
    for smoothing in 0 0.1; do
        PATH=$folder/fake:$PATH "$WEFT" train $model --steps 3 --label-smoothing $smoothing --out "$here/run$smoothing" --quiet || fail "train --out: exit $?"
    done
    [[ $(grep -c "title 'training (with label smoothing)'" "$here/script") == 1 ]] || fail "the curve's legend: $(tail -c 900 "$here/script")"
    touch "$here/old.svg" && "$WEFT" draw "$here/trace.json" --draw "$here/old.svg" --quiet
    is_svg "$here/old.svg"
    expect 1 "cannot be written: No such file" draw "$here/trace.json" --draw "$folder/nowhere/a.png"
fi
mkdir "$folder/bin"
for tool in bash; do ln -s "$(command -v $tool)" "$folder/bin"; done
PATH=$folder/bin "$WEFT" draw "$here/trace.json" --draw "$here/c.png" --quiet 2>"$folder/said"
[[ $? == 1 ]] || fail "without gnuplot: not exit 1"
grep -q 'needs gnuplot, which is not installed' "$folder/said" || fail "without gnuplot: $(cat "$folder/said")"
[[ -e $here/c.png ]] && fail "without gnuplot: half a picture"
PATH=$folder/bin "$WEFT" draw "$here/trace.json" --draw "$here/c.txt" --quiet || fail "text wants gnuplot"
left_over "drawing"

# ---- bad input ----
expect 2 "a picture is a file .svg, .png or .txt" draw "$here/trace.json" --draw "$here/a.gif"
expect 2 "a picture is a file .svg, .png or .txt" plan $model --draw svg
expect 2 "which trace?" draw --draw "$here/a.svg"
expect 2 "is not an option" draw "$here/trace.json" "$here/one.json"
expect 2 "weft eval has no option --trace" eval --model mlp --trace "$here/x.json"
expect 1 "nothing.json cannot be opened" draw "$here/nothing.json"
head -c 3000 "$here/trace.json" >"$here/half.json"
expect 1 "half.json: line" draw "$here/half.json"
sed 's/"kind":"forward"/"kind":"sideways"/' "$here/trace.json" >"$here/kind.json"
expect 1 "is of an unknown kind" draw "$here/kind.json" --draw "$here/kind.txt"
[[ -e $here/kind.txt ]] && fail "a picture of a corrupt trace"
sed '0,/"parameters":/s//"parameters":-/' "$here/trace.json" >"$here/bytes.json"
expect 1 "has parameters -" draw "$here/bytes.json"
echo '{"traceEvents": []}' >"$here/chrome.json"
expect 1 "weft did not write this trace" draw "$here/chrome.json"
expect 1 "cannot be written: No such file" train $model --steps 2 --trace "$folder/nowhere/t.json"
expect 1 "is not a regular file" train $model --steps 2 --trace "$here/."
left_over "bad input"
finish
