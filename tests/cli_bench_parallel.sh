#!/usr/bin/env bash
# weft bench model-parallel: rows, report, pictures and bad input. How long anything takes is not
# looked at. Every option that its help names is tried below.
# label: once long
# WEFT_TEST_FULL=1: all rows; otherwise those of --quick.
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }
quick=--quick splits="2 4 " repeat=2
is_full && quick='' splits="1 2 4 " repeat=1
bench=(bench model-parallel)
small=("${bench[@]}" --model resnet18 --image 64 --batch 4 --repeat 1)
values() { field "$1" <"$folder/report.json" | sort -u | tr '\n' ' '; }

# ---- one run ----
# shellcheck disable=SC2086 # a word, or none
"$WEFT" "${small[@]}" $quick --repeat "$repeat" --out "$folder/run/here" --json "$folder/report.json" >"$folder/said" 2>"$folder/progress" ||
    fail "exit $?: $(tail -1 "$folder/progress")"
for file in results.json mp_vs_rn.csv mp_vs_rn_vs_pp.csv split_size_tradeoff.csv; do
    [[ -s $folder/run/here/$file ]] || fail "--out: no $file"
done
[[ ! $(sed 's/.*",//' "$folder/run/here/mp_vs_rn_vs_pp.csv" | uniq -d) ]] || fail "--out: two bars are the same: $(cat "$folder/run/here/mp_vs_rn_vs_pp.csv")"
ls -A "$folder/run/here" | grep -c part >/dev/null && fail "--out: half a file is left"
if command -v gnuplot >/dev/null; then
    for picture in mp_vs_rn mp_vs_rn_vs_pp split_size_tradeoff; do
        head -c 4 "$folder/run/here/$picture.png" 2>/dev/null | grep -c PNG >/dev/null || fail "no $picture.png"
    done
fi
diff <(cat "$folder/run/here/results.json") "$folder/report.json" >/dev/null || fail "--json differs from results.json"
[[ $(values name) == "model parallel pipeline single device " ]] || fail "the rows are called $(values name)"
[[ $(values schedule) == "1f1b auto breadth gpipe interleaved naive none vhalf vmin zb1 zb2 zbv " ]] || fail "the schedules are $(values schedule)"
[[ $(values split) == "$splits" ]] || fail "the splits are $(values split)"
[[ $(field cpu_seconds <"$folder/report.json" | grep -c '[1-9]') == $(($(field seconds_mean <"$folder/report.json" | grep -c .) + 1)) ]] ||
    fail "a row has no CPU time, or all together have none"
[[ $(field processor <"$folder/report.json") ]] || fail "no processor"
[[ $(field image <"$folder/report.json") == 64 ]] || fail "--image is not in the report"
[[ $(field batch <"$folder/report.json") == 4 ]] || fail "--batch is not in the report"
[[ $(field model <"$folder/report.json") == resnet18 ]] || fail "--model is not in the report"
[[ $(field lr <"$folder/report.json") == 0.001 ]] || fail "the learning rate is not the tutorial's"

# A batch that has several lanes by default still has rows of one microbatch.
timeout -s INT 3 "$WEFT" "${bench[@]}" --model resnet18 --image 64 --batch 64 --out "$folder/lanes" >/dev/null 2>"$folder/refused"
status=$? # 124: it was still measuring
((status == 124 || status == 0)) || fail "--batch 64: $(tail -1 "$folder/refused")"

# Each row has each field, each time is a positive number, and no peak but the planned one.
rows=$(field seconds_mean <"$folder/report.json" | grep -c .)
for name in split seconds_mean seconds_std speedup predicted_seconds images_per_second micro second_stage; do
    [[ $(sed '/^ "loss"/,$d' "$folder/report.json" | field "$name" | wc -l) == "$rows" ]] || fail "not every row has $name"
done
[[ $(grep -c '^   "plan": "dp=1,pp=[12],schedule=' "$folder/report.json") == "$rows" ]] || fail "not every row has its plan"
[[ $(grep -c '"rank_times"' "$folder/report.json") == "$rows" ]] || fail "not every row has rank_times"
{ field seconds_mean; } <"$folder/report.json" | awk '!($1 > 0) { exit 1 }' || fail "a time is not positive"
awk '/"planned"/ { list = 1; a = b = "" } /"measured"/ { list = 2 }
     /^ *[0-9]+,?$/ { gsub(/[ ,]/, ""); if (list == 1) a = a " " $0; if (list == 2) b = b " " $0 }
     /^   }/ && list == 2 { if (a != b) exit 1; list = 0 }' "$folder/report.json" || fail "a measured peak is not the planned one"

# One split, one loss, whatever the plan; and another one with another seed.
losses() { sed '/^ "loss"/,$d' "$1" | awk '/"split":/ { images = $2 } /"loss": [0-9]/ { print images, $2 }' | sort -u; }
[[ $(losses "$folder/report.json" | wc -l) == $(wc -w <<<"$splits") ]] || fail "plans change the loss: $(losses "$folder/report.json")"

# The account adds up to what was measured.
sed -n '/^ "loss"/,$p' "$folder/report.json" | tr -d '",' | awk '
    $1 == "seconds:" { seconds = $2 } $1 == "ideal_seconds:" { sum += $2 }
    /bubble|imbalance|small_micro|shared_mem|transfer|waiting|single_idle/ { sum += $2; n++ }
    END { d = sum - seconds; exit !(n == 7 && d * d < 1e-12) }' || fail "the account of the loss does not add up"
