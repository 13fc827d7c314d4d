#!/usr/bin/env bash
# Every option of --help changes what happens. Each line below names one; at the end the
# help texts are searched for options that no line names.
# label: once serial long
source tests/cli_helpers.bash
images "$folder/images"
seq 1 3000 >"$folder/text"

tested=()
declare -A known=() # the weights of runs, by their words

# differs OPTION "COMMAND" "WITHOUT" "WITH": other weights.
differs() {
    tested+=("$1")
    # shellcheck disable=SC2086 # words
    local without with
    [[ ${known["$2 $3"]-} ]] || known["$2 $3"]=$(sha $2 $3) # several options change one run
    without=${known["$2 $3"]} with=$(sha $2 $4)
    [[ $without && $with && $without != "$with" ]] || fail "$1: '$4' gives the same weights as '$3'"
}

# gives OPTION FIELD VALUE "COMMAND": the report's field has that value.
gives() {
    tested+=("$1")
    # shellcheck disable=SC2086
    local value
    value=$(report $4 | field "$2" | sed -n 1p)
    [[ $value == "$3" ]] || fail "$1: $2 is '$value', not '$3'"
}

# refuses OPTION STATUS WORDS "COMMAND"
refuses() {
    tested+=("$1")
    # shellcheck disable=SC2086
    expect "$2" "$3" $4
}

mlp="train --model mlp --data synthetic --image 6 --threads 1 --batch 8 --steps 2"
adam="$mlp --optimizer adam --steps 3"
folder_run="train --model mlp --data $folder/images --threads 1 --batch 32 --steps 2"
gpt="train --model gpt2-tiny --data synthetic --threads 1 --batch 4 --tokens 8 --steps 2"
text_run="train --model gpt2-tiny --data $folder/text --threads 1 --batch 4 --steps 2"
resnet="plan --model resnet18 --image 32 --batch 4 --threads 1"

# ---- model and data ----
differs --model "train --data synthetic --image 32 --threads 1 --batch 2 --steps 1" "--model mlp" "--model resnet18"
differs --data "train --model mlp --threads 1 --batch 8 --steps 1" "--data synthetic --image 8" "--data $folder/images"
head -c 4000 "$folder/text" >"$folder/even"
differs --data-format "${text_run/text/even} --tokens 8" "" "--data-format tokens"
refuses --data-format 2 "is a file; in the requested format, data is a folder" "$text_run --data-format mnist"
refuses --data-format 2 "is not one of auto|images" "$text_run --data-format parquet"
differs --image "$mlp" "" "--image 7"
differs --tokens "$gpt" "" "--tokens 9"
for size in "--layers 3" "--hidden 48" "--heads 1" "--vocab 300"; do
    differs "${size% *}" "${gpt/gpt2-tiny/gpt} --layers 1 --hidden 32 --heads 2 --vocab 200" "" "$size"
done
differs --words "$text_run --tokens 8" "" "--words"
differs --tokenizer "$text_run --tokens 8" "" "--tokenizer tests/golden/bpe"
refuses --tokenizer 1 "contains no tokenizer" "$text_run --tokens 8 --tokenizer $folder"
refuses --tokenizer 2 "--words defines the tokens" "$text_run --words --tokenizer tests/golden/bpe"
differs --normalize "$folder_run" "" "--normalize none"
differs --no-shuffle "$folder_run" "" "--no-shuffle"
"$WEFT_BUILD/tests/data_pictures" "$folder/pets" cat dog # what the options of pictures do is in tests/cli_images.sh
pets_run="train --model mlp --data $folder/pets --threads 1 --batch 8 --steps 1"
differs --image "$pets_run" "" "--image 12"
differs --no-augment "$pets_run" "" "--no-augment"
differs --resize "$pets_run --no-augment" "" "--resize 40"
refuses --resize 2 "too small for a centre of 28 pixels" "$pets_run --resize 20"
echo none >"$folder/pets/train/cat/13.jpg"
gives --skip-broken n_train 24 "$pets_run --skip-broken"
gives --loader-threads batch 8 "plan ${pets_run#train} --loader-threads 2"
gives --cache batch 8 "plan ${pets_run#train} --cache 1KiB"
for option in --skip-broken "--resize 40" "--loader-threads 2" "--cache 1KiB"; do
    refuses ${option% *} 2 "--data is not a folder of pictures" "$mlp $option"
