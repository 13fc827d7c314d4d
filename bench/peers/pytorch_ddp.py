#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel over gloo, as JSON: what a rank of the job computes.

Started once a rank with RANK and WORLD_SIZE set, by `weft bench ddp --peers`, or by hand:
    weft run -n 2 -- python3 pytorch_ddp.py --store /tmp/store --json report.json
One rank trains without DistributedDataParallel. A step's time is the longest of the ranks'.
"""
import torch
from torch.nn.parallel import DistributedDataParallel

import pytorch_ranks
import pytorch_train


def main():
    args = pytorch_ranks.options(__doc__, "resnet50", 32, 5,
                                 [("--channels-last", {"action": "store_true"}),
                                  ("--compile", {"action": "store_true"})])
    pytorch_ranks.meet(args)
    torch.manual_seed(args.rank)
    model, loss_of, optimizer, x, y = pytorch_train.setup(args)
    if args.n_ranks > 1:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    report = pytorch_ranks.measure(
        args, pytorch_train.stepper(model, loss_of, optimizer, x, y, args.compile))
    unit, size = ("tokens", args.tokens) if args.model == "gpt2" else ("images", 1)
    report[f"{unit}_per_second"] = \
        args.batch * args.n_ranks * size / report["step_ms"]["median"] * 1e3
    pytorch_ranks.end(args, report)


if __name__ == "__main__":
    main()
