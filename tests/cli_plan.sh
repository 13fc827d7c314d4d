#!/usr/bin/env bash
# weft plan answers first; ranks and units that are equal share a row, however many they are.
# label: once
source tests/cli_helpers.bash
gpt="--model gpt2-tiny --tokens 16 --batch 8 --threads 1"

# line N PATTERN: whether line N of the output is that.
line() { sed -n "$1p" "$folder/out" | grep -qE -- "$2" || fail "line $1 is not '$2': $(cat "$folder/out")"; }

# is_silent FILE: whether it is empty but for progress, which a busy machine prints after two
# seconds of planning.
is_silent() { ! grep -qvE '[0-9]:[0-9][0-9] so far$' "$1"; }

# is_one_fit: complains unless exactly one line of the output begins with "fits".
is_one_fit() { [[ $(grep -c '^fits' "$folder/out") == 1 ]] || fail "not one line of the fit: $(grep '^fits' "$folder/out")"; }

# ---- the printed figures are those of the report ----
# The script reads the report, then the output. Units of gpt2-tiny are embed, h.0, h.1 and head;
# names of their parts are longer.
cat >"$folder/figures.awk" <<'AWK'
function bytes(n,    u) {
    n += 0
    for (u = 0; u < 4 && n >= 1024 * 0.99995; u++) n /= 1024
    return sprintf(u == 0 ? "%.0f " : u > 2 && n < 100 ? "%.2f " : "%.1f ", n) substr("B  KiBMiBGiBTiB", 3 * u + 1, u ? 3 : 1)
}
function count(n,    u) {
    n += 0
    for (u = 0; u < 5 && n >= 1000 * 0.99995; u++) n /= 1000
    return sprintf(u == 0 ? "%.0f" : n < 10 ? "%.2f " : n < 100 ? "%.1f " : "%.0f ", n) substr("kMGTP", u, u > 0)
}
function time(us,    u) {
    if (us == 0) return "0"
    for (u = 0; u < 2 && us >= 999.5; u++) us /= 1000
    return sprintf(us < 9.995 ? "%.2f " : us < 99.95 ? "%.1f " : "%.0f ", us) substr("usmss ", 2 * u + 1, u == 2 ? 1 : 2)
}
# Returns " 0 1 4" for "ranks 0-1, 4".
function ranks_in(text,    i, k, n, runs, ends, all) {
    gsub(/[^0-9-]+/, " ", text)
    n = split(text, runs, " ")
    for (i = 1; i <= n; i++) {
        split(runs[i] "-" runs[i], ends, "-")
        for (k = ends[1]; k <= ends[2] + 0; k++) all = all " " k
    }
    return all
}
# Sets `most`, the largest value of the ranks, and `by`, the ranks that print the same one.
function find_most(field,    r) {
    most = 0
    by = ""
    for (r = 0; r < n_ranks; r++) if (rank[r, field] > most) most = rank[r, field]
    for (r = 0; r < n_ranks; r++) if (bytes(rank[r, field]) == bytes(most)) by = by " " r
}
function same(got, want) {
    gsub(/ +/, " ", got)
    if (got == want) return
    print "printed: " got "; by the report: " want
    is_wrong = 1
}
function own(name) { return match(name, /^(embed|head|h\.[0-9]+)/) ? substr(name, 1, RLENGTH) : name }
function add_units(    i, u, o) {
    for (i = 0; i < n_parts; i++) {
        u = part[i]
        o = own(u)
        if (!(o in params)) unit[n_units++] = o
        params[o] += value[u, "parameters"]
        forward[o] += value[u, "forward_flops"]
        backward[o] += value[u, "backward_flops"]
        kept[o] += value[u, "activation_bytes"]
        us[o] += value[u, "forward_us"] + value[u, "recompute_us"] + value[u, "backward_us"] + value[u, "weight_us"]
    }
}
function figures(o) { return count(params[o]) " " count(forward[o]) " " count(backward[o]) " " bytes(kept[o]) }

