#!/usr/bin/env bash
# Certificates of plans: scripts/check-certificate, which shares no code with the library, proves them
# and refuses wrong ones.
# label: once
source tests/cli_helpers.bash
command -v python3 >/dev/null || { echo "skipped: python3 is not installed"; exit 77; }

# certify NAME ARGUMENTS...: writes the certificate of a plan.
certify() { "$WEFT" plan --quiet "${@:2}" --certificate "$folder/$1" || fail "$*: exit $?"; }

# proves NAME PATTERN: whether the checker proves it, and says so in these words.
proves() {
    scripts/check-certificate "$folder/$1" >"$folder/out" 2>&1 || fail "$1: exit $?: $(cat "$folder/out")"
    grep -qE -- "$2" "$folder/out" || fail "$1: '$(cat "$folder/out")' is not '$2'"
}

mlp="--model mlp --image 6 --batch 16 --micro 8 --lanes 8"
gpt="--model gpt --layers 2 --hidden 20 --heads 2 --vocab 40 --tokens 8 --batch 4 --micro 2 --lanes 2"
certify zero1 $mlp --plan dp=2,pp=2,zero=1 --optimizer adamw --clip-norm 1
certify uneven $mlp --plan dp=2,lanes=5+3
certify ring $mlp --plan dp=4,allreduce=ring,sums=free
certify pairwise $mlp --plan dp=2,allreduce=pairwise
certify hybrid $mlp --plan dp=4,zero=3,shard=2 --optimizer adamw
certify tp $gpt --slices 2 --plan dp=2,tp=2,sp,zero=3 --optimizer adamw --clip-norm 1
certify far $gpt --slices 2 --plan tp=2 --wire mpi
certify offload $gpt --slices 2 --plan pp=2,offload=state+activations,recompute=all --optimizer adamw
certify zb $gpt --slices 1 --plan pp=2,schedule=zb1 --optimizer adamw
certify chunks $gpt --slices 1 --plan pp=2,schedule=interleaved,chunks=2
certify lstm --model lstm --layers 2 --hidden 8 --vocab 30 --tokens 4 --batch 4 --micro 2 --lanes 2 --plan dp=2
certify variants --model gpt --layers 1 --hidden 8 --heads 2 --vocab 10 --tokens 8 --slices 2 --batch 5 --micro 3 --lanes 1
certify bf16 --model lstm --hidden 8 --vocab 30 --tokens 4 --tied --batch 4 --micro 2 --lanes 2 --plan dp=2 --dtype bf16
certify resnet --model resnet18 --image 32 --batch 5 --micro 2 --lanes 2 --plan dp=2,recompute=all,allreduce=pairwise
for name in zero1 uneven pairwise hybrid tp far offload zb chunks lstm variants bf16 resnet; do
    proves "$name" '^proved: [0-9]+ ranks, [0-9]+ instructions, peak [0-9]+ bytes$'
done
proves ring '^proved: 4 ranks,.* bytes, sums in any order$'

# The certificate has the peaks that the plan reports, and every rank's instructions.
peaks=$("$WEFT" plan --quiet $mlp --plan dp=2,pp=2,zero=1 --optimizer adamw --clip-norm 1 --json - | field peak_bytes | sort -n | tail -n 1)
proves zero1 "4 ranks.*peak $peaks bytes"

n=2
[[ ${WEFT_TEST_FULL-} != 1 ]] || n=30
tests/certificate_mutants.py 1 $n "$folder"/{zero1,tp,offload,zb,resnet} || fail "mutants are proved"

# What is not a certificate.
printf '{"weft_certificate": 1}' >"$folder/other"
printf '{' >"$folder/torn"
for name in other torn none; do
    got=0
    scripts/check-certificate "$folder/$name" >"$folder/out" 2>&1 || got=$?
    ((got == (${#name} == 5 ? 1 : 2))) || fail "$name: exit $got: $(cat "$folder/out")"
done

expect 1 "$folder/none/file" plan $mlp --certificate "$folder/none/file"
expect 2 "workers of --update async" plan $mlp --update async --plan ps=1 --certificate "$folder/async"
finish
