#!/usr/bin/env bash
# weft bench ddp: rows, fields, the same weights, each option, a peer that is a script.
# label: once long
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

bench=(bench ddp --model mlp --image 6 --batch 4 --ranks 2 --repeat 1 --steps 1)
# shas NAME: the weights in a report, one line a row.
shas() { field weights_sha256 <"$folder/$1.json"; }
run() { report_of "$1" "${bench[@]}" "${@:2}"; } # NAME OPTIONS...
tested=(--json)

# ---- rows and their fields ----
run plain --repeat 2 --out "$folder/pictures"
[[ $(field ranks <"$folder/plain.json" | tr '\n' ' ') == "1 2 2 " ]] || fail "rows are of $(field ranks <"$folder/plain.json" | tr '\n' ' ') ranks"
[[ $(grep -c '"plan": "dp=[12],' "$folder/plain.json") == 3 ]] || fail "not every row has its plan"
[[ $(grep -c '"overlap": true' "$folder/plain.json") == 1 ]] || fail "not one row overlaps"
for name in images_per_second efficiency step_ms_min weights_sha256; do
    [[ $(field $name <"$folder/plain.json" | wc -l) == 3 ]] || fail "not every row has $name"
done
[[ $(field efficiency <"$folder/plain.json" | head -1) == 1.0 ]] || fail "one rank is not as efficient as one rank"
[[ $(field batch <"$folder/plain.json" | tr '\n' ' ') == "4 4 8 8 " ]] || fail "a rank has not its own batch"
awk '/"images_per_second"/ && !($2 + 0 > 0) { exit 1 }' "$folder/plain.json" || fail "a speed is not positive"
[[ $(field reduce_ms <"$folder/plain.json" | grep -c '[1-9]') == 2 ]] || fail "reductions take no time"
[[ $(shas plain | sort -u | wc -l) == 2 ]] || fail "overlap changes the weights"
[[ $(sed -n '/"runs": \[/,/\]/p' "$folder/plain.json" | grep -c '[0-9]') == 6 ]] || fail "--repeat 2: a row has not two runs"
[[ $(field cpu_ms <"$folder/plain.json" | grep -c '[1-9]') == 3 ]] || fail "a row has no CPU time"
[[ $(field processor <"$folder/plain.json") ]] || fail "no processor"
[[ $(field cpu_seconds <"$folder/plain.json" | grep -c '[1-9]') == 1 ]] || fail "no CPU time of all"
grep -q '"taken_by_others": [0n]' "$folder/plain.json" || fail "not what others have taken"
grep -q "s of CPU time in" "$folder/plain.out" || fail "says no CPU time"
grep -c "weft, overlap on" "$folder/plain.out" >/dev/null || fail "no table"
grep -c "the same weights, bit for bit" "$folder/plain.out" >/dev/null || fail "says nothing of bits"
grep -c '^on,2,' "$folder/pictures/ddp.csv" >/dev/null || fail "--out: no numbers"
if command -v gnuplot >/dev/null; then [[ -s $folder/pictures/ddp.png ]] || fail "--out: no picture"; fi
tested+=(--repeat --out)

# ---- the weights are those of weft bench train on one rank ----
sha=$(report bench train --model mlp --image 6 --batch 8 --lanes 2 --threads 1 --repeat 1 | field weights_sha256)
cp "$folder/plain.json" "$folder/one.json"
[[ $(shas one | tail -1) == "$sha" ]] || fail "two ranks have other weights than one with as many lanes"

# ---- each option changes something ----
differs() { # OPTION VALUE [MORE...]
    run other --ranks 1 "$@"
    [[ $(shas other) && $(shas other) != $(shas one | head -1) ]] || fail "$1 $2 changes no weight"
    tested+=("$1")
}
differs --image 7
differs --batch 8
differs --seed 1
differs --steps 2
differs --lr 0.01
differs --optimizer adam
run other --threads 2 --ranks 1
[[ $(field threads <"$folder/other.json") == 2 && $(field ranks <"$folder/other.json") == 1 ]] || fail "--threads, --ranks"
run other --ranks 3 --plan bucket=1KiB,allreduce=tree
[[ $(field ranks <"$folder/other.json" | tr '\n' ' ') == "1 2 2 3 3 " ]] || fail "--ranks 3: rows are of $(field ranks <"$folder/other.json" | tr '\n' ' ')"
[[ $(grep -c '"plan": "dp=.*bucket=1KiB' "$folder/other.json") == 5 ]] || fail "--plan: $(grep '"plan"' "$folder/other.json")"
[[ $(shas other | head -3) == $(shas one) ]] || fail "--plan: buckets change bits"
bench=(bench ddp --model gpt2-tiny --tokens 8 --batch 2 --ranks 1 --repeat 1 --steps 1)
run tokens
[[ $(field tokens_per_second <"$folder/tokens.json" | wc -l) == 1 ]] || fail "--model gpt2-tiny: no tokens per second"
run other --tokens 9
[[ $(shas other) != $(shas tokens) ]] || fail "--tokens changes nothing"
bench=(bench ddp --model gpt --tokens 8 --batch 2 --ranks 1 --repeat 1 --steps 1)
small=(--layers 1 --hidden 16 --heads 2 --vocab 64)
run small "${small[@]}"
for changed in "--layers 2" "--hidden 32" "--heads 4" "--vocab 65"; do
    # shellcheck disable=SC2086
    run other "${small[@]}" $changed
    [[ $(shas other) != $(shas small) ]] || fail "$changed changes no weight"
    tested+=("${changed% *}")
