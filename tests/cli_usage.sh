#!/usr/bin/env bash
# Bad input: a sentence and the right exit status; help and version; what is written where.
# label: once serial
source tests/cli_helpers.bash
mlp="train --model mlp --data synthetic --image 6 --threads 1 --batch 8 --steps 1"

# ---- usage: exit status 2 ----
expect 2 "did you mean train?" trian
expect 2 "Commands:"
expect 2 "did you mean --batch?" $mlp --bacth 3
expect 2 "has no option --steps; weft train has" eval --steps 3
expect 2 "--model is missing" train --data synthetic
expect 2 "--data is missing" train --model mlp
expect 2 "did you mean resnet18? There are mlp, resnet18" train --model resnet19 --data synthetic
expect 2 "no data set and no file" train --model mlp --data none
expect 2 "not a whole number" $mlp --batch eight
expect 2 "not a whole number" $mlp --batch -8
expect 2 "not a whole number" $mlp --batch 99999999999999999999
expect 2 "batch is 0" $mlp --batch 0
expect 2 "not a number" $mlp --lr nan
expect 2 "not one of sgd|adam|adamw" $mlp --optimizer lion
expect 2 "give one of them" $mlp --devices cpu:2 --ranks 2 --plan dp=2
expect 2 "not a size" $mlp --device-memory 2QB
expect 2 "less than a byte" $mlp --device-memory 0
expect 2 "less than a byte" $mlp --device-memory 0.5
expect 2 "needs a value" $mlp --seed
expect 2 "takes no value" $mlp --profile=yes
expect 2 "is not an option" $mlp stray
expect 2 "unknown key 'qq'" $mlp --plan qq=1
expect 2 "at most" $mlp --micro 3000
expect 2 "do not divide" $mlp --micro 3 --lanes 2
expect 2 "give one" $mlp --epochs 1
expect 2 "--epochs must be at least 1" train --model mlp --data synthetic --epochs 0
expect 2 "too many steps" train --model mlp --data synthetic --image 6 --epochs 9223372036854775807
expect 2 "never augmented" $mlp --no-augment
expect 2 "the model reads tokens" train --model gpt2-tiny --data synthetic --no-augment
expect 2 "--optimizer sgd" $mlp --optimizer adam --momentum 0.9
expect 2 "the model reads images" $mlp --tokens 8
expect 2 "only resnets" $mlp --stem small
expect 2 "--lr-schedule is constant" $mlp --lr-step 3
expect 2 "needs --lr-step" $mlp --lr-schedule step
expect 2 "has 1 rank: give --plan dp=2 for a replica on each, or --devices cpu:1" $mlp --plan pp=1 --devices cpu:2
expect 2 "2 processes have joined; each takes one: give --plan dp=2" $mlp --plan pp=1 --ranks 2
expect 2 "nesterov needs a momentum" $mlp --nesterov
expect 2 "only --data synthetic has" train --model mlp --data "$folder" --loss mse
expect 2 "at most 64" train --model gpt2-tiny --data synthetic --tokens 65
gpt="train --model gpt --data synthetic --batch 2 --tokens 8"
expect 2 "only gpt, llama and lstm may have any size" ${gpt/gpt/gpt2} --layers 3
expect 2 "a width of 1600 does not divide into 12 heads" $gpt --hidden 1600 --heads 12
report plan --model gpt --batch 2 --tokens 8 --layers 1 --hidden 20 --vocab 30 | has '"heads": 10' || fail "--heads of --hidden 20"
expect 2 "does not divide into 7 heads" $gpt --heads 7
expect 2 "does not divide into 2000 heads" $gpt --heads 2000
expect 2 "--layers must be at least 1" $gpt --layers 0
expect 2 "--heads must be at least 1" $gpt --heads 0
expect 2 "--vocab must be at least 1" $gpt --vocab 0
expect 2 "it must lie between 0 and 4096" $gpt --layers 1000000000000
expect 2 "hidden is 12000000000000; it must lie between 0 and 524288" $gpt --hidden 12000000000000
expect 2 "it must lie between 0 and 524288" $gpt --hidden 1200000000
expect 2 "must be 0 to 2147483647" $gpt --vocab 3000000000
expect 2 "must be 1 to 1048576" $gpt --tokens 3000000000
expect 2 "far too large" $gpt --vocab 2000000000
yes "to be" | head -c 4000 >"$folder/text"
expect 2 "the data has 256 different tokens" train --model gpt --data "$folder/text" --vocab 255
expect 2 "--init is missing" eval --model mlp --data synthetic
expect 2 "--resume needs --out" train --resume
expect 2 "not from --init" train --resume --out "$folder/none" --init x
echo '{}' >"$folder/c.json"
expect 2 "not from --config" train --resume --out "$folder/none" --config "$folder/c.json"
WEFT_LOG=loud expect 2 "WEFT_LOG='loud'" $mlp
for step in "building the graph" "lowering rank 1 of 1" "planning the memory of rank 1 of 1" "proving instruction 0 of"; do
    WEFT_LOG=info:progress "$WEFT" plan --model mlp 2>&1 >"$folder/said" | grep -F "progress: $step" >/dev/null || fail "plan: nothing says '$step'"
