#!/usr/bin/env bash
# weft info says what the processor can do and how much memory there is, also without /proc and /sys; and a
# bench says which processor ran it, and for how long.
# label: once
source tests/cli_helpers.bash

"$WEFT" info --json "$folder/info.json" >"$folder/out" || fail "info: exit $?"
[[ $(field cpu <"$folder/info.json") != unknown ]] || fail "the processor has no name"
for library in zlib PCRE2 libpng; do
    has "\"$library [0-9]" "$folder/info.json" || fail "no version of $library: $(grep -A12 '"libraries"' "$folder/info.json")"
done
(($(field memory_bytes <"$folder/info.json") > 1000000)) || fail "memory: $(field memory_bytes <"$folder/info.json")"
found=$(sed -n '/"instructions": \[/,/\]/p' "$folder/info.json" | grep -o '^ *"[a-z0-9_]*",\{0,1\}$' | tr -d '", ' | sort | tr '\n' ' ')
flags=$(grep -m 1 '^flags' /proc/cpuinfo)
if [[ $flags ]]; then
    want=$(for set in sse4_1 avx fma avx2 avx_vnni avx512f avx512_vnni avx512_bf16 avx512_fp16 amx_tile amx_bf16 amx_int8; do
        [[ " ${flags#*:} " == *" $set "* ]] && echo $set
    done | sort | tr '\n' ' ')
    [[ $found == "$want" ]] || fail "instructions: '$found', Linux says '$want'"
    for set in $want; do grep -qw "$set" "$folder/out" || fail "$set is not shown"; done
fi

# ---- --measure: a cluster file, whose numbers weft plan and weft advise read ----
"$WEFT" info --measure "$folder/here.json" >"$folder/out" 2>"$folder/said" || fail "--measure: exit $?: $(cat "$folder/said")"
grep -c "^measured   a core: .* GFLOP/s in f32" "$folder/out" >/dev/null && grep -c "^saved      $folder/here.json$" "$folder/out" >/dev/null || fail "--measure: not said: $(cat "$folder/out")"
has '"f16"' "$folder/here.json" && fail "--measure: an f16 rate, which is not measured"
for name in f32 bf16 memory_bandwidth launch_us memory_bytes bandwidth; do
    field $name <"$folder/here.json" | awk '{ if (!($1 > 0)) exit 1; n++ } END { exit !n }' || fail "--measure: $name is '$(field $name <"$folder/here.json")'"
done
cores=$(field cores <"$folder/info.json" | tail -1)
[[ $cores == 1 || $(field count <"$folder/here.json") == "$cores" ]] || fail "--measure: not a device a core: $(cat "$folder/here.json")"
for command in "plan --plan dp=1" "advise"; do
    $WEFT $command --model gpt2-tiny --tokens 8 --batch 8 --cluster "$folder/here.json" >"$folder/out" 2>"$folder/said" || fail "weft $command does not read it: $(cat "$folder/said")"
done
expect 1 "the cluster file $folder/none/m.json cannot be written" info --measure "$folder/none/m.json"
expect 1 "not a regular file" info --measure /dev/null
echo kept >"$folder/full.json"
(ulimit -f 0 && "$WEFT" info --measure "$folder/full.json") >"$folder/out" 2>"$folder/said" && fail "--measure: a full disk is not said"
[[ $(cat "$folder/full.json") == kept ]] || fail "--measure: half a file: $(cat "$folder/full.json")"
[[ $(cd "$folder" && compgen -G '*disk*') ]] && fail "--measure: a file is left behind"

# ---- variables: an empty one is not set ----
# counts_set: compares the lines of variables, and their count, with this environment.
counts_set() {
    local name n_set=0 names
    "$WEFT" info --json "$folder/variables.json" >"$folder/out" || fail "info: exit $?"
    names=$(sed -n '/"environment": \[/,/\]/p' "$folder/variables.json" | field name)
    for name in $names; do [[ ! ${!name-} ]] || n_set=$((n_set + 1)); done
    grep -qE "^(variables)? +$n_set of $(wc -w <<<"$names") are set; --all shows all$" "$folder/out" || fail "not $n_set set: $(grep ' are set' "$folder/out")"
    [[ $(grep -c '(by environment)$' "$folder/out") == "$n_set" ]] || fail "not $n_set variables: $(cat "$folder/out")"
}
counts_set
(export WEFT_DELAY_US=0 WEFT_ARENA_GAP=0 WEFT_LOG='' && counts_set)

