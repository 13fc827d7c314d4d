#!/usr/bin/env bash
# label: once long
# Going on: whoever reads the checkpoint, whatever a kill left, and what is refused of a file that
# somebody else has written.
source tests/cli_helpers.bash
images "$folder/images"
net="train --model mlp --data $folder/images --threads 1 --batch 12 --micro 4 --lanes 2 --optimizer adam --lr 0.001"
resume="train --resume --steps 4 --threads 1"
# sha_of FILE: of the weights in it.
sha_of() { sha train --model mlp --data "$folder/images" --threads 1 --init "$1" --steps 0; }
# edit FOLDER CHANGE: of the header of its state, a substitution of Perl's. Its checksum goes.
edit() {
    perl -e 'local $/; open(my $f, "+<:raw", $ARGV[0]) or die; my $s = <$f>; my $n = unpack("Q<", $s);
        my ($head, $data) = (substr($s, 8, $n), substr($s, 8 + $n)); $head =~ s/"weft.crc32":/"weft.other":/; my $was = $head;
        eval "\$head =~ $ARGV[1]"; die "nothing changed" if $head eq $was;
        $head .= " " x (-length($head) % 8);
        seek($f, 0, 0); truncate($f, 0); print $f pack("Q<", length $head), $head, $data' \
        "$1/state.safetensors" "$2" || fail "the state cannot be edited: $2"
}
fresh() { rm -rf "$folder/x"; cp -r "$folder/two" "$folder/x"; }

whole=$(sha $net --steps 4)
report $net --steps 1 --out "$folder/one" >/dev/null
report $net --steps 2 --out "$folder/two" >/dev/null

# ---- the weights for others are the state's: missing, of another step, no file of tensors ----
for model in none old junk; do
    fresh
    case $model in
    none) rm "$folder/x/model.safetensors" ;;
    old) cp "$folder/one/model.safetensors" "$folder/x" ;;
    junk) echo junk >"$folder/x/model.safetensors" ;;
    esac
    said=$(sha train --resume --steps 2 --threads 1 --out "$folder/x")
    [[ $(sha_of "$folder/x/model.safetensors") == "$said" ]] || fail "model.safetensors ($model): not the state's weights"
done

# ---- the log: wherever a kill has cut it, each step is there once ----
for tail in "" '{"step":3,"epoch":0,"lo' $'{"step":3,"epoch":0,"loss":1,"ms":1}\n{"step":4'; do
    fresh
    log=$folder/x/log.jsonl
    truncate -s -1 "$log" # the end of the last line
    [[ ! $tail ]] || printf '\n%s' "$tail" >>"$log"
    report $resume --out "$folder/x" >/dev/null
    [[ $(grep -c . "$log") == $(grep -cx '{[^{}]*}' "$log") ]] || fail "the log ended in '$tail': torn lines: $(cat "$log")"
    [[ $(grep '"ms"' "$log" | sed 's/^{"step":\([0-9]*\),.*/\1/' | paste -sd,) == 1,2,3,4 ]] || fail "the log ended in '$tail': $(cat "$log")"
done

# ---- a run with no steps left measures no step ----
fresh
report train --resume --steps 2 --threads 1 --out "$folder/x" | tr -d ' \n' >"$folder/again"
grep -q '"peak_bytes":{"planned":\[[1-9][0-9]*\],"measured":\[null\]' "$folder/again" || fail "no step was made, and its peak is measured"
report $net --steps 1 | tr -d ' \n' | has -E '"peak_bytes":\{"planned":\[([0-9]+)\],"measured":\[\1\]' || fail "a step's peak is not the planned one"

