#!/usr/bin/env bash
# weft run: what ranks find, how their lines and their ends come through, and that nothing of
# them is left, whoever is killed.
# label: serial
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
export D=$folder

have() {
    local name
    for name; do [[ -s $folder/$name ]] || return 1; done
}
# says WORDS: in what the last command wrote to standard error.
says() { grep -qF -- "$1" "$folder/said" || fail "does not say '$1': $(cat "$folder/said")"; }
# run STATUS ARGUMENTS...: weft run with those, its exit status, its streams in out and said.
run() {
    local status=$1 got=0
    shift
    "$WEFT" run "$@" >"$folder/out" 2>"$folder/said" </dev/null || got=$?
    [[ $got == "$status" ]] || fail "weft run ${*:1:6}: exit $got, expected $status: $(tail -2 "$folder/said")"
}
# start ARGUMENTS...: the same in the background; $launcher.
start() {
    rm -f "$folder"/rank.* "$folder"/child.*
    "$WEFT" run "$@" >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
}
# finishes STATUS: the background launcher ends with it.
finishes() {
    local got=0
    wait "$launcher" || got=$?
    [[ $got == "$1" ]] || fail "exit $got, expected $1: $(cat "$folder/said")"
}
pids() { cat "$folder"/rank.* "$folder"/child.* 2>/dev/null; }
none_left() {
    # shellcheck disable=SC2046
    until_true is_gone $(pids) || fail "$1: left: $(ps -o pid,stat,args -p "$(pids | paste -sd,)")"
}
# Tells its process number and its child's, and stays.
stay='sleep 600 & echo $! >$D/child.new.$RANK; mv $D/child.new.$RANK $D/child.$RANK
      echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK; wait'

# ---- what a rank finds ----
run 0 -n 3 -- sh -c 'echo $RANK/$WORLD_SIZE $LOCAL_RANK/$LOCAL_WORLD_SIZE'
[[ $(sort "$folder/out") == $'0/3 0/3\n1/3 1/3\n2/3 2/3' ]] || fail "places: $(cat "$folder/out")"
OMPI_COMM_WORLD_RANK=1 PMI_SIZE=7 PMIX_RANK=1 SLURM_STEP_ID=0 SLURM_PROCID=1 SLURM_JOB_ID=17 RANK=9 GROUP_RANK=1 \
    run 0 -n 1 env
grep -E '^(OMPI|PMI|SLURM_(STEP|PROC)|GROUP)' "$folder/out" && fail "another launcher's variables reach a rank"
grep -qx SLURM_JOB_ID=17 "$folder/out" || fail "a variable that says nothing of ranks is lost"
run 0 -n 2 -- sh -c 'case $(readlink /proc/self/fd/$WEFT_CONTROL_FD) in /memfd:weft*) echo shared;; esac'
[[ $(cat "$folder/out") == shared ]] || fail "no segment is inherited: $(cat "$folder/out")"
n_open=$(ls /proc/self/fd | wc -l)
run 0 -n 2 -- sh -c 'ls /proc/self/fd | wc -l'
[[ $(cat "$folder/out") == $((n_open + 1)) ]] || fail "ranks inherit more than one more descriptor: $(cat "$folder/out"), not $n_open + 1"
got=$(printf 'in\n' | "$WEFT" run -n 2 -- sh -c 'echo $RANK $(cat)' | sort | paste -sd,)
[[ $got == "0 in,1" ]] || fail "standard input: $got"
run 0 -n 2 --timeout $patience -- sh -c '[ "$1" = --help ] && [ $# = 2 ]' sh --help -n
run 0 --ranks=1 true

