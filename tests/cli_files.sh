#!/usr/bin/env bash
# What the program writes is whole or not there, goes through no link, waits for no pipe, and says
# why where it cannot; what it prints of files commands no terminal.
# label: serial
# shellcheck source=tests/cli_helpers.bash
source tests/cli_helpers.bash

mlp="train --model mlp --data synthetic --image 4 --batch 4 --threads 1"
here=$folder/here
mkdir "$here"

# run STATUS WORDS COMMAND...: as expect does, but a command that waits for ever fails.
run() {
    local status=$1 words=$2 got=0
    shift 2
    timeout -k 5 $patience "$WEFT" "$@" >"$folder/out" 2>"$folder/said" </dev/null || got=$?
    [[ $got == "$status" ]] || fail "weft $*: exit $got, expected $status: $(tail -1 "$folder/said")"
    [[ -z $words ]] || grep -qF -- "$words" "$folder/said" || fail "weft $*: does not say '$words': $(cat "$folder/said")"
}
is_link_free() { [[ -f $1 && ! -L $1 && -s $1 ]]; }
left_over() { find "$here" -name '.weft-*' -o -name '*.part' | has . && fail "$1 leaves its working files behind"; }

# ---- links are replaced, not followed ----
echo precious >"$folder/victim"
for name in report.json trace.json picture.txt picture.svg; do ln -s "$folder/victim" "$here/$name"; done
run 0 "" $mlp --steps 2 --json "$here/report.json" --trace "$here/trace.json"
run 0 "" draw "$here/trace.json" --draw "$here/picture.txt"
names="report.json trace.json picture.txt"
if command -v gnuplot >/dev/null; then
    run 0 "" draw "$here/trace.json" --draw "$here/picture.svg"
    names+=" picture.svg"
fi
for name in $names; do is_link_free "$here/$name" || fail "$name is still a link"; done
mkdir "$here/run"
for name in log.jsonl log.jsonl.part events.out.tfevents.weft curve.csv curve.png; do ln -s "$folder/victim" "$here/run/$name"; done
run 0 "" $mlp --steps 2 --out "$here/run"
ln -sf "$folder/victim" "$here/run/log.jsonl.part"
run 0 "" train --resume --out "$here/run" --steps 3
for name in log.jsonl events.out.tfevents.weft curve.csv; do is_link_free "$here/run/$name" || fail "$name is still a link"; done
[[ $(wc -l <"$here/run/log.jsonl") == 3 ]] || fail "the log of 3 steps has $(wc -l <"$here/run/log.jsonl") lines"
[[ $(cat "$folder/victim") == precious ]] || fail "a file was written through a link: $(head -c 80 "$folder/victim")"
rm "$here/run/log.jsonl.part"
left_over "writing over links"

# A line that a kill has cut off is dropped, and so is what the checkpoint does not count.
printf '{"step":4,"loss":1}\n{"step":2,"lo' >>"$here/run/log.jsonl"
run 0 "" train --resume --out "$here/run" --steps 4
[[ $(cut -d, -f1 "$here/run/log.jsonl" | tr -d '\n') == '{"step":1{"step":2{"step":3{"step":4' ]] ||
    fail "the log after a kill: $(cat "$here/run/log.jsonl")"

