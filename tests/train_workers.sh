#!/usr/bin/env bash
# The program with --update async and local: each option changes the run, threads and processes have
# the same bits, a killed rank ends the job, and a signal stops after a whole step.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
base="train --model mlp --image 8 --data synthetic --threads 1 --batch 8 --micro 4 --lanes 4 --steps 4 --seed 2"
async="$base --update async"
# list NAME: the numbers of a list in the report on standard input, in one line.
list() { tr -d '\n' | sed -n "s/.*\"$1\": \[\([^]]*\)\].*/\1/p" | tr -d ' '; }

# ---- Ctrl-\ stops one process as SIGTERM does ----
(
    set -m # else it would be ignored in what runs in the background
    "$WEFT" $base --steps 100000000 --out "$folder/quit" --save-every 1 --quiet 2>"$folder/said" &
    run=$! got=0
    until_true_of $run test -e "$folder/quit/model.safetensors"
    kill -QUIT $run
    wait $run || got=$?
    [[ $got == 131 ]] && grep -q "interrupted after step" "$folder/said" || fail "SIGQUIT: exit $got: $(cat "$folder/said")"
)

# ---- staleness 0 is synchronous; each option of its own changes the bits ----
sync=$(sha $base)
[[ $(sha $async --staleness 0 --plan dp=4) == "$sync" ]] || fail "--staleness 0: other bits than --update sync"
[[ $(sha $async --staleness 0 --workers 2 --plan dp=2,ps=2 --ranks 4) == "$sync" ]] || fail "--staleness 0 as processes: other bits"
report $async --workers 4 --staleness 0 --backup 1 --record "$folder/backup" >"$folder/one"
[[ $(field weights_sha256 <"$folder/one") != "$sync" ]] || fail "--backup 1: the bits of --update sync"
[[ $(list staleness <"$folder/one") == 12 ]] || fail "--backup 1: not 12 gradients: $(list staleness <"$folder/one")"
[[ $(sha $async --staleness 0 --backup 1 --replay "$folder/backup" --plan dp=2 --ranks 2) == "$(field weights_sha256 <"$folder/one")" ]] ||
    fail "--backup 1: replayed with other bits"

# One rank computes for its workers in turn, so the order is always the same.
report $async --workers 4 >"$folder/turns"
turns=$(field weights_sha256 <"$folder/turns")
[[ $turns != "$sync" ]] || fail "--update async: the bits of --update sync"
[[ $(list staleness <"$folder/turns" | tr , '\n' | paste -sd+ | bc) == 16 ]] || fail "--update async: $(list staleness <"$folder/turns") gradients"
[[ $(sha $async --workers 2) != "$turns" ]] || fail "--workers changes nothing"
report $async --workers 4 --staleness 1 --plan dp=4 --record "$folder/bound" >"$folder/one"
[[ $(list staleness <"$folder/one") =~ ^[0-9]+,[0-9]+$ ]] || fail "--staleness 1: $(list staleness <"$folder/one")"
bytes=$(stat -c %s "$folder/bound")
((bytes <= 16 * 40 + 200)) || fail "a record of 16 pushes takes $bytes bytes"
expect 2 "was recorded with staleness 1; this run has staleness 2" $async --staleness 2 --replay "$folder/bound"
expect 2 "was recorded with another model, other data or another recipe" $async --staleness 1 --replay "$folder/bound" --lr 0.2
expect 2 "was recorded with 4 workers; this run has 2" $async --staleness 1 --replay "$folder/bound" --workers 2
expect 2 "ends after step 4" $async --staleness 1 --replay "$folder/bound" --steps 5

# ---- a run of processes, replayed by one rank, by threads and by processes ----
report $async --workers 3 --batch 6 --micro 3 --lanes 3 --plan dp=3,ps=2 --ranks 5 --record "$folder/record" >"$folder/one"
for plan in "" "--plan dp=2,ps=1@workers" "--plan dp=3,ps=1 --ranks 4"; do
    report $async --batch 6 --micro 3 --lanes 3 --replay "$folder/record" $plan >"$folder/two"
    for name in losses staleness; do
        [[ $(list $name <"$folder/one") == "$(list $name <"$folder/two")" ]] || fail "replay $plan: other $name"
    done
    [[ $(field weights_sha256 <"$folder/one") == "$(field weights_sha256 <"$folder/two")" ]] || fail "replay $plan: other bits"
done
[[ $(sed -n '/"peak_bytes"/,/}/p' "$folder/one" | list planned) == "$(sed -n '/"peak_bytes"/,/}/p' "$folder/one" | list measured)" ]] ||
    fail "processes: the planned peak is not the measured one"