grep -q '^single device' "$folder/said" || fail "no table"
grep -q 'bubble: the pipeline' "$folder/said" || fail "no account of the loss"
[[ $(awk '/"seconds": \[/ { list = 1; n = 0 } list && /^ *[0-9]/ { n++ } list && /\]/ { print n; list = 0 }' "$folder/report.json" | sort -u) == "$repeat" ]] ||
    fail "--repeat $repeat: a row has another number of times"
tested=(--model --image --batch --out --json --seed --repeat --quick --quiet)

# ---- --seed, --repeat, --quick, --quiet, --config ----
if is_full; then
    "$WEFT" "${small[@]}" --seed 1 --repeat 2 --quick --quiet --out "$folder/other" --json "$folder/other.json" >"$folder/said" 2>&1 ||
        fail "--quick: exit $?"
    [[ ! -s $folder/said ]] || fail "--quiet: says $(head -1 "$folder/said")"
    [[ $(losses "$folder/report.json") != $(losses "$folder/other.json") ]] || fail "--seed: the same losses"
    [[ $(sed -n '/"seconds": \[/,/\]/p' "$folder/other.json" | grep -c '[0-9]') == $((2 * $(field seconds_mean <"$folder/other.json" | wc -l))) ]] ||
        fail "--repeat 2: a row has not two times"
    (($(field seconds_mean <"$folder/other.json" | wc -l) < rows)) || fail "--quick: not fewer rows"
fi

# ---- --devices: of two GPUs, if the driver is there; else what is missing ----
if [[ $(ldconfig -p) != *libcuda.so.1* ]]; then
    expect 2 "there is no libcuda.so.1 on this machine" "${small[@]}" --devices cuda:2 --out "$folder/gpus"
fi
for devices in cpu:1 opencl:3 cpu:0,opencl:0; do
    expect 2 "--devices $devices: the experiment has two devices of one kind" "${small[@]}" --devices $devices
done
tested+=(--devices)

# ---- bad input ----
expect 2 "which resnets have" "${bench[@]}" --model gpt2-tiny
expect 2 "did you mean resnet18? There are mlp, resnet18" "${bench[@]}" --model resnet19
expect 2 "can be split" "${bench[@]}" --batch 1
expect 2 "--repeat must be" "${bench[@]}" --repeat 0
expect 2 "has no option --plan" "${bench[@]}" --plan pp=2
expect 1 "cannot be made" "${small[@]}" --out /dev/null/run
expect 1 "cannot be written" "${small[@]}" --json "$folder/none/r.json"
expect 2 "bench model-parallel" bench
expect 2 "larger microbatch" "${small[@]}" --image 32 --out "$folder/tiny"

# ---- what is missing at the end is noticed before anything is measured ----
PATH=/nowhere "$WEFT" "${small[@]}" --out "$folder/none" >"$folder/out" 2>"$folder/refused" && fail "rows without Python"
has "there is no python3 in PATH, which makes the table" <"$folder/refused" || fail "no Python: $(cat "$folder/refused")"
[[ ! -s $folder/out ]] || fail "no Python: measures: $(cat "$folder/out")"
touch "$folder/file"
expect 1 "--out: $folder/file is not a folder" "${small[@]}" --out "$folder/file"
[[ ! -s $folder/out ]] || fail "--out: measures: $(cat "$folder/out")"

# ---- interrupted: at once, also where it waits; no results and no folder ----
mkdir "$folder/tmp"
mkfifo "$folder/full"
exec 3<>"$folder/full"
head -c 65536 /dev/zero >&3
TMPDIR=$folder/tmp "$WEFT" "${small[@]}" --out "$folder/waits" >&3 2>"$folder/refused" &
pid=$!
# Before it becomes weft, the process is a shell, which catches the signal for itself.
catches_interrupt() { [[ $(sed -n 's/^Name:[[:space:]]*//p' /proc/$pid/status) == weft ]] && ((16#0$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$pid/status) & 1 << 14)); } # SIGTERM
until_true_of $pid catches_interrupt || fail "it does not begin"
kill -TERM $pid
until_true is_gone $pid || { fail "SIGTERM does not end it"; kill -KILL $pid; }
wait $pid
[[ $? == 143 ]] || fail "SIGTERM: another exit status"
[[ $(cat "$folder/refused") == "weft: interrupted; no results have been written" ]] || fail "SIGTERM: $(cat "$folder/refused")"
rmdir "$folder/tmp" || fail "SIGTERM leaves a folder behind"
exec 3>&-

"$WEFT" "${bench[@]}" --model resnet18 --batch 4 --image 64 --repeat 1000 --out "$folder/cut" --json "$folder/cut.json" >/dev/null 2>"$folder/said" &
pid=$!
until_true_of $pid catches_interrupt || fail "it does not begin"
kill -INT $pid
wait $pid
[[ $? == 130 ]] || fail "interrupted: another exit status"
grep -q "no results have been written" "$folder/said" || fail "interrupted, but says: $(tail -1 "$folder/said")"
[[ ! -e $folder/cut/results.json && ! -e $folder/cut.json ]] || fail "interrupted: results were written"

# ---- none was forgotten ----
"$WEFT" "${bench[@]}" --help | awk 'length > 79 { exit 1 }' || fail "--help is wider than 79 columns"
expect_all_tested "${bench[@]}"
finish