# ---- a full disk: the old file stays, the reason is said ----
before=$(cksum <"$here/report.json")
run 0 "" $mlp --steps 300 --trace "$here/long.json"
limited() { (trap '' XFSZ; ulimit -f "$1"; shift; run "$@"); }
limited 1 1 "report.json cannot be written: File too large" $mlp --steps 300 --json "$here/report.json"
[[ $(cksum <"$here/report.json") == "$before" ]] || fail "a full disk: the old report is gone"
before=$(cksum <"$here/trace.json")
limited 1 1 "trace.json cannot be written: File too large" $mlp --steps 2 --trace "$here/trace.json"
[[ $(cksum <"$here/trace.json") == "$before" ]] || fail "a full disk: the old trace is gone"
limited 2 1 "log.jsonl cannot be written: File too large" $mlp --steps 300 --save-every 300 --out "$here/full"
run 0 "" $mlp --steps 1 --out "$here/async"
before=$(cat "$here/async"/*.safetensors | cksum)
limited 8 1 ".safetensors cannot be written: File too large" train --resume --steps 9 --save-every 1 --save-async --out "$here/async"
[[ $(cat "$here/async"/*.safetensors | cksum) == "$before" ]] || fail "a full disk in the background: the old state is gone"
left_over "a full disk"

# ---- what is no file of the disk is written to where it is ----
run 0 "" $mlp --steps 1 --quiet --json /dev/null
[[ -c /dev/null ]] || fail "/dev/null has become a file"
"$WEFT" $mlp --steps 1 --json /dev/stdout >"$folder/both" || fail "--json /dev/stdout"
[[ $(head -c 4 "$folder/both") == data && $(tail -1 "$folder/both") == "}" ]] ||
    fail "/dev/stdout: what was printed, or the report, is lost"
[[ $("$WEFT" $mlp --steps 1 --quiet --json >(cat) | head -1) == "{" ]] || fail "--json to a pipe"
ln -s /dev/full "$here/full.json"
run 1 "full.json cannot be written: No space left" $mlp --steps 1 --json "$here/full.json"
[[ -L $here/full.json ]] || fail "a link to a device is replaced"

# ---- what cannot be written is refused before the work, not after it ----
for path in /dev/fd/77 /dev/stdin; do
    run 1 "the report $path cannot be written" $mlp --steps 2 --json "$path"
    grep -q ^done "$folder/out" && fail "--json '$path' is refused after the training"
done
for words in info "plan --model mlp" "advise --model gpt2-tiny --tokens 8 --batch 8 --cluster dgx-a100"; do
    run 1 "the report $here cannot be written: it is not a regular file" $words --json "$here"
    [[ -s $folder/out ]] && fail "--json: weft $words is refused after its work"
done
for option in --json --trace --out; do
    run 2 "$option is empty; it needs a value: " $mlp --steps 2 $option ""
done

# ---- pipes are not waited for ----
mkfifo "$here/pipe"
run 1 "is not a regular file, but a pipe" train --config "$here/pipe"
run 1 "is not a regular file, but a pipe" draw "$here/pipe"
run 1 "is not a regular file, but a pipe" $mlp --steps 1 --init "$here/pipe"
run 1 "no process reads that pipe" $mlp --steps 1 --json "$here/pipe"
run 1 "not a regular file" $mlp --steps 1 --trace "$here/pipe"
mkdir "$here/pipes" && mkfifo "$here/pipes/log.jsonl"
run 1 "log.jsonl cannot be written: it exists and is not a regular file" $mlp --steps 1 --out "$here/pipes"
run 1 "but a device" train --config /dev/zero
run 1 "but a device" draw /dev/zero

# ---- standard output that takes nothing ----
for words in --version --help "help" "help train" "help --man" "train --help" info \
    "simulate --stages 2 --micro 2 --forward-ms 1 --backward-ms 1 --weight-ms 0" "$mlp --steps 1" "plan --model mlp" "$mlp --steps 1 --quiet --json -"; do
    timeout $patience "$WEFT" $words >/dev/full 2>"$folder/said"
    [[ $? == 1 ]] || fail "weft $words >/dev/full: not exit 1"
    grep -q "cannot be written: No space left" "$folder/said" || fail "weft $words >/dev/full: $(cat "$folder/said")"
done

expect_closed() { [[ $(tail -1 "$folder/said") == "weft: $1" ]] || fail "standard output is closed: $(cat "$folder/said")"; }
"$WEFT" info >&- 2>"$folder/said" && fail "weft info >&-: no failure"
expect_closed "standard output cannot be written: it is closed"
for words in info "plan --model mlp"; do
    "$WEFT" $words --json - >&- 2>"$folder/said" && fail "weft $words >&-: no failure"
    expect_closed "the report on standard output cannot be written: it is closed, or can only be read"
done
[[ $words == plan* && $(wc -l <"$folder/said") == 1 ]] || fail "weft $words >&-: it works first: $(cat "$folder/said")"

# ---- control characters ----
escapes() { LC_ALL=C grep -lP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$folder/out" "$folder/said"; }
config() { printf '%s' "$1" >"$folder/c.json"; }
config '{"\u001b[31mmodel": "mlp"}'; run 2 'holds a control character' train --config "$folder/c.json"; escapes && fail "a key is printed raw"
config '{"model": "\u001b]0;owned\u0007"}'; run 2 "'model' holds a control character" train --config "$folder/c.json"; escapes && fail "a value is printed raw"
config '{"model": "\u009b2J"}'; run 2 "'model' holds a control character" train --config "$folder/c.json"; escapes && fail "C1 is printed raw"
run 2 'a\x1b[2J' train --model mlp --data $'a\e[2J'; escapes && fail "a path is printed raw"
run 2 'a\u009b2J' train --model mlp --data $'a\xc2\x9b2J'; escapes && fail "C1 is printed raw"
header='{"\u001b[31mw":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
{ printf "\\x$(printf %02x ${#header})\\0\\0\\0\\0\\0\\0\\0"; printf '%s' "$header"; printf '\0\0\0\0'; } >"$folder/hostile.safetensors"
run 1 '\x1b[31mw' $mlp --steps 1 --init "$folder/hostile.safetensors"; escapes && fail "a tensor's name is printed raw"
printf '%s' '{"traceEvents":[],"otherData":{"format":"\u001b[2J"}}' >"$folder/t.json"
run 1 "t.json" draw "$folder/t.json"; escapes && fail "a trace's words are printed raw"
# ---- streams that are closed ----

# What weft prints must not get into a file that it opens first.
"$WEFT" train --model mlp --data synthetic --batch 8 --steps 2 --threads 1 --out "$folder/daemon" \
    <&- >&- 2>"$folder/said" && fail "closed standard output: no failure"
grep -q 'standard output' "$folder/said" || fail "closed standard output: $(cat "$folder/said")"
grep -qv '^{' "$folder/daemon/log.jsonl" && fail "log.jsonl holds other lines: $(grep -v '^{' "$folder/daemon/log.jsonl" | head -1)"

# ---- a full disk is one sentence ----
if unshare -m true 2>/dev/null; then
    mkdir "$folder/full"
    for size in 12k 16k 20k; do # run.json, log and events
        unshare -m bash -c 'mount -t tmpfs -o size="$0" none "$1" && shift && "$@"' $size "$folder/full" \
            "$WEFT" train --model mlp --data synthetic --image 6 --batch 8 --steps 3 --threads 1 --out "$folder/full" >/dev/null 2>"$folder/said"
        [[ $? == 1 && $(grep -c '^weft: ' "$folder/said") == 1 ]] && grep -q "No space left" "$folder/said" || fail "a disk of $size: $(cat "$folder/said")"
    done
fi

finish