done

# ---- words of elsewhere ----
for words in "learning-rate:it is --lr" "batch_size:it is --batch" "gpus:it is --devices cuda:N, or cpu:N for cores" "nproc-per-node:it is --ranks" \
    "dp:it is --plan dp=..." "schedule:it is --plan schedule=..." "output-dir:it is --out"; do
    expect 2 "there is no option --${words%%:*}; here ${words#*:}" $mlp "--${words%%:*}" 2
done
expect 2 "there is no option --dataparallel; --help lists" simulate --dataparallel 2 # no command with a plan

# ---- abbreviations, -- and -V ----
expect 2 "--mo may be --model, --momentum" train --mo mlp
expect 2 "did you mean --lr?" $mlp --xr 1
expect 2 "has no option --steps; weft train has" bench train --steps 3
[[ $(report train --mod mlp --data synthetic --im 6 --thr 1 --bat 8 --step 1 --lr-sch cosine | field weights_sha256) == \
    $(report $mlp --lr-schedule cosine | field weights_sha256) ]] || fail "abbreviated: another run"
"$WEFT" $mlp -- >"$folder/out" || fail "-- at the end: exit $?"
expect 2 "'--quiet' is not an option" $mlp -- --quiet
expect 2 "'--help' is not an option" $mlp -- --help
expect 1 "-x.json cannot be opened" draw --draw "$folder/x.txt" -- -x.json
expect 2 "'-x.json' is not an option" draw --draw "$folder/x.txt" -x.json
for words in -V "train -V" "$mlp --version"; do
    [[ $("$WEFT" $words) == "$("$WEFT" --version)" ]] || fail "weft $words: no version"
done

# ---- ranks without a plan are replicas ----
two=$(report $mlp --plan dp=2 | field weights_sha256)
for words in "--devices cpu:2" "--ranks 2"; do
    [[ $(report $mlp $words | field weights_sha256) == "$two" ]] || fail "$words: not the weights of dp=2"
    grep "^plan    dp=2,.*(2 ranks: the default is replicas" <("$WEFT" $mlp $words) >/dev/null || fail "$words: does not say which plan"
done
for plan in "" "--plan auto"; do # ranks that another launcher has started, as srun does
    "$WEFT" run -n 2 -- "$WEFT" $mlp $plan --quiet --json "$folder/run" || fail "two processes, ${plan:-no plan}: exit $?"
    [[ $(field weights_sha256 <"$folder/run") == "$two" ]] || fail "two processes, ${plan:-no plan}: not the weights of dp=2"