# ---- where other programs' ranks meet: one free port for all, another for each launch ----
ports() { (export MASTER_ADDR=far.example MASTER_PORT=1; run 0 -n 3 -- sh -c 'echo $RANK at $MASTER_ADDR:$MASTER_PORT'; sort -u "$folder/out"); }
first=$(ports) second=$(ports)
[[ $(sed 's/.* at //' <<<"$first" | sort -u) =~ ^127\.0\.0\.1:[1-9][0-9]+$ && $(wc -l <<<"$first") == 3 ]] || fail "ranks have to meet at: $first"
[[ $first != "$second" ]] || fail "two launches have one port: $first"
[[ $("$WEFT" run -n 1 -- sh -c 'echo $PYTHONUNBUFFERED') == 1 && $(PYTHONUNBUFFERED=x "$WEFT" run -n 1 -- sh -c 'echo $PYTHONUNBUFFERED') == x ]] ||
    fail "Python's output waits for its end, or its own word is overruled"

# ---- exit statuses, in words ----
run 7 -n 3 -- sh -c '[ $RANK != 1 ] || exit 7; exec sleep 600'
says "weft: rank 1 (process "
says "ended with exit status 7; the other ranks were stopped"
run 137 -n 3 -- sh -c '[ $RANK != 2 ] || kill -9 $$; exec sleep 600'
says "was killed by signal 9 (Killed)"
says "memory"
run 139 -n 1 -- sh -c 'kill -SEGV $$'
says "rank 0 (process "
says "was killed by signal 11 (Segmentation fault)"
grep -q "other ranks" "$folder/said" && fail "there were no other ranks"
run 143 -n 1 -- sh -c 'kill -TERM $$'

# ---- who failed first: not the one that blames another, though it ended earlier ----
start -n 3 -- sh -c 'echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK
    until [ -e $D/go.$RANK ]; do sleep 0.01; done
    if [ $RANK = 0 ]; then echo "rank 2 has died" >&2; exit 4; fi; echo cause >&2; exit 9'
until_true_of "$launcher" have rank.0 rank.1 rank.2 || fail "ranks do not start"
kill -STOP "$launcher"
for rank in 0 2; do
    touch "$folder/go.$rank"
    until_true is_gone "$(cat "$folder/rank.$rank")" || fail "rank $rank does not end"
done
kill -CONT "$launcher"
finishes 9
[[ $(head -n 2 "$folder/said") == $'cause\nrank 2 has died' ]] || fail "the cause does not come first: $(cat "$folder/said")"
says "rank 2 (process $(cat "$folder/rank.2")) ended with exit status 9; the other ranks were stopped"
none_left "one blames another"

# ---- a rank that fails in its job, and takes long to end: it cannot print why ----
mkfifo "$folder/full"
exec 7<>"$folder/full"
start -n 2 --grace $patience -- sh -c 'echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK
    [ $RANK = 1 ] || exec 2>$D/full
    exec "$0" train --model mlp --data synthetic --image 6 --plan dp=2 --steps 1000000 --save-every 1 --out $D/saved' "$WEFT" 7>&-
until_true_of "$launcher" test -e "$folder/saved/state.safetensors" || fail "ranks do not save"
dd if=/dev/zero of="$folder/full" oflag=nonblock bs=4096 count=1000 2>/dev/null
mv "$folder/saved" "$folder/moved"
until_true is_gone "$(cat "$folder/rank.1")" || fail "rank 1 does not find that rank 0 has failed"
sleep 1
exec 7>&-
finishes 1
says "rank 0 (process $(cat "$folder/rank.0")) ended with exit status 1"
none_left "a slow end"

is_stopped() { [[ -e $folder/rank.1 && $(state_of "$(cat "$folder/rank.1")") == T ]]; }
# ---- a rank that finds another dead before the launcher does: the launcher says it, once ----
start -n 2 -- sh -c 'echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK
    WEFT_RAISE=19:forward:1:9 exec "$0" train --model mlp --data synthetic --steps 1000000 --plan dp=2 2>&1' "$WEFT"
until_true_of "$launcher" is_stopped || fail "ranks do not train"
kill -STOP "$launcher"
kill -KILL "$(cat "$folder/rank.1")"
until_true is_gone "$(cat "$folder/rank.0")" || fail "rank 0 does not find rank 1 dead"
kill -CONT "$launcher"
finishes 137
says "rank 1 (process $(cat "$folder/rank.1")) was killed by signal 9"
grep -hE "^weft: rank 1 has|has died" "$folder/said" "$folder/out" && fail "two lines say that rank 1 has died"
none_left "found dead"

