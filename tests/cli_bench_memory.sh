#!/usr/bin/env bash
# weft bench memory: rows, fields, the same weights, each option, a peer that is a script.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

bench=(bench memory --model mlp --image 6 --batch 4 --repeat 1 --steps 1)
run() { report_of "$1" "${bench[@]}" "${@:2}"; } # NAME OPTIONS...
# distinct NAME PATTERN: how many different ones.
distinct() { found "$1" "$2" | sort -u | wc -l; }
sha='"weights_sha256":"[0-9a-f]{64}"'
tested=(--json)

# ---- rows and their fields ----
run plain --ranks 2 --repeat 2 --out "$folder/pictures"
[[ $(count plain '"ranks":2,') == 5 ]] || fail "the usual plans: $(found plain '"plan":"[^"]*"')"
[[ $(count plain '"planned":(\[[0-9]+,[0-9]+\]),"measured":\1') == 5 ]] || fail "planned and measured bytes differ"
[[ $(count plain "$sha") == 5 && $(distinct plain "$sha") == 1 ]] || fail "plans have different weights"
[[ $(count plain '"step_ms":[0-9.e-]+,"runs":\[[0-9.e-]+,[0-9.e-]+\],"sent_bytes":\[[0-9]+,[0-9]+\]') == 5 ]] || fail "a row has not all fields"
(($(field parameter_bytes <"$folder/plain.json" | sed -n '1p') > $(field parameter_bytes <"$folder/plain.json" | sed -n '4p'))) || fail "zero=3 divides no parameters"
[[ $(field optimizer_bytes <"$folder/plain.json" | sort -u) == 0 ]] || fail "plain SGD has state"
grep -c "all of weft's rows have the same weights" "$folder/plain.out" >/dev/null || fail "says nothing of bits"
[[ $(wc -l <"$folder/pictures/memory.csv") == 6 && $(wc -l <"$folder/pictures/memory_time.csv") == 6 ]] || fail "--out: no numbers"
if command -v gnuplot >/dev/null; then
    [[ -s $folder/pictures/memory.png && -s $folder/pictures/memory_time.png ]] || fail "--out: no pictures"
fi
tested+=(--repeat --out --ranks)

# ---- what weft plan and weft bench train say ----
run one --plans "dp=1;;dp=2,zero=1;pp=2" --ranks 2 --optimizer adamw
[[ $(field ranks <"$folder/one.json" | tr '\n' ' ') == "1 1 2 2 " ]] || fail "--plans: other rows"
[[ $(count one "$sha") == 4 && $(distinct one "$sha") == 1 ]] || fail "--plans: different weights"
report bench train --model mlp --image 6 --batch 4 --lanes 2 --micro 2 --threads 1 --repeat 1 --optimizer adamw >"$folder/train.json"
[[ $(found one "$sha" | head -1) == $(found train "$sha") ]] || fail "the weights are not those of weft bench train"
report plan --model mlp --image 6 --batch 4 --lanes 2 --micro 2 --threads 1 --loss mse --optimizer adamw --plan dp=2,zero=1 >"$folder/planned.json"
for name in peak_bytes sent_bytes optimizer_bytes; do
    mapfile -t "$name" < <(found planned "\"$name\":[0-9]+" | sed 's/.*://')
done
[[ $(found one '"planned":[^]]*\]' | sed -n 3p) == "\"planned\":[${peak_bytes[0]},${peak_bytes[1]}]" ]] || fail "the peaks are not those of weft plan"
[[ $(found one '"sent_bytes":[^]]*\]' | sed -n 3p) == "\"sent_bytes\":[${sent_bytes[0]},${sent_bytes[1]}]" ]] || fail "the bytes sent are not those of weft plan"
[[ $(field optimizer_bytes <"$folder/one.json" | sed -n 3p) == "${optimizer_bytes[0]}" ]] || fail "the optimizer's bytes are not those of weft plan"
tested+=(--plans --optimizer)

# ---- a plan with a disk beside that disk ----
run disk --plans "dp=1;dp=1,offload=state:disk;dp=2,zero=1,offload=state:disk" --ranks 2 --optimizer adamw --repeat 2
[[ $(count disk "$sha") == 3 && $(distinct disk "$sha") == 1 ]] || fail "a disk: different weights"
[[ $(count disk '"disk_bytes":[1-9][0-9]*,"disk_plain_ms":[0-9.e-]+,"disk_share":[0-9.e-]+,') == 2 ]] || fail "a disk: not its fields, or others have them: $(found disk '"disk_[^,]*')"
awk -v said="$(tr -d ' \n' <"$folder/disk.json")" 'BEGIN {
    n = split(said, rows, "\"plan\":")
    for (k = 2; k <= n; k++) {
        if (rows[k] !~ /disk_share/) continue
        split(rows[k], a, /"step_ms":|"disk_plain_ms":|"disk_share":/)
        if (a[2] + 0 <= 0 || a[3] + 0 <= 0 || (a[4] * a[2] / a[3] - 1) ^ 2 > 1e-6) exit 1
        seen++
    }
    exit seen != 2
}' || fail "a disk: the share is not plain time over a step's"
grep -c "offload=state:disk: .* on disk; plain reads and writes of as much take .* ms, .* % of a step" "$folder/disk.out" | has -x 2 || fail "a disk: the table does not say it: $(cat "$folder/disk.out")"

