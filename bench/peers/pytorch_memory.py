#!/usr/bin/env python3
"""Memory and time of PyTorch's DDP and FSDP (fully_shard) over gloo on CPUs, as JSON.

Started once a rank with RANK and WORLD_SIZE set, by `weft bench memory --peers`, or by hand:
    weft run -n 2 -- python3 pytorch_memory.py --way fsdp --store /tmp/store --json report.json
A rank's peak is how far its resident memory in steps lies above that before the model was made.
FSDP shards each block and the rest of the model, and gathers again for backward.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pytorch_ranks
import pytorch_train


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
    args = pytorch_ranks.options(
        __doc__, "gpt2", 4, 3,
        [("--way", {"choices": ("ddp", "fsdp", "fsdp-recompute"), "default": "fsdp"})])
    args.channels_last = False
    pytorch_ranks.meet(args)
    torch.manual_seed(0)
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
    report = pytorch_ranks.measure(
        args, pytorch_train.stepper(model, loss_of, optimizer, x, y, False))
    report["way"] = args.way
    report["peak_bytes"] = pytorch_ranks.gather(args, resident("VmHWM") - base)
    pytorch_ranks.end(args, report)


if __name__ == "__main__":
    main()
