#!/usr/bin/env python3
"""Training steps of GPT-2 124M under PyTorch's tensor parallelism (DTensor) over gloo, as JSON.

Started once a rank with RANK and WORLD_SIZE set, by bench/tensor_vs_pytorch, or by hand:
    weft run -n 2 -- python3 pytorch_tensor.py --store /tmp/store --json report.json
As PyTorch's documentation does it: attention and MLP by columns, then by rows; the tied embedding
and the loss over parts of the vocabulary. One rank computes without DTensor.
"""
import contextlib

import torch
import torch.distributed as dist
from torch.nn import functional as F

import pytorch_ranks
import pytorch_train


def parallelize(model, mesh):
    """A function of ids that gives logits, each rank those of its part of the vocabulary."""
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    # The columns of q, k and v are one matrix: a rank's third of them is its heads' q, and so on,
    # which is another order of columns than the whole model's, and as much work.
    for block in model.h:
        parallelize_module(block, mesh, {"attn": ColwiseParallel(), "attn_proj": RowwiseParallel(),
                                         "fc": ColwiseParallel(), "fc_proj": RowwiseParallel()})
    parallelize_module(model, mesh, {"wte": RowwiseParallel(input_layouts=Replicate())})

    def logits(ids):
        x = model.wte(ids) + model.wpe(torch.arange(ids.shape[1]))
        for block in model.h:
            x = block(x)
        x = DTensor.from_local(model.ln_f(x), mesh, [Replicate()])
        return F.linear(x, model.wte.weight)

    return logits


def optimizers(model):
    """DTensors and other parameters are not updated in one call."""
    from torch.distributed.tensor import DTensor
    for wanted in (True, False):
        its = [p for p in model.parameters() if isinstance(p, DTensor) == wanted]
        if its:
            yield pytorch_train.fused(torch.optim.AdamW, its, lr=3e-4)


def stepper(model, args, x, y):
    from torch.distributed.tensor.parallel import loss_parallel
    n_ranks = dist.get_world_size()
    logits = model
    if n_ranks > 1:
        logits = parallelize(model, dist.init_device_mesh("cpu", (n_ranks,)))
    if args.compile:
        for block in model.h:
            block.compile()
    updates = list(optimizers(model))

    def step():
        for update in updates:
            update.zero_grad(set_to_none=True)
        with loss_parallel() if n_ranks > 1 else contextlib.nullcontext():
            loss = F.cross_entropy(logits(x).flatten(0, 1), y.flatten())
            loss.backward()
        for update in updates:
            update.step()
        return loss.item()

    return step


def main():
    args = pytorch_ranks.options(
        __doc__, None, 4, 3,
        [("--compile", {"action": "store_true", "help": "torch.compile each block"})])
    args.model, args.optimizer, args.channels_last = "gpt2", "adamw", False
    pytorch_ranks.meet(args)
    torch.manual_seed(0)
    model, _, _, x, y = pytorch_train.setup(args)
    report = pytorch_ranks.measure(args, stepper(model, args, x, y))
    report["tokens_per_second"] = args.batch * args.tokens / report["step_ms"]["median"] * 1e3
    pytorch_ranks.end(args, report)


if __name__ == "__main__":
    main()
