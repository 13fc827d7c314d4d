#!/usr/bin/env python3
"""Writes the golden files next to this script: what PyTorch computes in float64 for
the networks of networks.py with the numbers of formula.py, and how far PyTorch's own
float32 is from it. README.md explains the contents.

Run by hand, only when the contents are to change:

    python3 -m venv venv
    venv/bin/pip install torch torchvision safetensors transformers
    venv/bin/python tests/golden/make_golden.py

torchvision and transformers only cross-check the two definitions and may be missing.
"""
import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save_file
from torch.nn import functional as F

import formula
from networks import GPT2, ResNet50

FOLDER = pathlib.Path(__file__).resolve().parent
N_STEPS = 10

# Of 250 inputs the one whose values stay farthest from ReLU's corner: the margin that
# relu_margin() prints. README.md says why that matters.
IMAGE_NAME, IMAGE_SHAPE = "input.176", (4, 3, 36, 36)


def relative(x, exact):
    """Relative RMS error, 0 where both are 0."""
    x, exact = np.asarray(x, np.float64), np.asarray(exact, np.float64)
    norm = np.linalg.norm(exact)
    return float(np.linalg.norm(x - exact) / norm) if norm else float(np.linalg.norm(x))


def build(network, dtype):
    model = network()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(formula.parameter(name, tuple(p.shape))))
    return model.to(dtype).train()


def cross_entropy(logits, labels):
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


def train(model, x, labels, lr, channels_last=False):
    """Logits, loss and gradients of the first step, the losses of all, and the buffers
    and evaluation logits after the last."""
    if x.is_floating_point():
        x = x.to(next(model.parameters()).dtype)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    out = {"losses": []}
    for step in range(N_STEPS):
        optimizer.zero_grad()
        logits = model(x)
        loss = cross_entropy(logits, labels)
        loss.backward()
        out["losses"].append(loss.item())
        if step == 0:
            out["logits"] = logits.detach().numpy().copy()
            out["grad"] = {n: p.grad.numpy().copy() for n, p in model.named_parameters()}
        optimizer.step()
    out["buffers"] = {n: b.numpy().copy() for n, b in model.named_buffers() if b.is_floating_point()}
    out["parameters"] = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
    with torch.no_grad():
        out["eval_logits"] = model.eval()(x).numpy().copy()
    return out


def golden(file, network, x, labels, lr):
    exact = train(build(network, torch.float64), x, labels, lr)
    eager = [train(build(network, torch.float32), x, labels, lr)]
    if x.is_floating_point():
        eager.append(train(build(network, torch.float32), x, labels, lr, channels_last=True))

    t = {}

    def err32(key, pick):
        """One figure for each of PyTorch's float32 ways: contiguous, channels-last."""
        t[key + ".err32"] = np.array([relative(pick(run), pick(exact)) for run in eager])

    def put(key, pick):
        t[key] = np.asarray(pick(exact), np.float64)
        err32(key, pick)

    put("logits", lambda r: r["logits"])
    put("eval_logits", lambda r: r["eval_logits"])
    put("loss", lambda r: r["losses"][0])
    t["losses"] = np.array(exact["losses"])
    t["losses.err32"] = np.array([[relative(a, b) for a, b in zip(r["losses"], exact["losses"])]
                                  for r in eager])
    for kind, group in (("grad", "grad"), ("after", "parameters"), ("after", "buffers")):
        for name, value in exact[group].items():
            at = formula.sample_indices(name, value.size)
            key = f"{kind}.{name}"
            t[key + ".norm"] = np.array(np.linalg.norm(value))
            put(key + ".samples", lambda r: r[group][name].reshape(-1)[at])
            err32(key, lambda r: r[group][name])
    filled = {n: formula.parameter(n, g.shape) for n, g in exact["grad"].items()}
    if x.is_floating_point():
        filled[IMAGE_NAME] = x.numpy()
    for name, value in filled.items():
        t[f"checksum.{name}"] = np.array(formula.checksum(value), np.uint64).view(np.int64)
        t[f"shape.{name}"] = np.array(value.shape, np.int64)
    save(file, t)
    report(file, t, exact)


def report(file, t, exact):
    print(f"{file}: {(FOLDER / file).stat().st_size} bytes")
    for key in ("logits", "eval_logits", "loss"):
        print(f"  {key:12} err32", t[key + ".err32"])
    for i, loss in enumerate(t["losses"]):
        print(f"  step {i:2} loss {loss:.9f} err32", t["losses.err32"][:, i])
    for kind in ("grad", "after"):
        keys = sorted((k for k in t if k.startswith(kind) and k.endswith(".err32") and
                       not k.endswith(".samples.err32")), key=lambda k: t[k][0])
        e = np.array([t[k] for k in keys])
        print(f"  {kind} err32 min {e.min(0)} median {np.median(e, 0)} max {e.max(0)}")
        print("   ", keys[0], "...", keys[-3:])
        if e.shape[1] > 1:
            r = e[:, 1] / e[:, 0]
            print(f"    channels-last / contiguous: {r.min():.2f} ... {r.max():.2f}")


def save(file, tensors):
    save_file(tensors, FOLDER / file, metadata={"torch": torch.__version__,
                                                "cpu": torch.backends.cpu.get_cpu_capability()})
    (FOLDER / file).chmod(0o644)


