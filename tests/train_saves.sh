#!/usr/bin/env bash
# label: once long
# Killed at any point of saving, one file or shards, at once or in the background: --resume goes on to the bits of a run that never stopped, the weights
# on the disk have the hash of its report, and nothing else is left in the folder.
# WEFT_TEST_FULL=1: every rename and fsync and every third write, not some of them.
source tests/cli_helpers.bash
command -v strace >/dev/null || { echo "strace is missing: it kills at a system call"; exit 77; }
strace -o /dev/null -e inject=rename:signal=KILL:when=9999 true 2>/dev/null || { echo "strace may not trace here"; exit 77; }

run="train --model mlp --data synthetic --image 6 --threads 1 --batch 8 --optimizer adam --lr 0.001 --steps 3 --save-every 1"
sha_of() { report train --model mlp --data synthetic --image 6 --threads 1 --init "$1" --steps 0 | field weights_sha256; }
whole=$(report $run --out "$folder/whole" | field weights_sha256)
full=${WEFT_TEST_FULL:-0}
n_kills=0
more="" # how it saves

# calls NAMES: how often one run makes these calls.
calls() {
    rm -rf "$folder/x"
    strace -f -o "$folder/calls" -e "trace=$1" "$WEFT" $run $more --quiet --out "$folder/x" >/dev/null 2>&1
    grep -c "^[0-9]* *[a-z0-9]*(" "$folder/calls"
}

try() { # try NAMES N: dies at the n-th of these calls; false: there are not so many
    local got=0 again="--resume" sha
    rm -rf "$folder/x"
    # In braces, so that the shell does not say that it was killed.
    { strace -f -o /dev/null -e "trace=$1" -e "inject=$1:signal=SIGKILL:when=$2" "$WEFT" $run $more --quiet --out "$folder/x"; } \
        >/dev/null 2>&1 || got=$?
    [[ $got == 137 ]] || return 1
    n_kills=$((n_kills + 1))
    [[ -e $folder/x/state.safetensors || -e $folder/x/state.safetensors.index.json ]] || again=""
    sha=$(report $run $more $again --out "$folder/x" | field weights_sha256)
    [[ $sha == "$whole" ]] || fail "killed at $1 number $2: other bits after ${again:-beginning again}"
    [[ $(sha_of "$folder/x/model.safetensors") == "$sha" ]] || fail "killed at $1 number $2: model.safetensors is not the report's"
    # Shards that a later index has replaced go with the next save.
    [[ $more != *shard* ]] || "$WEFT" $run $more --quiet --resume --steps 4 --out "$folder/x" >/dev/null || fail "killed at $1 number $2: no step more"
    [[ -z $(find "$folder/x" -name '.weft-*' -o -name '*.part') && ($more != *shard* || $(ls "$folder/x" | wc -l) == "$n_files") ]] || fail "killed at $1 number $2: left: $(ls -A "$folder/x")"
}

each() { # each NAMES EVERY EVERY_IN_FULL
    local n every=$2 last
    [[ $full == 1 ]] && every=$3
    last=$(calls "$1")
    for ((n = 1; n <= last; n += every)); do
        try "$1" "$n" || break
    done
}
each rename,renameat,renameat2 1 1
each fsync,fdatasync 3 1
each write,pwrite64 13 3
more="--shard-size 4000"
report $run $more --out "$folder/whole_shards" >/dev/null
n_files=$(ls "$folder/whole_shards" | wc -l)
((n_files > 8)) || fail "only $n_files files: $(ls "$folder/whole_shards")"
each rename,renameat,renameat2 17 1
each unlink,unlinkat 13 1
more=--save-async
each rename,renameat,renameat2 2 1
each fsync,fdatasync 7 1
((n_kills >= 10)) || fail "only $n_kills kills"
echo "$n_kills kills"
finish