# ---- each option changes something ----
bench+=(--plans dp=1)
declare -A known=() # the weights of runs, by their words
differs() { # MODEL'S OPTIONS... -- OPTION VALUE...
    local first=()
    while [[ $1 != -- ]]; do first+=("$1"); shift; done
    shift
    local words="${bench[*]} ${first[*]}"
    if [[ ! ${known[$words]-} ]]; then # several options change one run
        run base "${first[@]}"
        known[$words]=$(found base "$sha")
    fi
    run other "${first[@]}" "$@"
    [[ $(found other "$sha") && ${known[$words]} != $(found other "$sha") ]] || fail "$* changes no weight"
    tested+=("$1")
}
differs -- --image 7
differs -- --batch 8
differs --micro 4 -- --lanes 2
differs --lanes 1 -- --micro 2
differs -- --seed 1
differs -- --steps 2
differs -- --lr 0.01
differs -- --weight-decay 0.1
differs --weight-decay 0.1 --steps 3 -- --no-bias-decay
differs -- --clip-norm 0.01
differs -- --warmup 3
differs --steps 3 -- --momentum 0.5
differs --steps 3 --momentum 0.5 -- --nesterov
differs --steps 3 -- --lr-schedule cosine --lr-step 9
differs --steps 3 --lr-schedule step --lr-step 9 -- --lr-step 1
differs --steps 3 --lr-schedule step --lr-step 2 -- --lr-gamma 0.5
differs --steps 3 --optimizer adam -- --beta1 0.5
differs --steps 3 --optimizer adam -- --beta2 0.5
differs --optimizer adam -- --epsilon 0.1
run other --threads 2
[[ $(count other '"threads":2,') == 1 ]] || fail "--threads"
run base --optimizer adamw
run other --optimizer adamw --ema 0.5
[[ $(found other "$sha") == "$(found base "$sha")" && $(count other '"ema":0.5,') == 1 ]] || fail "--ema changes the weights"
more() { found "$1" '"planned":\[[0-9]+\]' | grep -oE '[0-9]+'; }
(($(more other) > $(more base))) || fail "--ema takes no memory: $(more other), $(more base)"
tested+=(--ema)
bench=(bench memory --model gpt2-tiny --batch 2 --repeat 1 --steps 1 --plans dp=1)
differs --tokens 8 -- --dropout 0.5
differs --tokens 8 -- --label-smoothing 0.5
differs -- --tokens 9
differs -- --freeze wte
differs -- --lr-scale wte=2
bench=(bench memory --model gpt --tokens 8 --batch 2 --repeat 1 --steps 1 --plans dp=1)
small=(--layers 1 --hidden 16 --heads 2 --vocab 64)
differs "${small[@]}" -- --layers 2
differs "${small[@]}" -- --hidden 32
differs "${small[@]}" -- --heads 4
differs "${small[@]}" -- --slices 1
differs "${small[@]}" -- --vocab 65
bench=(bench memory --model lstm --tokens 8 --batch 2 --repeat 1 --steps 1 --plans dp=1)
small=(--layers 1 --hidden 16 --vocab 64)
differs "${small[@]}" -- --embedding 8
differs "${small[@]}" -- --tied
bench=(bench memory --model resnet18 --image 32 --batch 8 --repeat 1 --steps 1 --plans dp=1)
differs --conv direct -- --conv winograd
tested+=(--model --threads)

