#!/usr/bin/env bash
# examples/dqn.c: within 80 episodes the pole stays upright for longer than by pushes at random, of which it outlasts 22
# steps on average. Until it is solved takes half a minute.
# label: once
set -euo pipefail
said=$("$WEFT_BUILD/examples/dqn" 80 2>&1) || { echo "exit status $?: $said"; exit 1; }
steps=$(sed -n 's/^episode 80: \([0-9]*\)\..* steps on average$/\1/p' <<<"$said")
((steps >= 35)) || { echo "it did not learn: $said"; exit 1; }
said=$("$WEFT_BUILD/examples/dqn" 8 pp=2 2>&1) || { echo "in two stages: exit status $?: $said"; exit 1; }
grep -q '^episode 8: ' <<<"$said" || { echo "in two stages: $said"; exit 1; }
