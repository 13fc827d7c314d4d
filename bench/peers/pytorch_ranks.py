"""Peers that are started once a rank, with RANK and WORLD_SIZE set, as `weft run -n 2` does: their
options, their meeting over gloo, and the times of their steps, the longest of the ranks'."""
import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist

import pytorch_train


def options(doc, model, batch, repeat, more=()):
    """`model`: the usual one; None: there is no choice. `more`: options and their arguments."""
    parser = argparse.ArgumentParser(description=doc,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    if model:
        parser.add_argument("--model", choices=pytorch_train.MODELS, default=model)
        parser.add_argument("--image", type=int, default=128)
        parser.add_argument("--optimizer", choices=("sgd", "adamw"))
    parser.add_argument("--batch", type=int, default=batch, help="of each rank")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=repeat, help="timed steps, after two others")
    for name, arguments in more:
        parser.add_argument(name, **arguments)
    parser.add_argument("--store", help="a file to meet in, which does not exist yet")
    parser.add_argument("--json", required=True, help="rank 0 writes its report there")
    args = parser.parse_args()
    args.rank, args.n_ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    return args


def meet(args):
    """Takes a share of the cores, as weft's ranks have, and joins the others."""
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // args.n_ranks)
    os.sched_setaffinity(0, {cores[(args.rank * share + k) % len(cores)] for k in range(share)})
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", rank=args.rank,
                            world_size=args.n_ranks)


def gather(args, value):
    """A value of each rank, in a list."""
    values = [None] * args.n_ranks
    dist.all_gather_object(values, value)
    return values


def measure(args, step):
    """Figures of the steps, the same on all ranks. CPU time is of all ranks."""
    losses, times, cpu = [step(), step()], [], []
    for _ in range(args.repeat):
        dist.barrier()
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(step())
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    times = [max(each) * 1e3 for each in zip(*gather(args, times))]
    cpu = [sum(each) * 1e3 for each in zip(*gather(args, cpu))]
    return {"step_ms": {"median": statistics.median(times), "min": min(times)},
            "cpu_ms": statistics.mean(cpu), "losses": losses,
            "version": f"PyTorch {torch.__version__}"}


def end(args, report):
    dist.destroy_process_group()
    if args.rank == 0:
        with open(args.json, "w") as out:
            json.dump(report, out, indent=1)
