#!/usr/bin/env bash
# --verify: a bit that flips in one replica's state is found at the next comparison, and the rank is
# named; with --restarts the run continues from a good checkpoint with the bits of a whole run.
# label: once
source tests/cli_helpers.bash
net="train --model mlp --image 8 --data synthetic --batch 12 --micro 6 --lanes 3 --threads 1 --optimizer adam --steps 30"
# flipped STATUS WORDS ARGUMENTS...: of rank 1 before step 6, the 3rd bit.
flipped() { WEFT_FLIP_BIT=6:1:3 expect "$1" "$2" $net "${@:3}"; }

for launch in "" "--ranks 3"; do
    flipped 4 "after step 8, the state of rank 1 differs from that of most replicas, first in net" --plan dp=3 --verify 4 $launch
done
# Any rank, step and bit, in weights and in the optimizer's state, on the host and on the disk.
for flip in 9:0:31:net1.weight 1:2:22:net1.weight 30:1:9000000:optimizer 8:2:12000000:net; do
    bit=${flip%:*} rank=$(cut -d: -f2 <<<"$flip")
    WEFT_FLIP_BIT=$bit expect 4 "after step ${flip%%:*}, the state of rank $rank differs from that of most replicas, first in ${flip##*:}" \
        $net --plan dp=3 --verify 1
done
WEFT_FLIP_BIT=6:1:9000000 expect 4 "after step 6, the state of rank 1 differs" $net --plan dp=3,offload=state:disk --verify 1
flipped 4 "after step 7, the state of rank 1 differs" --plan dp=3 --verify 20 --save-every 7 --out "$folder/run" --ranks 3
[[ ! -e $folder/run/state.safetensors ]] || fail "a state that differs is saved"
flipped 4 "after step 6, ranks 0 and 1 keep different copies of the state" --plan dp=2,lanes=2+1 --verify 1
flipped 2 "no two ranks keep the same state" --plan dp=3,zero=3 --verify 4
expect 2 "--verify has no effect here: workers" $net --update async --verify 1
expect 2 "--verify must be at least 1" $net --verify 0
[[ $(WEFT_FLIP_BIT=6:1:3 report $net --plan dp=3 | field weights_sha256) != $(report $net | field weights_sha256) ]] ||
    fail "the flipped bit changes nothing"

# ---- nothing is wrong: with sharded state, several stages, tensor parallelism ----
for plan in dp=3,zero=1 pp=2,dp=3 "tp=2,dp=3 --slices 2"; do
    report $net --plan $plan --verify 7 >/dev/null
done

# ---- a fault that passes ----
want=$(report $net | field weights_sha256)
got=$(WEFT_FLIP_BIT=6:1:3 report $net --plan dp=3 --ranks 3 --verify 4 --restarts 3 --save-every 5 --snapshot 1 --out "$folder/healed")
[[ $(field weights_sha256 <<<"$got") == "$want" ]] || fail "a restart after a flipped bit: other bits"
[[ $(field restarts <<<"$got") == 1 ]] || fail "a flipped bit: restarts $(field restarts <<<"$got")"
grep -q 'repeated_steps": 3' <<<"$got" || fail "repeated: $(field repeated_steps <<<"$got")"

# ---- with --ranks A:B the rank that differs is lost ----
got=$(WEFT_FLIP_BIT=6:1:3 report $net --plan dp=3 --ranks 1:3 --verify 4 --restarts 3 --save-every 5 --out "$folder/fewer")
[[ $(field weights_sha256 <<<"$got") == "$want" ]] || fail "without the rank that differs: other bits"
[[ $(tr -d ' \n' <<<"$got") == *'"ranks_per_attempt":[3,2]'* ]] || fail "the rank that differs is used again: $(cat "$folder/said")"
# No majority: any of the two may be wrong, so none is left out.
got=$(WEFT_FLIP_BIT=6:1:3 report $net --plan dp=2,lanes=2+1 --ranks 1:2 --verify 4 --restarts 3 --out "$folder/both")
[[ $(tr -d ' \n' <<<"$got") == *'"ranks_per_attempt":[2,2]'* ]] || fail "no majority: $(cat "$folder/said")"
finish