# ---- a peer: any program that writes such a report ----
cat >"$folder/python" <<'SCRIPT'
#!/bin/sh
for word; do case $word in --json=*) report=${word#--json=} ;; --way=fsdp-recompute) echo "it has none" >&2; exit 1 ;; esac; done
[ "$RANK" = 0 ] || exit 0
: >"${report%/*}/half" # as a run that is killed may leave
echo "{\"peak_bytes\": [3000000, 2000000], \"step_ms\": {\"median\": 2, \"min\": 0.5}, \"version\": \"7\"}" >"$report"
SCRIPT
chmod +x "$folder/python"
bench=(bench memory --model resnet18 --image 32 --batch 4 --ranks 2 --repeat 1 --steps 1 --plans dp=2)
TMPDIR=$folder run peer --peers --python "$folder/python"
[[ $(count peer '"plan":"(ddp|fsdp)","ranks":2,"peak_bytes":\{"planned":null,"measured":\[3000000,2000000\]\},"step_ms":2') == 2 ]] || fail "--peers: other rows"
[[ $(count peer '"plan":"fsdp-recompute","ranks":2,.*"no_figures":"ithasnone"') == 1 ]] || fail "--peers: does not say why a way failed"
grep -c "PyTorch fsdp-recompute .*no figures: it has none" "$folder/peer.out" >/dev/null || fail "--peers: the table does not say why"
tested+=(--peers --python)

# ---- --quiet, and the report alone on standard output ----
bench=(bench memory --model mlp --image 6 --batch 4 --repeat 1 --steps 1 --plans dp=1)
[[ -z $("$WEFT" "${bench[@]}" --quiet 2>&1) ]] || fail "--quiet: says something"
"$WEFT" "${bench[@]}" --json - 2>"$folder/said" | head -1 | grep -c '^{$' >/dev/null || fail "--json -: more than the report"
tested+=(--quiet)

# ---- bad input ----
expect 2 "--model is missing" bench memory
expect 2 "there can be 1 to" "${bench[@]}" --ranks 0
expect 2 "--repeat must be" "${bench[@]}" --repeat 0
expect 2 "--steps must be" "${bench[@]}" --steps 0
expect 2 "it is for --peers" "${bench[@]}" --python python3
expect 2 "but not mlp" "${bench[@]}" --peers
expect 2 "needs 4 ranks, but --ranks is 2" bench memory --model mlp --plans "dp=1;dp=4" --ranks 2
expect 2 "zero='4'" bench memory --model mlp --plans "dp=2,zero=4"
expect 2 "give their number" "${bench[@]}" --micro auto
expect 2 "equal parts" bench memory --model resnet18 --batch 3 --ranks 2 --peers
expect 2 "start it once" run -n 2 -- "$WEFT" "${bench[@]}"
expect 1 "cannot be written" "${bench[@]}" --json "$folder/none/r.json"
expect 1 "cannot be made" "${bench[@]}" --out /dev/null/run

# ---- none was forgotten; nothing is left behind ----
expect_all_tested bench memory
TMPDIR=$folder "$WEFT" "${bench[@]}" --quiet || fail "with TMPDIR"
compgen -G "$folder/weft-bench-*" >/dev/null && fail "a folder is left behind"
finish
