#!/usr/bin/env python3
"""PyTorch's all-reduce over gloo, as `weft bench allreduce --peers` times it: floats in place,
checked once, then as many calls as fit into 20 ms, at least one; the longest time of the ranks.

Started once a rank with RANK and WORLD_SIZE set, as `weft run -n 2` does.
"""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist

BUDGET_US, MOST_CALLS = 20000, 4096


def timed(x, n_calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n_calls):
        dist.all_reduce(x)
    us = torch.tensor((time.perf_counter() - start) * 1e6 / n_calls, dtype=torch.float64)
    dist.all_reduce(us, op=dist.ReduceOp.MAX)
    return us.item()


def measure(n_bytes):
    rank, n_ranks = dist.get_rank(), dist.get_world_size()
    known = (torch.arange(n_bytes // 4) % 251).float()
    x = known + rank
    dist.all_reduce(x)
    if not torch.equal(x, n_ranks * known + n_ranks * (n_ranks - 1) // 2):
        raise SystemExit(f"gloo's sum of {n_bytes} bytes is wrong")
    x.zero_()
    dist.all_reduce(x)
    us = timed(x, 1)
    if us < BUDGET_US / 16:
        us = timed(x, 8)
    return timed(x, min(MOST_CALLS, math.ceil(BUDGET_US / us)))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bytes", required=True, help="list of sizes")
    parser.add_argument("--store", required=True, help="a file to meet in, which does not exist yet")
    parser.add_argument("--json", required=True, help="rank 0 writes its report there")
    args = parser.parse_args()
    rank, n_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // n_ranks
    if share:
        os.sched_setaffinity(0, set(cores[rank * share:(rank + 1) * share]))
    torch.set_num_threads(max(1, share))
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=rank,
                            world_size=n_ranks)
    rows = [{"bytes": int(n), "time_us": measure(int(n))} for n in args.bytes.split(",")]
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        with open(args.json, "w") as out:
            json.dump({"rows": rows, "version": f"PyTorch {torch.__version__}"}, out)


if __name__ == "__main__":
    main()
