#!/usr/bin/env bash
# Language models from the command line: what saved weights say of themselves, other vocabularies refused, generation.
# label: serial once
source tests/cli_helpers.bash
tiny="--model gpt2-tiny --threads 1 --batch 4 --tokens 8"

# ---- a saved model knows its vocabulary ----
for i in $(seq 40); do echo "the warp stands still and the weft goes across number $i"; done >"$folder/a.txt"
(echo "still the weft goes" && cat "$folder/a.txt") >"$folder/reordered.txt"
(echo "an unknown word" && cat "$folder/a.txt") >"$folder/other.txt"
run="$folder/words"
report train $tiny --words --data "$folder/a.txt" --steps 30 --lr 0.1 --out "$run" >/dev/null || fail "train --words"
here=$(report eval $tiny --words --data "$folder/a.txt" --init "$run" | field loss)
[[ $(report eval --threads 1 --batch 4 --data "$folder/a.txt" --init "$run" | field loss) == "$here" ]] || fail "eval does not take --tokens 8 from the model"
there=$(report eval --threads 1 --batch 4 --data "$folder/a.txt" --init "$run" --tokens 16 | field loss)
[[ $there && $there != "$here" ]] || fail "eval --tokens 16: loss $there, with 8 tokens $here"
# Words in another order keep the numbers that the model knows; --words itself is known, too.
for options in --words ""; do
    there=$(report eval $tiny $options --data "$folder/reordered.txt" --init "$run" | field loss)
    [[ -n $here && -n $there ]] || fail "eval $options: no loss"
    awk -v a="$here" -v b="$there" 'BEGIN { exit !(b < a + 0.7 && b > a - 0.7) }' || fail "eval $options: loss $there, not near $here"
done
expect 1 "the word 'an' at byte 0 is not in the vocabulary" eval $tiny --words --data "$folder/other.txt" --init "$run"
expect 2 "was trained with tokens of the kind words, not bpe" eval $tiny --data "$folder/a.txt" --init "$run" --tokenizer tests/golden/bpe
cp "$folder/a.txt" "$folder/was.txt"
cp "$folder/other.txt" "$folder/a.txt"
expect 1 "the word 'an' at byte 0 is not in the vocabulary" train --resume --out "$run" --steps 31
cp "$folder/was.txt" "$folder/a.txt"
report train --resume --out "$run" --steps 31 >/dev/null || fail "--resume with words"

# ---- bytes and BPE ----
report train $tiny --data "$folder/a.txt" --steps 2 --out "$folder/bytes" >/dev/null || fail "train on bytes"
expect 2 "of the kind bytes, not bpe" eval $tiny --data "$folder/a.txt" --init "$folder/bytes" --tokenizer tests/golden/bpe
expect 2 "of the kind bytes, not words" train $tiny --words --data "$folder/a.txt" --init "$folder/bytes" --steps 1
report train $tiny --data "$folder/a.txt" --tokenizer tests/golden/bpe --steps 2 --out "$folder/bpe" >/dev/null || fail "train on BPE"
report convert --init "$folder/bpe" --out "$folder/bare.safetensors" >/dev/null || fail "convert"
expect 2 "of the kind bpe, not bytes: its numbers would have another meaning; give its --tokenizer" eval $tiny --data "$folder/a.txt" --init "$folder/bare.safetensors"
mkdir "$folder/another"
# Two tokens change their numbers.
sed 's/"!":1,"\\"":2,/"!":2,"\\"":1,/' tests/golden/bpe/vocab.json >"$folder/another/vocab.json"
cp tests/golden/bpe/merges.txt "$folder/another"
cmp -s tests/golden/bpe/vocab.json "$folder/another/vocab.json" && fail "the other vocabulary is the same"
expect 2 "was trained with another vocabulary of bpe" eval $tiny --data "$folder/a.txt" --init "$folder/bpe" --tokenizer "$folder/another"
[[ $(report eval $tiny --data "$folder/a.txt" --tokenizer tests/golden/bpe --init "$folder/bpe" | field perplexity) =~ ^[0-9.]+$ ]] ||
    fail "eval says no perplexity"

