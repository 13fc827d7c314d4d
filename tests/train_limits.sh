#!/usr/bin/env bash
# What surrounds a run has its limits: gnuplot that does not end, files that may grow no more, standard
# output that nobody takes. Training is done and saved as far as it can be, and the exit status is the
# same with ranks as processes.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash

# ---- gnuplot that does not end ----
mkdir "$folder/bin"
printf '#!/bin/sh\necho $$ >%s/gnuplot.pid\nexec sleep 1000\n' "$folder" >"$folder/bin/gnuplot"
chmod +x "$folder/bin/gnuplot"
draws="train --model mlp --data synthetic --batch 4 --steps 3 --threads 1 --out $folder/drawn"
# shellcheck disable=SC2086
hangs() {
    rm -rf "$folder/drawn" "$folder/gnuplot.pid"
    PATH=$folder/bin:$PATH WEFT_TIMEOUT_MS=$1 "$WEFT" $draws >"$folder/out" 2>"$folder/said" || fail "gnuplot hangs: exit $?: $(cat "$folder/said")"
    grep -q '^gnuplot did not end, and was killed, so there is no new picture' "$folder/out" || fail "gnuplot hangs: $(cat "$folder/out")"
    is_gone "$(cat "$folder/gnuplot.pid")" || fail "gnuplot hangs on"
}
with_deadlines hangs 300
rm -rf "$folder/drawn" "$folder/gnuplot.pid"
# shellcheck disable=SC2086
PATH=$folder/bin:$PATH "$WEFT" $draws >"$folder/out" 2>"$folder/said" &
launcher=$!
draws_now() { [[ -s $folder/gnuplot.pid ]]; }
until_true_of $launcher draws_now || fail "no gnuplot"
kill -TERM $launcher
all=$(cat "$folder/gnuplot.pid")
finishes 143 "a signal while gnuplot hangs"
says '^weft: interrupted after the last step, 3, which is saved$' || fail "a signal while gnuplot hangs: $(cat "$folder/said")"

# ---- memory that a library does not get: a sentence, no abort ----
if (ulimit -v 2000000 && "$WEFT" --version) >/dev/null 2>&1; then # sanitizers reserve more
    for kib in $(seq 150000 10000 260000); do
        got=0
        (ulimit -v "$kib" && exec "$WEFT" train --model resnet18 --data synthetic --image 16 --batch 4 --steps 1 --threads 1 --quiet) \
            >"$folder/out" 2>"$folder/said" || got=$?
        [[ $got == 0 ]] || { [[ $got == 1 ]] && says '^weft: '; } || fail "ulimit -v $kib: exit $got: $(cat "$folder/said")"
    done
fi

# ---- files that may grow no more (SIGXFSZ), output that nobody takes ----
for more in "" "--ranks 2 --plan dp=2"; do
    got=0
    # shellcheck disable=SC2086
    (ulimit -f 100 && exec "$WEFT" train --model mlp --data synthetic --batch 4 --micro 2 --steps 3 --threads 1 --out "$folder/large" $more) \
        >"$folder/out" 2>"$folder/said" || got=$?
    [[ $got == 1 ]] || fail "ulimit -f${more:+, $more}: exit $got"
    says 'File too large' || fail "ulimit -f${more:+, $more}: $(cat "$folder/said")"
    [[ -z $(ls -A "$folder/large" 2>/dev/null | grep -E '^[.]weft-|part|safetensors') ]] || fail "ulimit -f${more:+, $more}: left: $(ls -A "$folder/large")"
    rm -rf "$folder/large"
    short="train --model mlp --data synthetic --batch 4 --micro 2 --steps 3 --threads 1 --out $folder/heard $more"
    got=0
    # shellcheck disable=SC2086
    "$WEFT" $short >/dev/full 2>"$folder/said" || got=$?
    [[ $got == 1 && -s $folder/heard/model.safetensors ]] || fail "full standard output${more:+, $more}: exit $got: $(cat "$folder/said")"
    says 'standard output cannot be written' || fail "full standard output${more:+, $more}: $(cat "$folder/said")"
    rm -rf "$folder/heard"
    # shellcheck disable=SC2086
    "$WEFT" $short 2>"$folder/said" | true
    [[ ${PIPESTATUS[0]} == 1 && -s $folder/heard/model.safetensors ]] || fail "nobody reads${more:+, $more}: $(cat "$folder/said")"
    rm -rf "$folder/heard"
done
finish
