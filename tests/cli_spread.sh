#!/usr/bin/env bash
# Plans that spread the model, or a unit, from rank 0 over others: bits, and the imbalance shown.
# label: serial
source tests/cli_helpers.bash
mlp="--model mlp --image 6 --batch 8 --micro 8 --lanes 4 --threads 1 --optimizer adamw"
run="bench train $mlp --repeat 2"
# of NAME: the field of each rank, joined by spaces
of() { field "$1" <"$folder/report" | tr '\n' ' '; }

one=$(sha $run)
for plan in dataparallel=2 dataparallel=4,output=3 net2:dp=2 net1:dataparallel=2,net3:dp=4; do
    [[ $(sha $run --plan $plan) == "$one" ]] || fail "--plan $plan: other bits"
done
for plan in dataparallel=2 net2:dp=2; do
    [[ $(sha $run --plan $plan --ranks 2) == "$one" ]] || fail "--plan $plan, processes: other bits"
done

# ---- the root has the optimizer's state and most of the traffic, the others a copy ----
report plan $mlp --plan dataparallel=4 >"$folder/report"
read -r -a optimizer <<<"$(of optimizer_bytes)"
read -r -a copied <<<"$(of copied_bytes)"
read -r -a state <<<"$(of state_bytes)"
read -r -a peak <<<"$(of peak_bytes)"
read -r -a sent <<<"$(of sent_bytes)"
((optimizer[0] == 2 * copied[1] && optimizer[1] == 0 && copied[0] == 0 && copied[1] > 0)) ||
    fail "optimizer ${optimizer[*]}, copied ${copied[*]}"
((state[0] == optimizer[0] + copied[1] && state[3] == 0 && peak[0] > peak[3])) || fail "state ${state[*]}, peak ${peak[*]}"
((sent[0] > 2 * sent[1] && sent[1] == sent[3])) || fail "sent ${sent[*]}"
"$WEFT" plan $mlp --plan dataparallel=4 >"$folder/out" || fail "weft plan: exit $?"
grep -c '^ *units *parameters *peak *held *optimizer *copied *sent *received$' "$folder/out" >/dev/null || fail "no table of ranks"
grep -qE '^ranks 1-3 .* +0 B +0 B ' "$folder/out" || fail "no row of copies: $(cat "$folder/out")"

# ---- measured costs; what would fit where the root does not ----
[[ $(report plan $mlp --plan net2:dp=2 --costs measured | field costs) == measured ]] || fail "costs are not measured"
expect 3 "1 byte more than" plan $mlp --plan dataparallel=4 --device-memory $((peak[0] - 1))
grep -qE ' [mu]s +4  --plan dp=4,pp=1' "$folder/out" || fail "dp=4 is not among the plans that would fit: $(cat "$folder/out")"

# ---- fewer samples than devices ----
few="bench train --model mlp --image 6 --batch 2 --threads 1 --repeat 1"
[[ $(sha $few --plan dataparallel=4) == "$(sha $few --micro 2 --lanes 2)" ]] || fail "2 samples for 4 devices: other bits"
[[ $(sha $few --plan dataparallel=4 --ranks 4) == "$(sha $few --micro 2 --lanes 2)" ]] || fail "2 samples for 4 processes: other bits"

# ---- refused ----
expect 2 "no unit is called 'net9' (position 1); the units are net1, net2, net3, loss" plan $mlp --plan net9:dp=2
expect 2 "does not go with dataparallel=2; dp=2,pp=2 " plan $mlp --plan dataparallel=2,pp=2
expect 2 "dataparallel=3 needs 3 lanes, and this recipe has 4; --lanes 3 --micro 6 is another" plan $mlp --plan dataparallel=3
finish