done
report ${mlp/train/plan} --devices cpu:2 | grep '"plan": "dp=2,' >/dev/null || fail "weft plan --devices cpu:2: not two replicas"

# ---- what was meant ----
for words in "--gpu 1=>--devices cuda:1" "--gpus 2=>--devices cuda:N" "--fp16=>--dtype bf16; weft does not train in f16" \
    "--dtype fp16=>'fp16' is not one of f32|bf16; the 16-bit type is bf16" "--dtype float16=>; the 16-bit type is bf16" \
    "--dtype float32=>; here it is f32" "--dtype bfloat16=>; here it is bf16" \
    "--devices cuda:0=>the number counts devices; cuda:1 is one device" "--model resnet81=>did you mean resnet18? There are mlp," \
    "--plan dpp=2=>unknown key 'dpp' at position 1; did you mean dp? There are dp, pp, " "--plan qwertz=2=>unknown key 'qwertz' at position 1; there are dp, " \
    "--plan schedule=1f2b=>did you mean 1f1b? There are " "--plan schedule=x=>; there are "; do
    # shellcheck disable=SC2086
    expect 2 "${words#*=>}" train --model mlp --data synthetic ${words%%=>*}
done
expect 2 "; a comma separates two keys" $mlp --plan "dp=2 pp=2"
expect 2 "there is no command '--verison'; did you mean --version?" --verison
expect 2 "there is no command '--hepl'; did you mean --help?" --hepl
expect 2 "--dtype: 'float16' is not one of f16|bf16|f32; here it is f16" convert --init x --out y --dtype float16
[[ $(report plan --model mlp --batch 8 --micro 4 --plan PP=2,Schedule=1F1B,Recompute=All,overlap=OFF,offload=State:Disk | grep -o '"plan": "[^"]*"') == \
    $(report plan --model mlp --batch 8 --micro 4 --plan pp=2,schedule=1f1b,recompute=all,overlap=off,offload=state:disk | grep -o '"plan": "[^"]*"') ]] || fail "the words of a plan depend on their case"
[[ ! -d /usr/share/datasets/fashion-mnist ]] || report plan --model mlp --data fashion_mnist --threads 1 | has '"data": "fashion-mnist"' || fail "--data fashion_mnist"

# ---- configuration files ----
config() { printf '%s' "$1" >"$folder/c.json"; }
config '{"modl": "mlp"}'; expect 2 "did you mean 'model'?" train --config "$folder/c.json"
config '{"lr": 1, "lr": 2}'; expect 2 "duplicate" train --config "$folder/c.json"
config '{"lr_step": 1, "lr-step": 2}'; expect 2 "given twice" train --config "$folder/c.json"
config '{"batch": [1]}'; expect 2 "neither text, number" train --config "$folder/c.json"
config '[1]'; expect 2 "not a JSON object" train --config "$folder/c.json"
config '{"batch": 8'; expect 2 "line 1" train --config "$folder/c.json"
config '{"config": "x"}'; expect 2 "not allowed here" train --config "$folder/c.json"
head -c 1100000 /dev/zero >"$folder/c.json"; expect 2 "more than 1048576 bytes" train --config "$folder/c.json"

# ---- the run fails: 1 ----
expect 1 "--resume: there is no run in $folder/none, which has no state.safetensors; without --resume a new run starts" train --resume --out "$folder/none"
expect 1 "cannot be written" $mlp --json /dev/full
expect 1 "none/r.json cannot be written: No such" $mlp --json "$folder/none/r.json"
"$WEFT" $mlp --json - >&- 2>"$folder/said"
[[ $? == 1 && $(cat "$folder/said") == "weft: the report on standard output cannot be written: it is closed, or can only be read" ]] || fail "--json - >&-: $(cat "$folder/said")"
grep -q loss "$folder/out" && fail "--json in no folder: said after the run"
expect 1 "is not finite" $mlp --lr 1e6 --steps 50 --json "$folder/half.json"
[[ ! -e $folder/half.json ]] || fail "a failed run leaves a report"
expect 1 "cannot be made" $mlp --out /dev/null/run
# A file that cannot be read is a failure of the run, whichever option names it.
expect 1 "no data set and no file" train --model mlp --data "$folder/none"
for option in config deepspeed kernels init; do
    for command in plan train "bench train"; do
        # shellcheck disable=SC2086
        expect 1 "$folder/none/f.json cannot be opened: No such file" $command --model mlp --data synthetic --$option "$folder/none/f.json"
    done