done
bench=(bench ddp --model lstm --tokens 8 --batch 2 --ranks 1 --repeat 1 --steps 1)
small=(--layers 1 --hidden 16 --vocab 64)
run small "${small[@]}"
for changed in "--embedding 8" "--tied"; do
    # shellcheck disable=SC2086
    run other "${small[@]}" $changed
    [[ $(shas other) != $(shas small) ]] || fail "$changed changes no weight"
    tested+=("${changed% *}")
done
bench=(bench ddp --model resnet18 --image 32 --batch 8 --ranks 1 --repeat 1 --steps 1)
run direct --conv direct
run winograd --conv winograd
[[ $(shas direct) != $(shas winograd) ]] || fail "--conv changes nothing"
tested+=(--model --threads --ranks --plan --tokens --conv)

# ---- a peer: any program that writes such a report ----
cat >"$folder/python" <<'SCRIPT'
#!/bin/sh
for word; do case $word in --json=*) report=${word#--json=} ;; --compile) exit 1 ;; esac; done
[ "$RANK" = 0 ] || exit 0
echo "{\"images_per_second\": 1000, \"step_ms\": {\"median\": 1, \"min\": 0.5}}" >"$report"
SCRIPT
chmod +x "$folder/python"
run peer --peers --python "$folder/python" --ranks 2
[[ $(grep -c '"way": "eager' "$folder/peer.json") == 4 ]] || fail "--peers: not two ways at 1 and 2 ranks"
[[ $(sed -n '/"peers"/,$p' "$folder/peer.json" | field efficiency | sort -u | tr '\n' ' ') == "0.5 1.0 " ]] || fail "--peers: their efficiency is wrong"
grep -c "no figure" "$folder/said" >/dev/null || fail "--peers: does not say which way failed"
grep -c "weft / PyTorch" "$folder/peer.out" >/dev/null || fail "--peers: no ratio"
tested+=(--peers --python)

# ---- --quiet, and the report alone on standard output ----
[[ -z $("$WEFT" "${bench[@]}" --quiet 2>&1) ]] || fail "--quiet: says something"
"$WEFT" "${bench[@]}" --json - 2>"$folder/said" | head -1 | grep -c '^{$' >/dev/null || fail "--json -: more than the report"
tested+=(--quiet)

# ---- bad input ----
expect 2 "--model is missing" bench ddp
expect 2 "did you mean resnet18? There are mlp, resnet18" bench ddp --model resnet19
expect 2 "there can be 1 to" "${bench[@]}" --ranks 0
expect 2 "--repeat must be" "${bench[@]}" --repeat 0
expect 2 "--steps must be" "${bench[@]}" --steps 0
expect 2 "it is for --peers" "${bench[@]}" --python python3
expect 2 "but not mlp" bench ddp --model mlp --peers
expect 2 "has no option --micro" "${bench[@]}" --micro 2
expect 2 "sets dp itself" "${bench[@]}" --plan bucket=1KiB,dp=2
expect 2 "sets overlap itself" "${bench[@]}" --plan overlap=on
expect 2 "start it once" run -n 2 -- "$WEFT" "${bench[@]}"
expect 1 "cannot be written" "${bench[@]}" --json "$folder/none/r.json"
expect 1 "cannot be made" "${bench[@]}" --out /dev/null/run

# ---- none was forgotten; nothing is left behind ----
expect_all_tested bench ddp
TMPDIR=$folder "$WEFT" "${bench[@]}" --quiet || fail "with TMPDIR"
compgen -G "$folder/weft-bench-*" >/dev/null && fail "a folder is left behind"
finish