# ---- local steps ----
local="$base --update local --workers 4 --local-steps 2"
report $local --plan dp=4 --ranks 4 >"$folder/one"
averaged=$(field weights_sha256 <"$folder/one")
[[ $averaged != "$sync" ]] || fail "--update local: the bits of --update sync"
[[ $(sha $local) == "$averaged" && $(sha $local --plan dp=2) == "$averaged" ]] ||
    fail "--update local: ranks change the bits"
for option in "--workers 2" "--outer-lr 0.5" "--outer-momentum 0.5"; do
    [[ $(sha $local $option) != "$averaged" ]] || fail "$option changes nothing"
done
# An average in two steps sends half as much as one in each.
report $local --local-steps 1 --plan dp=4 --ranks 4 >"$folder/two"
[[ $(field weights_sha256 <"$folder/two") != "$averaged" ]] || fail "--local-steps changes nothing"
often=$(list sent_bytes <"$folder/two" | cut -d, -f2) rarely=$(list sent_bytes <"$folder/one" | cut -d, -f2)
((rarely * 10 < often * 7)) || fail "--local-steps 2 sends $rarely bytes a step, --local-steps 1 $often"

# ---- options that have no effect ----
expect 2 "it is an option of --update async" $base --staleness 1
expect 2 "it is an option of --update async" $local --record "$folder/record"
expect 2 "it is an option of --update local" $async --outer-lr 0.5
expect 2 "it is an option of --update async" $base --replay "$folder/record"
expect 2 "--proof has no effect here: workers" plan --model mlp --data synthetic --update async --proof full
expect 2 "--workers M" $base --update local
expect 2 "parameter servers need update=async" $base --plan dp=2,ps=1
expect 2 "each worker has all parameters on one rank" $async --plan pp=2

# ---- a replay needs the same data; tests between steps are of whole steps ----
seq 1 4000 >"$folder/one.txt"
seq 1001 5000 >"$folder/two.txt"
text="train --model gpt2-tiny --data-format bytes --tokens 16 --batch 4 --lanes 4 --threads 1 --steps 4 --update async --workers 2"
report $text --data "$folder/one.txt" --record "$folder/text" --test-every 3 >"$folder/one"
[[ $(field last_step <"$folder/one") == 3 ]] || fail "--test-every 3: $(sed -n '/"tests"/,/]/p' "$folder/one")"
mv "$folder/two.txt" "$folder/one.txt"
expect 2 "was recorded with another model, other data or another recipe" $text --data "$folder/one.txt" --replay "$folder/text"

# ---- timelines: threads and processes, servers on ranks of their own and on workers' ranks ----
# Each rank computes, each server updates, and the picture of the file names both.
for case in "$async --workers 2 --staleness 0|dp=2,ps=1|async" "$async --workers 2 --staleness 0|dp=2,ps=2@workers --ranks 2|async" "$local|dp=2|local"; do
    IFS='|' read -r run plan kind <<<"$case"
    report $run --plan $plan --trace "$folder/trace.json" >"$folder/one"
    [[ $kind == local ]] || [[ $(field weights_sha256 <"$folder/one") == "$sync" ]] || fail "--trace, $plan: other bits"
    [[ $(grep -c '"compute_ms": [0-9.]*[1-9]' "$folder/one") == $(grep -c compute_ms "$folder/one") ]] || fail "--trace, $plan: a rank without spans"
    "$WEFT" draw "$folder/trace.json" >"$folder/drawn"
    for row in "rank 0 .*B" "rank 1 .*B" $([[ $kind == local ]] || echo server.0.*U) "forward and backward" "$kind workers"; do
        grep -q "$row" "$folder/drawn" || fail "weft draw, $plan: no row $row: $(cat "$folder/drawn")"
    done
done

# ---- signals and deaths ----
run=${base/--steps 4/} # of train, three ranks
for case in 1:0 2:1; do # workers of ranks 0 and 1, and the server of rank 2
    rank=${case%:*} kind="--update async --workers 2 --staleness ${case#*:} --plan dp=2,ps=1"
    # shellcheck disable=SC2086
    train $kind --steps 100000000 --save-every 20
    kill -INT "$(pid_of $rank)"
    finishes 130 "SIGINT, $kind"
    step=$(sed -n 's/^weft: interrupted after step \([0-9]*\); the last checkpoint is .*, of step \1:.*/\1/p' "$folder/said")
    [[ $step && $(grep -c '"loss"' "$folder/run/log.jsonl") == "$step" ]] || fail "SIGINT, $kind: $(cat "$folder/said")"
done
for rank in 1 2; do
    train --update async --workers 2 --plan dp=2,ps=1 --steps 100000000 --save-every 20
    victim=$(pid_of $rank)
    kill -KILL "$victim"
    finishes 4 "rank $rank is killed"
    says "rank $rank \(process $victim\) was killed by signal 9" || fail "rank $rank is killed: $(cat "$folder/said")"
    says 'never freed' && fail "rank $rank is killed: $(cat "$folder/said")"
done
finish
