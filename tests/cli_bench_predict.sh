#!/usr/bin/env bash
# weft bench predict: rows, their fields and bytes, each option. No time is judged.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

predict() { # NAME OPTIONS...
    "$WEFT" bench predict "${@:2}" --json "$folder/$1.json" >"$folder/$1.out" 2>"$folder/said" || fail "$*: exit $?: $(cat "$folder/said")"
}
# count NAME PATTERN: how often the report, all in one line, has it.
count() { tr -d ' \n' <"$folder/$1.json" | grep -oE "$2" | wc -l; }
# has_field NAME FIELD VALUE: one of the report's.
has_field() { field "$2" <"$folder/$1.json" | grep -cx -- "$3" >/dev/null || fail "$1: $2 is '$(field "$2" <"$folder/$1.json")', not '$3'"; }
once=(--steps 1 --repeat 1)
tested=(--json)

# ---- the usual plans: measured peaks are the planned ones, to the byte ----
predict usual --model gpt2-tiny --tokens 8 --batch 8 --optimizer adamw --repeat 1 --steps 1 --out "$folder/pictures"
[[ $(count usual '"planned":(\[[0-9]+,[0-9]+\]),"measured":\1') == 11 ]] || fail "not eleven rows with equal bytes: $(cat "$folder/usual.json")"
for plan in zero=1 zero=2 zero=3 pp=2 schedule=zb1 recompute=all offload=state tp=2 sp; do
    grep -c "\"plan\": \".*$plan" "$folder/usual.json" >/dev/null || fail "no row has $plan"
done
awk '/"measured_ms"/ { m = $2 + 0 } /"predicted_ms"/ { p = $2 + 0 } /"fastest_ms"/ { f = $2 + 0 }
     /"error"/ { e = $2 + 0; n++; d = p / m - 1 - e; if (!(m > 0 && p > 0) || d * d > 1e-12) exit 1
                 e = e < 0 ? -e : e; sum += e; if (e > most) most = e }
     /"mean_error"/ { mean = $2 + 0 } /"worst_error"/ { worst = $2 + 0 }
     END { exit n != 11 || !(f > 0) || (mean - sum / n) ^ 2 > 1e-12 || (worst - most) ^ 2 > 1e-12 }' \
    <(tr ',' '\n' <"$folder/usual.json" | awk '/"predicted_ms"/ { print; next } { print }') || fail "errors are not those of the rows: $(cat "$folder/usual.json")"
[[ $(grep -c ' % .*iB .*iB$' "$folder/usual.out") == 11 ]] || fail "no table: $(cat "$folder/usual.out")"
[[ $(wc -l <"$folder/pictures/predict.csv") == 12 ]] || fail "--out: no numbers"
[[ ! $(command -v gnuplot) || -s $folder/pictures/predict.png ]] || fail "--out: no picture"
tested+=(--model --tokens --batch --optimizer --repeat --steps --out)

# ---- a row's peak is that of weft plan ----
predict one --model mlp --image 6 --batch 8 --plans "dp=2,zero=1" --steps 1 --repeat 2
planned=$("$WEFT" plan --model mlp --image 6 --batch 8 --loss cross-entropy --threads 1 --plan dp=2,zero=1 --quiet --json - | field peak_bytes | head -1)
[[ $(count one "\"planned\":\[$planned,$planned\]") == 1 ]] || fail "the peak is not $planned as weft plan says: $(cat "$folder/one.json")"
# Rounds differ: the table and the report say by how much.
[[ $(tr -d ' \n' <"$folder/one.json" | grep -oE '"(measured|predicted)_rounds_ms":\[[0-9.e-]+,[0-9.e-]+\]' | wc -l) == 2 ]] || fail "no rounds: $(cat "$folder/one.json")"
[[ $(field spread <"$folder/one.json") == 0.* || $(field spread <"$folder/one.json") == [1-9]* ]] || fail "no spread: $(cat "$folder/one.json")"
grep -cE '^dp=2,zero=1 .* [-+][0-9.]+ % +[0-9.]+ % ' "$folder/one.out" >/dev/null || fail "no spread in the table: $(cat "$folder/one.out")"
has_field usual spread null
tested+=(--plans --image)

# ---- each option reaches the recipe ----
given=(--layers 1 --hidden 16 --heads 2 --vocab 64 --tokens 9 --batch 2 --seed 5 --threads 2 --lr 0.5 --dtype bf16 --optimizer adam)
predict gpt --model gpt "${given[@]}" --plans dp=1 "${once[@]}"
for ((i = 0; i < ${#given[@]}; i += 2)); do
    has_field gpt "${given[i]#--}" "${given[i + 1]}"
    tested+=("${given[i]}")
done
predict lstm --model lstm --tokens 4 --batch 2 --layers 1 --hidden 8 --vocab 16 --embedding 8 --tied --plans dp=1 "${once[@]}"
has_field lstm embedding 8
has_field lstm tied true
predict conv --model resnet18 --image 32 --batch 2 --conv direct --plans dp=1 "${once[@]}"
has_field conv conv direct
"$WEFT" bench predict --model mlp --image 6 --batch 2 --plans dataparallel=2 --quiet --json - "${once[@]}" >"$folder/quiet" 2>&1
[[ $(head -1 "$folder/quiet") == "{" ]] || fail "--quiet --json -: $(cat "$folder/quiet")"
tested+=(--embedding --tied --conv --quiet)

# ---- bad input ----
expect 2 "--model is missing" bench predict
expect 2 "--repeat must be" bench predict --model mlp --repeat 0
expect 2 "zero='4'" bench predict --model mlp --plans "dp=2,zero=4"
expect 2 "has no option --ranks" bench predict --model mlp --ranks 2
expect 1 "cannot be written" bench predict --model mlp --json "$folder/none/r.json"
expect 1 "cannot be made" bench predict --model mlp --out /dev/null/run

# ---- every option has a test ----
for option in $("$WEFT" bench predict --help | grep -o '^  --[a-z0-9-]*'); do
    [[ " ${tested[*]} " == *" $option "* ]] || fail "$option has no test"
done
finish
