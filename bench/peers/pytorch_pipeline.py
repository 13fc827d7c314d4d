#!/usr/bin/env python3
"""PyTorch's time for the experiment of its model parallel tutorial, as JSON.

A ResNet-50 (torchvision's) trains on batches of random images against random one-hot targets:
MSE, SGD lr 0.001. `--schedule none`: one process, in microbatches of --split images (eager,
gradients added up). Else two processes, a stage, a core and a thread each, joined by gloo:
torch.distributed.pipelining's GPipe or 1F1B; the block --cut begins the second stage. What is
drawn is drawn before anything is timed; a batch goes before, untimed.
"""
import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torchvision
from torch import distributed, multiprocessing, nn
from torch.nn import functional as F

N_CLASSES = 1000


def options():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedule", choices=("none", "gpipe", "1f1b"), default="none")
    parser.add_argument("--split", type=int, default=20, help="images in a microbatch")
    parser.add_argument("--cut", default="layer3", metavar="BLOCK",
                        help="such as layer3 or layer2.3 (default: %(default)s)")
    parser.add_argument("--model", default="resnet50", choices=("resnet18", "resnet50"))
    parser.add_argument("--batch", type=int, default=120)
    parser.add_argument("--image", type=int, default=128, help="height and width")
    parser.add_argument("--batches", type=int, default=3, help="timed ones")
    parser.add_argument("--cores", default="", metavar="LIST", help="one a process, such as 0,1")
    parser.add_argument("--channels-last", action="store_true")
    args = parser.parse_args()
    if args.batch % args.split:
        parser.error(f"--split {args.split} does not divide --batch {args.batch}")
    return args


def blocks_of(args):
    """The model as a list of (name, module), to be cut anywhere."""
    model = getattr(torchvision.models, args.model)(num_classes=N_CLASSES)
    blocks = [("stem", nn.Sequential(model.conv1, model.bn1, model.relu, model.maxpool))]
    for name in ("layer1", "layer2", "layer3", "layer4"):
        blocks += [(f"{name}.{i}", block) for i, block in enumerate(getattr(model, name))]
    blocks.append(("head", nn.Sequential(model.avgpool, nn.Flatten(), model.fc)))
    return blocks


class Layout(torch.autograd.Function):
    """What goes between stages is laid out plainly, as gloo wants it; in them channels come last."""

    @staticmethod
    def forward(ctx, x, there, back):
        ctx.back = back
        return x.contiguous(memory_format=there)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.contiguous(memory_format=ctx.back), None, None


class Stage(nn.Module):
    def __init__(self, rank, module, channels_last):
        super().__init__()
        self.rank, self.module, self.channels_last = rank, module, channels_last

    def forward(self, x):
        plain, last = torch.contiguous_format, torch.channels_last
        if not self.channels_last:
            return self.module(x)
        if self.rank == 0:
            return Layout.apply(self.module(x), plain, last)
        return self.module(Layout.apply(x, last, plain))


def stages_of(args):
    blocks = blocks_of(args)
    cut = [i for i, (name, _) in enumerate(blocks)
           if name == args.cut or name.startswith(args.cut + ".")]
    if not cut or not cut[0]:
        sys.exit(f"--cut {args.cut}: there are {', '.join(name for name, _ in blocks[1:])}")
    modules = [module for _, module in blocks]
    return nn.Sequential(*modules[:cut[0]]), nn.Sequential(*modules[cut[0]:])


def formatted(args, what):
    return what.to(memory_format=torch.channels_last) if args.channels_last else what


def draw(args):
    """Batches of images and targets; the first is not timed."""
    xs = [formatted(args, torch.randn(args.batch, 3, args.image, args.image))
          for _ in range(args.batches + 1)]
    ys = [F.one_hot(torch.randint(N_CLASSES, (args.batch,)), N_CLASSES).float() for _ in xs]
    return xs, ys


def optimizer_of(module):
    return torch.optim.SGD(module.parameters(), lr=0.001, fused=True)


def measure(args, step, meet):
    """Seconds of each batch, after an untimed one. `meet`: waits for the other process."""
    seconds = []
    for n in range(args.batches + 1):
        meet()
        start = time.perf_counter()
        step(n)
        meet()
        seconds.append(time.perf_counter() - start)
    return seconds[1:]


def prepare(args, rank):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    cores = [int(core) for core in args.cores.split(",") if core]
    if rank < len(cores):
        os.sched_setaffinity(0, {cores[rank]})


def run_single(args):
    prepare(args, 0)
    model = formatted(args, nn.Sequential(*(module for _, module in blocks_of(args))))
    optimizer = optimizer_of(model)
    xs, ys = draw(args)
    losses = []

    def step(n):
        optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for x, y in zip(xs[n].split(args.split), ys[n].split(args.split)):
            loss = F.mse_loss(model(x), y) * (args.split / args.batch)
            loss.backward()
            total += loss.item()
        optimizer.step()
        losses.append(total)

    return measure(args, step, lambda: None), losses


def run_stage(rank, args, folder):
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
    prepare(args, rank)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank,
                                   world_size=2)
    module = Stage(rank, formatted(args, stages_of(args)[rank]), args.channels_last)
    optimizer = optimizer_of(module)
    xs, ys = draw(args)
    stage = PipelineStage(module, rank, 2, torch.device("cpu"))
    kind = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[args.schedule]
    schedule = kind(stage, args.batch // args.split, loss_fn=F.mse_loss)
    losses = []

    def step(n):
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(xs[n])
        else:
            parts = []
            schedule.step(target=ys[n], losses=parts, return_outputs=False)
            losses.append(torch.stack(parts).mean().item())
        optimizer.step()

    seconds = measure(args, step, distributed.barrier)
    if rank == 1:
        with open(f"{folder}/result", "w") as file:
            json.dump([seconds, losses], file)
    distributed.destroy_process_group()


def run_pipeline(args):
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run_stage, (args, folder), nprocs=2)
        with open(f"{folder}/result") as file:
            return json.load(file)


def main():
    args = options()
    seconds, losses = run_single(args) if args.schedule == "none" else run_pipeline(args)
    median = statistics.median(seconds)
    json.dump({
        "schedule": args.schedule,
        "split": args.split,
        "cut": args.cut if args.schedule != "none" else "",
        "images_per_second": args.batch / median,
        "step_ms": {"median": median * 1e3, "min": min(seconds) * 1e3},
        "losses": losses,
        "torch": torch.__version__,
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
