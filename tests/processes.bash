# Sourced by tests of ranks as processes, after cli_helpers.bash.
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE

children() { cat /proc/"$1"/task/*/children 2>/dev/null; }
# pid_of RANK: among the children of $launcher.
pid_of() {
    local pid
    for pid in $(children "$launcher"); do
        grep -zqx "RANK=$1" "/proc/$pid/environ" 2>/dev/null && echo "$pid" && return
    done
}
has_rank() { [[ -n $(pid_of "$1") ]]; }
# none_left WHAT PIDS...
none_left() { until_true is_gone "${@:2}" || fail "$1: left: $(ps -o pid,stat,args -p "$(tr ' ' , <<<"${*:2}")")"; }

# train ARGUMENTS...: weft train with three ranks in the background, to $folder/run, until its log
# has steps; $launcher, $all its processes.
run="train --model mlp --data synthetic --batch 12 --micro 6 --lanes 3 --threads 1"
train() {
    rm -rf "$folder/run"
    # shellcheck disable=SC2086
    "$WEFT" $run --ranks 3 --out "$folder/run" --save-every 1000000 "$@" >"$folder/out" 2>"$folder/said" </dev/null &
    launcher=$!
    until_true_of $launcher has_steps 2 || { fail "no steps are made: $(cat "$folder/said")"; return 1; }
    all=$(children $launcher)
}
# has_steps N: the log has at least so many.
has_steps() { [[ $(grep -c '"loss"' "$folder/run/log.jsonl" 2>/dev/null) -ge $1 ]]; }
is_stopped() { [[ $(state_of "$1") == T ]]; }
# stop_before N PID...: stops these processes; whether the log has fewer than N steps then.
stop_before() {
    local pid
    for pid in "${@:2}"; do kill -STOP "$pid" 2>/dev/null && until_true_of "$pid" is_stopped "$pid" || return 1; done
    ! has_steps "$1"
}
says() { grep -qE -- "$1" "$folder/said"; }
# keeps_useful LOG: of the seconds of steps that count, the run reports none as lost.
keeps_useful() {
    awk '/"ms":/ { sub(/.*"ms":/, ""); ms += $0 } /^lost / { useful = $4 - $2 + 0.1 } END { exit useful * 1000 < ms }' \
        "$1" "$folder/out" || fail "steps that count are lost: $(cat "$folder/out")"
}
# finishes STATUS WHAT: the background run does, with that exit status, and nothing is left.
finishes() {
    local got=0
    wait $launcher || got=$?
    [[ $got == "$1" ]] || fail "$2: exit $got, expected $1: $(cat "$folder/said")"
    # shellcheck disable=SC2086
    none_left "$2" $all
}
