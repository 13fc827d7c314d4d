#!/usr/bin/env bash
# examples/dqn.c gives the same episodes in one stage and in two. WEFT_TEST_FULL=1: it also learns. The last 30 of 80 episodes
# keep the pole upright for 120 to 280 steps on average, for any seed. Without the target's weights, the next state's value or
# the ends of episodes the average is 14 to 23, as with random pushes.
# label: once
set -euo pipefail
if [[ ${WEFT_TEST_FULL:-0} == 1 ]]; then
    said=$("$WEFT_BUILD/examples/dqn" 80 2>&1) || { echo "exit status $?: $said"; exit 1; }
    awk '/^episode 50: / { before = 50 * $3 } /^episode 80: / { all = 80 * $3 } END { exit !(before && (all - before) / 30 >= 75) }' <<<"$said" ||
        { echo "it did not learn: $said"; exit 1; }
fi
# Each push follows from the bits of what was learned before.
one=$("$WEFT_BUILD/examples/dqn" 30 "" 3 2>&1) || { echo "exit status $?: $one"; exit 1; }
two=$("$WEFT_BUILD/examples/dqn" 30 pp=2 3 2>&1) || { echo "in two stages: exit status $?: $two"; exit 1; }
[[ $one == "episode 30: "* && $one == "$two" ]] || { echo "in two stages: $two, in one: $one"; exit 1; }