done
differs --no-augment "$folder_run" "" "--no-augment"
differs --loss "$mlp" "" "--loss mse"
differs --dropout "$gpt" "" "--dropout 0.5"
lstm=${gpt/gpt2-tiny/lstm}
differs --embedding "$lstm --hidden 8" "" "--embedding 4"
differs --tied "$lstm --hidden 8" "" "--tied"
llama="${gpt/gpt2-tiny/llama} --layers 1 --hidden 32 --heads 4 --vocab 200"
for option in "--ffn 48" "--kv-heads 2" "--rope-theta 100" --tied; do differs ${option% *} "$llama" "" "$option"; done
for net in "$gpt" "$mlp"; do differs --label-smoothing "$net" "" "--label-smoothing 0.1"; done
differs --mixup "$mlp" "" "--mixup 0.2"
refuses --label-smoothing 2 "it must lie between 0 and 0.9999999" "$mlp --label-smoothing 1"
refuses --label-smoothing 2 "--loss is mse" "$mlp --loss mse --label-smoothing 0.1"
[[ $(report $resnet | field flops) != $(report $resnet --stem small | field flops) ]] || fail "--stem: the same FLOPs"
tested+=(--stem)

# ---- generate ---- (what each does is in tests/cli_language.sh)
refuses --prompt 2 "--prompt is missing" "generate --init $folder/none"
refuses --stop 2 "--stop is empty" "generate --init $folder/none --prompt x --stop="
refuses --temperature 2 "--temperature must be a number from 0" "generate --init $folder/none --prompt x --temperature -1"
refuses --top-k 2 "--top-k has no effect here" "generate --init $folder/none --prompt x --top-k 3"

# ---- predict ---- (what it says is in tests/cli_images.sh)
refuses --csv 1 "the table $folder/none/rows.csv cannot be written" "predict --init $folder/none --data $folder/pets --csv $folder/none/rows.csv"

# ---- recipe ----
differs --batch "$mlp" "" "--batch 16"
differs --micro "$mlp" "" "--micro 2"
for command in "train --data synthetic --steps 1" "bench train --repeat 1" plan; do
    gives --costs costs measured "$command --model mlp --image 6 --batch 8 --plan pp=2 --costs measured"
    gives --costs costs computed "$command --model mlp --image 6 --batch 8 --plan pp=2"
    [[ $(report $command --model mlp --image 6 --batch 8 --micro auto --plan pp=2 | field micro) =~ ^[2-8]$ ]] ||
        fail "--micro auto of weft $command chooses no number of microbatches"
done
gives --costs costs measured "$mlp --plan pp=2 --costs measured --lr-schedule cosine"
[[ $(report $mlp --plan pp=2 --micro auto --lr-schedule cosine | field micro) =~ ^[2-8]$ ]] || fail "--micro auto with a cosine"
refuses --micro 2 "neither a whole number from 0 nor auto" "$mlp --micro many"
differs --lanes "$mlp --batch 16 --micro 8" "" "--lanes 2"
differs --slices "$mlp" "" "--slices 2"
refuses --slices 2 "slices=2000 do not divide linear of unit" "$mlp --slices 2000"
differs --seed "$mlp" "" "--seed 1"

