#!/usr/bin/env bash
# weft plan and weft advise for clusters that are not here.
# label: once
source tests/cli_helpers.bash
tiny="plan --model gpt2-tiny --tokens 16 --threads 1 --batch 128"
gpt="--model gpt --optimizer adamw --dtype bf16"

# ---- small plans are lowered, too; large ones only on demand ----
report $tiny --plan dp=2 --cluster ethernet >"$folder/small"
for field in step_ms mfu hfu bound predicted_peak_bytes; do
    [[ $(field $field <"$folder/small") ]] || fail "a small plan has no $field"
done
has '"peak_unit"' "$folder/small" || fail "a small plan was not lowered"
report $tiny --plan dp=128 --cluster dgx-a100 --nodes 16 >"$folder/large"
has '"proved": false' "$folder/large" || fail "a large plan was lowered"
report $tiny --plan dp=128 --cluster dgx-a100 --nodes 16 --proof full >"$folder/full"
has '"peak_unit"' "$folder/full" || fail "--proof full: not lowered"
[[ $(field step_ms <"$folder/full" | sed -n 1p) == $(field step_ms <"$folder/large") ]] || fail "--proof full: another prediction"
"$WEFT" $tiny --plan dp=128 --cluster dgx-a100 >"$folder/out" || fail "a large plan: exit $?"
has 'not lowered: no proof' "$folder/out" || fail "a prediction does not name the missing proof"

# ---- a plan that does not fit is not lowered, and others are proposed ----
"$WEFT" plan --model gpt --layers 24 --hidden 2048 --batch 4 --optimizer adamw --cluster laptop >"$folder/out" 2>"$folder/said"
[[ $? == 3 ]] || fail "a plan that does not fit: another exit status"
has 'offload=state' "$folder/out" && has 'more than it has' "$folder/said" || fail "no plan that would fit: $(cat "$folder/out")"

# ---- a cluster of one's own, from any folder ----
sed 's/"laptop"/"mine"/; s/8589934592/4e9/' src/cluster/shipped/laptop.json >"$folder/mine.json"
weft=$(realpath "$WEFT")
(cd "$folder" && "$weft" plan --model mlp --cluster mine.json) >"$folder/out" || fail "a cluster file is not read"
has 'cluster mine: 1 devices' "$folder/out" || fail "another cluster: $(cat "$folder/out")"
sed -i 's/"launch_us": 5/"launch_us": -5/' "$folder/mine.json"
expect 2 "device.launch_us is -5; it must be from 0" plan --model mlp --cluster "$folder/mine.json"
expect 2 "did you mean dgx-a100" plan --model mlp --cluster dgx-a10
expect 2 "1 to 1000000" plan --model mlp --cluster dgx-a100 --nodes 0
expect 2 "use --nodes" plan --model mlp --cluster dgx-a100 --ranks 2 --plan auto
expect 2 "--cluster is not given" plan --model mlp --nodes 2
expect 2 "has 64 ranks, but cluster ethernet has 16 devices" $tiny --plan dp=64 --cluster ethernet
expect 2 "--proof full makes it" $tiny --plan dp=128 --cluster dgx-a100 --program

# ---- the best plan, and the recipe that it needs ----
large="plan $gpt --layers 48 --hidden 8192 --heads 64 --vocab 51200 --tokens 2048 --batch 16384 --cluster dgx-a100 --nodes 2048"
report $large --plan auto >"$folder/auto"
[[ $(field n_ranks <"$folder/auto") == 16384 && $(field fits <"$folder/auto") == true ]] || fail "no plan for 16,384 devices"
python3 - "$folder/auto" <<'PY' || fail "the report of --plan auto"
import json, sys
d = json.load(open(sys.argv[1]))
p = d["proposals"]
assert len(p) == 5 and [x["plan"] for x in p] == d["would_fit"]
assert abs(p[0]["step_ms"] - d["step_ms"]) < 1e-6 * d["step_ms"] and d["recipe"]["micro"] == p[0]["micro"]
assert d["recipe_needed"]["lanes"] == p[0]["lanes"]
assert all(a["step_ms"] <= b["step_ms"] * 1.001 for a, b in zip(p, p[1:]))
assert abs(sum(d["times_ms"].values()) - d["step_ms"]) < 1e-6 * d["step_ms"]
PY
report $large --micro 16384 --plan dp=512,tp=8,pp=4,zero=1,schedule=interleaved,chunks=3 >"$folder/given"
awk -v a="$(field step_ms <"$folder/auto" | sed -n 1p)" -v b="$(field step_ms <"$folder/given")" 'BEGIN { exit !(0 < a && a <= b) }' || fail "auto is slower than a given plan"
expect 3 "more than it has" $large --plan dp=16384
has 'these would fit' "$folder/out" || fail "no other plans for 16,384 devices"

