#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over gloo, as JSON: what a rank of the job computes.

Started once a rank with RANK and WORLD_SIZE set, by `weft bench ddp --peers`, or by hand:
    weft run -n 2 -- python3 pytorch_ddp.py --store /tmp/store --json report.json
One rank trains without DistributedDataParallel. A step's time is the longest of the ranks'.
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


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=pytorch_train.MODELS, default="resnet50")
    parser.add_argument("--batch", type=int, default=32, help="of each rank")
    parser.add_argument("--image", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--optimizer", choices=("sgd", "adamw"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="timed steps, after two others")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--store", help="a file to meet in, which does not exist yet")
    parser.add_argument("--json", required=True, help="rank 0 writes its report there")
    return parser.parse_args()


def pin(rank, n_ranks, n_threads):
    """A share of the cores, as weft's ranks have."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // n_ranks)
    os.sched_setaffinity(0, {cores[(rank * share + k) % len(cores)] for k in range(share)})
    torch.set_num_threads(n_threads)


def main():
    args = options()
    rank, n_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    pin(rank, n_ranks, args.threads)
    torch.manual_seed(rank)
    model, loss_of, optimizer, x, y = pytorch_train.setup(args)
    if n_ranks > 1:
        dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank,
                                world_size=n_ranks)
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)

    step = pytorch_train.stepper(model, loss_of, optimizer, x, y, args.compile)
    losses, times = [step(), step()], []
    for _ in range(args.repeat):
        if n_ranks > 1:
            dist.barrier()
        start = time.perf_counter()
        losses.append(step())
        times.append(time.perf_counter() - start)
    if n_ranks > 1:
        longest = torch.tensor(times, dtype=torch.float64)
        dist.all_reduce(longest, op=dist.ReduceOp.MAX)
        times = longest.tolist()
        dist.destroy_process_group()
    if rank:
        return
    median = statistics.median(times)
    items = args.batch * n_ranks * (args.tokens if args.model == "gpt2" else 1)
    with open(args.json, "w") as out:
        json.dump({f"{'tokens' if args.model == 'gpt2' else 'images'}_per_second": items / median,
                   "step_ms": {"median": median * 1e3, "min": min(times) * 1e3},
                   "losses": losses, "version": f"PyTorch {torch.__version__}"}, out, indent=1)


if __name__ == "__main__":
    main()