done
expect 1 "$folder/none/f.json cannot be opened" plan --model mlp --cluster "$folder/none/f.json"
expect 1 "$folder/none/f.json cannot be opened" advise --model mlp --cluster "$folder/none/f.json"
expect 1 "$folder/none/f.json cannot be opened" bench published --cluster "$folder/none/f.json"
expect 1 "$folder/none/f.json cannot be opened" bench published --rows "$folder/none/f.json"
expect 1 "$folder is not a regular file, but a folder" train --config "$folder"
expect 1 "is not finite" $mlp --lr 1e6 --steps 50

# ---- it does not fit: 3, with what would ----
expect 3 "more than the 512.0 MiB given" plan --model resnet50 --batch 32 --threads 1 --device-memory 512MiB
"$WEFT" plan --model gpt2-tiny --batch 8 --tokens 32 --ranks 4 --plan auto --json - >"$folder/auto" || fail "--plan auto: exit $?"
grep -q '"plan": "dp=[124],pp=[124],' "$folder/auto" || fail "--plan auto: the report does not say which plan"
expect 3 "would fit" plan --model gpt2-tiny --batch 8 --tokens 32 --ranks 4 --plan auto --device-memory 100KiB
# What trains by --plan auto is the plan that it names, with its microbatches, also where more are needed for it to fit.
some="--model gpt2-tiny --data synthetic --batch 8 --tokens 32 --threads 1 --optimizer adamw --lr 0.001 --lanes 2 --quiet --json -"
for command in "train --steps 1" "bench train --repeat 1"; do
    for devices in "--devices cpu:2" "--ranks 2"; do
        # shellcheck disable=SC2086
        "$WEFT" $command $some $devices --plan auto --device-memory 1600KiB >"$folder/auto" 2>"$folder/said" || fail "$command $devices --plan auto: $(cat "$folder/said")"
        plan=$(sed -n 's/^ *"plan": "\(.*\)",$/\1/p' "$folder/auto" | head -1) micro=$(field micro <"$folder/auto")
        # shellcheck disable=SC2086
        "$WEFT" $command $some $devices --plan "$plan" --micro "$micro" --device-memory 1600KiB >"$folder/named" 2>"$folder/said" || fail "--plan $plan: $(cat "$folder/said")"
        [[ $plan && $(field weights_sha256 <"$folder/auto") == "$(field weights_sha256 <"$folder/named")" ]] || fail "$command $devices --plan auto is not $plan with --micro $micro"
        diff <(grep -A3 '"peak_bytes"' "$folder/auto") <(grep -A3 '"peak_bytes"' "$folder/named") || fail "--plan auto: other bytes than $plan"
    done
