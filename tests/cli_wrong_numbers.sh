#!/usr/bin/env bash
# label: serial once
# What elsewhere is a wrong number without a word: data, weights and settings that do not belong together are refused, and what
# goes on says the same number whatever lies beside.
source tests/cli_helpers.bash
images "$folder/mnist"
mlp="--model mlp --threads 1"
words="--model gpt2-tiny --words --threads 1 --batch 8 --tokens 8"
bytes="--model gpt2-tiny --threads 1 --batch 8 --tokens 8"
# write FILE PERL: what the expression gives, of the bytes $b that the file has.
write() {
    perl -e 'my ($path, $code) = @ARGV; my $b = ""; local $/;
        if (open my $in, "<:raw", $path) { $b = <$in>; }
        my $new = eval $code; die $@ if $@;
        open my $out, ">:raw", $path or die; print $out $new; close $out or die' "$1" "$2" || fail "perl: $2"
}

# ---- any file is a text ----
expect 1 "an ELF program" train $bytes --data "$WEFT" --steps 1
write "$folder/toks.bin" 'pack("l<256", 20240520, 1, 500, (0) x 253) . pack("S<500", 0 .. 499)'
"$WEFT" train $bytes --data "$folder/toks.bin" --steps 1 2>&1 | grep -c "vocabulary 50,257" >/dev/null || fail "llm.c's tokens are something else"
write "$folder/utf16.txt" '"\xff\xfe" . join "", map { "$_\0" } split //, "a text that goes on\n" x 50'
expect 1 "is not text: byte 3 is zero" train $bytes --data "$folder/utf16.txt" --steps 1
write "$folder/latin.txt" '"Gr\xfc\xdfe aus K\xf6ln\n" x 50'
expect 1 "is not UTF-8 at byte 2" train $words --data "$folder/latin.txt" --steps 1

# ---- words mean what they did ----
seq 1 300 | sed 's/.*/the warp and weft & of a loom/' >"$folder/a.txt"
report train $words --data "$folder/a.txt" --steps 2 --out "$folder/w" >/dev/null
one=$(report eval $words --data "$folder/a.txt" --init "$folder/w" | field loss)
sed '1s/.*/a loom of weft 1 and warp the/' "$folder/a.txt" >"$folder/c.txt"
[[ $(report eval $words --data "$folder/c.txt" --init "$folder/w" | field loss) == "$one" ]] || fail "words in another order have other numbers"
{ echo zero; cat "$folder/a.txt"; } >"$folder/d.txt"
expect 1 "the word 'zero' at byte 0 is not in the vocabulary" eval $words --data "$folder/d.txt" --init "$folder/w"
expect 1 "does not hold the data that the run" train --resume --out "$folder/w" --data "$folder/c.txt" --steps 3 --threads 1
{ printf '\xef\xbb\xbf'; cat "$folder/a.txt"; } >"$folder/marked.txt"
[[ $(report eval $words --data "$folder/marked.txt" --init "$folder/w" | field loss) == "$one" ]] || fail "a byte order mark is a part of a word"

# ---- pixels are what they were ----
report train $mlp --data "$folder/mnist" --batch 8 --steps 3 --out "$folder/n" >/dev/null
one=$(report eval $mlp --data "$folder/mnist" --init "$folder/n" | field loss)
cp -r "$folder/mnist" "$folder/dark"
write "$folder"/dark/train-images* 'substr($b, 0, 16) . join "", map { chr(ord($_) >> 2) } split //, substr $b, 16'
[[ $(report eval $mlp --data "$folder/dark" --init "$folder/n" | field loss) == "$one" ]] || fail "darker images beside give other numbers"
expect 2 "was trained on pixels normalised by" eval $mlp --data "$folder/mnist" --init "$folder/n" --normalize none
expect 1 "does not hold the data that the run" train --resume --out "$folder/n" --data "$folder/dark" --steps 4 --threads 1

# ---- files that disagree with themselves ----
cp -r "$folder/mnist" "$folder/label"
write "$folder"/label/train-labels* 'substr($b, 0, 20) . "\x0c" . substr $b, 21'
expect 1 "the label of sample 12 is 12" train $mlp --data "$folder/label" --steps 1
cp -r "$folder/mnist" "$folder/more"
write "$folder"/more/train-images* '$b . "more"'
expect 1 "has 4 bytes after" train $mlp --data "$folder/more" --steps 1
write "$folder/odd.bin" '"\1\0" x 500 . "\1"'
expect 1 "not a whole number of tokens of 2 bytes" train $bytes --data "$folder/odd.bin" --data-format tokens --steps 1
write "$folder/cut.bin" 'pack("l<256", 20240520, 1, 5000, (0) x 253) . "\1\0" x 900'
expect 1 "announces 5000 tokens" train $bytes --data "$folder/cut.bin" --steps 1
cp "$folder/n/model.safetensors" "$folder/flipped.safetensors"
write "$folder/flipped.safetensors" 'substr($b, 0, -9) . chr(ord(substr $b, -9, 1) ^ 1) . substr $b, -8'
expect 1 "is damaged: the CRC-32" eval $mlp --data "$folder/mnist" --init "$folder/flipped.safetensors"

# ---- settings that say two things ----
echo '{"lr": 0.1, "lr": 0.2}' >"$folder/twice.json"
expect 2 "duplicate object key" train $mlp --data "$folder/mnist" --config "$folder/twice.json"
expect 2 "'0,1' is not a number" train $mlp --data "$folder/mnist" --lr 0,1
expect 2 "no parameter is called 'nothere'" train $mlp --data "$folder/mnist" --freeze nothere
report train $mlp --data "$folder/mnist" --batch 8 --steps 1 --dtype bf16 --out "$folder/half" >/dev/null
expect 2 "has --dtype bf16, not f32" train --resume --out "$folder/half" --steps 2 --dtype f32
finish
