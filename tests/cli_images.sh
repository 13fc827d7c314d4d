#!/usr/bin/env bash
# Models that read images: what saved weights say of pixels and classes is used, and data that does not match is refused.
# label: serial once
source tests/cli_helpers.bash
images "$folder/images"
mlp="--model mlp --threads 1 --batch 16"
run=$folder/run
about() { LC_ALL=C grep -aoE '"weft.model":"([^"\\]|\\.)*"' "$1" | head -1; }

# ---- a saved model knows its pixels ----
report train $mlp --data "$folder/images" --steps 3 --out "$run" >"$folder/report"
for file in model state; do
    [[ $(about "$run/$file.safetensors") == *'\"channels\":1,\"height\":8,\"width\":8,\"classes\":10,\"mean\":['*'\"std\":['* ]] ||
        fail "$file.safetensors says: $(about "$run/$file.safetensors")"
done
# The same test images beside other training images, whose mean is another.
cp -r "$folder/images" "$folder/darker"
{ head -c 16 "$folder/images/train-images-idx3-ubyte"; head -c 4096 /dev/zero; } >"$folder/darker/train-images-idx3-ubyte"
here=$(report eval $mlp --data "$folder/images" --init "$run" | field loss | head -1)
there=$(report eval $mlp --data "$folder/darker" --init "$run" | field loss | head -1)
other=$(report eval $mlp --data "$folder/darker" --init "$run" --other-data | field loss | head -1)
[[ -n $here && $here == "$there" ]] || fail "the same pixels: loss $here, and beside other training images $there"
[[ $here != "$other" ]] || fail "--other-data does not normalise by the data"
expect 2 "was trained on pixels normalised by mean 0.163601" eval $mlp --data "$folder/images" --init "$run" --normalize none
expect 2 "was trained on pixels normalised by mean 0.163601" train $mlp --data "$folder/images" --init "$run" --normalize none --steps 1
plain=$folder/plain
report train $mlp --data "$folder/images" --steps 1 --normalize none --out "$plain" >/dev/null
report eval $mlp --data "$folder/images" --init "$plain" --normalize none >"$folder/none"
[[ $(field loss <"$folder/none" | head -1) == "$(report eval $mlp --data "$folder/darker" --init "$plain" | field loss | head -1)" ]] || fail "weights of --normalize none are normalised"
report train --resume --out "$run" --steps 4 >/dev/null || fail "--resume"
report train --resume --out "$plain" --steps 2 >/dev/null || fail "--resume with --normalize none"

# ---- and its classes and sizes ----
expect 2 "was trained on images of 1 x 8 x 8, and those of synthetic are 3 x 8 x 8" eval $mlp --data synthetic --init "$run"
expect 2 "--image 9: the model in" eval $mlp --data synthetic --image 9 --init "$run"
report train $mlp --data synthetic --image 6 --steps 1 --out "$folder/six" >/dev/null
[[ $(report eval $mlp --data synthetic --init "$folder/six" | field loss | head -1) =~ ^[0-9.]+$ ]] || fail "the image size is not taken over"
expect 2 "was trained on images of 3 x 6 x 6" eval $mlp --data "$folder/images" --init "$folder/six"
report train --model resnet18 --data synthetic --image 16 --stem small --threads 1 --batch 2 --steps 1 --out "$folder/small" >/dev/null
[[ $(report plan --data synthetic --threads 1 --batch 2 --init "$folder/small" | field stem) == small ]] || fail "model and stem are not taken over"
# Class names are those of the set that has them.
mkdir "$folder/fashion-mnist"
cp "$folder/images"/* "$folder/fashion-mnist"
report train $mlp --data "$folder/fashion-mnist" --steps 1 --out "$folder/clothes" >/dev/null
[[ $(about "$folder/clothes/model.safetensors") == *'\"class_names\":[\"T-shirt/top\",'* ]] || fail "no class names: $(about "$folder/clothes/model.safetensors")"
sed -i 's/trouser/sandals/' "$folder/clothes/model.safetensors"
expect 2 "class 1 is 'trouser' in" eval $mlp --data "$folder/fashion-mnist" --init "$folder/clothes"
report eval $mlp --data "$folder/fashion-mnist" --init "$folder/clothes" --other-data >/dev/null
finish
