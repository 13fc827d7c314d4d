#!/usr/bin/env bash
# examples/dcgan.c: within 20 steps the discriminator tells images whose lower half is white from what is made (its loss begins at
# 2 ln 2, 1.386), and the pictures are PNGs of 64 samples with something on them: grey, and with noise for data in colour.
# label: once
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
fail() {
    echo "$*"
    exit 1
}
# Width, height, bits, colour type; and that it takes so many bytes.
expect_picture() {
    [[ $(od -An -tu1 -j16 -N10 "$1" | tr -s ' \n' ' ') == " $2 " ]] || fail "$1: $(od -An -tu1 -j16 -N10 "$1"), not $2"
    (($(wc -c <"$1") > $3)) || fail "there is nothing on $1: $(wc -c <"$1") bytes"
}

mkdir "$folder/half"
{ printf '\0\0\10\3\0\0\0\200\0\0\0\20\0\0\0\20'
  for ((i = 0; i < 128; i++)); do head -c 128 /dev/zero; head -c 128 /dev/zero | tr '\0' '\377'; done; } >"$folder/half/train-images-idx3-ubyte"
{ printf '\0\0\10\1\0\0\0\200'; head -c 128 /dev/zero; } >"$folder/half/train-labels-idx1-ubyte"
said=$("$WEFT_BUILD/examples/dcgan" 20 "$folder/half" "$folder/half.png" 2>&1) || fail "exit status $?: $said"
losses=$(sed -n 's/^step 20: losses \([0-9.]*\) (discriminator) \([0-9.]*\) (generator)$/\1 \2/p' <<<"$said")
awk '{ exit !($1 > 0 && $1 < 0.8 && $2 > 0.85) }' <<<"$losses" || fail "the discriminator does not learn: $said"
expect_picture "$folder/half.png" "0 0 0 128 0 0 0 128 8 0" 4000
"$WEFT_BUILD/examples/dcgan" 1 synthetic "$folder/noise.png" >"$folder/said" 2>&1 || fail "exit status $?: $(cat "$folder/said")"
expect_picture "$folder/noise.png" "0 0 1 0 0 0 1 0 8 2" 30000
"$WEFT_BUILD/examples/dcgan" 1 "$folder/none" >"$folder/said" 2>&1 && fail "data that is not there is passed over"
grep -q "$folder/none" "$folder/said" || fail "of a folder that is not there: $(cat "$folder/said")"