def relu_margin(images):
    """The smallest |input| of any ReLU, in units of its layer's float32 error."""
    def inputs(dtype):
        model, seen = build(ResNet50, dtype), []
        relu = F.relu
        F.relu = lambda x: (seen.append(x.numpy()), relu(x))[1]
        with torch.no_grad():
            model(images.to(dtype))
        F.relu = relu
        return seen

    margins = [np.abs(a).min() / np.sqrt(np.mean((a - b) ** 2))
               for a, b in zip(inputs(torch.float64), inputs(torch.float32))]
    print(f"nearest to ReLU's corner: {min(margins):.1f} times the float32 error")


def optimizers():
    """Five steps of each optimizer on a vector of seven, with given gradients."""
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    moments = dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    # Options of the optimizer, and where they are not 1 or absent: the scales of weights and
    # gradients, the norm that gradients are clipped to, the factors of each step's rate. Weights
    # are as small as a step where an error of the step has to show.
    cases = {
        "sgd_momentum": (sgd, dict(lr=0.1, momentum=0.9, weight_decay=0.01), {}),
        "sgd_nesterov": (sgd, dict(lr=0.1, momentum=0.9, nesterov=True), {}),
        "adam": (adam, moments, {}),
        "adam_decay": (adam, dict(moments, weight_decay=0.01), {}),
        "adamw": (adamw, dict(moments, weight_decay=0.01), {}),
        "sgd_decay": (sgd, dict(lr=0.1, weight_decay=0.5), {}),
        "sgd_nesterov_decay": (sgd, dict(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.5), {}),
        "sgd_clipped": (sgd, dict(lr=0.5), dict(weight=2.0**-20, gradient=2.0**-16, clip=2.0**-20)),
        "adam_clipped": (adam, moments, dict(weight=2.0**-7, clip=1.25)),
        "adam_tiny": (adam, moments, dict(weight=2.0**-7, gradient=2.0**-26)),
        "adamw_rates": (adamw, dict(moments, weight_decay=4),
                        dict(weight=2.0**-5, rates=(0.25, 0.5, 1, 0.5, 0.125))),
    }
    t = {}
    for name, (optimizer, options, more) in cases.items():
        for dtype in (torch.float64, torch.float32):
            w = torch.from_numpy(formula.uniform("optimizer.weight", 7, more.get("weight", 1)))
            w = w.to(dtype).requires_grad_()
            o = optimizer([w], **options)
            steps = []
            for step in range(5):
                g = formula.uniform(f"optimizer.grad.{step}", 7, more.get("gradient", 1))
                w.grad = torch.from_numpy(g).to(dtype)
                if "clip" in more:
                    torch.nn.utils.clip_grad_norm_([w], more["clip"])
                o.param_groups[0]["lr"] = options["lr"] * more.get("rates", (1,) * 5)[step]
                o.step()
                steps.append(w.detach().numpy().copy())
            t[f"{name}.{'f64' if dtype == torch.float64 else 'f32'}"] = np.stack(steps)
    save("optimizers.safetensors", t)
    for name in cases:
        print(f"  {name}: err32 {relative(t[name + '.f32'], t[name + '.f64']):.1e}")


def cross_check(images, ids):
    """Our definitions against torchvision's and Hugging Face's: names, shapes, outputs."""
    def check(what, ours, theirs, prefix, out_ours, out_theirs):
        mine = {n: tuple(p.shape) for n, p in ours.state_dict().items()}
        other = {n[len(prefix):]: tuple(p.shape) for n, p in theirs.state_dict().items()
                 if n.startswith(prefix)}
        assert mine == other, set(mine.items()) ^ set(other.items())
        e = relative(out_theirs, out_ours)
        assert e < 1e-12, e
        print(f"{what}: the same names and shapes, outputs differ by {e:.1e}")

    try:
        from torchvision.models import resnet50
        a, b = build(ResNet50, torch.float64), build(resnet50, torch.float64)
        with torch.no_grad():
            check("torchvision resnet50", a, b, "", a(images.double()), b(images.double()))
    except ImportError:
        print("torchvision is missing: ResNet-50 not cross-checked")
    try:
        from transformers import GPT2Config, GPT2LMHeadModel
        config = GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4,
                            resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
        a, b = build(GPT2, torch.float64), GPT2LMHeadModel(config).double()
        b.transformer.load_state_dict(a.state_dict(), strict=True)
        with torch.no_grad():
            check("transformers GPT-2", a, b, "transformer.", a(ids), b(ids).logits)
    except ImportError:
        print("transformers is missing: GPT-2 not cross-checked")


def main():
    torch.set_num_threads(1)  # the number of threads changes the order of some sums
    images = torch.from_numpy(formula.uniform(IMAGE_NAME, IMAGE_SHAPE, 2.0))
    classes = torch.from_numpy(formula.integers("label", 4, 1000))
    ids = torch.from_numpy(formula.integers("input", (2, 32), 256))
    next_ids = torch.from_numpy(formula.integers("label", (2, 32), 256))
    cross_check(images, ids)
    relu_margin(images)
    golden("resnet50.safetensors", ResNet50, images, classes, 0.0001)
    golden("gpt2-tiny.safetensors", GPT2, ids, next_ids, 0.1)
    optimizers()


if __name__ == "__main__":
    sys.exit(main())