# ---- a bare chroot has neither /proc nor /sys ----
if unshare -m true 2>/dev/null; then
    bare=$(unshare -m bash -c "mount -t tmpfs none /sys && mount -t tmpfs none /proc && LD_LIBRARY_PATH='$(realpath "$(dirname "$WEFT")")' exec '$(realpath "$WEFT")' info" 2>&1) ||
        fail "info without /proc: $bare"
    grep -q " 0 B" <<<"$bare" && fail "without /sys there is no memory: $(grep " 0 B" <<<"$bare")"
    grep -qi "hwloc.*\*\|hwloc.*warning\|hwloc has encountered" <<<"$bare" && fail "hwloc speaks: $bare"
    [[ $(head -1 <<<"$bare") == "weft "* ]] || fail "without /proc: $(head -1 <<<"$bare")"
fi

# ---- what a container leaves ----
mkdir -p "$folder/cg/box"
echo "100000 100000" >"$folder/cg/box/cpu.max"
echo 2147483648 >"$folder/cg/box/memory.max"
echo "0::/box" >"$folder/cgroup"
echo "30 23 0:26 / $folder/cg rw - cgroup2 cgroup2 rw" >"$folder/mountinfo"
if unshare -m true 2>/dev/null; then
    in_box() {
        unshare -m bash -c 'for file in cgroup mountinfo; do mount --bind "$0/$file" /proc/$$/$file; done; exec "$@"' "$folder" "$@"
    }
    in_box "$WEFT" info --json "$folder/box.json" >"$folder/out" || fail "info in a control group: exit $?"
    grep -q "may use 1 hardware thread$" "$folder/out" || fail "the quota is not kept: $(grep cpu: "$folder/out")"
    grep -q "may have 2.00 GiB of memory" "$folder/out" || fail "the memory that is allowed is not shown"
    [[ $(field cpu_quota <"$folder/box.json") == 1.0 && $(field cores <"$folder/box.json") == *1 ]] || fail "the report does not have the quota"
    threads=$(in_box "$WEFT" plan --model mlp --batch 8 --quiet --json - | field threads)
    [[ $threads == 1 ]] || fail "$threads threads where there is time of one CPU"
    # What runs has no more memory than that, unless it is told how much; what is only planned does not run here.
    echo 4000000 >"$folder/cg/box/memory.max"
    steps="--model mlp --data synthetic --batch 8 --threads 1 --steps 1"
    needs=$("$WEFT" plan $steps --quiet --json - | field peak_bytes | head -1)
    ((needs > 4000000)) || fail "this test's model needs $needs bytes"
    said=$(in_box "$WEFT" train $steps 2>&1)
    [[ $? == 3 && $said == *"memory  3.8 MiB a rank at most: the control group may have 3.8 MiB"*"more than the 3.8 MiB given"* ]] || fail "4 MB are not the cap: $said"
    said=$(in_box "$WEFT" train $steps --devices cpu:2 --plan pp=2 2>&1)
    [[ $? == 3 && $said == *"more than the 1.9 MiB given"* ]] || fail "4 MB are not two ranks' cap: $said"
    in_box "$WEFT" train $steps --device-memory 1GiB --quiet || fail "a cap that is given is not the cap: exit $?"
    in_box "$WEFT" plan $steps --quiet || fail "a plan has a cap: exit $?"
fi

# ---- what a bench took ----
bench=(bench train --model mlp --batch 64 --threads 1 --repeat 3)
"$WEFT" "${bench[@]}" --json "$folder/bench.json" >"$folder/out" || fail "bench: exit $?"
[[ $(field processor <"$folder/bench.json") == "$(field cpu <"$folder/info.json")" ]] || fail "not the processor of weft info"
for name in cpu_seconds wall_seconds cpu_ms; do
    [[ $(field $name <"$folder/bench.json") == *[1-9]* ]] || fail "$name: $(field $name <"$folder/bench.json")"
done
grep -q '"taken_by_others": ' "$folder/bench.json" || fail "not what others have taken"
grep -q "s of CPU time in" "$folder/out" || fail "says no CPU time"
"$WEFT" bench allreduce --ranks 2 --bytes 4KiB --wire inproc --repeat 1 --json "$folder/reduce.json" >"$folder/out" || fail "allreduce: exit $?"
[[ $(field cpu_seconds <"$folder/reduce.json") == *[1-9]* && $(field processor <"$folder/reduce.json") ]] || fail "allreduce: no CPU time"
# Of ranks as processes it is the time of all.
report "${bench[@]}" --ranks 2 --plan dp=2 >"$folder/two.json"
[[ $(field cpu_seconds <"$folder/two.json") == *[1-9]* ]] || fail "two ranks: no CPU time"
finish
