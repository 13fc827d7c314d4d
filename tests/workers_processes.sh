#!/usr/bin/env bash
# Workers in processes: norms over several servers, weights and states that rank 0 loads, and the
# batches that server 0 counts.
# label: once
source tests/cli_helpers.bash
base="train --model mlp --image 8 --data synthetic --threads 1 --batch 8 --micro 4 --lanes 4 --seed 2 --momentum 0.9"
async="$base --update async --workers 4"
same() { [[ $1 == "$2" && $1 ]] || fail "$3: '$1' and '$2'"; }

# Servers share the squares of their ranges. Only rank 0 reads --init, frozen weights included.
report $base --steps 1 --seed 3 --out "$folder/init" >/dev/null
clipped="--steps 3 --clip-norm 0.05 --init $folder/init --freeze net1.weight"
sync=$(sha $base $clipped)
[[ $sync != "$(sha $base ${clipped/--clip-norm 0.05/})" ]] || fail "--clip-norm changes nothing"
same "$sync" "$(sha $async $clipped --staleness 0 --plan dp=2,ps=3 --ranks 5)" "--staleness 0, three servers"

# A resumed run under other ranks: momenta of the workers and of the outer step.
local="$base --update local --workers 4 --local-steps 2"
report $local --steps 2 --plan dp=2 --ranks 2 --out "$folder/local" >/dev/null
same "$(sha $local --steps 6)" "$(sha $local --steps 6 --plan dp=4 --ranks 4 --out "$folder/local" --resume)" "local, resumed"

# Checkpoints wait for an average; each has one file of the workers.
same "$(sha $local --steps 6)" "$(sha $local --steps 6 --save-every 3 --out "$folder/saved")" "--save-every within a round"
[[ $(ls "$folder/saved" | grep -c '^workers-') == 1 ]] || fail "files: $(ls "$folder/saved")"
# The plan knows that processes share nothing.
numbers() { tr -d ' \n' | grep -oE "\"host_peak_bytes\":$1" | grep -oE '[0-9]+' | paste -sd ' '; }
ran=$(report $local --steps 2 --plan dp=2 --ranks 2 | numbers '{"planned":[^}]*}')
plan=$(report plan --model mlp --image 8 --data synthetic --batch 8 --micro 4 --lanes 4 --momentum 0.9 --update local --workers 4 --plan dp=2 --ranks 2 | numbers '[0-9]+')
same "$plan $plan" "$ran" "host memory of processes, planned and measured"

# Rank 2 counts the batches, and rank 0 writes them.
run="--record $folder/pushes --plan dp=2,ps=1 --ranks 3 --out $folder/async"
report $async --steps 2 $run >/dev/null
same "$(sha $async --steps 4 $run --resume)" "$(sha $async --steps 4 --replay "$folder/pushes")" "async, resumed and replayed"
finish