# ---- sp only where a program could have it ----
"$WEFT" plan --model gpt2-xl --dtype bf16 --batch 64 --optimizer adamw --cluster dgx-a100 --nodes 4 --plan auto >"$folder/out" || fail "auto chose a plan that is refused: exit $?"
grep -qE '^next +dp=.*: ([0-9.]+ % longer, .|as long)' "$folder/out" || fail "no second plan: $(cat "$folder/out")"
expect 2 "slices=5 do not divide the tokens" plan --model gpt2-xl --dtype bf16 --batch 64 --cluster dgx-a100 --plan tp=5,sp

# ---- the program of the fastest plan needs more than is predicted: auto takes a smaller one ----
sed 's/"laptop"/"mine"/; s/8589934592/2e8/; s/"library_bytes": [0-9.e+]*/"library_bytes": 0/' src/cluster/shipped/laptop.json >"$folder/barely.json"
barely="plan --model lstm --layers 2 --hidden 512 --tokens 32 --vocab 4096 --batch 64 --micro 8 --dtype bf16 --optimizer sgd --cluster $folder/barely.json"
expect 3 "more than the 190.7 MiB given" $barely --plan dp=1
"$WEFT" $barely --plan auto >"$folder/out" || fail "auto kept a plan that does not fit: exit $?"

# ---- limits on memory: auto is as fast as the best of these plans that fits ----
cat >"$folder/limits.py" <<'PY'
import json, subprocess, sys
def report(*more):
    r = subprocess.run([*sys.argv[1:], *map(str, more)], capture_output=True, text=True)
    d = json.loads(r.stdout) if r.stdout else {}
    return r.returncode, sum(d.get("times_ms", {}).values()), d
plans = []
for ranks in "dp=2,zero=1", "dp=2,zero=3", "pp=2":
    for away in "", ",offload=params", ",offload=state+params+activations":
        status, ms, d = report("--plan", ranks + away, "--lanes", 2 if "dp=2" in ranks else 1)
        assert status == 0, (ranks + away, status)
        plans.append([ms] + [max(r[k] for r in d["ranks"]) for k in ("peak_bytes", "host_peak_bytes")] + [ranks + away])
plans.sort()
limits = [(p[1], host) for p in plans if "zero=3" in p[3] for host in (p[2], 1) if p[2] or host]
assert len(limits) > 4
for device, host in limits:
    best = next((p for p in plans if p[1] <= device and p[2] <= host), None)
    status, ms, d = report("--plan", "auto", "--device-memory", device, "--host-memory", host)
    assert not best or (status == 0 and ms <= 1.0011 * best[0]), (device, host, best, status, d.get("plan"), ms)
PY
sed 's/"count": [0-9]*/"count": 2/' src/cluster/shipped/ethernet.json >"$folder/two.json"
python3 "$folder/limits.py" "$WEFT" plan --model mlp --image 8 --batch 8 --micro 2 --threads 1 --optimizer adamw \
    --cluster "$folder/two.json" --nodes 1 --quiet --json - || fail "auto within limits on memory"
expect 3 "more than it has" $tiny --plan dp=128 --cluster dgx-a100 --nodes 16 --device-memory 1000
expect 3 "of host memory" $tiny --plan dp=128,offload=state --optimizer adamw --cluster dgx-a100 --nodes 16 --host-memory 1000