# ---- a signal that ranks get before the launcher does: an interruption, not a failed rank ----
start -n 2 -- sh -c 'echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK; exec sleep 600'
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -STOP "$launcher"
kill -INT "$(cat "$folder/rank.0")" "$(cat "$folder/rank.1")"
until_true is_gone "$(cat "$folder/rank.0")" "$(cat "$folder/rank.1")" || fail "ranks do not end"
kill -INT "$launcher"
kill -CONT "$launcher"
finishes 130
says "weft: interrupted by signal 2 (Interrupt); all ranks have ended"

# ---- the same after a rank has failed by itself: that failure ----
start -n 2 -- sh -c 'echo $$ >$D/rank.new.$RANK; mv $D/rank.new.$RANK $D/rank.$RANK
    while [ $RANK = 1 ] || [ ! -e $D/go ]; do sleep 0.02; done; exit 3'
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -STOP "$launcher"
touch "$folder/go"
until_true is_gone "$(cat "$folder/rank.0")" || fail "rank 0 does not end"
kill -INT "$(cat "$folder/rank.1")"
until_true is_gone "$(cat "$folder/rank.1")" || fail "rank 1 does not end"
kill -INT "$launcher"
kill -CONT "$launcher"
finishes 3
says "rank 0 (process $(cat "$folder/rank.0")) ended with exit status 3"

# ---- time is up: 4 ----
run 4 -n 2 --timeout 0.3 -- sleep 600
says "has not ended after 0.3 s: ranks 0 and 1 still ran"
run 4 -n 1 --timeout 0.3 -- sh -c 'trap "" TERM; while :; do sleep 600; done'

# ---- lines: equal ones once, long ones whole, the last without its end ----
run 0 -n 3 -- sh -c 'echo same; echo same; echo $RANK; printf last'
[[ $(sort "$folder/out" | paste -sd,) == 0,1,2,last,same,same ]] || fail "equal lines: $(paste -sd, "$folder/out")"
long=$(head -c 20000 /dev/zero | tr '\0' x)
export long
run 0 -n 3 -- sh -c 'for i in 1 2 3 4 5; do echo "$RANK$i$long"; done'
[[ $(awk 'length == 20002 && /^[0-2][1-5]x*$/' "$folder/out" | wc -l) == 15 ]] || fail "long lines are torn"
for rank in 0 1 2; do
    [[ $(grep -oE "^${rank}[1-5]" "$folder/out" | paste -sd,) == "${rank}1,${rank}2,${rank}3,${rank}4,${rank}5" ]] ||
        fail "the lines of rank $rank are out of order"
done
run 0 -n 1 -- sh -c 'head -c 150000 /dev/zero | tr "\0" y'
[[ $(awk '{ print length }' "$folder/out" | paste -sd,) == 65536,65536,18928 ]] || fail "longer lines are not cut at 64 KiB"
run 0 -n 2 -- sh -c 'seq 1 30000 | sed "s/^/$RANK /"'
[[ $(grep -c '^0 ' "$folder/out") == 30000 && $(grep -c '^1 ' "$folder/out") == 30000 ]] || fail "many lines: some are lost"
run 0 -n 2 -- sh -c 'echo out; echo err >&2'
[[ $(cat "$folder/out") == out && $(cat "$folder/said") == err ]] || fail "the streams are mixed"
run 0 -n 1 -- sh -c '(echo late) & wait'
[[ $(cat "$folder/out") == late ]] || fail "what a rank's child prints at the end is lost"