done
expect 3 "none of the other plans and numbers of microbatches that were tried would fit" $mlp --device-memory 1KiB
# What fits is a table, a line each, of what trains as well as of what is planned; the first line says by how much the plan does not.
# weft plan prints it on standard output, where its answer begins.
gpt="--model gpt --layers 4 --hidden 64 --heads 2 --vocab 1000 --tokens 32 --data synthetic --batch 8 --optimizer adamw --threads 1 --device-memory 5MiB"
for command in plan train "bench train"; do
    # shellcheck disable=SC2086
    "$WEFT" $command $gpt >"$folder/out" 2>"$folder/said"
    [[ $? == 3 ]] || fail "$command: not 3"
    grep -qxE 'weft: rank 0 needs [0-9]+\.[0-9] MiB, [0-9]+\.[0-9] MiB more than the 5\.0 MiB given; the peak is in unit [a-z.0-9]+' "$folder/said" || fail "$command: $(cat "$folder/said")"
    [[ $command == plan ]] && mv "$folder/out" "$folder/said"
    sed -n '/these would fit:$/,/^with the first/p' "$folder/said" >"$folder/${command// /-}.fit"
    [[ $(grep -cxE ' +[0-9]\.[0-9] MiB +[0-9.]+ [mu]s +[1-8]  --plan [^ ]+ --micro [1-8] --lanes 8 --slices 2' "$folder/${command// /-}.fit") -ge 3 ]] || fail "$command: $(cat "$folder/said")"
    cmp <(sed 1d "$folder/plan.fit") <(sed 1d "$folder/${command// /-}.fit") || fail "$command: another table: $(cat "$folder/said")"
    # The report has the same plans, also where --plan auto finds nothing that fits.
    for more in "--device-memory 5MiB" "--device-memory 3MiB --plan auto"; do
        # shellcheck disable=SC2086
        "$WEFT" $command $gpt $more --json "$folder/report" >"$folder/out" 2>&1
        [[ $? == 3 ]] || fail "$command $more: not 3"
        has '"fits": false' <"$folder/report" && [[ $(field lanes <"$folder/report" | sort -u) == 8 ]] || fail "$command $more: the report: $(cat "$folder/report")"
        sed -nE 's/^ .*  --plan ([^ ]*) .*/\1/p' "$folder/out" >"$folder/plans"
        diff "$folder/plans" <(sed -nE 's/^  "(dp=.*)",?$/\1/p' "$folder/report") && [[ -s $folder/plans ]] || fail "$command $more: other plans than: $(cat "$folder/plans")"
    done
done
[[ $(head -1 "$folder/plan.fit") == "fits    no; these would fit:" ]] || fail "weft plan begins with $(head -1 "$folder/plan.fit")"
grep -qxE 'with the first, a model of [0-9]+ layers would fit, too' "$folder/plan.fit" || fail "no larger model: $(cat "$folder/plan.fit")"
# shellcheck disable=SC2086
least=$("$WEFT" plan $gpt --json - 2>/dev/null | sed '1,/"proposals"/d' | field peak_bytes | sort -n | head -n 1)
# shellcheck disable=SC2086
"$WEFT" plan $gpt --device-memory "$least" >"$folder/out" 2>&1
has '^fits    no; these would fit:' "$folder/out" || fail "nothing fits into $least bytes"
has 'would fit, too' "$folder/out" && fail "no larger model fits into $least bytes: $(grep -c too "$folder/out")"
# shellcheck disable=SC2086
"$WEFT" train $gpt --ranks 2 >"$folder/said" 2>&1
[[ $? == 3 && $(grep -c 'these would fit' "$folder/said") == 1 ]] || fail "two processes: not one table: $(cat "$folder/said")"

# ---- help, version, streams ----
[[ $("$WEFT" --version) =~ ^weft\ [0-9]+\.[0-9]+\.[0-9]+$ ]] || fail "--version"
"$WEFT" --help >"$folder/out" 2>"$folder/said" || fail "--help: exit $?"
[[ -s $folder/out && ! -s $folder/said ]] || fail "--help does not go to standard output"
for command in train eval plan "bench train" info; do
    # shellcheck disable=SC2086
    "$WEFT" $command --help=all >"$folder/all"
    # shellcheck disable=SC2086
    cat "$folder/all" <("$WEFT" $command --help) | awk 'length > 79 { exit 1 }' || fail "$command --help is wider than 79 columns"
