#!/usr/bin/env bash
# Llama: PyTorch's loss and text of weights that transformers saved; the same weights under every plan; the
# folder that a run leaves; parameters as published; bad sizes and configurations.
# label: serial
source tests/cli_helpers.bash

# A file of tokens, as llm.c writes it: tests/golden/make_llama.py's text.
python3 -c 'import struct, sys
sys.stdout.buffer.write(struct.pack("<256i", 20240520, 1, 129, *[0] * 253))
sys.stdout.buffer.write(struct.pack("<129H", *[(i * i * 7 + i // 5) % 251 for i in range(129)]))' >"$folder/text.bin"
golden=tests/golden/llama
# ---- transformers' weights: its loss, and its text by a cache of keys and values ----
# close DIFFERENCE A B
close() { awk -v most="$1" -v a="$2" -v b="$3" 'BEGIN { d = a / b - 1; exit !(d < most && -d < most) }'; }
while read -r name loss text; do
    got=$(report eval --data "$folder/text.bin" --tokens 16 --init tests/golden/$name --batch 4 | field loss | tail -n 1)
    close 1e-6 "${got:-0}" "$loss" || fail "$name: loss $got, PyTorch has $loss"
    got=$(report generate --init tests/golden/$name --prompt weft --steps 12 --temperature 0 | python3 -c 'import json, sys; print(*json.load(sys.stdin)["tokens"][4:])')
    [[ $got == "$text" ]] || fail "$name says $got, PyTorch $text"
done <tests/golden/llama.txt

# ---- one rank's bits under every plan, also with tied weights ----
run="train --data $folder/text.bin --tokens 16 --batch 8 --lanes 4 --slices 2 --steps 2 --threads 1 --optimizer adamw --lr 1e-2"
small="--model llama --layers 2 --hidden 16 --heads 4 --kv-heads 2 --vocab 256"
for words in "--init $golden" "--init $golden-scaled" "--init tests/golden/qwen2" "--init tests/golden/mistral" "$small --tied" "$small --dtype bf16"; do
    one=
    for plan in "" tp=2 tp=2,sp dp=2,zero=3 pp=2,recompute=all tp=2,dp=2,zero=1 tp=2,pp=2,schedule=zb1; do
        # shellcheck disable=SC2086 # words
        got=$(report $run $words --plan "$plan" | field weights_sha256)
        one=${one:-$got}
        [[ $got && $got == "$one" ]] || fail "$words, plan '$plan': other bits"
    done
done
expect 2 "which has 2 heads" $run --init $golden --slices 4
# shellcheck disable=SC2086 # words
"$WEFT" plan $small --slices 2 --tokens 16 --batch 8 --plan tp=2 --program >"$folder/out" || fail "plan: exit $?"
grep -q 'all_reduce.* value' "$folder/out" || fail "tp=2 divides no layer: $(head -3 "$folder/out")"

# ---- what it saves says what it is ----
"$WEFT" $run --init $golden-tied --out "$folder/tied" --quiet || fail "train --out: exit $?"
grep -q '"tie_word_embeddings": true' "$folder/tied/config.json" || fail "config.json does not say that weights are tied"
loss_of() { report eval --data "$folder/text.bin" --tokens 16 --init "$1" --batch 4 | field loss | tail -n 1; }
for name in llama llama-scaled qwen2 mistral; do # read again by weft's metadata, and without it by config.json
    "$WEFT" $run --init tests/golden/$name --out "$folder/$name" --quiet || fail "train --out: exit $?"
    a=$(loss_of "$folder/$name")
    python3 - "$folder/$name/config.json" tests/golden/$name/config.json "$folder/$name/model.safetensors" <<'PYTHON' || fail "$name: config.json is another"
import json, struct, sys
own, given = (json.load(open(path)) for path in sys.argv[1:3])
data = open(sys.argv[3], "rb").read()
n, = struct.unpack("<Q", data[:8])
header = json.dumps({key: value for key, value in json.loads(data[8:8 + n]).items() if key != "__metadata__"}).encode()
open(sys.argv[3], "wb").write(struct.pack("<Q", len(header)) + header + data[8 + n:])
keys = [k for k in given if k.startswith(("num_", "hidden_", "max_p", "tie_", "vocab", "intermediate", "rms", "model_type", "arch"))]
rotary = {**(own["rope_scaling"] or {"rope_type": "default"}), "rope_theta": own["rope_theta"]}
assert own["sliding_window"] == given.get("sliding_window")
sys.exit(any(own[k] != given[k] for k in keys) or rotary != given["rope_parameters"])
PYTHON
    b=$(loss_of "$folder/$name")
    [[ $a && $a == "$b" ]] || fail "$name, read again: loss $a and $b"
done
got=$(report train --resume --out "$folder/llama-scaled" --steps 3 | field weights_sha256)
[[ ${got:-none} == $(report $run --init $golden-scaled --steps 3 | field weights_sha256) ]] || fail "resumed: other bits"
expect 2 "--kv-heads 4: the model in" $run --init "$folder/llama" --kv-heads 4
expect 2 "--model gpt: the model in" $run --init "$folder/llama" --model gpt

# ---- sizes as published: parameters of Llama 3's, and 8/3 of the width for the MLP ----
# parameters SIZES...
parameters() { report plan --model llama --tokens 64 --batch 1 "$@" | field parameters | sed -n 1p; }
[[ $(parameters --layers 32 --hidden 4096 --heads 32 --kv-heads 8 --ffn 14336 --vocab 128256) == 8030261248 ]] || fail "Llama 3 8B"
[[ $(parameters --layers 80 --hidden 8192 --heads 64 --kv-heads 8 --ffn 28672 --vocab 128256) == 70553706496 ]] || fail "Llama 3 70B"
[[ $(parameters --layers 32 --hidden 4096 --heads 32 --vocab 32000) == 6738415616 ]] || fail "Llama 7B"

# ---- a resumed run has the sizes that the model chose ----
chosen="train --data $folder/text.bin --tokens 16 --batch 8 --model llama --layers 1 --hidden 16 --heads 4 --vocab 256"
# shellcheck disable=SC2086 # words
one=$(report $chosen --steps 3 | field weights_sha256)
# shellcheck disable=SC2086 # words
"$WEFT" $chosen --steps 2 --out "$folder/chosen" --quiet || fail "a run of 2 steps: exit $?"
got=$(report train --resume --out "$folder/chosen" --steps 3 | field weights_sha256)
[[ ${got:-none} == "$one" ]] || fail "resumed: $got, in one run $one"
expect 2 "has --ffn 64, not 96" train --resume --out "$folder/chosen" --ffn 96

# ---- bad sizes and configurations ----
expect 2 "these divide the heads" plan --model llama --hidden 64 --heads 4 --kv-heads 3
expect 2 "an even number of elements" plan --model llama --hidden 12 --heads 4 --vocab 10
expect 2 "--rope-theta is 0" plan --model llama --rope-theta 0
expect 2 "--kv-heads must be at least 1" plan --model llama --kv-heads 0
expect 2 "it is an option of --model llama" plan --model gpt --ffn 64
expect 2 "only gpt and lstm have dropout" plan --model llama --dropout 0.1
# ---- 1e6 and 1000000 are one base ----
"$WEFT" train --resume --out "$folder/qwen2" --steps 3 --quiet || fail "resumed with a base of 1e6: exit $?"
expect 2 "--rope-theta 2e+06: the model in" $run --init tests/golden/qwen2 --rope-theta 2e6

# ---- a tokenizer of another kind lies with the weights: only text needs it ----
cp -r $golden "$folder/metaspace" && echo '{"model": {"type": "BPE"}, "pre_tokenizer": {"type": "Metaspace"}}' >"$folder/metaspace/tokenizer.json"
one=$(report $run --init $golden | field weights_sha256)
got=$("$WEFT" $run --init "$folder/metaspace" --out "$folder/left" --json "$folder/left.json" 2>&1)
[[ $got == *"not used, because $folder/text.bin has tokens"* && $(field weights_sha256 <"$folder/left.json") == "$one" ]] || fail "a tokenizer that is not used: $got"
expect 2 "the pre_tokenizer is neither" generate --init "$folder/metaspace" --prompt weft
expect 2 "the pre_tokenizer is neither" $run --init "$folder/metaspace" --tokenizer "$folder/metaspace"

cp -r $golden "$folder/bad"
# bad SENTENCE KEY VALUE
bad() {
    python3 -c 'import json, sys
d = json.load(open(sys.argv[1])); d[sys.argv[3]] = json.loads(sys.argv[4]); json.dump(d, open(sys.argv[2], "w"))' "${of:-$golden}/config.json" "$folder/bad/config.json" "$2" "$3"
    expect "${4:-2}" "$1" $run --init "$folder/bad"
}
bad "hidden_act is gelu; Llama has silu" hidden_act '"gelu"'
bad "rms_norm_eps is not a positive number" rms_norm_eps 0
bad "rope_theta is not a positive number" rope_theta true
bad "rope_theta is not a positive number" rope_parameters '{"rope_theta": "100", "rope_type": "default"}'
bad "hidden_act is not a text" hidden_act false
bad "head_dim is not a whole number" head_dim 8.0
bad "tie_word_embeddings is not true or false" tie_word_embeddings '"8"'
bad "rope_scaling is not an object" rope_scaling '"linear"'
bad "quantization_config is not null" quantization_config '{"bits": 4}'
bad "does not state its original_max_position_embeddings" rope_scaling '{"rope_type": "llama3", "factor": 2, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 16.5}' 1
bad "attention_bias is true, which is not llama's" attention_bias true
bad "are scaled by no rope_type; supported are default and llama3" rope_scaling '{"factor": 8}'
bad "are scaled by linear; supported" rope_scaling '{"type": "linear", "factor": 8}'
bad "are scaled by linear; supported" rope_parameters '{"rope_theta": 1e4, "type": "linear", "factor": 2}'
bad "are scaled by yarn; supported" rope_parameters '{"rope_theta": 1e4, "rope_type": "yarn"}'
bad "does not state its factor" rope_parameters '{"rope_theta": 1e4, "rope_type": "llama3"}' 1
bad "a factor is at least 1" rope_scaling '{"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 1, "original_max_position_embeddings": 16}'
bad "head_dim is not hidden_size / num_attention_heads" head_dim 8
of=tests/golden/mistral bad "sliding_window is below 2" sliding_window 0
of=tests/golden/mistral bad "sliding_window is not a whole number" sliding_window 5.0
bad "use_sliding_window is true, which is not llama's" use_sliding_window true
bad "does not state its intermediate_size" intermediate_size null 1
# Qwen2's rms_norm_eps is what transformers takes where there is none.
cp -r tests/golden/qwen2 "$folder/no-eps" && sed -i '/"rms_norm_eps"/d' "$folder/no-eps/config.json"
[[ $(loss_of "$folder/no-eps") == "$(loss_of tests/golden/qwen2)" ]] || fail "no rms_norm_eps: another loss"
python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
d["rope_theta"] = 50 # as older versions have it; rope_parameters count
json.dump(d, open(sys.argv[2], "w"))' $golden/config.json "$folder/bad/config.json"
got=$(report $run --init "$folder/bad" | field weights_sha256)
[[ ${got:-none} == $(report $run --init $golden | field weights_sha256) ]] || fail "theta in rope_parameters: other bits"