# ---- more devices are no reason for a longer step; microbatches are those that a recipe may have ----
lstm="plan --model lstm --batch 256 --optimizer adamw --plan auto --cluster dgx-a100"
report $lstm --nodes 1 >"$folder/one"
report $lstm --nodes 64 >"$folder/many"
awk -v a="$(field step_ms <"$folder/many" | sed -n 1p)" -v b="$(field step_ms <"$folder/one" | sed -n 1p)" 'BEGIN { exit !(0 < a && a <= b * 1.001) }' || fail "auto is slower on 64 nodes than on one"
"$WEFT" plan --model mlp --batch 1000000000 --plan auto --cluster laptop >"$folder/out" || fail "more microbatches than a recipe may have: exit $?"

# ---- plans of the report, given back with their recipe: the same step, and for auto the same peak ----
cat >"$folder/given_back.py" <<'PY'
import json, subprocess, sys
weft, kind, *command = sys.argv[1:]
def report(*more):
    r = subprocess.run([weft, *command, "--json", "-", *more], capture_output=True, text=True)
    return r.returncode, json.loads(r.stdout) if r.stdout else {"error": r.stderr}
status, d = report() if kind == "proposals" else report("--plan", "auto")
needed = d["recipe_needed"] or {}
plans = [{**d, **needed}] if kind == "auto" else d["proposals"]
assert status == (0 if kind == "auto" else 3) and plans, (status, d.get("error"))
for p in plans:
    names = needed if kind == "auto" else ("micro", "lanes", "slices")
    status, e = report("--plan", p["plan"], *(word for n in names for word in (f"--{n}", str(p[n]))))
    assert status == 0, (p["plan"], needed, e.get("error"))
    assert abs(e["step_ms"] - p["step_ms"]) < 1e-6 * p["step_ms"], (p["plan"], e["step_ms"], p["step_ms"])
    same = ("recipe", "plan", "predicted_peak_bytes") if kind == "auto" else ()
    assert all(d[n] == e[n] for n in same), (p["plan"], needed)
assert kind == "auto" or plans == sorted(plans, key=lambda p: p["step_ms"])
PY
given_back() { python3 "$folder/given_back.py" "$WEFT" "$@" || fail "given back: $*"; }
given_back auto plan --model gpt2-tiny --batch 4 --optimizer sgd --cluster dgx-a100 --nodes 1 --device-memory 300000
given_back auto plan --model resnet18 --image 32 --batch 12 --optimizer adamw --cluster jean-zay-before-fix --device-memory 36824678
given_back auto plan --model resnet18 --image 32 --batch 16 --cluster laptop --device-memory 70000000
given_back proposals plan --model resnet18 --image 32 --batch 16 --cluster laptop --device-memory 42230777 --host-memory 166976
given_back proposals plan --model gpt2-tiny --batch 16 --cluster ethernet --plan dp=2 --nodes 2 --device-memory 1000000 --optimizer adamw
"$WEFT" plan --model resnet18 --image 32 --batch 5 --cluster dgx-a100 --plan auto >"$folder/out" || fail "one microbatch of five samples: exit $?"
"$WEFT" plan --model mlp --batch 6 --lanes 4 --cluster dgx-a100 --plan auto >"$folder/out" || fail "lanes that do not divide the batch: exit $?"
expect 2 "4 lanes of a batch of 3" plan --model mlp --batch 3 --lanes 4 --cluster dgx-a100 --plan auto

# ---- --proof full: the host memory and disks of the cluster are limits, too ----
for space in "host memory=activations" "disk=activations:disk"; do
    expect 3 "of ${space%=*}: " $tiny --cluster fugaku --plan "dp=2,offload=${space#*=}" --proof full
    "$WEFT" $tiny --cluster fugaku --plan "dp=2,offload=${space#*=}" --proof full --json "$folder/report" >"$folder/out" 2>&1
    [[ $(head -1 "$folder/out") == weft:* ]] && has '"fits": false' "$folder/report" && has '^fits    no' "$folder/out" || fail "--proof full without ${space%=*}: $(head -3 "$folder/out")"
done

