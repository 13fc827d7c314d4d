#!/usr/bin/env bash
# weft bench async: rows, fields, pictures, predictions, each option.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

async() { report_of "$1" bench async "${@:2}"; } # NAME OPTIONS...
# list NAME FIELD: its values in all rows.
list() { sed -n '/"rows": \[/,$s/^ *"'"$2"'": "\{0,1\}\([^"]*[^",]\)"\{0,1\},\{0,1\}$/\1/p' "$folder/$1.json"; }
rows() { paste -d' ' <(list "$1" name) <(list "$1" slow) | paste -sd ';'; }
# row NAME N FIELD: of the N-th row, from 1.
row() { found "$1" '"rows":.*' | sed 's/{"update"/\n&/g' | sed -n "$(($2 + 1))p" | grep -oE "\"$3\":(\[[^]]*\]|[^,}]*)" | sed 's/^[^:]*://'; }
mlp=(--model mlp --image 6 --batch 8 --workers 2)
tested=(--json --model --image --batch --workers)

# ---- rows, their fields, the table and the pictures ----
outer=(--outer-lr 0.1 --outer-momentum 0.2)
async plain "${mlp[@]}" --steps 10 --repeat 1 --local-steps 2 "${outer[@]}" --slow 7 --out "$folder/pictures"
updates="async, staleness 4, 1 server F;async, no bound, 1 server F;async, no bound, 2 servers F;local, 2 steps F"
[[ $(rows plain) == "sync 1.0;${updates//F/1.0};sync 7.0;sync, uneven lanes 7.0;${updates//F/7.0}" ]] || fail "rows: $(rows plain)"
[[ $(list plain update | paste -sd ' ') == "sync async async async local sync sync async async async local" ]] || fail "updates: $(list plain update)"
plans=$(list plain plan | paste -sd ' ')
[[ $plans == "dp=2 dp=2,ps=1 dp=2,ps=1 dp=2,ps=2 dp=2 dp=2 dp=2,lanes=1+7 dp=2,ps=1 dp=2,ps=1 dp=2,ps=2 dp=2" ]] || fail "plans: $plans"
for name in samples_per_second predicted loss; do
    [[ $(list plain "$name" | grep -c '[1-9]') == 11 ]] || fail "a row has no $name: $(list plain "$name")"
done
[[ $(count plain '"losses":\[([0-9.e+-]+,){9}[0-9.e+-]+\]') == 11 ]] || fail "a row does not have 10 losses"
[[ $(row plain 1 losses) == "$(row plain 6 losses)" && $(row plain 1 losses) == "$(row plain 7 losses)" ]] || fail "a slow worker or uneven lanes change the losses of sync"
[[ $(row plain 5 losses) == "$(row plain 11 losses)" ]] || fail "a slow worker changes the losses of local"
[[ $(row plain 1 staleness) == "[20]" && $(row plain 5 staleness) == "[]" ]] || fail "staleness of sync and local: $(row plain 1 staleness) $(row plain 5 staleness)"
for k in 2 3 4 8 9 10; do
    [[ $(row plain "$k" staleness | tr -d '[]' | tr ',' '\n' | awk '{ n += $1 } END { print n }') == 20 ]] || fail "row $k does not have 20 gradients: $(row plain "$k" staleness)"
    [[ $(row plain "$k" server_busy_predicted) == [01].[0-9]* ]] || fail "row $k: no load of the server"
done
for k in 2 8; do
    [[ $(row plain "$k" staleness | tr -dc , | wc -c) -le 4 ]] || fail "the bound does not hold: $(row plain "$k" staleness)"
done
[[ $(row plain 1 seconds_to_loss) != null ]] || fail "sync does not reach its own loss"
[[ $(grep -cE '^(sync|async|local).* [0-9.]+ +[0-9.]+ +[0-9.]+' "$folder/plain.out") == 11 ]] || fail "no table: $(cat "$folder/plain.out")"
[[ $(wc -l <"$folder/pictures/async.csv") == 12 && $(wc -l <"$folder/pictures/async_loss.csv") == 111 ]] || fail "--out: no numbers"
[[ $(cut -d, -f1 "$folder/pictures/async_staleness.csv" | sort -u | grep -c '[0-9]') == 6 ]] || fail "--out: no histograms"
if command -v gnuplot >/dev/null; then
    for name in async async_loss async_staleness; do [[ -s $folder/pictures/$name.png ]] || fail "--out: no $name.png"; done
fi
tested+=(--out --steps --slow)

# ---- sync and local have the losses of weft train ----
losses() { # OPTIONS...
    report train --model mlp --data synthetic --image 6 --batch 8 --lanes 8 --threads 1 --steps 10 "$@" | tr -d ' \n' | grep -oE '"losses":\[[^]]*\]' | sed 's/^[^:]*://'
}
[[ $(losses) == "$(row plain 1 losses)" ]] || fail "sync has other losses than weft train"
local=(--update local --workers 2)
[[ $(losses "${local[@]}" --local-steps 2 "${outer[@]}") == "$(row plain 5 losses)" ]] || fail "local has other losses than weft train"
[[ $(losses "${local[@]}" "${outer[@]}") != "$(row plain 5 losses)" ]] || fail "--local-steps changes nothing"
[[ $(losses "${local[@]}" --local-steps 2 "${outer[@]:0:2}") != "$(row plain 5 losses)" ]] || fail "--outer-momentum changes nothing"
[[ $(losses "${local[@]}" --local-steps 2 "${outer[@]:2}") != "$(row plain 5 losses)" ]] || fail "--outer-lr changes nothing"
tested+=(--local-steps --outer-lr --outer-momentum)

