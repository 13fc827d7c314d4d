#!/usr/bin/env bash
# Progress of ranks as processes: a bar where the launcher's standard error is a terminal, plain
# lines elsewhere, as with ranks as threads.
# label: once
source tests/cli_helpers.bash
source tests/processes.bash
command -v script >/dev/null || { echo "script (util-linux) is missing: it makes terminals"; exit 77; }

run="train --model mlp --data synthetic --batch 12 --micro 6 --threads 1 --plan pp=2 --steps 150"
# on_terminal COMMAND: with a terminal of 100 columns; what it shows.
on_terminal() { script -qec "stty cols 100; TERM=${term-xterm} $*" /dev/null </dev/null; }
# n_bars TEXT: how often a bar is drawn there: a carriage return, cells and the steps.
n_bars() { tr '\r' '\n' <"$1" | grep -cE '^.\[K.*(#|\.){6,}.*  epoch [0-9]+/[0-9]+  step [0-9]+/150  loss .* left$'; }

export LC_ALL=C
for ranks in --ranks\ 2 --devices\ cpu:2; do
    on_terminal "$WEFT" $run $ranks >"$folder/shown"
    [[ $(n_bars "$folder/shown") -gt 1 ]] || fail "$ranks: no bar on a terminal: $(cat -v "$folder/shown")"
    tr '\r' '\n' <"$folder/shown" | grep '^.\[K' | awk '{ if (length($0) > 120) exit 1 }' || fail "$ranks: the bar is wider than the terminal"
    on_terminal "$WEFT" $run $ranks --quiet >"$folder/shown"
    [[ ! -s $folder/shown ]] || fail "$ranks, quiet: it shows $(cat -v "$folder/shown")"
done
LC_ALL=C.UTF8 on_terminal "$WEFT" $run >"$folder/shown"
grep -qE '━|╌' "$folder/shown" || fail "LC_ALL=C.UTF8: no bar of UTF-8: $(cat -v "$folder/shown")"
term=dumb on_terminal "$WEFT" $run --ranks 2 >"$folder/shown"
[[ $(n_bars "$folder/shown") == 0 ]] || fail "a bar on a dumb terminal"
TERM=xterm "$WEFT" $run --ranks 2 >"$folder/shown" 2>&1 || fail "no terminal: exit $?"
grep -c $'\r' "$folder/shown" >/dev/null && fail "no terminal: $(cat -v "$folder/shown")"

# ---- what ranks are told ----
on_terminal "$WEFT" run -n 2 -- sh -c "'echo rank \$RANK \$WEFT_TERMINAL.'" | tr -d '\r' >"$folder/shown"
[[ $(sort "$folder/shown") == $'rank 0 100.\nrank 1 .' ]] || fail "WEFT_TERMINAL: $(cat "$folder/shown")"
[[ $(WEFT_TERMINAL=9 "$WEFT" run -n 1 -- sh -c 'echo $WEFT_TERMINAL.' 2>"$folder/said") == . ]] || fail "WEFT_TERMINAL of the launcher reaches its rank"
finish