# ---- the decision table: the cases of the survey ----
# advises STRATEGY WORDS OPTIONS...: the recommendation, and words of the reason.
advises() {
    local strategy=$1 words=$2
    shift 2
    report advise $gpt "$@" >"$folder/advice"
    [[ $(field recommended <"$folder/advice") == "$strategy" ]] || fail "$*: $(field recommended <"$folder/advice"), not $strategy"
    has -F "$words" "$folder/advice" || fail "$*: no '$words' in $(grep '"why"' "$folder/advice")"
}
small="--layers 12 --hidden 768 --tokens 1024"
medium="--layers 24 --hidden 2048 --heads 16 --tokens 1024"
large="--layers 32 --hidden 4096 --heads 32 --tokens 2048"
wide="--layers 2 --hidden 32768 --heads 128 --tokens 2048"
advises "one device" "the rule of thumb agrees (one device, and the model fits)" $small --batch 32 --cluster laptop
advises offload "the rule of thumb agrees (one device, and the model does not fit)" $medium --batch 8 --cluster laptop
advises ZeRO-1 "would be DDP, but DDP takes" $small --batch 256 --cluster dgx-a100 --nodes 1
# Within 1 % of the shortest, the simpler one.
advises DDP "ZeRO-1 is 0.5 % shorter, within the 1 % that count as equal; the rule of thumb agrees (one node, and the model fits" $small --batch 1024 --cluster dgx-a100 --nodes 1
advises ZeRO-1 "the rule of thumb agrees (one node, and the model does not fit" $large --batch 64 --cluster dgx-a100 --nodes 1
advises offload "ZeRO-2 or ZeRO-3 or pipeline, but ZeRO-3 takes" $large --batch 128 --cluster dgx-a100 --nodes 1
advises tensor "the rule of thumb agrees (one node, and no pipeline stage fits" $wide --batch 4 --cluster dgx-a100 --nodes 1
advises offload "would be ZeRO-1 or ZeRO-2 or ZeRO-3 or PP+TP+DP" $large --batch 1024 --cluster dgx-a100 --nodes 8
rows=()
! command -v gnuplot >/dev/null || rows=(--draw "$folder/rows.svg")
advises pipeline "would be DP+PP+TP+ZeRO-1" $large --batch 64 --cluster ethernet "${rows[@]}"
python3 - "$folder/advice" <<'PY' || fail "the rows of the report"
import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
assert len(rows) == 13 and all(r["plan"] for r in rows)
assert all(r["fits"] == (r["short_by_bytes"] == 0) == (r["lacks"] is None) for r in rows)
assert all(abs(sum(r["times_ms"].values()) - r["step_ms"]) < 1e-6 * r["step_ms"] for r in rows)
PY
# A strategy without a plan has a reason and no figures.
report advise $gpt $small --batch 32 --cluster laptop >"$folder/advice"
python3 - "$folder/advice" <<'PY' || fail "a strategy without a plan"
import json, sys
rows = [r for r in json.load(open(sys.argv[1]))["rows"] if r["plan"] is None]
assert [r["strategy"] for r in rows] == ["DataParallel", "DDP", "ZeRO-1", "ZeRO-2", "ZeRO-3", "pipeline",
    "tensor", "PP+DP", "TP+DP", "PP+TP+DP", "DP+PP+TP+ZeRO-1"]
assert all(not r["fits"] and r["step_ms"] is None and r["short_by_bytes"] is None for r in rows)
assert rows[0]["why"] == "it needs 2 devices; the cluster has 1", rows[0]
assert rows[10]["why"] == "it needs 8 devices; the cluster has 1", rows[10]
PY
# changed NAME PYTHON: a cluster file, changed.
changed() {
    python3 - "$folder/$1.json" "$2" <<'PY'
import json, sys
c = json.load(open("src/cluster/shipped/laptop.json"))
exec(sys.argv[2])
json.dump(c, open(sys.argv[1], "w"))
PY
}
changed bare 'del c["host"], c["disk"]'
"$WEFT" advise $gpt $small --batch 32 --cluster "$folder/bare.json" >"$folder/out" || fail "a cluster without a host: exit $?"
has 'offload .* no plan: the cluster has neither host memory nor a disk' "$folder/out" || fail "no reason: $(grep offload "$folder/out")"
# Bytes may be missing on the host.
changed host 'del c["disk"]; c["host"]["memory_bytes"] = 5e9'
"$WEFT" advise $gpt $medium --batch 8 --cluster "$folder/host.json" >"$folder/out"
[[ $? == 3 ]] || fail "a host that is too small: another exit status"
has 'lacks host memory' "$folder/out" && has "offload lacks the fewest bytes: it needs .* more host memory than a device's share" "$folder/out" ||
    fail "no word of the host: $(tail -2 "$folder/out")"
