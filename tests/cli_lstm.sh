#!/usr/bin/env bash
# label: once
# The word-level LSTM on a text that every Debian has: hidden state goes from batch to batch under
# every plan, over a resume too; the learning rate falls where the test loss does; what is refused.
source tests/cli_helpers.bash
unset "${!SLURM_@}" "${!OMPI_@}" "${!PMI_@}" "${!PMIX_@}" RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE WEFT_CONTROL_FD
text=/usr/share/common-licenses/GPL-3
small="--hidden 24 --embedding 16 --tokens 7 --threads 1 --seed 3"
# Microbatches of 3, 3, 2 and 2 samples.
lstm="train --model lstm --data $text --words $small --batch 10 --micro 4 --lanes 4 --lr 4 --clip-norm 0.25"

# ---- every plan has one rank's bits ----
sha() { report $lstm --dropout 0.3 --steps 5 "$@" >"$folder/report" || fail "$*"; field weights_sha256 <"$folder/report"; }
peaks_agree() {
    planned=$(sed -n '/"peak_bytes"/,/}/p' "$folder/report" | tr -d ' \n')
    grep -qE '"planned":(\[[0-9,]*\]),"measured":\1' <<<"$planned" || fail "$1: planned is not measured: $planned"
}
one=$(sha)
[[ ${#one} == 64 ]] || fail "no hash"
for plan in dp=2 dp=4,zero=3 pp=2,schedule=zb1 pp=2,schedule=zbv dp=2,pp=2,recompute=all dataparallel=2 \
    offload=activations+params; do
    [[ $(sha --plan "$plan") == "$one" ]] || fail "$plan: not one rank's bits"
    peaks_agree "$plan"
done
# The peak is a lane's gradient, which is sent as a whole: its last bytes are no parameter's.
report train --data synthetic --model lstm --layers 3 --hidden 50 --vocab 130 --tokens 5 --tied --batch 8 --steps 1 \
    --plan dp=5,lanes=2+1+2+2+1,schedule=auto --clip-norm 1 >"$folder/report" || fail "uneven lanes"
peaks_agree "uneven lanes"
[[ $(sha --plan dp=2,pp=2 --ranks 4) == "$one" ]] || fail "processes: not one rank's bits"

# Vocabulary and hidden units are cut, also where slices do not divide them.
cut=$(sha --slices 5)
[[ ${#cut} == 64 && $cut != "$one" ]] || fail "--slices 5: no hash, or that of none"
for plan in tp=5 pp=2,schedule=zb1 dp=2,recompute=all,offload=activations; do
    [[ $(sha --slices 5 --plan "$plan") == "$cut" ]] || fail "--slices 5, $plan: not one rank's bits"
done

# ---- a run goes on within an epoch, under another plan, with the hidden state that it had ----
report $lstm --steps 3 --out "$folder/run" >/dev/null || fail "3 steps"
report train --resume --steps 5 --out "$folder/run" --plan dp=2,pp=2 >/dev/null || fail "--resume"
report $lstm --steps 5 --out "$folder/whole" >/dev/null || fail "5 steps"
cmp -s "$folder/run/model.safetensors" "$folder/whole/model.safetensors" || fail "--resume: other weights"
# tensors FILE: the hidden state in it, a line for each.
tensors() {
    perl -e 'local $/; open my $in, "<:raw", $ARGV[0] or die; my $data = <$in>;
        my $n = unpack "Q<", $data; my $head = substr $data, 8, $n; my @lines;
        while ($head =~ /"(hidden\.[^"]*)": *\{[^}]*\}/g) {
            my ($name, $about) = ($1, $&);
            my ($shape) = $about =~ /"shape": *(\[[^]]*\])/;
            my ($begin, $end) = $about =~ /"data_offsets": *\[(\d+), *(\d+)\]/;
            push @lines, "$name $shape " . unpack("H*", substr $data, 8 + $n + $begin, $end - $begin) . "\n";
        }
        print sort @lines' "$1"
}
tensors "$folder/run/state.safetensors" >"$folder/a"
tensors "$folder/whole/state.safetensors" >"$folder/b"
[[ $(grep -c '^hidden.rnn.l[01] \[10, *2, *24\] .*[1-9a-f]' "$folder/a") == 2 ]] || fail "no hidden state in the checkpoint"
cmp -s "$folder/a" "$folder/b" || fail "--resume: another hidden state"
report $lstm --slices 4 --plan tp=2,dp=2,zero=1 --steps 3 --out "$folder/cut" >/dev/null || fail "tp=2,dp=2: 3 steps"
report train --resume --steps 5 --out "$folder/cut" --plan tp=4 >/dev/null || fail "tp=4: --resume"
report $lstm --slices 4 --steps 5 --out "$folder/uncut" >/dev/null || fail "--slices 4: 5 steps"
cmp -s "$folder/cut/model.safetensors" "$folder/uncut/model.safetensors" || fail "tp=4: --resume: other weights"
tensors "$folder/cut/state.safetensors" >"$folder/a"
tensors "$folder/uncut/state.safetensors" >"$folder/b"
[[ $(grep -c '^hidden.rnn.l[01] \[10, *2, *24\] .*[1-9a-f]' "$folder/a") == 2 ]] || fail "tp=4: no hidden state in the checkpoint"
cmp -s "$folder/a" "$folder/b" || fail "tp=4: --resume: another hidden state"

# ---- learning rate, perplexity, an epoch's begin ----
plateau="train --model lstm --data $text --words $small --batch 8 --tied --embedding 24 --lr 60 --lr-schedule plateau --lr-gamma 0.25"
rates() { sed -n 's/.*"step": *\([0-9]*\),.*"lr": *\([0-9.e+-]*\).*/\2/p' "$1/log.jsonl" | uniq | sed "s,[.]0$,,"; }
report $plateau --epochs 4 --out "$folder/p" >"$folder/report" || fail "plateau"
[[ $(rates "$folder/p" | wc -l) -ge 2 ]] || fail "plateau: the rate never falls: $(rates "$folder/p")"
[[ $(rates "$folder/p" | sed -n 2p) == 15 ]] || fail "plateau: not by a quarter: $(rates "$folder/p")"
awk -v l="$(field test_loss <"$folder/report")" -v p="$(field test_perplexity <"$folder/report")" \
    'BEGIN { exit !(p > 1 && p / exp(l) < 1.001 && p / exp(l) > 0.999) }' || fail "no perplexity"
[[ $(report eval --init "$folder/p" --data "$text" --words --batch 8 --tokens 7 | field loss) == "$(field test_loss <"$folder/report")" ]] ||
    fail "eval: another loss"
report $plateau --epochs 2 --out "$folder/q" >/dev/null || fail "plateau: 2 epochs"
report train --resume --epochs 4 --out "$folder/q" --plan pp=2 >/dev/null || fail "plateau: resume"
cmp -s "$folder/p/model.safetensors" "$folder/q/model.safetensors" || fail "plateau: --resume has other weights"
report $plateau --test-every 3 --steps 12 --out "$folder/often" >/dev/null || fail "plateau: --test-every"
report $plateau --test-every 3 --steps 5 --out "$folder/parts" >/dev/null || fail "plateau: 5 steps"
report train --resume --steps 12 --out "$folder/parts" >/dev/null || fail "plateau: resume of --test-every"
cmp -s "$folder/often/model.safetensors" "$folder/parts/model.safetensors" || fail "plateau: --resume forgets --test-every"
expect 2 "has --test-every 0, not 2" train --resume --epochs 5 --test-every 2 --out "$folder/q"
expect 2 "has --test-every 3, not 2" train --resume --steps 15 --test-every 2 --out "$folder/parts"
report $plateau --epochs 4 --lr-patience 3 --out "$folder/patient" >/dev/null || fail "--lr-patience"
[[ $(rates "$folder/patient") == 60 ]] || fail "--lr-patience: the rate falls: $(rates "$folder/patient")"

# ---- generation ----
words=$(report generate --init "$folder/p" --prompt "the program" --steps 6 | field text)
[[ $words == "the program "* ]] || fail "generate: '$words'"
for plan in pp=2 "tp=2 --slices 2"; do
    [[ $(report generate --init "$folder/p" --prompt "the program" --steps 6 --plan $plan | field text) == "$words" ]] || fail "generate: $plan"
done

# ---- what is refused ----
expect 2 "slices=25 do not divide linear of unit rnn.0, which gives [3, 7, 96]; 24 (tp=24) would" $lstm --slices 25
expect 2 "tied weights need an embedding as wide" train --model lstm --data "$text" --words --tied --embedding 8 --hidden 16
expect 2 "--heads has no effect here" $lstm --heads 2
expect 2 "a recurrent model reads a text in its order" $lstm --no-shuffle
expect 2 "it is an option of --model lstm" train --model gpt2-tiny --data "$text" --tied
expect 2 "--lr-patience has no effect here" $lstm --lr-patience 1
expect 2 "--lr-schedule plateau has no effect here" train --model lstm --data synthetic --lr-schedule plateau
printf 'a b c d e f g h i j\n' >"$folder/short"
expect 2 "streams of at least 2" train --model lstm --data "$folder/short" --words --tokens 2 --batch 16
expect 2 "--tied true: the model in" train --model lstm --init "$folder/run" --tied --data "$text" --words
finish
