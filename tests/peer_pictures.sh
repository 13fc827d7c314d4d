#!/usr/bin/env bash
# label: serial once
# Pictures, fine-tuned weights and predictions as torchvision has them: the same pixels bit by bit, and logits to 1e-4 (docs/train.md).
# Wants a Python with torchvision, WEFT_PYTHON or what bench/setup-peers installs.
source tests/cli_helpers.bash
python=${WEFT_PYTHON:-/tmp/weft-peers/bin/python}
"$python" -c 'import torch, torchvision, PIL' 2>/dev/null || { echo "no Python with torchvision: $python"; exit 77; }
[[ -x $WEFT_BUILD/tests/data_pictures ]] || { echo "tests/data_pictures is not built"; exit 77; }
cat >"$folder/peer.py" <<'END'
import json, struct, sys, numpy as np, torch, torchvision
from PIL import Image
from torchvision import transforms
folder = sys.argv[2]

def read(path):  # as safetensors.safe_open does, which may not be installed
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
        data = file.read()
    types = {"F32": np.float32, "I64": np.int64}
    meta = header.pop("__metadata__")
    return meta, {n: torch.from_numpy(np.frombuffer(data[slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"]).copy())
                  for n, t in header.items()}

def write(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = tensor.detach().numpy().tobytes()
        header[name] = {"dtype": "F32" if tensor.dtype == torch.float32 else "I64", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)

torch.manual_seed(0)
torch.set_num_threads(1)
if sys.argv[1] == "make":
    write(folder + "/resnet18.safetensors", torchvision.models.resnet18().state_dict())
    rng = np.random.default_rng(0)
    def smooth(h, w):
        return Image.fromarray((rng.random((h // 8 + 2, w // 8 + 2, 3)) * 255).astype("uint8")).resize((w, h), Image.BICUBIC)
    for k, name in enumerate(("cat", "dog", "owl")):
        for i, (h, w) in enumerate(((90, 71), (64, 200), (73, 73), (130, 100))):
            smooth(h, w).save(f"{folder}/pets/val/{name}/{i}.jpg", progressive=i == 1)
        smooth(80, 75).convert("CMYK").save(f"{folder}/pets/val/{name}/cmyk.jpg")
        smooth(80, 75).convert("P").save(f"{folder}/pets/val/{name}/palette.png", transparency=3)
        smooth(80, 75).convert("LA").save(f"{folder}/pets/val/{name}/grey.PNG")
else:
    meta, weights = read(folder + "/run/model.safetensors")
    about = json.loads(meta["weft.model"])
    model = torchvision.models.resnet18(num_classes=about["classes"])
    model.load_state_dict(weights)
    model.eval()
    prepare = transforms.Compose([transforms.Resize(about["resized"]), transforms.CenterCrop(about["height"]), transforms.ToTensor(),
                                  transforms.Normalize(about["mean"], about["std"])])
    data = torchvision.datasets.ImageFolder(folder + "/pets/val", prepare)
    assert data.classes == about["class_names"], (data.classes, about)
    rows = json.load(open(folder + "/rows.json"))["rows"]
    assert [row["input"] for row in rows] == [path for path, _ in data.samples]
    worst = 0
    for (x, _), row in zip(data, rows):
        logits = model(x[None])[0].detach().double()
        mine = torch.tensor(row["logits"], dtype=torch.float64)
        worst = max(worst, (mine - logits).abs().max().item())
        assert row["class"] == data.classes[int(logits.argmax())]
    print(f"{len(rows)} pictures, logits differ by at most {worst:.2g}")
    assert worst < 1e-4, worst
END
"$WEFT_BUILD/tests/data_pictures" "$folder/pets" cat dog owl
"$python" "$folder/peer.py" make "$folder" || fail "the peer makes no weights"
fine="--model resnet18 --data $folder/pets --image 64 --init $folder/resnet18.safetensors --threads 1 --batch 12"
expect 1 "fc.bias is F32 [1000], but the model's fc.bias is F32 [3]" train $fine --steps 1
"$WEFT" train $fine --init-skip fc --lr-scale fc=10 --lr 0.001 --momentum 0.9 --steps 3 --out "$folder/run" >"$folder/said" 2>&1 || fail "train: $(tail -1 "$folder/said")"
grep -qF "init    fc.bias, fc.weight begin anew" "$folder/said" || fail "train: $(cat "$folder/said")"
report predict --init "$folder/run" --data "$folder/pets/val" --logits --threads 1 >"$folder/rows.json"
"$python" "$folder/peer.py" compare "$folder" || fail "torchvision predicts something else"
finish