"$WEFT" advise $gpt --layers 200 --hidden 8192 --heads 64 --batch 8 --cluster laptop >"$folder/out"
[[ $? == 3 ]] || fail "nothing fits: another exit status"
has 'nothing fits' "$folder/out" || fail "it does not say that nothing fits"
"$WEFT" advise --model resnet18 --image 32 --batch 8 --cluster laptop >"$folder/out" || fail "a model that refuses one sample: exit $?"
expect 2 "has no variance" advise --model resnet18 --image 32 --batch 8 --micro 8 --cluster laptop
expect 2 "suits --batch 8 and --micro 9" advise --model mlp --batch 8 --micro 9 --cluster laptop
expect 2 "--cluster is missing" advise --model mlp
expect 2 "has no option --plan" advise --model mlp --cluster laptop --plan dp=2

# A prediction may be too low: the recommended plan is lowered, and another one is taken.
changed cut 'c["device"]["memory_bytes"] = 419430400; c["device"]["library_bytes"] = 0'
cut="--model gpt --layers 4 --hidden 384 --heads 4 --vocab 5000 --tokens 128 --batch 32 --optimizer sgd --dtype bf16 --micro 1"
report advise $cut --cluster "$folder/cut.json" >"$folder/advice"
plan=$(python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
r = next(r for r in d["rows"] if r["strategy"] == d["recommended"])
print(r["plan"], "--lanes", r["lanes"], "--slices", r["slices"])' "$folder/advice")
"$WEFT" plan $cut --plan ${plan:-none} --cluster "$folder/cut.json" >"$folder/out" || fail "the recommended plan $plan: exit $?: $(head -3 "$folder/out")"

# ---- pictures ----
if command -v gnuplot >/dev/null; then
    is_png() { [[ $(head -c 4 "$1" | tail -c 3) == PNG ]] || fail "$1 is no PNG"; }
    for word in '\* pipeline' 'DP+PP+TP+ZeRO-1' 'lacks 77.81 GiB' 'spare 3.88 GiB' 'pipeline bubble' 'recommended'; do
        has "$word" "$folder/rows.svg" || fail "the picture of the rows has no $word"
    done
    "$WEFT" advise $gpt $small --batch 32 --cluster laptop --draw "$folder/rows.png" >"$folder/out" && is_png "$folder/rows.png"
    "$WEFT" advise $gpt $small --batch 32 --cluster laptop --draw "$folder/rows.svg" >"$folder/out"
    has 'no plan: it needs 8 devices' "$folder/rows.svg" || fail "the picture does not name missing devices"
    search="plan $gpt $small --batch 32 --cluster laptop --plan auto"
    "$WEFT" $search --draw "$folder/search.svg" >"$folder/out" || fail "--plan auto --draw: exit $?"
    for word in 'memory of a device' 'dp=1,offload=params, .*; does not fit' 'no other plan is better'; do
        has "$word" "$folder/search.svg" || fail "the picture of the search has no $word"
    done
    "$WEFT" $search --draw "$folder/search.png" >"$folder/out" && is_png "$folder/search.png"
    "$WEFT" plan $gpt --layers 12 --hidden 1024 --tokens 512 --batch 256 --cluster dgx-a100 --plan auto --draw "$folder/many.png" >"$folder/out" &&
        is_png "$folder/many.png" || fail "a picture of a plan that is not lowered: exit $?"
    "$WEFT" plan --model gpt2-tiny --tokens 16 --batch 8 --cluster laptop --plan auto --proof full --draw "$folder/line.svg" >"$folder/out"
    has 'time in the step' "$folder/line.svg" || fail "--proof full draws no timeline"
fi
expect 2 "this picture is a file .svg or .png" advise $gpt $small --cluster laptop --draw "$folder/rows.txt"
expect 2 "this picture is a file .svg or .png" plan $gpt $small --cluster laptop --plan auto --draw "$folder/rows.txt"
finish