# ---- the run's folder has what from_pretrained and --init need ----
cmp "$folder/bpe/tokenizer.json" tests/golden/bpe/tokenizer.json || fail "--out: another tokenizer.json"
report train $tiny --data "$folder/a.txt" --tokenizer tests/golden/bpe/tokenizer.json --dropout 0.25 --steps 1 --out "$folder/file" >/dev/null || fail "--tokenizer FILE"
cmp "$folder/file/tokenizer.json" tests/golden/bpe/tokenizer.json || fail "--tokenizer FILE: another tokenizer.json"
config=$(tr -d ' \n' <"$folder/file/config.json")
for words in '"model_type":"gpt2","architectures":["GPT2LMHeadModel"]' '"n_layer":2,"n_head":4,"n_embd":64,' '"n_positions":64,"vocab_size":472,' \
    '"activation_function":"gelu_new"' '"n_inner":null' '"tie_word_embeddings":true' '"attn_pdrop":0.0' '"embd_pdrop":0.25,"resid_pdrop":0.25' '"bos_token_id":0,"eos_token_id":0'; do
    [[ $config == *"$words"* ]] || fail "config.json has no $words: $config"
done
[[ $(tr -d ' \n' <"$folder/bytes/config.json") == *'"vocab_size":256,'*'"bos_token_id":null,"eos_token_id":null}' ]] || fail "config.json of bytes: $(cat "$folder/bytes/config.json")"
report train $tiny --data "$folder/a.txt" --tokenizer "$folder/another" --steps 1 --keep 1 --out "$folder/two" >/dev/null || fail "train with vocab.json"
report train --resume --out "$folder/two" --threads 1 --steps 2 >/dev/null || fail "--resume does not find the tokenizer"
for file in vocab.json merges.txt; do cmp "$folder/another/$file" "$folder/two/$file" || fail "--out: another $file"; done
[[ $(report generate --init "$folder/two/step-1" --prompt "the" --steps 2 | field prompt_tokens) == 1 ]] || fail "step-1 has no tokenizer"

# ---- other tokens, if that is said ----
tac "$folder/a.txt" | sed 's/stands/stood/' >"$folder/b.txt" # as many words, one of them another
expect 1 "the word 'stood' at byte" train $tiny --words --data "$folder/b.txt" --init "$run" --steps 1
report train $tiny --words --data "$folder/b.txt" --init "$run" --steps 1 --other-data --out "$folder/stood" >/dev/null || fail "--other-data of words"
expect 1 "the word 'stands' at byte" eval $tiny --data "$folder/a.txt" --init "$folder/stood"
expect 2 "of the kind bytes, not bpe: its numbers would have another meaning; --other-data accepts it" eval $tiny --data "$folder/a.txt" --init "$folder/bytes" --tokenizer tests/golden/bpe
expect 2 "has a vocabulary of 256, and there are 472 tokens" eval $tiny --data "$folder/a.txt" --init "$folder/bytes" --tokenizer tests/golden/bpe --other-data
report eval $tiny --data "$folder/a.txt" --init "$folder/bpe" --tokenizer "$folder/another" --other-data >/dev/null || fail "--other-data of a BPE"
head -c 4000 /dev/zero >"$folder/zeros.bin"
expect 2 "of the kind words, and those of" eval $tiny --data "$folder/zeros.bin" --data-format tokens --init "$run"
report eval $tiny --data "$folder/zeros.bin" --data-format tokens --init "$run" --other-data >/dev/null || fail "--other-data of a file"
report eval $tiny --data "$folder/zeros.bin" --data-format tokens --init "$folder/bpe" >/dev/null || fail "tokens of a file, and a BPE"

