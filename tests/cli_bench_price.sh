#!/usr/bin/env bash
# weft bench price: rows, their recipes and fields, each option.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

price() { report_of "$1" bench price "${@:2}"; } # NAME OPTIONS...
# recipes NAME: the options of each row.
recipes() { grep '"recipe": "' "$folder/$1.json" | field recipe | sed 's/--//g' | paste -sd ';'; }
# has_recipes NAME "ROW;ROW...": without the dashes.
has_recipes() { [[ $(recipes "$1") == "$2" ]] || fail "$1: rows are '$(recipes "$1")', not '$2'"; }
once=(--steps 1 --repeat 1)
tested=(--json)

# ---- a Python that is too old ----
mkdir "$folder/old"
cat >"$folder/old/python3" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done # options of python3
exec $(command -v python3) -c 'import runpy, sys; sys.version_info = (3, 8); sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")' "\$@"
END
chmod +x "$folder/old/python3"
PATH="$folder/old:$PATH" expect 1 "python3 is version 3.8; 3.9 or newer is needed" bench price --model mlp
(($(wc -l <"$folder/said") == 1)) || fail "an old Python: more than a sentence: $(cat "$folder/said")"

# ---- a Python that ends without a sentence of weft's: its status and signal are not weft's; it begins without SIGINT ----
for end in 'kill -INT $$; exit 3:ended with exit status 3' "exit 4:ended with exit status 4" 'kill -KILL $$:was killed by signal 9 (Killed)'; do
    printf '#!/bin/sh\n%s\n' "${end%%:*}" >"$folder/old/python3"
    PATH="$folder/old:$PATH" expect 1 "python3, which makes the table, ${end#*:}" bench price --model mlp
done
# A signal while modules load: no traceback.
cat >"$folder/old/python3" <<END
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
exec $(command -v python3) -c 'import os, runpy, signal, sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "allreduce":
            os.kill(os.getpid(), signal.SIGINT)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
sys.meta_path.insert(0, Finder())
runpy.run_path(sys.argv[0], run_name="__main__")' "\$@"
END
PATH="$folder/old:$PATH" expect 1 "was killed by signal 2 (Interrupt)" bench price --model mlp
(($(wc -l <"$folder/said") == 1)) || fail "SIGINT while modules load: $(cat "$folder/said")"

# ---- rows, their fields and the table ----
price gpt2-tiny --model gpt2-tiny --tokens 8 --batch 4 --steps 1 --repeat 2
has_recipes gpt2-tiny "lanes 1 micro 1 slices 1;lanes 4 micro 4 slices 1;lanes 4 micro 4 slices 4"
[[ $(field over <"$folder/gpt2-tiny.json" | head -1) == 0.0 ]] || fail "the base costs more than itself"
awk '/"cpu_ms"/ { ms[++n] = $2 + 0 } /"over"/ { o[n] = $2 + 0 }
     END { for (i = 1; i <= n; i++) { d = ms[i] / ms[1] - 1 - o[i]; if (!(ms[i] > 0) || d * d > 1e-12) exit 1 } exit n != 3 }' \
    "$folder/gpt2-tiny.json" || fail "over is not cpu_ms over the base's: $(cat "$folder/gpt2-tiny.json")"
[[ $(sed -n '/"runs": \[/,/\]/p' "$folder/gpt2-tiny.json" | grep -c '[0-9]') == 6 ]] || fail "--repeat 2: a row does not have two runs"
[[ $(grep -c '"plan": "dp=1,' "$folder/gpt2-tiny.json") == 3 ]] || fail "a row has no plan"
[[ $(field weights_sha256 <"$folder/gpt2-tiny.json" | sort -u | wc -l) == 3 ]] || fail "recipes have the same weights"
[[ $(grep -c -- '^--lanes .* % .*[KM]iB$' "$folder/gpt2-tiny.out") == 3 ]] || fail "no table: $(cat "$folder/gpt2-tiny.out")"
tested+=(--model --steps --repeat)

# ---- a row's weights and peak are those of weft bench train ----
same=$("$WEFT" bench train --model gpt2-tiny --tokens 8 --batch 4 --repeat 1 --lanes 4 --slices 1 --threads 1 --quiet --json -)
for name in weights_sha256 planned; do
    expected=$(grep -A1 "\"$name\"" <<<"$same" | paste -sd ' ' | grep -o '[0-9a-f]\{6,\}' | head -1)
    got=$(grep -A1 "\"$name\"" "$folder/gpt2-tiny.json" | grep -o '[0-9a-f]\{6,\}' | sed -n 2p)
    [[ $expected && $expected == "$got" ]] || fail "$name is '$got', that of weft bench train '$expected'"
done