# ---- rank 0 reads; what the others have in their folders makes no difference ----
by_hand() { # by_hand RANK OUT
    RANK=$1 WORLD_SIZE=2 "$WEFT" $resume --plan dp=2 --rendezvous "file://$folder/meet" --out "$2" \
        --json "$folder/report$1" >"$folder/said$1" 2>&1
}
for other in nowhere one; do
    fresh
    by_hand 1 "$folder/$other" &
    by_hand 0 "$folder/x" || fail "rank 0, rank 1 has $other: exit $?: $(cat "$folder/said0")"
    wait $! || fail "rank 1 that has $other: exit $?: $(cat "$folder/said1")"
    [[ $(field weights_sha256 <"$folder/report0") == "$whole" ]] || fail "rank 1 has $other: other bits than one rank's"
done
[[ ! -e $folder/nowhere ]] || fail "rank 1 made a folder"
fresh
[[ $(sha $resume --plan dp=2 --ranks 2 --out "$folder/x") == "$whole" ]] || fail "--ranks 2: other bits"
fresh
[[ $(sha $resume --plan dp=2 --devices cpu:2 --out "$folder/x") == "$whole" ]] || fail "threads: other bits"
got=0
by_hand 1 "$folder/one" &
by_hand 0 "$folder/nowhere" || got=$?
[[ $got == 1 ]] && grep -q "there is no run in $folder/nowhere, which" "$folder/said0" || fail "rank 0 without a checkpoint: exit $got: $(cat "$folder/said0")"
got=0
wait $! || got=$?
[[ $got == 1 ]] && grep -q "rank 0 cannot start from" "$folder/said1" || fail "rank 1 is not told: exit $got: $(cat "$folder/said1")"
mkdir "$folder/empty"
got=0
"$WEFT" eval --ranks 2 --init "$folder/empty" --data "$folder/images" >"$folder/said0" 2>&1 || got=$?
[[ $got == 1 ]] && grep -q "rank 0 cannot start from" "$folder/said0" && ! grep resume "$folder/said0" || fail "eval from an empty folder: exit $got: $(cat "$folder/said0")"

# ---- the data: its path is the run's own or --data, never the state's, and it is the same ----
images "$folder/moved"
images "$folder/other"
printf '\x05' | dd of="$folder/other/train-images-idx3-ubyte" bs=1 seek=99 conv=notrunc 2>/dev/null
fresh
edit "$folder/x" 's|\\"threads\\"|\\"data\\":\\"/etc/passwd\\",\\"threads\\"|'
[[ $(sha $resume --out "$folder/x") == "$whole" ]] || fail "a path in the state: other bits"
fresh
[[ $(sha $resume --out "$folder/x" --data "$folder/moved") == "$whole" ]] || fail "the data moved: other bits"
[[ $(sha train --resume --steps 4 --threads 1 --out "$folder/x") == "$whole" ]] || fail "where the data is now is not kept"
fresh
expect 1 "other does not hold the data that the run in" $resume --out "$folder/x" --data "$folder/other"
expect 1 "start another run from these weights: --init $folder/x/model.safetensors" $resume --out "$folder/x" --data "$folder/other"
rm "$folder/x/run.json"
expect 2 "there is no $folder/x/run.json with the path of the data; give --data" $resume --out "$folder/x"
mkfifo "$folder/x/run.json"
expect 2 "there is no $folder/x/run.json" $resume --out "$folder/x"
rm "$folder/x/run.json"
[[ $(sha $resume --out "$folder/x" --data "$folder/images") == "$whole" ]] || fail "--data instead of run.json: other bits"
mkfifo "$folder/pipe"
expect 1 "pipe is not a regular file, but a pipe" train --model gpt2-tiny --data "$folder/pipe" --steps 1

