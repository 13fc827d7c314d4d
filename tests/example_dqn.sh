#!/usr/bin/env bash
# examples/dqn.c: of 80 episodes the last 30 keep the pole upright for 120 to 280 steps on average, whatever the seed; without the
# target's weights, the next state's value or the ends of episodes it is 14 to 23, as with pushes at random. Until it is solved takes half
# a minute.
# label: once
set -euo pipefail
said=$("$WEFT_BUILD/examples/dqn" 80 2>&1) || { echo "exit status $?: $said"; exit 1; }
awk '/^episode 50: / { before = 50 * $3 } /^episode 80: / { all = 80 * $3 } END { exit !(before && (all - before) / 30 >= 75) }' <<<"$said" ||
    { echo "it did not learn: $said"; exit 1; }
# Each push follows from the bits of what was learned before.
one=$("$WEFT_BUILD/examples/dqn" 30 "" 3 2>&1) || { echo "exit status $?: $one"; exit 1; }
two=$("$WEFT_BUILD/examples/dqn" 30 pp=2 3 2>&1) || { echo "in two stages: exit status $?: $two"; exit 1; }
[[ $one == "episode 30: "* && $one == "$two" ]] || { echo "in two stages: $two, in one: $one"; exit 1; }