# ---- workers ---- (tests/train_workers.sh has more)
crew="$mlp --micro 4 --lanes 4"
differs --update "$crew" "" "--update local --workers 2 --local-steps 1"
differs --workers "$crew --update local --local-steps 1" "--workers 2" "--workers 4"
differs --local-steps "$crew --update local --workers 2" "" "--local-steps 1"
differs --outer-lr "$crew --update local --workers 2" "" "--outer-lr 1"
differs --outer-momentum "$crew --update local --workers 2" "" "--outer-momentum 0.5"
differs --staleness "$crew --update async --workers 2" "--staleness 0" "--staleness 1"
differs --backup "$crew --update async --workers 2 --staleness 0" "" "--backup 1"
for option in "--staleness 1" --staleness-lr "--backup 1" "--record $folder/r" "--replay $folder/r"; do
    refuses ${option% *} 2 "it is an option of --update async" "$mlp $option"
done
for option in "--local-steps 1" "--outer-lr 1" "--outer-momentum 0.5"; do
    refuses ${option% *} 2 "it is an option of --update local" "$mlp $option"
done
gives --threads threads 2 "$mlp --threads 2"
refuses --threads 2 "is not a whole number from 0 to 1048576" "$mlp --threads 4294967297"
refuses --warmup 2 "is not a whole number from 0, below 2^63" "$mlp --warmup 9223372036854775808"
differs --kernels "$mlp" "" "--kernels reference"
refuses --tuned 2 "recipe: tuned at 'x'" "$mlp --tuned x" # (tests/cli_tune.sh has what it does)
differs --dtype "$mlp" "" "--dtype bf16"
refuses --dtype 2 "not one of f32|bf16" "$mlp --dtype f64"
# (tests/cuda_kernels.sh has what it does)
gives --matmul-precision matmul_precision tf32 "$mlp --matmul-precision tf32"
[[ $(sha $mlp --matmul-precision tf32) == $(sha $mlp) ]] || fail "--matmul-precision changes the weights on a CPU"
"$WEFT" $mlp --matmul-precision tf32 2>&1 | grep -c "matmul-precision tf32 has no effect here" >/dev/null || fail "--matmul-precision: nothing is said"
"$WEFT" $mlp --matmul-precision f32 2>&1 | grep "has no effect" && fail "--matmul-precision f32 has no effect"
refuses --matmul-precision 2 "not one of f32|tf32" "$mlp --matmul-precision high"
differs --conv "bench train --model resnet18 --image 32 --batch 8 --threads 1 --repeat 1" "--conv direct" "--conv winograd"

# ---- optimizer ----
differs --optimizer "$mlp --lr 0.01" "" "--optimizer adam"
differs --lr "$mlp" "" "--lr 0.05"
differs --momentum "$mlp" "" "--momentum 0.9"
differs --nesterov "$mlp --momentum 0.9" "" "--nesterov"
differs --weight-decay "$mlp" "" "--weight-decay 0.1"
differs --no-bias-decay "$mlp --weight-decay 0.1" "" "--no-bias-decay"
refuses --no-bias-decay 2 "--weight-decay is 0" "$mlp --no-bias-decay"
differs --beta1 "$adam" "" "--beta1 0.5"
differs --beta2 "$adam" "" "--beta2 0.9"
differs --epsilon "$adam" "" "--epsilon 0.01"
differs --clip-norm "$mlp" "" "--clip-norm 0.01"
[[ $(sha $mlp --ema 0.9) == $(sha $mlp) ]] || fail "--ema changes the weights"
gives --ema ema 0.5 "$mlp --ema 0.5" # (tests/cli_habits.sh has what it does)
differs --freeze "$gpt" "" "--freeze h.0"
differs --lr-scale "$gpt" "" "--lr-scale h.0=2,wte=0.5"
refuses --lr-scale 2 "'h.0' is not a name with a number from 0" "$gpt --lr-scale h.0"
refuses --lr-scale 2 "no parameter is called 'h.7'" "$gpt --lr-scale h.7=2"
differs --lr-schedule "$mlp" "" "--lr-schedule cosine"
differs --lr-step "$mlp" "--lr-schedule step --lr-step 2" "--lr-schedule step --lr-step 1"
differs --lr-gamma "$mlp --lr-schedule step --lr-step 1" "" "--lr-gamma 0.5"
refuses --lr-patience 2 "--lr-schedule is not plateau" "$mlp --lr-patience 1" # (tests/cli_lstm.sh has what it does)
differs --warmup "$mlp" "" "--warmup 5"
differs --warmup-shape "$mlp --warmup 5" "" "--warmup-shape log"
refuses --warmup-shape 2 "--warmup is not given" "$mlp --warmup-shape log"