# ---- nobody reads ----
"$WEFT" run -n 2 -- sh -c 'while echo y; do :; done' 2>"$folder/said" | head -n 1 >/dev/null
[[ ${PIPESTATUS[0]} == 1 ]] || fail "the reader has gone: no status 1"
says "cannot be written to standard output: Broken pipe"
got=0
(ulimit -f 4096 && exec "$WEFT" run -n 1 -- sh -c 'head -c 6000000 /dev/zero | tr "\0" y') >"$folder/out" 2>"$folder/said" || got=$?
[[ $got == 1 ]] || fail "a file that may grow no more: exit $got"
says "cannot be written to standard output: File too large"
"$WEFT" run -n 2 true >&- 2>"$folder/said" && fail "closed standard output: no failure"
says "standard output (descriptor 1) is closed"
"$WEFT" run -n 2 -- sh -c 'echo "rank $RANK" | tee /dev/stderr' >"$folder/out" 2>&- || fail "closed standard error: exit $?"
[[ $(sort "$folder/out") == $'rank 0\nrank 1' ]] || fail "closed standard error: $(cat "$folder/out")"
"$WEFT" run -n 2 -- sh -c 'cat; echo $RANK' <&- >"$folder/out" 2>"$folder/said" || fail "closed standard input: $(cat "$folder/said")"
[[ $(wc -l <"$folder/out") == 2 ]] || fail "closed standard input: $(cat "$folder/out")"

# ---- many ----
run 0 -n 96 true
run 0 -n 96 -- sh -c 'echo $WORLD_SIZE'
[[ $(cat "$folder/out") == 96 ]] || fail "96 ranks: $(cat "$folder/out")"
# More than descriptors allow: the ranks that have started are stopped, and their end is seen.
got=0
(ulimit -n 40 && exec timeout -k 1 $patience "$WEFT" run -n 20 --grace 0.1 -- sh -c 'trap "" TERM; sleep 600') >"$folder/out" 2>"$folder/said" || got=$?
[[ $got == 1 ]] || fail "20 ranks and 40 descriptors: exit $got: $(cat "$folder/said")"
says "ulimit -n allows more"

# ---- usage ----
run 2 -n 2 /no/such/program
says "/no/such/program cannot be started: No such file or directory"
run 2 -n 2 no-such-program-anywhere
says "looked for in PATH"
run 2 -n 2 /
says "/ cannot be started: Permission denied"
run 2 true
says "-n is missing"
run 2 -n 0 true
says "1 to 1024"
run 2 -n 1025 true
says "1 to 1024"
run 2 -n two true
says "not a whole number"
run 2 -n 2
says "no program is named"
run 2 -n
says "needs a value"
run 2 -n 2 --timeout 0 true
says "more than 0"
run 2 -n 2 --grace 0 true
says "more than 0"
run 2 -n 2 --timout 3 true
says "did you mean --timeout?"
"$WEFT" run --help | has -- '--timeout SECONDS' || fail "run --help"

# ---- interrupted ----
whole=$(ulimit -s)
for stack in 512 "$whole"; do # with a small stack weft runs in a thread
    ulimit -S -s "$stack"
    for signal in INT:130 TERM:143; do
        start -n 3 --grace $patience -- sh -c "$stay"
        until_true_of "$launcher" have rank.0 rank.1 rank.2 || fail "ranks do not start"
        kill -"${signal%:*}" "$launcher"
        finishes "${signal#*:}"
        none_left "SIG${signal%:*}"
        says "all ranks have ended"
    done
done
start -n 2 -- sh -c "trap '' INT TERM; $stay; wait; wait" # a second one kills
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -INT "$launcher"
sleep 0.2
kill -INT "$launcher"
finishes 130
none_left "SIGINT twice"
start -n 2 --grace $patience -- sh -c "trap 'echo \$RANK saved; exit 0' INT; $stay" # who ends its work is let
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -INT "$launcher"
finishes 130
[[ $(sort "$folder/out" | paste -sd,) == "0 saved,1 saved" ]] || fail "interrupted ranks: $(cat "$folder/out")"
none_left "SIGINT, then exit 0"
start -n 2 --grace 0.2 -- sh -c "trap '' INT TERM; $stay; wait; wait" # who does not stop has so long
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -TERM "$launcher"
finishes 143
says "ranks 0 and 1 had to be killed"
none_left "--grace"

