#!/usr/bin/env bash
# weft tune: a table of ways by shape. What it says is what runs, with the same bits under every plan.
# label: once
source tests/cli_helpers.bash
net="--model resnet18 --data synthetic --image 32 --batch 4 --micro 2 --lanes 2 --threads 1"
gpt="--model gpt2-tiny --data synthetic --tokens 8 --batch 4 --micro 2 --lanes 2 --slices 2 --threads 1"

# ---- the table ----
# shellcheck disable=SC2086
for one in net gpt; do
    "$WEFT" tune ${!one} --repeat 1 --out "$folder/$one.json" --json "$folder/report" >"$folder/out" 2>"$folder/said" || fail "weft tune: $(cat "$folder/said")"
    cmp -s "$folder/$one.json" "$folder/report" || fail "the table is not the report"
    grep -E "^[0-9]+ of $(grep -c '"shape"' "$folder/$one.json") shapes are faster with another kernel" "$folder/out" >/dev/null || fail "weft tune says $(cat "$folder/out")"
    # "SHAPE WAY TIME", a line a way; the first of a shape is the usual one.
    awk -F'"' '/"shape"/ { shape = $4 } /"ways_us"/ { inside = 1; next } /}/ { inside = 0 } inside { print shape, $2, $3 }' "$folder/$one.json" >"$folder/$one.ways"
    [[ $(wc -l <"$folder/$one.ways") -gt 60 ]] || fail "$one: few ways: $(cat "$folder/$one.ways")"
    grep null "$folder/$one.ways" && fail "$one: the library has ways that give wrong numbers"
    [[ $(field threads <"$folder/$one.json") == 1 && $(field library <"$folder/$one.json") == oneDNN* ]] || fail "$one: for which library and threads?"
    awk -F'"' '/"(choice|usual)"/ { way[$2] = $4 } /"(time_us|usual_us)"/ { time[$2] = substr($3, 3) + 0 }
        /"nodes"/ && way["choice"] != way["usual"] && !(time["time_us"] < time["usual_us"]) { exit 1 }' "$folder/$one.json" || fail "$one: a choice is slower than the usual"
done
# Nor where several microbatches are added to a sum.
"$WEFT" tune --model mlp --data synthetic --image 8 --batch 4 --micro 4 --lanes 1 --threads 1 --repeat 1 --json "$folder/added" >"$folder/out" 2>&1 ||
    fail "one lane: $(cat "$folder/out")"
grep -q '"shape": "linear_backward_weight' "$folder/added" || fail "one lane: no gradient has several ways"
! grep null "$folder/added" || fail "one lane: the library has ways that give wrong numbers"
for way in winograd:jit direct:jit nchw: nhwc: ; do grep -q " $way" "$folder/net.ways" || fail "convolutions have no way $way"; done
for way in plain: packed: matmul: matmul_packed: ; do grep -q " $way" "$folder/gpt.ways" || fail "linear layers have no way $way"; done

# ---- each way, if the table says so, is what runs ----
# nth N FILE: the table as text, each shape in its N-th way, again from the first where it has fewer.
nth() {
    awk -v n="$1" '$1 != last { k = 0; last = $1; shapes[++m] = $1 } { way[$1, k++] = $2; count[$1] = k }
        END { for (i = 1; i <= m; i++) printf "%s%s=%s", (i > 1 ? "+" : ""), shapes[i], way[shapes[i], n % count[shapes[i]]] }' "$2"
}
# ran REPORT: "op kernel" of the profile, of ops that have several ways; said TABLE: what it should be.
ran() { awk -F'"' '/"op"/ { op = $4 } /"kernel"/ && op ~ /^(conv2d|linear|matmul)/ { print op, $4 }' | sort -u; }
said() { tr '+' '\n' <<<"$1" | sed 's/:[^=]*=[^:]*:/ /' | sort -u; }
# shellcheck disable=SC2086
for one in net gpt; do
    all=()
    for n in 0 1 3 5; do
        table=$(nth $n "$folder/$one.ways")
        report bench train ${!one} --repeat 1 --profile --tuned "$table" >"$folder/ran"
        [[ $(ran <"$folder/ran") == "$(said "$table")" ]] || fail "$one, way $n: $(diff <(ran <"$folder/ran") <(said "$table"))"
        tr -d ' \n' <"$folder/ran" | has -E '"planned":(\[[^]]*\]),"measured":\1' || fail "$one, way $n: other bytes than planned"
        all[n]=$(field weights_sha256 <"$folder/ran")
    done
    [[ $(printf '%s\n' "${all[@]}" | sort -u | wc -l) -gt 1 ]] || fail "$one: every way has the same bits"
    [[ ${all[0]} == "$(sha bench train ${!one} --repeat 1)" ]] || fail "$one: the usual ways by name are not the usual bits"
    table=$(nth 3 "$folder/$one.ways")
    plans="dp=2 pp=2,schedule=zb1"
    [[ $one == gpt ]] && plans+=" tp=2 tp=2,sp pp=2,recompute=all"
    for plan in $plans; do
        [[ $(sha bench train ${!one} --repeat 1 --tuned "$table" --plan $plan) == "${all[3]}" ]] || fail "$one: $plan has other bits with the table"
    done