# ---- plan ----
gives --plan ranks 2 "$mlp --plan dp=2"
refuses --devices 2 "are 3, but the plan" "$mlp --plan dp=2 --devices cpu:3"
gives --ranks ranks 2 "$mlp --plan dp=2 --ranks 2"
gives --ranks ranks 2 "$mlp --plan dataparallel=2 --ranks 2"
refuses --ranks 2 "2 processes have joined" "$mlp --plan dp=1 --ranks 2"
# (tests/launch_by_hand.sh has the meetings themselves)
refuses --rendezvous 2 "each process needs its rank" "$mlp --rendezvous env://"
RANK=0 WORLD_SIZE=2 refuses --rendezvous 2 "joined by env://" "$mlp --rendezvous http://x"
RANK=0 WORLD_SIZE=2 refuses --rendezvous 2 "joined by env://" "bench train --model mlp --data synthetic --batch 8 --rendezvous http://x"
gives --wire ranks 2 "$mlp --plan dp=2 --ranks 2 --wire shm"
for command in "${mlp}" "${mlp/train/bench train}"; do
    refuses --wire 2 "--wire mpi needs ranks that MPI has started" "${command/--steps 2/} --wire mpi"
done
# Over messages a rank copies bytes of other ranks before it reads them, so it needs more memory.
peak_over() { report ${mlp/train/plan} --micro 2 --plan dp=2 --wire "$1" | field peak_bytes | head -n 1; }
(($(peak_over mpi) > $(peak_over shm))) || fail "weft plan --wire mpi: no memory for what messages bring"
refuses --wire 2 "there is no wire 'tin'; there are auto, shm, mpi and nccl" "${mlp/train/plan} --wire tin"
refuses --device-memory 3 "more than the" "$mlp --device-memory 10KB"
refuses --host-memory 3 "of the host's memory" "$adam --plan offload=state --host-memory 1KB"

# weft plan takes what weft train takes, so that a command's word can be exchanged
for extra in "--ranks 1" "--devices cpu" "--devices cpu:1" "--out $folder/none" "--save-every 3" "--restarts 3" "--snapshot 3" "--verify 3" "--on-nan skip" --profile; do
    [[ $(report ${mlp/train/plan} $extra | field fits) == true ]] || fail "weft plan $extra"
done
[[ ! -e $folder/none ]] || fail "weft plan makes a folder"
refuses --devices 2 "the plan dp=1,pp=1,schedule=1f1b has 1 rank" "${mlp/train/plan} --plan dp=1 --devices cpu:2"
refuses --devices 2 "expected KIND:N" "${mlp/train/plan} --devices cpu:x"
refuses --devices 2 "expected a kind with memory" "${mlp/train/plan} --plan dp=2 --devices cpu:0,null:1"
[[ $(report ${mlp/train/plan} --plan dp=2 --devices cpu:1,cpu:1 | field device | tr "\n" " ") == "cpu:1 cpu:1 " ]] || fail "weft plan: devices of ranks"
"$WEFT" ${mlp/train/plan} --plan dp=2,pp=2 --devices cpu:0,cpu:1,cpu:0,cpu:1 >"$folder/out" 2>&1
grep -qF "devices cpu:0 is shared by ranks 0, 2; cpu:1 by ranks 1, 3" "$folder/out" || fail "weft plan: ranks that share devices"
refuses --ranks 2 "has 2 ranks" "${mlp/train/plan} --plan dp=2 --ranks 3"

# ---- run ----
gives --steps steps 3 "$mlp --steps 3"
gives --epochs steps 4 "train --model mlp --data $folder/images --threads 1 --batch 32 --epochs 2"
[[ $(report bench train --model mlp --image 6 --threads 1 --repeat 3 | sed -n '/losses/,/]/p' | wc -l) == 6 ]] ||
    fail "--repeat 3: not four losses"
