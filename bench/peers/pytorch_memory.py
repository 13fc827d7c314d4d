#!/usr/bin/env python3
"""Memory and time of PyTorch's DDP and FSDP (fully_shard) over gloo on CPUs, as JSON.

Started once a rank with RANK and WORLD_SIZE set, by `weft bench memory --peers`, or by hand:
    weft run -n 2 -- python3 pytorch_memory.py --way fsdp --store /tmp/store --json report.json
A rank's peak is how far its resident memory in steps lies above that before the model was made.
FSDP shards each block and the rest of the model, and gathers again for backward.
"""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pytorch_train
from pytorch_ddp import pin


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--way", choices=("ddp", "fsdp", "fsdp-recompute"), default="fsdp")
    parser.add_argument("--model", choices=pytorch_train.MODELS, default="gpt2")
    parser.add_argument("--batch", type=int, default=4, help="of each rank")
    parser.add_argument("--image", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=3, help="timed steps, after two others")
    parser.add_argument("--store", help="a file to meet in, which does not exist yet")
    parser.add_argument("--json", required=True, help="rank 0 writes its report there")
    return parser.parse_args()


def resident(name):
    """VmRSS now, or VmHWM, the most so far, in bytes."""
    with open("/proc/self/status") as lines:
        for line in lines:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


def forget_peak():
    with open("/proc/self/clear_refs", "w") as control:
        control.write("5")


def blocks_of(model):
    """What is sharded, and made again, as a whole."""
    if hasattr(model, "h"):
        return list(model.h)
    return [block for k in range(1, 5) for block in getattr(model, f"layer{k}")]


def shard(model, recomputes):
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
        apply_activation_checkpointing)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    blocks = blocks_of(model)
    if recomputes:
        apply_activation_checkpointing(model, check_fn=lambda module: module in blocks)
        blocks = blocks_of(model)
    for block in blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main():
    args = options()
    args.channels_last = False
    rank, n_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    pin(rank, n_ranks, args.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank,
                            world_size=n_ranks)
    base = resident("VmRSS")
    model, loss_of, _, x, y = pytorch_train.setup(args)
    if args.way == "ddp":
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    else:
        model = shard(model, args.way == "fsdp-recompute")
    # The optimizer is of the parameters as they are sharded.
    if args.optimizer == "sgd" or (not args.optimizer and args.model != "gpt2"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    forget_peak()  # the whole model was there for a moment
    step = pytorch_train.stepper(model, loss_of, optimizer, x, y, False)
    losses, times = [step(), step()], []
    for _ in range(args.repeat):
        dist.barrier()
        start = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - start)
    longest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    peaks = [None] * n_ranks
    dist.all_gather_object(peaks, resident("VmHWM") - base)
    dist.destroy_process_group()
    if rank:
        return
    times = longest.tolist()
    with open(args.json, "w") as out:
        json.dump({"way": args.way, "peak_bytes": peaks,
                   "step_ms": {"median": statistics.median(times) * 1e3, "min": min(times) * 1e3},
                   "losses": losses, "version": f"PyTorch {torch.__version__}"}, out, indent=1)


if __name__ == "__main__":
    main()
