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
# ---- pictures in folders ----
make=$WEFT_BUILD/tests/data_pictures
if [[ -x $make ]]; then
    pets=$folder/pets
    "$make" "$pets" cat dog
    small="--model mlp --image 32 --batch 8 --micro 4 --lanes 4 --threads 1 --seed 3"
    report train $small --data "$pets" --steps 3 --out "$folder/pets-run" >"$folder/report"
    pets_one=$(field weights_sha256 <"$folder/report")
    [[ $(about "$folder/pets-run/model.safetensors") == *'\"classes\":2,\"resized\":36,\"class_names\":[\"cat\",\"dog\"],\"mean\":[0.4849'* ]] ||
        fail "weights of pictures say: $(about "$folder/pets-run/model.safetensors")"
    # Whoever decodes which picture, in a process of its own or in threads, from the cache or not.
    for plan in "--plan dp=2 --ranks 2" "--plan pp=2 --ranks 2 --loader-threads 3" "--plan dp=2,zero=3 --devices cpu:2 --cache 1"; do
        [[ $(report train $small --data "$pets" --steps 3 $plan | field weights_sha256) == "$pets_one" ]] || fail "pictures, $plan: not one rank's bits"
    done
    [[ $(report train --resume --out "$folder/pets-run" --steps 4 --threads 1 --plan dp=2 --ranks 2 | field weights_sha256) == \
        "$(report train $small --data "$pets" --steps 4 | field weights_sha256)" ]] || fail "pictures: --resume has other bits"
    [[ $(report eval --threads 1 --data "$pets" --init "$folder/pets-run" | field image) == 32 ]] || fail "eval: image and model are not taken over"
    expect 2 "--image 48: the model in" eval --threads 1 --data "$pets" --init "$folder/pets-run" --image 48
    mv "$pets/train/dog" "$pets/train/wolf" && mv "$pets/val/dog" "$pets/val/wolf"
    expect 2 "class 1 is 'wolf' in" eval --threads 1 --data "$pets" --init "$folder/pets-run"
    expect 2 "class 1 is 'wolf' in" train --resume --out "$folder/pets-run" --steps 5
    expect 2 "class 1 is 'wolf' in" train $small --data "$pets" --init "$folder/pets-run" --init-skip net1 --steps 1
    report train $small --data "$pets" --init "$folder/pets-run" --init-skip net3 --steps 1 >/dev/null || fail "--init-skip net3: classes are compared"
    mv "$pets/train/wolf" "$pets/train/dog" && mv "$pets/val/wolf" "$pets/val/dog"
    # What is broken is named, in a rank's own process as well, and left out only if told.
    head -c 200 "$pets/train/cat/1.jpg" >"$pets/train/cat/99.JPG"
    expect 1 "cat/99.JPG is truncated or damaged" train $small --data "$pets" --no-shuffle --steps 2
    expect 1 "cat/99.JPG is truncated or damaged" train $small --data "$pets" --no-shuffle --steps 2 --plan dp=2 --ranks 2
    [[ $(report train $small --data "$pets" --steps 3 --skip-broken | field weights_sha256) == "$pets_one" ]] || fail "--skip-broken leaves another set"
    grep -qF "skipped: $pets/train/cat/99.JPG is truncated" "$folder/said" || fail "--skip-broken names nothing: $(cat "$folder/said")"
    # A class whose name no JSON could hold would be left out, and the others would take its number.
    mv "$pets/train/dog" "$pets/train/"$'caf\351'
    expect 1 'has a name that is not UTF-8' train $small --data "$pets" --steps 1 --out "$folder/latin"
    mv "$pets/train/"$'caf\351' "$pets/train/dog"
    cp -r "$pets" "$folder/"$'caf\351'
    expect 2 'caf\xe9: the name is not UTF-8' train $small --data "$folder/"$'caf\351' --steps 1 --out "$folder/latin"
    # ---- other classes: the head begins anew, and learns faster ----
    "$make" "$folder/three" ant bee wasp
    fine="--model mlp --threads 1 --batch 8 --data $folder/three --init $folder/pets-run --steps 2"
    expect 2 "has 2 classes, but $folder/three has 3" train $fine
    "$WEFT" train $fine --init-skip net3 --lr-scale net3=10 --out "$folder/fine" >"$folder/said" 2>&1 || fail "--init-skip: $(tail -1 "$folder/said")"
    grep -qF "init    net3.bias, net3.weight begin anew" "$folder/said" || fail "--init-skip: not who begins anew: $(cat "$folder/said")"
    [[ $(about "$folder/fine/model.safetensors") == *'\"class_names\":[\"ant\",\"bee\",\"wasp\"]'*'\"mean\":[0.4849'* ]] || fail "fine-tuned weights say $(about "$folder/fine/model.safetensors")"
    one=$(report train $fine --init-skip net3 --lr-scale net3=10 --lanes 2 | field weights_sha256)
    for plan in "dp=2 --ranks 2" "dp=2,zero=3 --devices cpu:2" "pp=2 --ranks 2"; do
        [[ $(report train $fine --init-skip net3 --lr-scale net3=10 --lanes 2 --plan $plan | field weights_sha256) == "$one" ]] || fail "--init-skip, --lr-scale, $plan: not one rank's bits"
    done
    [[ $(report train $fine --init-skip net3 --lanes 2 | field weights_sha256) != "$one" ]] || fail "--lr-scale changes nothing"

    # ---- ImageNet's recipe, on what is there ----
    imagenet="train --config examples/imagenet.json --model resnet18 --data $folder/three --image 32 --batch 12 --micro 4 --lanes 4 --threads 1 --warmup 2 --epochs 1 --out"
    one=$(report $imagenet "$folder/in" | field weights_sha256)
    [[ $(report $imagenet "$folder/in2" --plan dp=2,zero=1 --devices cpu:2 | field weights_sha256) == "$one" ]] || fail "examples/imagenet.json: not one rank's bits"
    [[ -d $folder/in/best ]] || fail "examples/imagenet.json: no best checkpoint"

    # ---- predictions ----
    run=$folder/pets-run
    report predict --init "$run" --data "$pets/val" --batch 8 --lanes 2 --threads 1 --json - >"$folder/rows"
    [[ $(field input <"$folder/rows" | tr '\n' ' ') == "$pets/val/cat/12.png $pets/val/cat/13.jpg $pets/val/cat/14.png $pets/val/cat/15.jpg $pets/val/dog/"*"15.jpg " ]] ||
        fail "predict: rows of $(field input <"$folder/rows")"
    hits=$(paste <(field input <"$folder/rows") <(field class <"$folder/rows") | awk '$1 ~ "/" $2 "/" { n++ } END { print n / NR }')
    accuracy=$(report eval --threads 1 --data "$pets" --init "$run" | field accuracy)
    awk -v a="$hits" -v b="$accuracy" 'BEGIN { exit !(a > b - 1e-9 && a < b + 1e-9) }' || fail "predict: $hits right, eval: $accuracy"
    for plan in dp=2 pp=2 dp=2,pp=2; do
        cmp -s <(report predict --init "$run" --data "$pets/val" --batch 8 --lanes 2 --threads 1 --plan $plan) "$folder/rows" || fail "predict, $plan: other rows"
    done
    # The probability is that of the logits, of which no digit is lost.
    report predict --init "$run" --data "$pets/val" --batch 8 --lanes 2 --threads 1 --logits >"$folder/logits"
    [[ $(tr -d ' \n' <"$folder/logits" | grep -oE '"class":"[a-z]*","probability":[0-9.e-]+,"logits":\[[^]]*\]' | tr '[' , |
        awk -F '[:,]' '{ d = $2 ~ "cat" ? $8 - $7 : $7 - $8; e = 1 / (1 + exp(d)) / $4 - 1; n += d <= 0 && e < 1e-14 && e > -1e-14 } END { print n }') == 8 ]] ||
        fail "predict --logits: $(cat "$folder/logits")"
    expect 2 "--logits adds to the report; it needs --json" predict --init "$run" --data "$pets/val" --logits
    # A test of them gives the same loss, too: one rank's.
    eval="eval --init $run --data $pets --batch 8 --lanes 2 --threads 1 --json -"
    report $eval >"$folder/one"
    for plan in "--plan dp=2" "--plan pp=2" "--plan dp=2,pp=2" "--plan pp=2 --ranks 2" "--plan dp=2 --ranks 2" "--ranks 2"; do
        cmp -s <(report $eval $plan | grep -E '"(loss|accuracy)"') <(grep -E '"(loss|accuracy)"' "$folder/one") || fail "eval, $plan: another loss"
    done
    [[ -n $(field loss <"$folder/one") && $("$WEFT" run -n 2 -- "$WEFT" ${eval/ --json -/} --plan pp=2 | grep -c 'test split: loss') == 1 ]] || fail "weft run, eval"
    expect 2 "3 ranks" ${eval/--lanes 2 /} --plan dp=3 --ranks 2
    # In processes rank 0 alone says it, whoever reads the pictures.
    for plan in "--plan dp=2" "--plan pp=2" ""; do
        cmp -s <(report predict --init "$run" --data "$pets/val" --batch 8 --lanes 2 --threads 1 $plan --ranks 2) "$folder/rows" || fail "predict, $plan in processes: other rows"
    done
    "$WEFT" run -n 2 -- "$WEFT" predict --init "$run" --data "$pets/val" --batch 3 --threads 1 --plan pp=2 --csv "$folder/csv" >"$folder/lines" 2>&1
    [[ $(sed 1d "$folder/csv" | cut -d, -f1,2 | tr -d '"') == "$(paste -d, <(field input <"$folder/rows") <(field class <"$folder/rows"))" && $(grep -c '%$' "$folder/lines") == 8 ]] || fail "weft run, predict: $(cat "$folder/lines")"
    expect 2 "3 ranks" predict --init "$run" --data "$pets/val" --plan dp=3 --ranks 2
    # ---- the shorter side, and the centre of it ----
    report train $small --data "$pets" --steps 1 --resize 32 --out "$folder/tight" >/dev/null
    [[ $(about "$folder/tight/model.safetensors") == *'\"resized\":32,'* ]] || fail "--resize: weights say $(about "$folder/tight/model.safetensors")"
    [[ $(report eval --threads 1 --data "$pets" --init "$folder/tight" | field resize) == 32 ]] || fail "--resize is not taken over"
    expect 2 "--resize 40: the model in" predict --threads 1 --data "$pets/val" --init "$folder/tight" --resize 40
    cmp -s <(report predict --init "$folder/tight" --data "$pets/val" --threads 1 --other-data --image 32 --resize 40 | field probability) \
        <(report predict --init "$folder/tight" --data "$pets/val" --threads 1 | field probability) && fail "--resize: the same pixels"
    cp "$pets/val/dog/13.jpg" "$folder/a \"dog\".jpg"
    "$WEFT" predict --init "$run" --data "$folder/a \"dog\".jpg" --threads 1 --top-k 5 --csv - >"$folder/csv" 2>/dev/null
    [[ $(grep -cE '^".*/a ""dog"".jpg","(cat|dog)",0?[.0-9e-]+$' "$folder/csv") == 2 && $(head -1 "$folder/csv") == input,class,probability ]] ||
        fail "predict --csv: $(cat "$folder/csv")"
    "$WEFT" predict --init "$run" --data "$pets/val/cat" --threads 1 >"$folder/lines"
    [[ $(grep -cE '/1[2-5].(png|jpg): (cat|dog) [0-9.]+ %$' "$folder/lines") == 4 ]] || fail "predict: $(cat "$folder/lines")"
    # A name is on its line, and is itself in the report.
    cp "$pets/val/dog/13.jpg" "$folder/"$'b.jpg: dog 100.00 %\nc.jpg'
    "$WEFT" predict --init "$run" --data "$folder/"$'b.jpg: dog 100.00 %\nc.jpg' --threads 1 --json "$folder/rows2" >"$folder/lines"
    [[ $(wc -l <"$folder/lines") == 1 ]] && grep -q '/b.jpg: dog 100.00 %\\x0ac.jpg: ' "$folder/lines" && grep -q '/b.jpg: dog 100.00 %\\nc.jpg"' "$folder/rows2" || fail "predict, a name of two lines: $(cat "$folder/lines" "$folder/rows2")"
    [[ $(report predict --init "$folder/clothes" --data "$folder/fashion-mnist" --other-data | field input | tail -1) == 15 ]] || fail "predict: a set without files"
    expect 1 "cat/99.JPG is truncated or damaged" predict --init "$run" --data "$pets"
    [[ $(report predict --init "$run" --data "$pets" --skip-broken | field input | wc -l) == 32 ]] || fail "predict --skip-broken"
    expect 2 "--init is missing" predict --data "$pets"
    mkdir "$folder/nothing"
    expect 1 "weft: $folder/not cannot be opened: No such file" predict --init "$folder/not" --data "$pets"
    expect 1 "weft: $folder/nothing holds neither model.safetensors nor" eval --init "$folder/nothing" --data "$pets"
    expect 2 "$run holds a model that cannot generate text: mlp reads images" generate --init "$run" --prompt x
    # What other programs have saved does not say its model.
    LC_ALL=C sed 's/"weft[.]model"/"some.other"/' "$run/model.safetensors" >"$folder/other.safetensors"
    expect 2 "other.safetensors holds a model that cannot generate text: it has neither GPT-2's wte.weight nor" generate --init "$folder/other.safetensors" --prompt x
    expect 1 "contains no picture" predict --init "$run" --data "$folder/nothing"
    expect 2 "reads text: weft generate" predict --model gpt2-tiny --init "$run" --data synthetic --other-data
    rm "$pets/train/cat/99.JPG"
else
    echo "pictures in folders are left out: $make is not built"
fi

finish