# ---- stopped and continued (Ctrl-Z), suspended as a whole ----
is_stopped() { for pid; do [[ $(sed 's/.*) //; s/ .*//' "/proc/$pid/stat") == T ]] || return 1; done; }
is_awake() { for pid; do ! is_stopped "$pid" || return 1; done; }
start -n 2 -- sh -c "$stay"
until_true_of "$launcher" have rank.0 rank.1 || fail "ranks do not start"
kill -TSTP "$launcher"
# shellcheck disable=SC2046
until_true_of "$launcher" is_stopped "$launcher" $(pids) || fail "Ctrl-Z: $(ps -o pid,stat,args -p "$launcher,$(pids | paste -sd,)")"
kill -CONT "$launcher"
# shellcheck disable=SC2046
until_true_of "$launcher" is_awake "$launcher" $(pids) || fail "SIGCONT: $(ps -o pid,stat,args -p "$launcher,$(pids | paste -sd,)")"
kill -INT "$launcher"
finishes 130
none_left "Ctrl-Z, then Ctrl-C"
late() { # the launcher has not run for so long
    rm -f "$folder/go"
    start -n 1 --timeout "$(seconds "$1")" -- sh -c "echo \$\$ >$folder/rank.new; mv $folder/rank.new $folder/rank.0; until [ -e $folder/go ]; do sleep 0.02; done"
    until_true_of "$launcher" have rank.0 || { fail "ranks do not start"; return; }
    kill -STOP "$launcher"
    sleep "$(seconds $(($1 + 500)))"
    touch "$folder/go"
    until_true is_gone "$(cat "$folder/rank.0")" || fail "the rank does not end"
    kill -CONT "$launcher"
    finishes 0
}
with_deadlines late 1500

# ---- a program that the system cannot find out about ----
if command -v strace >/dev/null && strace -o /dev/null true 2>/dev/null; then
    got=0
    # A leak sanitizer cannot look where another tracer does.
    ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 WEFT_TIMEOUT_MS=500 strace -f -o /dev/null -P /bin/true -e inject=execve:delay_enter=3000000 \
        "$WEFT" run -n 1 /bin/true >"$folder/out" 2>"$folder/said" || got=$?
    [[ $got == 4 ]] || fail "an exec that hangs: exit $got: $(cat "$folder/said")"
    says "/bin/true has not been started after 500 ms"
fi

# ---- killed: the launcher, a rank ----
start -n 66 -- sh -c "$stay"
until_true_of "$launcher" have rank.{0..65} || fail "ranks do not start"
{ kill -KILL "$launcher"; wait "$launcher"; } 2>/dev/null
none_left "the launcher is killed"
start -n 3 -- sh -c "$stay"
until_true_of "$launcher" have rank.0 rank.1 rank.2 || fail "ranks do not start"
kill -KILL "$(cat "$folder/rank.1")"
finishes 137
says "rank 1 (process $(cat "$folder/rank.1")) was killed by signal 9 (Killed)"
none_left "a rank is killed"
# ---- the watchdog: killed, stopped ----
watchdog() { ps -o pid=,comm= --ppid "$launcher" | sed -n 's/ *\([0-9]*\) weft-watchdog$/\1/p'; }
has_watchdog() { [[ $(watchdog) ]]; }
start -n 2 -- sh -c "$stay"
until_true_of "$launcher" have rank.0 rank.1 && until_true_of "$launcher" has_watchdog || fail "ranks do not start"
kill -KILL "$(watchdog)"
finishes 4
says "of rank 0 to rank 1 was killed, so all ranks were stopped"
none_left "the watchdog is killed"
for end in 0 143; do
    rm -f "$folder/go"
    start -n 2 -- sh -c 'echo $$ >$D/rank.$RANK; until [ -e $D/go ]; do sleep 0.02; done'
    until_true_of "$launcher" have rank.0 rank.1 && until_true_of "$launcher" has_watchdog || fail "ranks do not start"
    kill -STOP "$(watchdog)"
    until_true is_stopped "$(watchdog)" || fail "the watchdog is not stopped"
    if [[ $end == 0 ]]; then touch "$folder/go"; else kill -TERM "$launcher"; fi
    finishes $end
    none_left "the watchdog is stopped"
done
start -n 1 -- sh -c "${stay%wait}" # the shell ends, its child stays behind
finishes 0
none_left "a rank leaves children"

finish