FNR == NR {
    key = $1
    text = $2
    gsub(/[":]/, "", key)
    gsub(/[",]/, "", text)
    if (/^ "/) { top[key] = text; top_is_ranks = key == "ranks" }
    if (/^   "device"/) n_ranks++
    if (/^   "/ && top_is_ranks) rank[n_ranks - 1, key] = key == "peak_unit" ? text : text + 0
    if (/^     "name"/ && top_is_ranks && !((name = text) in is_part)) is_part[part[n_parts++] = name] = 1
    if (/^     "/ && top_is_ranks) value[name, key] = text
    next
}
FNR == 1 { add_units() }
/^peak / {
    find_most("peak_bytes")
    split(by, first, " ")
    want = "peak " bytes(most) (n_ranks > 1 ? " on" by : "") ", in unit " own(rank[first[1], "peak_unit"])
    text = $0
    sub(/;.*/, "", text)
    if (n_ranks > 1) { match(text, / on ranks? [0-9, -]+/); text = substr(text, 1, RSTART + 2) ranks_in(substr(text, RSTART, RLENGTH)) ", " substr(text, RSTART + RLENGTH) }
    same(text, want)
    n_seen++
}
/^step / { same(substr($0, 1, index($0, ";") - 1), "step " time(1000 * top["step_ms"]) ", " count(top["flops"]) " FLOP"); n_seen++ }
/^sent / {
    find_most("sent_bytes")
    match($0, / by ranks? [0-9, -]+/)
    same(substr($0, 1, RSTART + 2) ranks_in(substr($0, RSTART, RLENGTH)) substr($0, RSTART + RLENGTH), "sent " bytes(most) " a step by" by "; " bytes(top["sent_bytes"]) " in all")
    n_seen++
}
/^ranks? .* \.\.\. / && !is_units {
    match($0, /^ranks? [0-9, -]+/)
    n = split(ranks_in(substr($0, 1, RLENGTH)), listed, " ")
    text = $0
    sub(/.* \.\.\. [a-z0-9.]+ /, "", text)
    for (i = 1; i <= n; i++) {
        r = listed[i]
        same(text, " " count(rank[r, "parameters"]) " " bytes(rank[r, "peak_bytes"]) " " bytes(rank[r, "state_bytes"]) " " bytes(rank[r, "sent_bytes"]) " " bytes(rank[r, "received_bytes"]))
        n_listed++
    }
}
/^unit / { is_units = 1; next }
/^FLOP/ { is_units = 0 }
is_units {
    n = 0
    total = 0
    end = $2 == "..." ? $3 : $1
    for (i = at + 0; i < n_units && (n == 0 || unit[i - 1] != end); i++) {
        if (figures(unit[i]) != figures($1)) same("one row for " $1 " and " unit[i], "two")
        total += us[unit[i]]
        n++
    }
    at = i
    same($0, $1 (n > 1 ? " ... " end " " n " x " : " ") figures($1) " " time(total / n))
}
END {
    if (n_seen != (n_ranks > 1 ? 3 : 2) || at != n_units || !n_units || (n_ranks > 1 && n_listed != n_ranks)) same(n_seen " answers, " at " units, " n_listed " ranks", "other numbers")
    exit is_wrong
}
AWK
# has_figures WORDS...: plans, and compares each printed figure with the report's.
has_figures() {
    "$WEFT" plan $gpt "$@" --json "$folder/report" >"$folder/out" 2>"$folder/said" || fail "plan $*: exit $?"
    compare_figures "$*"
}
compare_figures() {
    local wrong
    wrong=$(awk -f "$folder/figures.awk" "$folder/report" "$folder/out" 2>&1) || fail "plan $1: $wrong"
}

# ---- the answer: peak, step, bytes sent; then the plan, the recipe and the data ----
"$WEFT" plan $gpt --plan dp=2,tp=2 --json "$folder/report" >"$folder/out" 2>"$folder/said" || fail "plan: exit $?"
line 1 '^peak    [0-9.]+ [KM]iB on ranks 0(, |-)[0-9, -]*, in unit (embed|h\.[01]|head); --device-memory SIZE tests if it fits$'
line 2 '^step    [0-9.]+ [mu]s, [0-9.]+ M FLOP; simulated with assumed rates '
line 3 '^sent    [0-9.]+ [KM]iB a step by ranks 0-3; [0-9.]+ [KM]iB in all$'
line 4 '^plan    dp=2,pp=1,schedule=1f1b,tp=2 \(4 ranks\)$'
line 5 '^recipe  --model gpt2-tiny '
line 6 '^data    synthetic: '
is_silent "$folder/said" || fail "standard error: $(cat "$folder/said")"
compare_figures "--plan dp=2,tp=2"
has_figures --plan dp=2,pp=2,lanes=5+3,recompute=all
[[ $(field step_ms <"$folder/report" | sort -u | wc -l) == 1 ]] || fail "step_ms: $(field step_ms <"$folder/report")"
[[ $(grep -c '"name": "h.0.pair0.0"' "$folder/report") == 2 ]] || fail "the report has not all units of all ranks"
"$WEFT" plan --model mlp --batch 256 --plan dp=64,pp=2 --json "$folder/many" >"$folder/out" || fail "128 ranks: exit $?"
[[ $(grep -c '"units":' "$folder/many") == 2 && $(sed -nE 's/^ +"units_of": //p' "$folder/many" | sort -n | uniq -c | xargs) == "63 0 63 1" ]] ||
    fail "128 ranks: units $(grep -c '"units":' "$folder/many"), as $(sed -nE 's/^ +"units_of": //p' "$folder/many" | sort -n | uniq -c | xargs)"
[[ $(sed -nE 's/^ "([a-z_]+)":.*/\1/p' "$folder/report" | xargs) == "weft costs plan recipe mesh ranks fits would_fit proposals fragmentation flops sent_bytes device_memory recipe_needed step_ms simulated bytes_over_time" ]] ||
    fail "the report's fields: $(sed -nE 's/^ "([a-z_]+)":.*/\1/p' "$folder/report" | xargs)"
"$WEFT" plan $gpt --device-memory 1GiB >"$folder/out" || fail "plan that fits: exit $?"
line 1 '^fits    yes$'
is_one_fit
line 2 '; limit 1\.00 GiB$'
"$WEFT" plan $gpt --device-memory 100KB --json - >"$folder/out" 2>/dev/null
line 1 '^\{$'
grep -q 'these would fit' "$folder/out" && fail "--json -: more than the report on standard output"
# With --quiet the table is a part of the error.
"$WEFT" plan $gpt --device-memory 1500KiB --quiet >"$folder/out" 2>"$folder/said"
[[ $? == 3 && ! -s $folder/out ]] || fail "--quiet: $(cat "$folder/out")"
grep -qx 'these would fit:' "$folder/said" || fail "--quiet: no table: $(cat "$folder/said")"

# ---- equal units: one row for each unit of the model, one for equal neighbours; --verbose has the parts, by rank ----
"$WEFT" plan $gpt --plan dp=2,tp=2 >"$folder/out"
grep -qE '^h\.0 \.\.\. h\.1 +2 x ' "$folder/out" || fail "units are not folded: $(cat "$folder/out")"
grep -q '\.pair0' "$folder/out" && fail "parts of units without --verbose"
[[ $(grep -cE '^(embed|head) ' "$folder/out") == 2 ]] || fail "not one row for embed and head: $(cat "$folder/out")"
"$WEFT" plan $gpt --plan dp=2,tp=2 --verbose >"$folder/out"
[[ $(grep -c ' h\.0\.pair0\.[0-3] ' "$folder/out") == 4 ]] || fail "--verbose: not four slices: $(cat "$folder/out")"
grep -qE '^ranks 0, 2 +embed ' "$folder/out" || fail "--verbose: replicas are not one row: $(cat "$folder/out")"
# A block's parts with names of their own are in its row.
"$WEFT" plan --model resnet18 --image 32 --batch 8 --threads 1 >"$folder/out"
grep -q 'conv' "$folder/out" && fail "resnet18 has rows of parts: $(cat "$folder/out")"
# With the optimizer's state elsewhere, the bytes that a rank holds are not negative.
"$WEFT" plan $gpt --plan offload=state --optimizer adamw >"$folder/out"
grep -q TiB "$folder/out" && fail "offload=state: $(grep TiB "$folder/out")"
grep -qE '^ +[0-9.]+ KiB of host memory$' "$folder/out" || fail "offload=state: no host memory: $(head -3 "$folder/out")"

# Measured times differ; equal layers are one row all the same.
began=$SECONDS
has_figures --costs measured
took=$((SECONDS - began))
grep -q '; simulated with measured costs$' "$folder/out" || fail "--costs measured: $(head -2 "$folder/out")"
grep -qE '^h\.0 \.\.\. h\.1 +2 x ' "$folder/out" || fail "measured units are not folded: $(cat "$folder/out")"
is_silent "$folder/said" || fail "--costs measured: standard error: $(cat "$folder/said")"
((took > 1)) || [[ ! -s $folder/said ]] || fail "less than two seconds show progress: $(cat "$folder/said")"

# ---- equal ranks: 384 are few lines, in tables, in the mesh and in pictures ----
"$WEFT" plan --model gpt --layers 24 --hidden 32 --heads 4 --vocab 100 --tokens 16 --batch 64 --threads 1 --plan dp=8,pp=12,tp=4 \
    --draw "$folder/large.txt" >"$folder/out" || fail "384 ranks: exit $?"
(($(wc -l <"$folder/out") < 80)) || fail "384 ranks print $(wc -l <"$folder/out") lines"
grep -qE '^ranks 0-3, 192-195 +embed ' "$folder/out" || fail "384 ranks: the first stage is not a row: $(cat "$folder/out")"
grep -q '^  groups along pp: 0 4 \.\.\. 44 (12) | 1 5 .* | \.\.\. (32 groups)$' "$folder/out" || fail "384 ranks: groups: $(grep groups "$folder/out")"
grep -qE '^h\.1 \.\.\. h\.2[23] +2[23] x ' "$folder/out" || grep -qE '^h\.0 \.\.\. h\.23 +24 x ' "$folder/out" || fail "24 layers are not a row: $(cat "$folder/out")"
(($(grep -c '|$' "$folder/large.txt") <= 24)) || fail "384 ranks are drawn as $(grep -c '|$' "$folder/large.txt") rows"
grep -q "the number is the first rank's microbatch" "$folder/large.txt" || fail "the legend of folded rows: $(tail -1 "$folder/large.txt")"
# ---- a start of training prints five lines at most ----
train="train --model mlp --image 6 --data synthetic --threads 1 --batch 32 --steps 2 --optimizer adamw"
images "$folder/images"
# starts WORDS...: how many lines there are before the run's end.
starts() {
    "$WEFT" "$@" >"$folder/out" 2>"$folder/said" || fail "$*: exit $?: $(cat "$folder/said")"
    local n
    n=$(sed '/^done /,$d; /^epoch .*test loss/d' "$folder/out" | wc -l)
    ((n >= 4 && n <= 5)) || fail "$*: a start of $n lines: $(cat "$folder/out")"
    is_silent "$folder/said" || fail "$*: standard error: $(cat "$folder/said")"
}
starts $train
starts $train --ranks 2
grep -qE '^peak    each rank: [0-9.]+ MiB planned$' "$folder/out" || fail "the peak of equal ranks: $(cat "$folder/out")"
grep -qE '^peak    ranks 0-1  [0-9.]+ MiB planned, [0-9.]+ MiB measured$' "$folder/out" || fail "equal peaks are not one line: $(cat "$folder/out")"
starts $train --devices cpu:4 --plan dp=2,zero=3,offload=state+params:disk,pp=2 --device-memory 1GiB
starts $train --micro auto --plan auto --devices cpu:2
starts train --model mlp --data "$folder/images" --threads 1 --batch 9 --micro 8 --lanes 8 --epochs 1 --out "$folder/run"
starts train --resume --out "$folder/run" --epochs 2
grep -q '^resume  step 7 of 14$' "$folder/out" || fail "a resumed start: $(cat "$folder/out")"

# ---- an older spelling is understood, and the new one shown ----
"$WEFT" plan --model mlp --plan dp=3,pp=2,allreduce=ring,order=dp,free,pp >"$folder/out" 2>"$folder/said"
grep -q '^plan    dp=3,pp=2,.*,sums=free,axes=dp+pp ' "$folder/out" || fail "order=dp,free,pp: $(cat "$folder/out")"
grep -q 'order= is deprecated; write sums=free,axes=dp+pp$' "$folder/said" || fail "no new spelling of order=: $(cat "$folder/said")"

# ---- progress: a line that changes on a terminal, steps of the search in the log ----
search="plan $gpt --optimizer adamw --device-memory 300KiB"
WEFT_LOG=info:progress "$WEFT" $search >"$folder/out" 2>"$folder/said"
grep -qE 'progress: trying plan 1 of about [0-9]+: dp=' "$folder/said" || fail "the search shows no progress"
line 1 '^fits    no'
is_one_fit
# Of a step of many microbatches a short one is drafted first. Only programs that may fit are proved.
WEFT_LOG=info:progress "$WEFT" plan $gpt --optimizer adamw --batch 256 --micro 256 --plan dp=2,pp=2 --device-memory 600KiB >"$folder/out" 2>"$folder/said"
n_tried=$(grep -c ' progress: trying plan ' "$folder/said") n_proved=$(grep -c ' progress: proving instruction 0 of ' "$folder/said")
((n_tried >= 8 && n_proved > 0 && n_proved <= 6)) || fail "256 microbatches: $n_proved programs are proved for $n_tried plans"
has -- '--plan .* --micro 256 ' "$folder/out" || fail "256 microbatches: no plan fits: $(head -3 "$folder/out")"
if command -v script >/dev/null; then
    TERM=xterm script -qec "stty cols 100; $WEFT plan $gpt --micro auto" /dev/null </dev/null | tr '\r' '\n' >"$folder/terminal"
    grep -qE 'measuring --micro 8, 1 of at most 1, [0-9]+:[0-9][0-9] so far' "$folder/terminal" || fail "--micro auto on a terminal: $(cat "$folder/terminal")"
fi

# ---- a steady phase that repeats: the same words without and with all instructions ----
# --program makes all instructions; --proof full makes those of all ranks, too.
long="plan --model gpt2-tiny --tokens 16 --threads 1 --batch 192 --micro 192 --lanes 4 --plan dp=2,pp=2,schedule=zb1"
"$WEFT" $long >"$folder/short" 2>/dev/null || fail "a short form: exit $?"
"$WEFT" $long --quiet --json "$folder/report" >"$folder/whole" 2>/dev/null
"$WEFT" $long --proof full --json "$folder/report.full" >"$folder/full" 2>/dev/null
"$WEFT" $long --program 2>/dev/null >"$folder/out" && has ' m=95 ' "$folder/out" || fail "--program: the last microbatch is missing"
! command -v python3 >/dev/null || python3 - "$folder/report" "$folder/report.full" <<'PY' || fail "the reports of the short form and of --proof full"
import json, sys
short, full = (json.load(open(path)) for path in sys.argv[1:])
del short["bytes_over_time"], full["bytes_over_time"] # the short form leaves out moments
for key in short.keys() | full.keys():
    assert short.get(key) == full.get(key), key
PY
cmp -s "$folder/short" "$folder/full" || fail "the short form and --proof full: $(diff "$folder/short" "$folder/full")"

# ---- a refused plan gets one sentence, without the warning of a plan that runs ----
rows=(--model lstm --batch 8 --slices 2 --quiet --plan)
expect 2 "a rank can have at most 3 stages" plan --model mlp --plan pp=1,schedule=interleaved,chunks=4
expect 0 "sp divides nothing" plan "${rows[@]}" tp=2,sp
for command in plan "train --data synthetic --steps 1"; do
    expect 2 "pp=50 stages" $command "${rows[@]}" tp=2,sp,pp=50
    [[ $(wc -l <"$folder/said") == 1 ]] || fail "$command: $(cat "$folder/said")"
done

# ---- schedule=auto takes what the model allows: slices are no places for a cut ----
auto="train --model mlp --image 8 --data synthetic --batch 16 --lanes 4 --micro 4 --slices 2 --steps 2"
[[ $(sha $auto --plan pp=2,schedule=auto) == $(sha $auto) ]] || fail "schedule=auto of few units: other bits"
"$WEFT" $auto --plan pp=3,schedule=auto --quiet || fail "schedule=auto with pp=3: exit $?"
finish