# ---- the prediction is that of weft simulate ----
costs=$(found plain '"one_worker":\{"compute_ms":[0-9.e-]+,"transfer_ms":[0-9.e-]+,"update_ms":[0-9.e-]+\}')
read -r compute transfer update <<<"$(grep -oE ':[0-9.e-]+' <<<"$costs" | tr -d : | paste -sd ' ')"
simulated() { # ROW OPTIONS...
    local rate
    rate=$(report simulate --workers 2 --steps 10 --forward-ms "$compute" --transfer-ms "$transfer" --update-ms "$update" "${@:2}" | field steps_per_second)
    awk -v a="$(row plain "$1" predicted)" -v b="$rate" 'BEGIN { d = a / (8 * b) - 1; exit !(d * d < 1e-12) }' || fail "row $1: $(row plain "$1" predicted) predicted, weft simulate has 8 x $rate"
}
if (($(field cores <"$folder/plain.json") >= 4)); then # otherwise servers share the workers' cores
    simulated 8 --update async --staleness 4 --slow 7
    simulated 10 --update async --servers 2 --slow 7
fi
if (($(field cores <"$folder/plain.json") >= 2)); then
    simulated 1 --update sync
    simulated 6 --update sync --slow 7
    simulated 11 --update local --local-steps 2 --slow 7
fi

# ---- options that choose rows ----
async chosen "${mlp[@]}" --steps 3 --repeat 1 --slow 1 --servers 3 --staleness 2 --target-loss 1e9
[[ $(rows chosen) == "sync 1.0;async, staleness 2, 1 server 1.0;async, no bound, 1 server 1.0;async, no bound, 2 servers 1.0;async, no bound, 3 servers 1.0;local, 30 steps 1.0" ]] || fail "--slow 1, --servers 3, --staleness 2: $(rows chosen)"
[[ $(field target_loss <"$folder/chosen.json") == 1000000000.0 && $(list chosen seconds_to_loss | grep -c '[1-9]') == 6 ]] || fail "--target-loss is not used"
tested+=(--servers --staleness --target-loss)

# ---- each option reaches the runs; the report alone; no folder is left behind ----
few=(--workers 2 --slow 1 --servers 1)
images "$folder/images"
mkdir "$folder/tmp"
TMPDIR=$folder/tmp "$WEFT" bench async --model mlp --data "$folder/images" --batch 8 "${few[@]}" --steps 2 --repeat 2 --lanes 2 --momentum 0.5 --conv direct --quiet --json - >"$folder/images.json" 2>"$folder/said"
[[ ! -s $folder/said && $(head -1 "$folder/images.json") == "{" ]] || fail "--quiet --json -: $(cat "$folder/said" "$folder/images.json")"
rmdir "$folder/tmp" || fail "a folder is left behind"
[[ $(list images test_accuracy | grep -c '^[01]\.') == 4 ]] || fail "--data: no accuracy"
[[ $(count images '"runs":\[[0-9.e+]+,[0-9.e+]+\]') == 4 ]] || fail "--repeat 2: a row does not have two runs"
for name in "lanes 2" "momentum 0.5" "conv direct"; do has_field images "${name% *}" "${name#* }"; done
tested+=(--data --repeat --lanes --momentum --conv --quiet)
given=(--layers 1 --hidden 16 --heads 2 --vocab 64 --tokens 9 --batch 4 --seed 5 --threads 2 --optimizer adam --lr 0.5)
async gpt --model gpt "${given[@]}" "${few[@]}" --steps 2 --repeat 1
for ((i = 0; i < ${#given[@]}; i += 2)); do
    has_field gpt "${given[i]#--}" "${given[i + 1]}"
    tested+=("${given[i]}")
done

# ---- bad input ----
expect 2 "--model is missing" bench async
expect 2 "--workers 1: there can be 2 to" bench async --model mlp --workers 1
expect 2 "--batch 9 cannot be divided among 2 workers" bench async "${mlp[@]}" --batch 9
expect 2 "--lanes 3 cannot be divided among 2 workers" bench async "${mlp[@]}" --lanes 3
expect 2 "--servers 0: there can be 1 to" bench async "${mlp[@]}" --servers 0
expect 2 "--slow must be 1 to" bench async "${mlp[@]}" --slow 0.5
expect 2 "--steps must be at least 2" bench async "${mlp[@]}" --steps 1
expect 2 "--repeat must be" bench async "${mlp[@]}" --repeat 0
expect 2 "has no option --update" bench async "${mlp[@]}" --update async
expect 2 "start it once" run -n 2 -- "$WEFT" bench async "${mlp[@]}"
expect 1 "cannot be written" bench async "${mlp[@]}" --json "$folder/none/r.json"
expect 1 "cannot be made" bench async "${mlp[@]}" --out /dev/null/run

# ---- every option has a test ----
expect_all_tested bench async
finish
