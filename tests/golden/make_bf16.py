#!/usr/bin/env python3
"""Writes bf16.safetensors next to this script: how far what PyTorch computes under
torch.autocast(bfloat16) is from its float64, for the GPT-2 and the numbers of make_golden.py,
under its keys. README.md explains the contents; run by hand, like that script.
"""
import numpy as np
import torch

import formula
from make_golden import build, relative, save, train
from networks import GPT2


def autocast(network):
    model = build(network, torch.float32)
    forward = model.forward

    def narrow(x):
        with torch.autocast("cpu", torch.bfloat16):
            return forward(x).float()

    model.forward = narrow
    return model


def errors(prefix, network, x, labels, lr):
    exact = train(build(network, torch.float64), x, labels, lr)
    got = train(autocast(network), x, labels, lr)
    t = {"eval_logits": relative(got["eval_logits"], exact["eval_logits"]),
         "losses": [relative(a, b) for a, b in zip(got["losses"], exact["losses"])]}
    for kind, group in (("grad", "grad"), ("after", "parameters"), ("after", "buffers")):
        for name, value in exact[group].items():
            at = formula.sample_indices(name, value.size)
            t[f"{kind}.{name}"] = relative(got[group][name], value)
            t[f"{kind}.{name}.samples"] = relative(got[group][name].reshape(-1)[at], value.reshape(-1)[at])
    grads = [e for key, e in t.items() if key.startswith("grad") and not key.endswith("samples")]
    print(f"{prefix}: losses {max(t['losses']):.1e}, gradients {min(grads):.1e} to {max(grads):.1e}")
    return {f"{prefix}.{key}.err16": np.array(np.atleast_1d(e), np.float64) for key, e in t.items()}


def main():
    torch.set_num_threads(1)
    ids = torch.from_numpy(formula.integers("input", (2, 32), 256))
    t = errors("gpt2-tiny", GPT2, ids, torch.from_numpy(formula.integers("label", (2, 32), 256)), 0.1)
    save("bf16.safetensors", t)


if __name__ == "__main__":
    main()