# ---- generation ----
text=$(report generate --init "$run" --prompt "the warp" --steps 6 | field text)
[[ $text == "the warp "* ]] || fail "generate with words: '$text'"
report generate --init "$folder/bytes" --prompt "the" --steps 5 | tr -d ' \n' | has '"tokens":\[116,104,101,' ||
    fail "generate with bytes: no tokens"
# The kernels are those of --dtype: their weights take another room.
needs() { "$WEFT" generate --init "$folder/bytes" --prompt the --steps 2 --threads 1 --device-memory 1KiB --dtype $1 2>&1 | grep -oE 'needs [0-9.]+ [KM]iB'; }
[[ $(needs f32) && $(needs bf16) && $(needs f32) != "$(needs bf16)" ]] || fail "generate --dtype: $(needs f32), $(needs bf16)"
report generate --init "$folder/bytes" --prompt the --steps 2 --dtype bf16 | grep -c '"text": "the' >/dev/null || fail "generate --dtype bf16"
one=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 20 --temperature 2 --seed 3 | field text)
same=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 20 --temperature 2 --seed 3 --plan pp=2 | field text)
for plan in dp=2,zero=3 "pp=2 --ranks 2" "tp=2 --ranks 2" "dp=2,zero=2 --ranks 2" offload=params; do
    # shellcheck disable=SC2086
    same=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 20 --temperature 2 --seed 3 --plan $plan | field text)
    [[ $one == "$same" ]] || fail "generate --plan $plan gives '$same', not '$one'"
done
other=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 20 --temperature 2 --seed 4 | field text)
[[ -n $one && $one == "$same" ]] || fail "generate: the same seed gives '$one' and '$same'"
[[ $one != "$other" ]] || fail "generate: another seed gives the same text"
# Slices are of the recipe: of two, one rank says in bf16 what two say, and no slices say something else.
says() { report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 20 --temperature 2 --seed 3 --dtype bf16 "$@" | field text; }
one=$(says --slices 2)
for plan in tp=2 "tp=2 --ranks 2" pp=2; do
    # shellcheck disable=SC2086
    same=$(says --slices 2 --plan $plan)
    [[ -n $one && $one == "$same" ]] || fail "generate --slices 2 --plan $plan gives '$same', not '$one'"
done
expect 2 "slices=3 do not divide the 4 heads of gpt2-tiny, so no training run can have them; 2 would" generate --init "$folder/bytes" --prompt x --steps 2 --slices 3
expect 2 "tp=3 does not divide the 4 heads of attention; tp=2 or 4 would" generate --init "$folder/bytes" --prompt x --steps 2 --plan tp=3
[[ $(says --plan tp=2) == "$(says)" ]] || fail "generate: another text under tp=2 than as typed"
greedy=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 8 | field text)
top=$(report generate --init "$folder/bpe" --tokenizer tests/golden/bpe --prompt "the" --steps 8 --temperature 5 --top-k 1 | field text)
[[ $greedy == "$top" ]] || fail "generate: --top-k 1 is not greedy: '$greedy', '$top'"
# ---- where a text ends ----
for i in $(seq 100); do printf 'the<|endoftext|>'; done >"$folder/end.txt"
report train $tiny --data "$folder/end.txt" --tokenizer tests/golden/bpe --steps 40 --optimizer adam --lr 0.01 --out "$folder/end" >/dev/null || fail "train on ends"
ends() { # WORDS...: text and number of tokens
    local got
    got=$(report generate --init "$folder/end" --tokenizer tests/golden/bpe --prompt "the" --steps 6 "$@")
    echo "$(field text <<<"$got"):$(tr -d ' \n' <<<"$got" | grep -o '"tokens":[^]]*' | tr -dc , | wc -c):$(field stopped <<<"$got")"
}
[[ $(ends) == the:1:true ]] || fail "generate does not end where the text does: $(ends)"
[[ $(ends --stop "oftext|><|end") == "the<|end:2:true" ]] || fail "--stop: $(ends --stop "oftext|><|end")"
[[ $(ends --stop "xtheend") == "the"*":6:false" ]] || fail "--stop of what never comes: $(ends --stop xtheend)"