# ---- numbers that no run has ----
refused() { # refused CHANGE WORDS [STATUS]
    local before
    fresh
    edit "$folder/x" "$1"
    before=$(cat "$folder/x"/*.safetensors | cksum)
    expect "${3:-1}" "$2" $resume --out "$folder/x"
    grep -q $'\033' "$folder/said" && fail "$1: a control character of the state reaches the terminal"
    [[ $(cat "$folder/x"/*.safetensors | cksum) == "$before" ]] || fail "$1: refused, but something is written"
}
for key in epoch sample weft.n_steps; do
    values=(99999999999999999999999 -1 1x)
    [[ $key == epoch ]] && values+=(9223372036854775808 1.5 nan '' ' 1' 0x1)
    for value in "${values[@]}"; do
        refused "s|(\"$key\":)\"\\d+\"|\$1\"$value\"|" "its $key is '$value', which no run can have"
    done
    refused "s|(\"$key\":)\"\\d+\"|\$1\"9223372036854775807\"|" "no run is at sample"
    refused "s|(\"$key\":)\"\\d+\"|\$1\"17\"|" "no run is at sample"
done
for key in epoch sample weft.n_steps recipe data_hash weft library; do
    refused "s|\"$key\":|\"no_$key\":|" "does not record its $key"
done
refused 's|(\\"lr\\":)[^,]*|${1}1e999|' "state.safetensors"
refused 's|(\\"lr\\":)[^,]*|${1}null|' "'lr' is neither text"
refused 's|(\\"lr\\":)[^,]*|$1\\"nan\\"|' "--lr: 'nan' is not a number"
refused 's|(\\"beta1\\":)[^,]*|${1}-1|' "beta1 is -1" 2
refused 's|(\\"batch\\":)[^,]*|${1}99999999999999999999|' "state.safetensors"
refused 's|("data_hash":")....|$1    |' "does not hold the data"
refused 's|(\\"model\\":\\")mlp|$1none|' "there is no model 'none'" 2
refused 's|(\\"model\\":\\")mlp|$1\\\\u001b[31m|' "'model' holds a control character"
refused 's|\\"model\\":|\\"mod\\\\u001b[31mel\\":|' "an option's name holds a control character"
refused 's|("epoch":)"|$1"\\u001b[31m|' "its epoch holds a control character"
refused 's|("library":)"|$1"\\u009b31m|' "its library holds a control character"

# ---- shards: as one file, and from one to the other ----
report $net --steps 2 --shard-size 2KiB --ranks 2 --plan dp=2 --out "$folder/shards" >/dev/null
for name in model state; do
    [[ ! -e $folder/shards/$name.safetensors ]] && ls "$folder/shards/$name-00002-of-"* >/dev/null || fail "no shards: $(ls "$folder/shards")"
done
for path in shards shards/model.safetensors.index.json shards/model.safetensors; do
    [[ $(sha_of "$folder/$path") == $(sha_of "$folder/two/model.safetensors") ]] || fail "--init $path: other weights"
done
expect 2 "shards holds a run of 2 steps" $net --steps 2 --out "$folder/shards"
sharded() { rm -rf "$folder/x" && cp -r "$folder/shards" "$folder/x"; }
sharded
[[ $(sha $resume --out "$folder/x") == "$whole" ]] || fail "from shards to one file: other bits"
[[ -z $(ls "$folder/x" | grep -e -of- -e index) ]] || fail "shards are left: $(ls "$folder/x")"
fresh
[[ $(sha $resume --shard-size 2KiB --plan dp=2 --ranks 2 --out "$folder/x") == "$whole" ]] || fail "from one file to shards: other bits"
[[ ! -e $folder/x/state.safetensors && ! -e $folder/x/model.safetensors ]] || fail "the files before the shards are left"
[[ $(sha $resume --out "$folder/x") == "$whole" ]] || fail "shards that were one file: other bits"
sharded
cp "$folder/one/model.safetensors" "$(ls "$folder"/x/model*-00001-of-*)"
expect 1 "has a tensor" train --model mlp --data "$folder/images" --threads 1 --steps 0 --init "$folder/x"
sharded
state=$(ls "$folder"/x/state-00002-of-*)
perl -e 'open(my $f, "+<:raw", $ARGV[0]) or die; seek($f, -3, 2); read($f, my $c, 1); seek($f, -3, 2); print $f chr(ord($c) ^ 1)' "$state"
expect 1 "$state: tensor" $resume --out "$folder/x"
grep -q "is damaged" "$folder/said" || fail "a flipped bit of a shard is not said: $(cat "$folder/said")"
rm "$state"
expect 1 "${state##*/}" $resume --out "$folder/x"

# ---- a number that is none, and no checksum that says so before: by tensor and element ----
fresh
LC_ALL=C sed -i 's/weft\.crc32/weft.other/g' "$folder/x/state.safetensors"
perl -e 'open(my $f, "+<:raw", $ARGV[0]) or die; read($f, my $s, 8); my $n = unpack("Q<", $s); read($f, my $head, $n);
    $head =~ /"optimizer.second_moment.[^"]*":\{[^}]*"data_offsets":\[(\d+)/ or die;
    seek($f, 8 + $n + $1 + 8, 0); print $f pack("f<", "nan")' "$folder/x/state.safetensors"
