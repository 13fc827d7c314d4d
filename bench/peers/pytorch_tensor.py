#!/usr/bin/env python3
"""Training steps of GPT-2 124M under PyTorch's tensor parallelism (DTensor) over gloo, as JSON.

Started once a rank with RANK and WORLD_SIZE set, by bench/tensor_vs_pytorch, or by hand:
    weft run -n 2 -- python3 pytorch_tensor.py --store /tmp/store --json report.json
As PyTorch's documentation does it: attention and MLP by columns, then by rows; the tied embedding
and the loss over parts of the vocabulary. One rank computes without DTensor.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn import functional as F

import pytorch_train
from pytorch_ddp import pin


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="timed steps, after two others")
    parser.add_argument("--compile", action="store_true", help="torch.compile each block")
    parser.add_argument("--store", help="a file to meet in, which does not exist yet")
    parser.add_argument("--json", required=True, help="rank 0 writes its report there")
    return parser.parse_args()


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
    import contextlib
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
    args = options()
    args.model, args.optimizer, args.channels_last = "gpt2", "adamw", False
    rank, n_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    pin(rank, n_ranks, args.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank,
                            world_size=n_ranks)
    model, _, _, x, y = pytorch_train.setup(args)
    step = stepper(model, args, x, y)
    losses, times, cpu = [step(), step()], [], []
    for _ in range(args.repeat):
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(step())
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    longest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    total = torch.tensor(cpu, dtype=torch.float64)
    dist.all_reduce(total)
    dist.destroy_process_group()
    if rank:
        return
    times = longest.tolist()
    with open(args.json, "w") as out:
        json.dump({"tokens_per_second": args.batch * args.tokens / statistics.median(times),
                   "step_ms": {"median": statistics.median(times) * 1e3, "min": min(times) * 1e3},
                   "cpu_ms": total.mean().item() * 1e3, "losses": losses,
                   "version": f"PyTorch {torch.__version__}"}, out, indent=1)


if __name__ == "__main__":
    main()