expect 2 "--stop is empty" generate --init "$run" --prompt x --stop ""
expect 2 "--prompt is missing" generate --init "$run"
expect 2 "--prompt is empty" generate --init "$run" --prompt ""
expect 2 "--init is missing" generate --prompt x
expect 2 "--tokenizer is missing: the model in" generate --init "$folder/bare.safetensors" --prompt x
expect 2 "this model reads 64 in all" generate --init "$folder/bytes" --prompt x --steps 64
expect 2 "--top-k has no effect here" generate --init "$folder/bytes" --prompt x --top-k 3
expect 1 "the word 'loom' at byte 4 is not in the vocabulary" generate --init "$run" --prompt "the loom"

# ---- Hugging Face's config.json, of weights that say nothing themselves ----
mkdir "$folder/hf"
report train --model gpt --layers 1 --hidden 24 --heads 2 --threads 1 --batch 4 --tokens 16 --data "$folder/a.txt" --tokenizer tests/golden/bpe \
    --steps 1 --out "$folder/small" >/dev/null || fail "train --model gpt"
report convert --init "$folder/small" --out "$folder/hf/model.safetensors" >/dev/null || fail "convert"
cp tests/golden/bpe/{vocab.json,merges.txt} "$folder/hf"
[[ $(report generate --init "$folder/hf" --prompt "the" --steps 4 | field prompt_tokens) == 1 ]] || fail "generate with a tokenizer beside"
LC_ALL=C sed -i 's/"weft[.]model"/"some.other"/' "$folder/hf/model.safetensors"
config='"model_type": "gpt2", "n_layer": 1, "n_embd": 24, "n_head": 2, "vocab_size": 472, "n_positions": 1024'
echo "{$config}" >"$folder/hf/config.json"
[[ $(report generate --init "$folder/hf" --prompt "the" --steps 4 | field prompt_tokens) == 1 ]] || fail "generate with a config.json"
cp "$folder/small/config.json" "$folder/hf"
a=$(report eval --threads 1 --batch 4 --tokens 16 --data "$folder/a.txt" --init "$folder/hf" | field loss)
b=$(report eval --threads 1 --batch 4 --tokens 16 --data "$folder/a.txt" --init "$folder/small" --tokenizer tests/golden/bpe | field loss)
[[ -n $a && $a == "$b" ]] || fail "eval with a config.json: loss $a, not $b"
expect 2 "--model gpt2 has 12 layers, but the model in" generate --model gpt2 --init "$folder/hf" --prompt x
expect 2 "--model lstm: the model in $folder/hf is gpt" generate --model lstm --init "$folder/hf" --prompt x
expect 2 "--layers 2: the model in" generate --model gpt --layers 2 --init "$folder/hf" --prompt x
echo "{$config, \"activation_function\": \"relu\"}" >"$folder/hf/config.json"
expect 2 "activation_function is relu" generate --init "$folder/hf" --prompt x
echo "{$config" >"$folder/hf/config.json"
expect 1 "config.json is damaged: it is not JSON" generate --init "$folder/hf" --prompt x
rm "$folder/hf/config.json"
expect 2 "does not name its model, and there is no config.json; --model is missing, for example --model gpt2" generate --init "$folder/hf" --prompt x
rm "$folder/hf/vocab.json"
echo "{$config}" >"$folder/hf/config.json"
expect 2 "--tokenizer is missing: the vocabulary of" generate --init "$folder/hf" --prompt x
expect 2 "has a vocabulary of 472, and there are 256 bytes: give its --tokenizer" eval --tokens 16 --data "$folder/a.txt" --init "$folder/hf"

finish