expect 1 "element 2 of optimizer.second_moment." $resume --out "$folder/x"

# ---- another processor or library is said, or refused ----
fresh
edit "$folder/x" 's|("library":")|$1other than |'
"$WEFT" $resume --out "$folder/x" --quiet >"$folder/said" 2>&1 || fail "another library: exit $?"
[[ $(grep -c "the checkpoint was made by weft .* on other than oneDNN.*--strict refuses that" "$folder/said") == 1 ]] ||
    fail "another library: $(cat "$folder/said")"
fresh
DNNL_MAX_CPU_ISA=SSE41 "$WEFT" $resume --out "$folder/x" --quiet >"$folder/said" 2>&1 || fail "another processor: exit $?"
grep -q "and this is weft .*(sse41): the run may continue with other bits" "$folder/said" || fail "another processor: $(cat "$folder/said")"
[[ $(report $resume --out "$folder/x" | field library) == "$("$WEFT" info | grep -o 'oneDNN [0-9].*')" ]] || fail "the report does not say the library"
fresh
[[ $(sha $resume --strict --out "$folder/x") == "$whole" ]] || fail "--strict on the same machine: other bits"
fresh
edit "$folder/x" 's|("weft":")|$1other than |'
before=$(cat "$folder/x"/*.safetensors | cksum)
expect 1 "--strict: the checkpoint was made by weft other than" $resume --strict --out "$folder/x"
[[ $(cat "$folder/x"/*.safetensors | cksum) == "$before" ]] || fail "--strict: refused, but something is written"

rm -r "$folder/x"
report $net --dtype bf16 --steps 2 --out "$folder/x" >/dev/null
[[ $(sha $resume --strict --steps 2 --out "$folder/x") ]] || fail "--strict on the same machine, of bf16: refused"
edit "$folder/x" 's/bf16 multiplied as (bf16|f32)/bf16 multiplied as another/'
expect 1 "bf16 multiplied as another, and this is weft" $resume --strict --out "$folder/x"

# ---- one run at a time writes to a folder ----
mkdir "$folder/held"
"$WEFT" $net --steps 1000000 --save-every 1 --out "$folder/held" >/dev/null 2>&1 &
pid=$!
until_true_of $pid test -s "$folder/held/model.safetensors" || fail "no checkpoint is written"
holder=""
grep -q ":$(stat -c %i "$folder/held") " /proc/locks 2>/dev/null && holder=" (process $pid)"
for words in "$net --steps 1" "$resume" "train --resume --steps 4 --ranks 2 --threads 1 --plan dp=2"; do
    expect 2 "--out: another run$holder is writing to $folder/held;" $words --out "$folder/held"
done
kill -KILL $pid
wait $pid 2>/dev/null || true
touch "$folder/held/.weft-1-0.tmp"
report train --resume --steps 1 --threads 1 --out "$folder/held" >/dev/null # the lock ended with the process
[[ -z $(find "$folder/held" -name '.weft-*') ]] || fail "what a killed process left is there: $(ls -A "$folder/held")"

finish
