"""Writes ops.txt: of single ops what PyTorch computes in float64, of x = `op.x` (4 x 5, scale 3), b = `op.b` (the same) and
the index 0, 3, 1, 4: a line for each, with its name, its result, and the gradient of x, where the result's elements count
by `op.weight` (scale 1). Targets of the binary cross entropy are (b + 3) / 6. Run with a Python that has torch."""
import os

import torch
from torch.nn import functional as F

import formula


def uniform(name, *shape, scale=1.0):
    n = 1
    for d in shape:
        n *= d
    return torch.from_numpy(formula.uniform(name, n)).double().reshape(shape) * scale


OPS = {"binary_cross_entropy": lambda x, b, i: F.binary_cross_entropy_with_logits(x, (b + 3) / 6, reduction="none").mean(1),
       "smooth_l1": lambda x, b, i: F.smooth_l1_loss(x, b, reduction="none").mean(1),
       "huber": lambda x, b, i: F.huber_loss(x, b, reduction="none").mean(1),
       "gather": lambda x, b, i: x.gather(1, i[:, None])[:, 0],
       "leaky_relu": lambda x, b, i: F.leaky_relu(x, 0.2),
       "conv_transpose2d": lambda x, b, i: F.conv_transpose2d(x.reshape(1, 2, 2, 5), b.reshape(2, 1, 5, 2), stride=2, padding=1),
       "dilated_conv2d": lambda x, b, i: F.conv2d(x.reshape(1, 1, 4, 5), b.reshape(5, 1, 2, 2), padding=1, dilation=2),
       "dilated_transpose": lambda x, b, i: F.conv_transpose2d(x.reshape(1, 2, 2, 5), b.reshape(2, 1, 5, 2), padding=2, groups=2,
                                                               dilation=3)}


def main():
    folder = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(folder, "ops.txt"), "w") as file:
        for name, op in OPS.items():
            x = uniform("op.x", 4, 5, scale=3.0).requires_grad_()
            y = op(x, uniform("op.b", 4, 5, scale=3.0), torch.tensor([0, 3, 1, 4]))
            (y.flatten() * uniform("op.weight", y.numel())).sum().backward()
            print(name, *(f"{v:.17g}" for v in [*y.flatten().tolist(), *x.grad.flatten().tolist()]), file=file)


main()
