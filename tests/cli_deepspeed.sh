#!/usr/bin/env bash
# label: once
# DeepSpeed's configuration is the options that it stands for, and what has no counterpart is refused by its name.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE
run="train --model gpt2-tiny --tokens 8 --data synthetic --threads 1 --steps 4"
file=$folder/ds.json
report_of() { report "$@" --deepspeed "$file"; }

cat >"$file" <<'JSON'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": "auto", "gradient_clipping": 1.0,
 "optimizer": {"type": "Adam", "params": {"lr": "auto", "betas": [0.8, 0.95], "eps": 1e-7}},
 "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 0.002, "warmup_num_steps": 3, "warmup_type": "linear"}},
 "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}, "overlap_comm": false, "contiguous_gradients": true,
   "reduce_bucket_size": 1e3},
 "fp16": {"enabled": false, "loss_scale": 0}, "bf16": {"enabled": false}, "steps_per_print": 10}
JSON
report_of $run --ranks 2 >"$folder/r.json"
own="--batch 8 --micro 4 --clip-norm 1 --optimizer adamw --lr 0.002 --beta1 0.8 --beta2 0.95 --epsilon 1e-7 --weight-decay 0 --warmup 3"
[[ $(field weights_sha256 <"$folder/r.json") == $(sha $run $own) ]] || fail "other bits than its options"
grep -q '"plan": "dp=2,.*zero=2.*offload=state.*bucket=4000.*overlap=off' "$folder/r.json" || fail "another plan: $(grep '"plan"' "$folder/r.json")"
[[ $(sha $run --ranks 2 --deepspeed "$file" --lr 0.01 --plan dp=2) == $(sha $run $own --lr 0.01) ]] || fail "the command line does not override it"
# as threads, and one rank of it, which divides nothing
[[ $(report_of $run --devices cpu:2 | field weights_sha256) == $(field weights_sha256 <"$folder/r.json") ]] || fail "ranks as threads: other bits"
report_of $run | has '"plan": "dp=1,pp=1,schedule=1f1b,offload=state"' || fail "one rank: another plan"

# is WORDS JSON: what a plan's report says of it, on two ranks.
is() {
    echo "$2" >"$file"
    report plan --model gpt2-tiny --tokens 8 --devices cpu:2 --deepspeed "$file" | tr -d ' \n' | has -F -- "$1" || fail "$2: is not $1"
}
is '"batch":12,"micro":4' '{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}'
is '"batch":32,"micro":6' '{"gradient_accumulation_steps": 3}'
is '"optimizer":"adam"' '{"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}}'
is '"weight_decay":0.25' '{"optimizer": {"type": "AdamW", "params": {"weight_decay": 0.25}}}'
is '"lr_schedule":"cosine","warmup":2,"warmup_shape":"linear","lr_step":9' '{"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2,
    "cos_min_ratio": 0, "total_num_steps": 9}}}'
# What each replica does is counted by the plan's replicas, not by its ranks: whatever the devices, the same recipe.
echo '{"train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}' >"$file"
for words in "--plan pp=2" "--plan pp=2 --devices cpu:2" "--plan tp=2 --ranks 2"; do
    report plan --model gpt2-tiny --tokens 8 $words --deepspeed "$file" | tr -d ' \n' | has -F '"batch":6,"micro":2' || fail "$words: another batch"
done
report plan --model gpt2-tiny --tokens 8 --plan dp=2,pp=2 --devices cpu:4 --deepspeed "$file" | tr -d ' \n' | has -F '"batch":12,"micro":4' || fail "two replicas of two stages: another batch"
# Which replicas --plan auto makes nobody knows when the file is read.
expect 2 "the number of replicas of --plan auto is not known yet" plan --model gpt2-tiny --tokens 8 --plan auto --devices cpu:2 --deepspeed "$file"
echo '{"train_batch_size": 8}' >"$file"
report plan --model gpt2-tiny --tokens 8 --plan auto --devices cpu:2 --micro 4 --deepspeed "$file" | tr -d ' \n' | has -F '"batch":8,"micro":4' || fail "--plan auto: another batch"
# What is auto is the command line's, as here the whole run's steps.
is '"lr":0.001,' '{"optimizer": {"type": "Adam"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": "auto",
    "warmup_max_lr": "auto"}}}'
