#!/usr/bin/env python3
"""The first loss of a GPT that is larger than memory, by PyTorch, one layer at a time.

`draw` writes random weights as safetensors, a shard a layer, which weft train begins with; `loss` reads
them again and says what the loss of a text's first samples is:

    pytorch_layers.py draw --layers 48 --hidden 1600 --folder weights
    pytorch_layers.py loss --heads 25 --folder weights --data TEXT --tokens 64 --batch 1
    weft train --model gpt --layers 48 --hidden 1600 --heads 25 --vocab 50257 --init weights \\
        --data TEXT --no-shuffle --tokens 64 --batch 1 --steps 1 --json report.json
"""
import argparse
import json
import os

import torch
import torch.nn.functional as F

INDEX = "model.safetensors.index.json"


def shapes_of(args, layer):
    """Of a layer, or of what stands before all of them (-1), or behind (args.layers)."""
    h = args.hidden
    if layer < 0:
        return {"wte.weight": (args.vocab, h), "wpe.weight": (args.positions, h)}
    if layer == args.layers:
        return {"ln_f.weight": (h,), "ln_f.bias": (h,)}
    shapes = {}
    for name, n_in, n_out in (("attn.c_attn", h, 3 * h), ("attn.c_proj", h, h),
                              ("mlp.c_fc", h, 4 * h), ("mlp.c_proj", 4 * h, h)):
        shapes[f"h.{layer}.{name}.weight"] = (n_in, n_out)
        shapes[f"h.{layer}.{name}.bias"] = (n_out,)
    for name in ("ln_1", "ln_2"):
        shapes[f"h.{layer}.{name}.weight"] = shapes[f"h.{layer}.{name}.bias"] = (h,)
    return shapes


def write_shard(path, tensors):
    header, at = {}, 0
    for name, tensor in tensors.items():
        n_bytes = tensor.numel() * 4
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [at, at + n_bytes]}
        at += n_bytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(len(text).to_bytes(8, "little"))
        out.write(text)
        for tensor in tensors.values():
            out.write(memoryview(tensor.numpy()).cast("B"))
    return at


def draw(args):
    os.makedirs(args.folder, exist_ok=True)
    torch.manual_seed(args.seed)
    where, total, n = {}, 0, args.layers + 2
    for layer in range(-1, args.layers + 1):
        name = f"model-{layer + 2:05d}-of-{n:05d}.safetensors"
        tensors = {}
        for key, shape in shapes_of(args, layer).items():
            # Norms' weights around 1; all else small. Biases, too: a zero would not tell two apart.
            is_norm = ".ln_" in f".{key}" and key.endswith("weight")
            tensors[key] = torch.randn(shape) * 0.02 + is_norm
            where[key] = name
        total += write_shard(os.path.join(args.folder, name), tensors)
    with open(os.path.join(args.folder, INDEX), "w") as out:
        json.dump({"metadata": {"total_size": total}, "weight_map": where}, out, indent=1)
    print(json.dumps({"parameters": total // 4, "shards": n}))


class Shards:
    """Tensors by name, each read when it is asked for and gone when nobody has it."""

    def __init__(self, folder):
        with open(os.path.join(folder, INDEX)) as lines:
            self.where = json.load(lines)["weight_map"]
        self.folder = folder

    def __call__(self, name):
        with open(os.path.join(self.folder, self.where[name]), "rb") as shard:
            n = int.from_bytes(shard.read(8), "little")
            about = json.loads(shard.read(n))[name]
            begin, end = about["data_offsets"]
            shard.seek(8 + n + begin)
            data = bytearray(shard.read(end - begin))
        return torch.frombuffer(data, dtype=torch.float32).view(about["shape"])


def block(x, get, n_heads):
    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], get(f"{name}.weight"), get(f"{name}.bias"))

    def linear(x, name):
        return x @ get(f"{name}.weight") + get(f"{name}.bias")

    n, tokens, width = x.shape
    heads = [part.view(n, tokens, n_heads, width // n_heads).transpose(1, 2)
             for part in linear(norm(x, "ln_1"), "attn.c_attn").split(width, dim=2)]
    seen = F.scaled_dot_product_attention(*heads, is_causal=True)
    x = x + linear(seen.transpose(1, 2).reshape(n, tokens, width), "attn.c_proj")
    return x + linear(F.gelu(linear(norm(x, "ln_2"), "mlp.c_fc"), approximate="tanh"), "mlp.c_proj")


@torch.no_grad()
def loss(args):
    get = Shards(args.folder)
    n = args.batch * args.tokens
    with open(args.data, "rb") as text:
        ids = torch.tensor(list(text.read(n + 1)))
    x, y = ids[:n].view(args.batch, args.tokens), ids[1:]
    x = get("wte.weight")[x] + get("wpe.weight")[:args.tokens]
    n_layers = 1 + max(int(name.split(".")[1]) for name in get.where if name.startswith("h."))
    for layer in range(n_layers):
        x = block(x, lambda name, layer=layer: get(f"h.{layer}.{name}"), args.heads)
    x = F.layer_norm(x, x.shape[-1:], get("ln_f.weight"), get("ln_f.bias"))
    logits = x.flatten(0, 1) @ get("wte.weight").T
    print(json.dumps({"loss": F.cross_entropy(logits.double(), y).item(), "torch": torch.__version__}))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    drawing = commands.add_parser("draw")
    drawing.set_defaults(run=draw)
    for name, usual in (("layers", 12), ("hidden", 768), ("vocab", 50257), ("positions", 1024),
                        ("seed", 0)):
        drawing.add_argument(f"--{name}", type=int, default=usual)
    losing = commands.add_parser("loss")
    losing.set_defaults(run=loss)
    losing.add_argument("--data", required=True, help="a text, whose tokens are its bytes")
    for name, usual in (("heads", 12), ("tokens", 64), ("batch", 1)):
        losing.add_argument(f"--{name}", type=int, default=usual)
    for command in (drawing, losing):
        command.add_argument("--folder", required=True, help="of the shards")
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