done
# The help of a command with many options has those that matter first, and names the way to all; none speaks of other commands.
first=$("$WEFT" train --help | grep -oE '^  --[a-z-]+' | xargs)
[[ $first == "--model --data --init --batch --epochs --steps --optimizer --lr --plan --devices --out --resume" ]] || fail "train --help begins with $first"
"$WEFT" train --help=all >"$folder/all"
"$WEFT" train --help | grep -qx "weft train --help=all lists all $(grep -c '^  --' "$folder/all") options." || fail "train --help does not name --help=all"
cmp <("$WEFT" help train all) "$folder/all" || fail "weft help train all is not weft train --help=all"
cmp <("$WEFT" help train) <("$WEFT" train -h) || fail "weft help train is not weft train -h"
# No text of help hides its subject behind such a word.
hidden='what|who|whoever|whom|whose|nobody'
"$WEFT" --help | grep -iwE "$hidden" && fail "--help hides its subject"
"$WEFT" help --man | grep -iwE "$hidden" && fail "the man page hides its subject"
while read -r command; do
    # shellcheck disable=SC2086
    "$WEFT" $command --help=all >"$folder/all"
    sed 1d "$folder/all" | tr -s '\n ' ' ' | grep -oE '[^ ]* (bench( [a-z]+)?|train|eval|predict|convert|tune|run|plan|draw|simulate|generate)(, [a-z]+| and [a-z]+)?: .{30}' >"$folder/words" &&
        fail "$command --help=all speaks of other commands: $(cat "$folder/words")"
    grep -iwE "$hidden" "$folder/all" >"$folder/words" && fail "$command --help=all hides its subject: $(cat "$folder/words")"
    awk 'length > 79 { exit 1 }' "$folder/all" || fail "$command --help=all is wider than 79 columns"
done < <("$WEFT" --help | sed -nE 's/^  weft (bench [a-z-]+|[a-z]+) .*/\1/p')
grep -q '^.TH WEFT 1' <("$WEFT" help --man) || fail "no man page"
if command -v man >/dev/null; then
    "$WEFT" help --man | LC_ALL=C.UTF-8 MANROFFSEQ='' man --warnings -l - 2>&1 >/dev/null | grep . >/dev/null && fail "the man page has warnings"
fi
bash -n cli/completion/weft.bash || fail "the completion is no bash"
"$WEFT" $mlp --json - 2>/dev/null | sed -n 1p | grep -x '{' >/dev/null || fail "--json -: something stands before the report"
grep -q $'\033' <("$WEFT" trian 2>&1) && fail "colours where there is no terminal"
"$WEFT" info --json - 2>/dev/null | grep WEFT_LOG >/dev/null || fail "info: no variables"
env -u OMP_WAIT_POLICY "$WEFT" info --all | grep -F "OMP_WAIT_POLICY= (by default)" >/dev/null || fail "info: not who set OMP_WAIT_POLICY"
OMP_WAIT_POLICY=passive "$WEFT" info | grep -F 'OMP_WAIT_POLICY=passive (by environment)' >/dev/null || fail "info: not who set OMP_WAIT_POLICY"
# Without --all only variables that are set; the report has all.
OMP_PLACES=cores "$WEFT" info --json "$folder/info.json" >"$folder/out"
grep -q 'OMP_PLACES=cores' "$folder/out" || fail "info: not the variable that is set"
grep -q 'by default' "$folder/out" && fail "info: variables that are not set: $(grep 'by default' "$folder/out")"
grep -qE '[0-9]+ of [0-9]+ are set; --all shows all$' "$folder/out" || fail "info does not name --all"
[[ $(grep -c '"set_by"' "$folder/info.json") -gt 10 ]] || fail "info: the report has not all variables"
"$WEFT" info --json - 2>/dev/null | grep -A1 '"zlib 1' | grep '"PCRE2 1' >/dev/null || fail "info: no zlib, no PCRE2"
"$WEFT" info --json - 2>/dev/null | grep '"libpng 1' >/dev/null || fail "info: no libpng"

finish