is '"lr_schedule":"cosine","warmup":3,"warmup_shape":"linear","lr_step":'"$(report plan --model gpt2-tiny --tokens 8 --devices cpu:2 --lr-schedule cosine | field lr_step)" '{"scheduler":
    {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "warmup_num_steps": 3, "cos_min_ratio": 0, "total_num_steps": "auto"}}}'
is 'offload=state:disk+params' '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}, "offload_param": {"device": "cpu"}}}'
is 'zero=1' '{"zero_optimization": {"stage": 1, "offload_param": {"device": "none"}}}'

# refuses WORDS JSON
refuses() {
    echo "$2" >"$file"
    expect 2 "$1" plan --model gpt2-tiny --devices cpu:2 --deepspeed "$file"
}
refuses "gradient_cliping: weft has no counterpart" '{"gradient_cliping": 1}'
refuses "optimizer.params.amsgrad: weft supports only false" '{"optimizer": {"type": "Adam", "params": {"amsgrad": true}}}'
refuses "fp16.enabled: weft supports only false; the 16-bit type is bf16: bf16.enabled" '{"fp16": {"enabled": true}}'
refuses "optimizer.type: weft has no 'Lamb', but Adam, AdamW, SGD" '{"optimizer": {"type": "Lamb"}}'
refuses "optimizer.params.lr is missing" '{"optimizer": {"type": "SGD"}}'
refuses "optimizer.params.betas must be two numbers" '{"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}}'
refuses "optimizer.type is missing" '{"optimizer": {"params": {"lr": 1}}}'
is '"warmup":2,"warmup_shape":"log"' '{"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1, "warmup_num_steps": 2}}}'
is '"warmup":2,"warmup_shape":"log"' '{"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "log", "warmup_max_lr": 0.1, "warmup_num_steps": 2}}}'
is '"warmup":2,"warmup_shape":"linear"' '{"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_max_lr": 0.1, "warmup_num_steps": 2}}}'
refuses "warmup_type: weft has no 'cubic', but linear, log" '{"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "cubic", "warmup_max_lr": 0.1, "warmup_num_steps": 2}}}'
refuses "warmup_num_steps is missing" '{"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_max_lr": 0.1}}}'
refuses "warmup_max_lr is missing" '{"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2}}}'
refuses "total_num_steps is missing" '{"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2, "cos_min_ratio": 0}}}'
refuses "weft has no 'WarmupDecayLR'" '{"scheduler": {"type": "WarmupDecayLR"}}'
refuses "weft's cosine ends at 0" '{"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_type": "linear", "warmup_num_steps": 2, "total_num_steps": 9}}}'
refuses "train_batch_size 9 is not train_micro_batch_size_per_gpu 4" '{"train_batch_size": 9}'
refuses "train_batch_size: it must be a whole number" '{"train_batch_size": 1e300}'
refuses "zero_optimization is not an object" '{"zero_optimization": 2}'
refuses "zero_optimization.stage must be 0 to 3" '{"zero_optimization": {"stage": 4}}'
refuses "files are made in the folder of --out" '{"zero_optimization": {"offload_param": {"device": "nvme", "nvme_path": "/tmp"}}}'
refuses "set stages by --plan pp=N" '{"pipeline": {"stages": 2}}'
refuses "duplicate" '{"train_batch_size": 8, "train_batch_size": 4}'
refuses "line 2, column 0" '{'
expect 1 "--deepspeed: " plan --model gpt2-tiny --deepspeed "$folder/none"
finish