done
# shellcheck disable=SC2086
[[ $(sha bench train $gpt --repeat 1 --tuned "$table" --plan tp=2 --ranks 2) == "${all[3]}" ]] || fail "processes have other bits with the table"

# ---- as a file ----
edit() { sed "$2" "$folder/gpt.json" >"$folder/$1.json"; }
edit forced 's/"choice": .*/"choice": "matmul:gemm:jit",/'
train="train $gpt --steps 2 --optimizer adam"
# shellcheck disable=SC2086
{
    for command in "$train" "plan $gpt" "bench train $gpt --repeat 1"; do
        [[ $(report $command --kernels "$folder/forced.json" | field tuned) == linear*=matmul:gemm:jit* ]] || fail "weft $command: the table is not in the recipe of the report"
    done
    report $train --kernels "$folder/forced.json" --steps 4 >"$folder/whole"
    report $train --kernels "$folder/forced.json" --out "$folder/run" >/dev/null
    cp -r "$folder/run" "$folder/copy"
    [[ $(sha train --resume --out "$folder/run" --steps 4) == "$(field weights_sha256 <"$folder/whole")" ]] || fail "a run goes on without its table"
    report eval --model gpt2-tiny --data synthetic --tokens 8 --batch 4 --init "$folder/run" --kernels "$folder/forced.json" --threads 1 | has '"tuned": "linear' || fail "weft eval has no table"
    expect 2 "--resume: the run in $folder/copy has --tuned linear" train --resume --out "$folder/copy" --steps 4 --tuned a=b
    report train --resume --out "$folder/copy" --steps 3 --kernels "$folder/forced.json" >/dev/null
    sed -i 's/"weft.crc32":/"weft.other":/; s/\\"kernels\\":\\"fast\\"/\\"kernels\\":\\"\/abc\\"/' "$folder/copy/state.safetensors"
    expect 1 "--kernels: '/abc' is not one of fast|reference" train --resume --out "$folder/copy" --steps 4
    edit elsewhere 's/"library": "oneDNN/"library": "another/'
    expect 0 "was measured with another" $train --kernels "$folder/elsewhere.json"
    expect 0 "1 thread, and this is oneDNN" plan $gpt --threads 2 --kernels "$folder/gpt.json"
    # weft generate as the others, by a run that was trained; its shapes are of other rows.
    gen="generate --init $folder/run --prompt aa --steps 1 --threads 1"
    expect 0 "has no choice for this model" $gen --kernels "$folder/forced.json"
    "$WEFT" $gen >/dev/null 2>"$folder/said" && [[ ! -s $folder/said ]] || fail "weft generate without a table: $(cat "$folder/said")"
    expect 0 "has no choice for this model" train --model mlp --data synthetic --batch 8 --steps 1 --threads 1 --kernels "$folder/forced.json"
    expect 0 "has no choice for this model" plan --model mlp --data synthetic --batch 8 --threads 1 --kernels "$folder/forced.json"
    "$WEFT" $train --kernels "$folder/forced.json" >/dev/null 2>"$folder/said" && grep names "$folder/said" && fail "a table that is used: $(cat "$folder/said")"
    # What is typed stands in the place of what a file says: of the table, and of whom it was made for.
    echo "{\"kernels\": \"$folder/elsewhere.json\"}" >"$folder/config.json"
    report $train --config "$folder/config.json" | has '"tuned": "linear' || fail "--config has no table"
    report $train --config "$folder/config.json" --kernels fast | has '"tuned": "linear' && fail "--kernels fast leaves the table of --config"
    "$WEFT" $train --config "$folder/config.json" --tuned a=b >/dev/null 2>"$folder/said" || fail "--config and --tuned: $(cat "$folder/said")"
    grep -q "was measured with another" "$folder/said" && fail "--tuned leaves a warning of the table of --config"

    # ---- what is refused ----
    expect 1 "--kernels: " $train --kernels "$folder/nothing"
    echo '{"weft_kernels": 1' >"$folder/half.json"
    expect 2 "half.json: line" $train --kernels "$folder/half.json"
    refused() { edit refused "$1"; expect 2 "$2" $train --kernels "$folder/refused.json"; }
    refused 's/"weft_kernels": 1/"weft_kernels": 2/' "is not a table of kernels of version 1"
    refused 's/"threads": 1/"threads": 0/' "does not state its processor, library, threads and rows"
    refused 's/"choice"/"chosen"/' "row 0 does not state its shape, choice and usual way"
    refused 's/"choice": .*/"choice": "a+b=c",/' "row 0 does not state"
    refused 's/"shape": .*/"shape": "linear:1",/; s/"choice": .*/"choice": "x:y",/' "recipe: tuned has the shape 'linear:1' twice"
    refused "s/\"choice\": .*/\"choice\": \"$(printf 'x%.0s' {1..3000})\",/" "more than the 16383 characters that a recipe takes"
    expect 2 "recipe: tuned at 'linear:1'" $train --tuned "linear:1"
    expect 2 "a name is missing in 'linear:1=plain+'; separate names by one +" $train --tuned "linear:1=plain+"
    # Where bf16 is multiplied as f32, as with no more than AVX2, f32's table serves it.
    ONEDNN_MAX_CPU_ISA=AVX2 "$WEFT" tune $gpt --dtype bf16 --repeat 1 --json "$folder/bf16.json" >/dev/null 2>"$folder/said" ||
        fail "weft tune --dtype bf16: $(cat "$folder/said")"
    grep -q '"shape"' "$folder/bf16.json" && fail "bf16 without instructions for it has a table"
    grep -q "so the table is empty; bf16 is multiplied as f32 here, with the kernels of f32's table: leave --dtype bf16 out" "$folder/said" ||
        fail "an empty table of bf16: $(cat "$folder/said")"
    expect 2 "--repeat must be at least 1" tune $gpt --repeat 0
    expect 1 "" tune $gpt --repeat 1 --out "$folder/nothing/table.json"
    # A way that there is not is computed as usual.
    [[ $(sha $train --tuned "$(nth 0 "$folder/gpt.ways" | sed 's/=[a-z_]*:/=nowhere:/g')") == "$(sha $train)" ]] || fail "what there is not changes the bits"
}

# ---- a signal ends it, long before its rounds are done, wherever it is: before shapes, in one of them ----
for model in "resnet50 --image 224 --batch 8" "gpt2-tiny --tokens 8 --batch 4"; do
    # shellcheck disable=SC2086
    "$WEFT" tune --model $model --data synthetic --threads 1 --repeat 1000000000 --out "$folder/none.json" >"$folder/out" 2>"$folder/said" &
    until_true_of $! grep -q "^plan " "$folder/out" || fail "weft tune does not begin: $(cat "$folder/said")"
    sleep 0.5
    begin=${EPOCHREALTIME/./}
    kill -INT $!
    until_true is_gone $! || { fail "SIGINT does not end weft tune"; kill -KILL $!; }
    wait $!
    [[ $? == 130 ]] || fail "weft tune --model $model ends otherwise at SIGINT: $(cat "$folder/said")"
    took_ms=$(((${EPOCHREALTIME/./} - begin) / 1000))
    echo "weft tune --model $model: $took_ms ms after SIGINT it has ended"
    grep -q "weft: interrupted" "$folder/said" || fail "it does not say why: $(cat "$folder/said")"
    [[ ! -e $folder/none.json ]] || fail "half a table is left"
done
finish
