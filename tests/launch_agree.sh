#!/usr/bin/env bash
# label: once
# Two ranks in two shells, one option of rank 1 another: both say which, at once, for every option
# that weft train has. The list of options is the program's own.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
train="train --model gpt2-tiny --tokens 8 --batch 4 --lanes 2 --threads 1 --steps 2 --quiet"

# start RANK ARGUMENTS...: in the background; what it says is $folder/said.RANK.
start() {
    local rank=$1
    shift
    # shellcheck disable=SC2086
    RANK=$rank WORLD_SIZE=2 timeout $patience "$WEFT" $train --rendezvous "file://$folder/meet" "$@" \
        >/dev/null 2>"$folder/said.$rank" &
}
# differ WORDS ARGUMENTS...: rank 1 alone has the arguments; both end with 4, and say the words.
differ() {
    local words=$1 first second got=0
    shift
    start 0 --data synthetic --plan "$plan"
    first=$!
    start 1 --data synthetic --plan "$plan" "$@"
    second=$!
    wait $first || got=$?
    [[ $got == 4 ]] || fail "$*: rank 0: exit $got: $(cat "$folder/said.0")"
    got=0
    wait $second || got=$?
    [[ $got == 4 ]] || fail "$*: rank 1: exit $got: $(cat "$folder/said.1")"
    for rank in 0 1; do
        grep -qF -- "$words" "$folder/said.$rank" || fail "$*: rank $rank does not say '$words': $(cat "$folder/said.$rank")"
    done
}

# another OPTION: a value that $train does not have; nothing for a flag, which has no argument in the help.
another() {
    case $1 in
    --model) echo mlp ;;
    --data-format) echo bytes ;;
    --normalize) echo none ;;
    --stem) echo small ;;
    --loss) echo mse ;;
    --dtype) echo bf16 ;;
    --freeze | --init-skip) echo h.0 ;;
    --lr-scale) echo h.0=0.5 ;;
    --slices) echo 2 ;;
    --conv) echo direct ;;
    --matmul-precision) echo tf32 ;;
    --kernels) echo reference ;;
    --tuned) echo a=b ;;
    --optimizer) echo adam ;;
    --lr-schedule) echo step ;;
    --warmup-shape) echo log ;;
    --plan) echo pp=2 ;;
    --costs) echo measured ;;
    --on-nan) echo skip ;;
    --update) echo async ;;
    --device-memory | --host-memory | --shard-size) echo 1073741824 ;;
    --wire) echo shm ;;
    --init | --out | --trace | --record | --replay) echo "$folder/nothing" ;;
    --image | --resize | --tokens | --layers | --hidden | --embedding | --lr-patience | --heads | --kv-heads | --ffn | --vocab | --micro | --batch | --lanes | --seed | --threads | --warmup | --lr-step | --steps | --epochs | --save-every | --test-every | --patience | --keep | --verify | --snapshot | --workers | --staleness | --backup | --local-steps) echo 7 ;;
    --rope-theta | --dropout | --label-smoothing | --mixup | --ema | --lr | --momentum | --weight-decay | --beta1 | --beta2 | --epsilon | --clip-norm | --lr-gamma | --grace | --outer-lr | --outer-momentum) echo 0.25 ;;
    *) "$WEFT" train --help=all | has -E -- "^  $1( [^ ]|\$)" && fail "$1: this test has no other value for it" ;;
    esac
}
# One rank's own, or what there cannot be among processes (--devices), or compared by contents.
own=" --rendezvous --restarts --json --config --deepspeed --quiet --verbose --ranks --devices --data --tokenizer --loader-threads --cache --help "

options=$("$WEFT" train --help=all | grep -oE '^  --[a-z0-9-]+' | tr -d ' ')
[[ $(wc -w <<<"$options") -gt 40 ]] || fail "weft train --help lists no options: $options"
plan=dp=2
for option in $options; do
    [[ $own == *" $option "* ]] && continue
    value=$(another "$option")
    words="rank 1 was started with $option"
    [[ -z $value || $value == /* ]] || words+=" $value, rank 0 with"
    # shellcheck disable=SC2086
    differ "$words" $option $value
done

# Whichever way they share the work.
for plan in pp=2 dataparallel=2; do
    differ "rank 1 was started with --nesterov, rank 0 without --nesterov" --nesterov
done

# Other samples, as many bytes of them.
yes "to be or not to be" | head -c 4000 >"$folder/one.txt"
yes "to be or not to do" | head -c 4000 >"$folder/two.txt"
start 0 --data "$folder/one.txt" --plan dp=2
first=$!
start 1 --data "$folder/two.txt" --plan dp=2
wait $first && fail "other samples: rank 0 goes on"
wait $! && fail "other samples: rank 1 goes on"
grep -qF "rank 1 was started with --data whose samples have the hash" "$folder/said.0" ||
    fail "other samples: $(cat "$folder/said.0")"

# What is one rank's own may be another, and that of a file only rank 0 reads.
start 0 --data synthetic --plan dp=2 --out "$folder/run"
first=$!
start 1 --data synthetic --plan dp=2 --out "$folder/elsewhere" --json "$folder/json"
wait $first || fail "own options: rank 0: $(cat "$folder/said.0")"
wait $! || fail "own options: rank 1: $(cat "$folder/said.1")"

# Ranks of two jobs at one place.
plan=dp=2
for variable in TORCHELASTIC_RUN_ID SLURM_JOB_ID; do
    start 0 --data synthetic --plan dp=2
    first=$!
    export $variable=17
    start 1 --data synthetic --plan dp=2
    unset $variable
    wait $first && fail "$variable: rank 0 goes on"
    wait $! && fail "$variable: rank 1 goes on"
    for rank in 0 1; do
        grep -qF "rank 1 was started with $variable 17, rank 0 without" "$folder/said.$rank" ||
            fail "$variable: rank $rank says '$(cat "$folder/said.$rank")'"
    done
done

finish
