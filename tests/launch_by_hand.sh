#!/usr/bin/env bash
# label: once
# examples/spawn as threads and as processes; programs that a shell starts one by one.
set -euo pipefail
fail() { echo "$*" >&2; exit 1; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for how in threads processes; do
    "$WEFT_BUILD/examples/spawn" $how >"$folder/said"
    for rank in 0 1 2 3; do echo "rank $rank of 4: the numbers of all ranks make 6"; done >"$folder/want"
    sort "$folder/said" | diff "$folder/want" - || fail "spawn $how"
done
compgen -G '/tmp/weft-spawn-*' >/dev/null && fail "spawn has left its store"

# The same command in two shells, told apart by RANK alone; --rendezvous says where they meet.
train="train --model mlp --data synthetic --batch 16 --micro 4 --steps 2 --plan dp=2 --threads 1 --quiet"
"$WEFT" train --model mlp --data synthetic --batch 16 --micro 4 --steps 2 --lanes 2 --threads 1 --quiet \
    --json "$folder/one.json"
[[ -s $folder/one.json ]] || fail "one rank leaves no report"
meet() { # PORT ARGUMENTS...
    local port=$1
    shift
    export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port
    # shellcheck disable=SC2086 # several words
    RANK=1 "$WEFT" $train "$@" 2>"$folder/second" &
    # shellcheck disable=SC2086
    RANK=0 "$WEFT" $train "$@" --json "$folder/two.json" 2>"$folder/first" ||
        fail "$*: $(cat "$folder/first" "$folder/second")"
    wait $! || fail "$*: $(cat "$folder/second")"
    unset WORLD_SIZE MASTER_ADDR MASTER_PORT
    [[ $(grep -o '"weights_sha256": "[^"]*"' "$folder/one.json") == \
        $(grep -o '"weights_sha256": "[^"]*"' "$folder/two.json") ]] || fail "$*: other weights than one rank's"
}
own=127.$((64 + ($$ >> 16) % 64)).$(($$ >> 8 & 255)).$((1 + $$ % 250))
meet $((20000 + $$ % 12000))
meet 1 --rendezvous env://
meet 1 --rendezvous "tcp://$own:29500"
meet 1 --rendezvous "file://$folder/meet"
[[ ! -e $folder/meet ]] || fail "a file is left"

# A rank that nobody has met yet ends when it is asked to.
for place in file tcp; do
    url=tcp://$own:29511
    [[ $place == tcp ]] || url=file://$folder/alone
    # shellcheck disable=SC2086
    RANK=$((RANDOM % 2)) WORLD_SIZE=2 "$WEFT" $train --rendezvous "$url" 2>"$folder/error" &
    waits() { [[ $place == tcp ]] || [[ -s $folder/alone ]]; }
    until waits; do sleep 0.05; done
    sleep 0.1
    kill -TERM $!
    status=0
    wait $! || status=$?
    [[ $status == 143 ]] || fail "$url: exit $status: $(cat "$folder/error")"
done

# The token keeps strangers away, and nothing shows it.
WEFT_TOKEN=hush meet 1 --rendezvous "tcp://$own:29500"
WEFT_TOKEN=hush "$WEFT" info | grep -c hush >/dev/null && fail "weft info shows the token"
WEFT_TOKEN=hush "$WEFT" info | grep -c WEFT_TOKEN >/dev/null || fail "weft info: no WEFT_TOKEN"

refused() { # WORDS ARGUMENTS...
    local words=$1
    shift
    # shellcheck disable=SC2086
    "$WEFT" $train "$@" 2>"$folder/error" && fail "$* was accepted"
    grep -F -c -e "$words" "$folder/error" >/dev/null || fail "$*: '$(cat "$folder/error")', not '$words'"
}
refused "RANK and WORLD_SIZE" --rendezvous env://
RANK=0 WORLD_SIZE=2 refused "mpirun" --rendezvous tcp://10.1.2.3:29500
RANK=0 WORLD_SIZE=2 refused "joined by env://" --rendezvous http://x
RANK=0 WORLD_SIZE=2 WEFT_TIMEOUT_MS=200 refused "rank 1 of 2 has not arrived" --rendezvous "tcp://$own:29500"
echo "Chapter 1" >"$folder/thesis"
RANK=0 WORLD_SIZE=2 refused "is not a weft store" --rendezvous "file://$folder/thesis"
