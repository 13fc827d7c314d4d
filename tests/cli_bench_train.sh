#!/usr/bin/env bash
# bench/train_vs_pytorch: what counts is the least CPU time of the runs, by scripts in place of both sides.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

# side NAME CPU_MS...: a script that says one of them after the other, and the same wall time always.
side() {
    printf '%s\n' "${@:2}" >"$folder/$1.times"
    cat >"$folder/$1" <<END
#!/bin/sh
read -r cpu <"$folder/$1.times"
sed -i 1d "$folder/$1.times"
[ -n "\$cpu" ] || { echo "$1 has no more" >&2; exit 1; }
echo "{\"images_per_second\": 9, \"step_ms\": {\"median\": 500, \"min\": 400}, \"cpu_ms\": \$cpu}"
END
    chmod +x "$folder/$1"
}
bench() { bench/train_vs_pytorch --weft "$folder/weft" --python "$folder/python" --case gpt2-b4 --core 0 --out "$folder/it.json" "$@" >"$folder/out" 2>&1 || fail "$*: $(cat "$folder/out")"; }

# Eager is far off and runs once; the others have 205 and 190, then 200 and 230.
side weft 120 100
side python 300 310 205 190 200 230
bench --rounds 2 --dtype f32
grep -E '^gpt2-b4 +100 +190 +1\.90 +400 +400 +1\.00 +1\.15 +compiled-tuned$' "$folder/out" >/dev/null || fail "the table: $(tail -3 "$folder/out")"
[[ $(grep -c 'pytorch eager ' "$folder/out") == 1 && $(grep -c 'pytorch compiled ' "$folder/out") == 2 ]] || fail "a way that is far off runs on, or a good one does not: $(cat "$folder/out")"
[[ $(tr -d ' \n' <"$folder/it.json" | grep -oE '"ratio":1.9,"wall_ratio":1.0') ]] || fail "the report: $(cat "$folder/it.json")"
if command -v gnuplot >/dev/null; then
    grep '<svg' "$folder/it.svg" >/dev/null && grep 'compiled-tuned' "$folder/it.svg" >/dev/null || fail "no picture"
fi

# A side that gives no figure is left out, and said.
side weft 120
side python
bench --rounds 1
grep -E '^gpt2-b4 +120 +- +- +400 +- +- +1\.15 +-$' "$folder/out" >/dev/null || fail "without PyTorch: $(tail -3 "$folder/out")"
[[ $(grep -c 'no figure, status 1: python has no more' "$folder/out") == 4 ]] || fail "does not say why: $(cat "$folder/out")"
# What the script reads of weft is in its report.
"$WEFT" bench train --model mlp --image 8 --batch 4 --threads 1 --repeat 1 --quiet --json "$folder/own.json" || fail "weft bench train: exit $?"
[[ $(field cpu_ms <"$folder/own.json") && $(grep -c '"min"' "$folder/own.json") -ge 1 ]] || fail "weft bench train reports neither CPU time nor the least step"
echo "table, report and picture agree"