tested+=(--repeat)
report $mlp --out "$folder/run" >/dev/null
[[ -s $folder/run/model.safetensors && -s $folder/run/state.safetensors && -s $folder/run/log.jsonl ]] ||
    fail "--out: files are missing"
tested+=(--out)
differs --init "$mlp --image 6" "" "--init $folder/run/model.safetensors"
refuses --other-data 2 "was trained on images of 3 x 6 x 6" "train --model mlp --data $folder/images --threads 1 --batch 8 --steps 1 --init $folder/run"
gives --other-data batch 8 "plan --model mlp --data $folder/images --threads 1 --batch 8 --init $folder/run --other-data"
differs --init-skip "$mlp --init $folder/run" "" "--init-skip net1"
refuses --init-skip 2 "--init is not given" "$mlp --init-skip net1"
refuses --init-skip 2 "nothing of the model is called 'fc'" "$mlp --init $folder/run --init-skip fc"
gives --resume batch 8 "plan --resume --out $folder/run"
gives --resume steps 4 "train --resume --out $folder/run --steps 4"
DNNL_MAX_CPU_ISA=SSE41 refuses --strict 1 "made by weft" "train --resume --out $folder/run --steps 4 --strict"
gives --restarts restarts 0 "$mlp --restarts 1" # (tests/launch_restart.sh has what it does)
refuses --on-nan 2 "--on-nan rewind needs --out" "$mlp --on-nan rewind" # (tests/train_on_nan.sh has what it does)
refuses --snapshot 2 "--snapshot needs --restarts" "$mlp --snapshot 1" # (tests/launch_snapshot.sh has what it does)
refuses --verify 2 "no two ranks keep the same state" "$mlp --verify 1" # (tests/train_verify.sh has what it does)
refuses --grace 2 "--grace needs --out" "$mlp --grace 1" # (tests/train_grace.sh has the signals)
refuses --restarts 2 "only their launcher can start them again" "run -n 2 -- $WEFT $mlp --restarts 1"
refuses --strict 2 "there is no --resume" "$mlp --strict"
"$WEFT" $mlp --steps 3 --save-every 2 --out "$folder/every" >"$folder/said" 2>&1
[[ $(grep -c '"step":' "$folder/every/log.jsonl") == 3 ]] || fail "--save-every: the log has not three steps"
expect 2 "--save-every needs --out" $mlp --save-every 2
tested+=(--save-every)
# What these do is in tests/cli_habits.sh.
for option in --test-every --patience --keep; do refuses $option 2 "$option must be at least 1" "$mlp $option 0"; done
refuses --keep-best 2 "--keep-best needs --out" "$mlp --keep-best"
"$WEFT" $mlp --steps 1 --shard-size 8KiB --out "$folder/shards" >"$folder/said" 2>&1
grep -qx "saved   $folder/shards/model.safetensors.index.json" "$folder/said" || fail "--shard-size: says $(tail -1 "$folder/said")"
ls "$folder/shards/model-00001-of-"* >/dev/null || fail "--shard-size: no shards: $(ls "$folder/shards")"
expect 2 "--shard-size needs --out" $mlp --shard-size 8KiB
tested+=(--shard-size)
"$WEFT" $mlp --steps 3 --save-every 1 --save-async --out "$folder/async" --quiet --json "$folder/report" || fail "--save-async: exit $?"
cmp "$folder/every/model.safetensors" "$folder/async/model.safetensors" || fail "--save-async: another file"
(($(field save_bytes <"$folder/report") > 10000)) || fail "--save-async: the report does not count the copy"
planned=$("$WEFT" plan ${mlp#train } --save-async --quiet --json - | field save_bytes)
[[ $planned == "$(field save_bytes <"$folder/report")" ]] || fail "--save-async: a copy of $planned bytes is planned"
"$WEFT" $mlp --save-async --ema 0.5 --out "$folder/ema" --quiet --json "$folder/report" || fail "--save-async --ema: exit $?"
planned=$("$WEFT" plan ${mlp#train } --save-async --ema 0.5 --quiet --json - | field save_bytes)
[[ $planned == "$(field save_bytes <"$folder/report")" ]] || fail "--save-async --ema: a copy of $planned bytes is planned"
expect 2 "--save-async needs --out" $mlp --save-async
tested+=(--save-async)
report $mlp --profile | grep '"gflop_per_second"' >/dev/null || fail "--profile: no table"
tested+=(--profile)
report plan --model mlp --image 6 --program | grep 'compute.0 forward' >/dev/null || fail "--program: no program"
tested+=(--program)
equal=(plan --model mlp --image 6 --batch 8 --micro 4 --lanes 4 --plan dp=4)
"$WEFT" "${equal[@]}" --proof full --program | grep '^r3 ' >/dev/null || fail "--proof full: rank 3 has no program"
"$WEFT" "${equal[@]}" --program | grep '^r3 ' >/dev/null && fail "--proof folded: rank 3 has a program"
[[ $("$WEFT" "${equal[@]}" --proof full) == "$("$WEFT" "${equal[@]}")" ]] || fail "--proof full: other figures"
tested+=(--proof --certificate) # --certificate: cli_certificate
"$WEFT" $mlp --quiet --json "$folder/report.json" >"$folder/said" 2>&1
[[ ! -s $folder/said ]] || fail "--quiet: says something"
grep -q weights_sha256 "$folder/report.json" || fail "--json: no report"
tested+=(--quiet --json --verbose --all) # --verbose: cli_promise; --all: cli_usage
echo '{"model": "mlp", "data": "synthetic", "image": 6, "threads": 1, "batch": 8, "steps": 2, "lr": 0.2}' >"$folder/config.json"
[[ $(sha train --config "$folder/config.json") == $(sha $mlp --lr 0.2) ]] || fail "--config: another run than its options"
[[ $(sha train --config "$folder/config.json" --lr 0.3) == $(sha $mlp --lr 0.3) ]] || fail "--config: not overridden"
tested+=(--config)
echo '{"train_batch_size": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.2}}}' >"$folder/deepspeed.json"
[[ $(sha $mlp --deepspeed "$folder/deepspeed.json") == $(sha $mlp --lr 0.2) ]] || fail "--deepspeed: another run than its options"
tested+=(--deepspeed)

report $mlp --trace "$folder/trace.json" | grep '"timeline"' >/dev/null || fail "--trace: no timeline in the report"
grep -q '"ph":"X"' "$folder/trace.json" || fail "--trace: no trace"
report ${mlp/train/plan} --trace "$folder/plan.json" --draw "$folder/plan.txt" >/dev/null
grep -q '"ph":"X"' "$folder/plan.json" || fail "plan --trace: no trace"
grep -q '^rank 0' "$folder/plan.txt" || fail "--draw: no picture"
tested+=(--trace --draw)

gives --cluster cluster ethernet "plan --model mlp --image 6 --threads 1 --cluster ethernet"
gives --nodes n_devices 8 "plan --model mlp --image 6 --threads 1 --cluster ethernet --nodes 2"

"$WEFT" info --measure "$folder/here.json" >"$folder/out" 2>"$folder/said" || fail "info --measure: exit $?: $(cat "$folder/said")"
[[ $(report plan --model mlp --image 6 --threads 1 --cluster "$folder/here.json" | field cluster) == measured ]] || fail "--measure: not a cluster"
tested+=(--measure) # its numbers: cli_info

# ---- none was forgotten ----
for command in train eval plan advise draw "bench train" info convert; do
    # shellcheck disable=SC2086
    for option in $("$WEFT" $command --help=all | grep -o '^  --[a-z0-9-]*'); do
        [[ " ${tested[*]} " == *" $option "* ]] || fail "$option of weft $command has no test"
    done
done
finish