# ---- a recipe that an earlier row has is left out; the report alone; no folder is left behind ----
price mlp --model mlp --image 6 --batch 8 "${once[@]}"
has_recipes mlp "lanes 1 micro 1 slices 1;lanes 8 micro 8 slices 1"
mkdir "$folder/tmp"
TMPDIR=$folder/tmp "$WEFT" bench price --model mlp --image 6 --batch 1 --conv direct --quiet --json - "${once[@]}" >"$folder/one.json" 2>"$folder/said"
[[ ! -s $folder/said && $(head -1 "$folder/one.json") == "{" ]] || fail "--quiet --json -: $(cat "$folder/said" "$folder/one.json")"
rmdir "$folder/tmp" || fail "a folder is left behind"
has_recipes one "lanes 1 micro 1 slices 1"
has_field one image 6
has_field one conv direct
tested+=(--image --batch --conv --quiet)

# ---- each option reaches the runs ----
given=(--layers 1 --hidden 16 --heads 2 --vocab 64 --tokens 9 --batch 2 --seed 5 --threads 2 --dtype bf16 --optimizer adam --lr 0.5)
price gpt --model gpt "${given[@]}" "${once[@]}"
for ((i = 0; i < ${#given[@]}; i += 2)); do
    has_field gpt "${given[i]#--}" "${given[i + 1]}"
    tested+=("${given[i]}")
done
price lstm --model lstm --tokens 4 --batch 1 --layers 1 --hidden 8 --vocab 16 --embedding 8 --tied "${once[@]}"
has_field lstm embedding 8
has_field lstm tied true
tested+=(--embedding --tied)

# ---- an interruption ends the run that is under way, and leaves nothing behind; no Python, no rows ----
mkdir "$folder/tmp"
TMPDIR=$folder/tmp "$WEFT" bench price --model mlp --image 6 --batch 8 --steps 1 --repeat 1000 --json "$folder/none.json" >/dev/null 2>"$folder/said" &
until_true_of $! compgen -G "$folder/tmp/weft-bench-*/report.json" >/dev/null || fail "no run begins: $(cat "$folder/said")"
kill -TERM $!
status=0
wait $! || status=$?
[[ $status == 143 && ! -e $folder/none.json ]] || fail "SIGTERM: exit $status"
has -x "weft: interrupted; no results have been written" <"$folder/said" || fail "SIGTERM: $(cat "$folder/said")"
rmdir "$folder/tmp" || fail "SIGTERM leaves a folder behind"
# SIGKILL, which nothing can catch, ends weft, and then all of its process group.
mkdir "$folder/tmp"
TMPDIR=$folder/tmp setsid "$WEFT" bench price --model mlp --image 6 --batch 8 --steps 1 --repeat 1000 >/dev/null 2>"$folder/said" &
until_true_of $! compgen -G "$folder/tmp/weft-bench-*/report.json" >/dev/null || fail "no run begins: $(cat "$folder/said")"
kill -KILL -- -$!
wait $! 2>/dev/null
until_true rmdir "$folder/tmp" 2>/dev/null || fail "SIGKILL leaves a folder behind"
# The scripts in bench/ that call weft remove theirs, too.
mkdir "$folder/tmp"
for status in 143 129; do
    name=$(kill -l $status)
    PYTHONPATH=$WEFT_SOURCE/bench TMPDIR=$folder/tmp python3 -Bc "import os, signal, tempfile, versus
with tempfile.TemporaryDirectory():
    os.kill(os.getpid(), signal.SIG$name)
    signal.pause()"
    ended=$?
    [[ $ended == "$status" ]] || fail "a comparison ends with $ended after SIG$name"
done
rmdir "$folder/tmp" || fail "a comparison leaves a folder behind"
# Also just after the folder is made, and just before the launcher reads signals.
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    for call in mkdir signalfd4; do
        mkdir "$folder/tmp"
        status=0
        ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 TMPDIR=$folder/tmp strace -o /dev/null -e inject=$call:signal=SIGTERM:when=1 \
            "$WEFT" bench price --model mlp --image 6 --batch 8 --steps 1 --repeat 1 >"$folder/out" 2>"$folder/said" || status=$?
        [[ $status == 143 ]] || fail "SIGTERM at $call: exit $status: $(cat "$folder/said")"
        has -x "weft: interrupted; no results have been written" <"$folder/said" || fail "SIGTERM at $call: $(cat "$folder/said")"
        rmdir "$folder/tmp" || fail "SIGTERM at $call leaves a folder behind"
    done
fi
PATH=/nowhere "$WEFT" bench price --model mlp >"$folder/out" 2>"$folder/said" && fail "rows without Python"
has "there is no python3 in PATH, which makes the table" <"$folder/said" || fail "no Python: $(cat "$folder/said")"

# ---- bad input ----
expect 2 "--model is missing" bench price
expect 2 "--repeat must be" bench price --model mlp --repeat 0
expect 2 "has no option --lanes" bench price --model mlp --lanes 2
expect 2 "has no option --ranks" bench price --model mlp --ranks 2
expect 1 "cannot be written" bench price --model mlp --json "$folder/none/r.json"

# ---- every option has a test ----
expect_all_tested bench price
finish
