"""Writes average.txt: PyTorch's moving average (AveragedModel with get_ema_multi_avg_fn) of a vector of seven
(`optimizer.weight`, scale 1) over 20 steps with the gradients `optimizer.grad.0` ... `.19` (scale 1), in float64: a line
for each case and step, with the case's name, the step, and the seven numbers. Run with a Python that has torch."""
import os

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import formula

CASES = {"sgd": (torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01), 0.9),
         "adamw": (torch.optim.AdamW, dict(lr=0.01, weight_decay=0.01), 0.999),
         "short": (torch.optim.SGD, dict(lr=0.1), 0.25)}


class Vector(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(formula.uniform("optimizer.weight", 7)).double())


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "average.txt"), "w") as file:
        for name, (optimizer, options, decay) in CASES.items():
            model = Vector()
            averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))
            o = optimizer(model.parameters(), **options)
            for step in range(20):
                model.weight.grad = torch.from_numpy(formula.uniform(f"optimizer.grad.{step}", 7)).double()
                o.step()
                averaged.update_parameters(model)
                print(name, step, *(f"{x:.17g}" for x in averaged.module.weight.tolist()), file=file)


main()
