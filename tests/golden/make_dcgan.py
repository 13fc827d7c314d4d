"""Writes dcgan.txt: the losses of PyTorch's float64 DCGAN, small (16 x 16 images of one channel, 8 numbers of noise), in 50 steps of
Adam: of the discriminator, of the generator, a line each. README.md has the formula of weights (of convolutions a quarter is
taken), images and noise. Run with a Python that has torch."""
import os

import torch
from torch import nn
from torch.nn import functional as F

from formula import parameter, uniform

BATCH, STEPS, NOISE, WIDTH = 8, 50, 8, 8


class Transposed(nn.Module):
    """Channels in [in, out, k, k], as ConvTranspose2d; only its weight."""
    def __init__(self, n_in, n_out, stride, pad):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(n_in, n_out, 4, 4))
        self.how = (None, stride, pad)

    def forward(self, x):
        return F.conv_transpose2d(x, self.weight, *self.how)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = Transposed(NOISE, 2 * WIDTH, 1, 0), nn.BatchNorm2d(2 * WIDTH)
        self.conv2, self.bn2 = Transposed(2 * WIDTH, WIDTH, 2, 1), nn.BatchNorm2d(WIDTH)
        self.conv3 = Transposed(WIDTH, 1, 2, 1)

    def forward(self, z):
        x = F.relu(self.bn1(self.conv1(z)))
        return torch.tanh(self.conv3(F.relu(self.bn2(self.conv2(x)))))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, WIDTH, 4, 2, 1, bias=False)
        self.conv2, self.bn2 = nn.Conv2d(WIDTH, 2 * WIDTH, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * WIDTH)
        self.conv3 = nn.Conv2d(2 * WIDTH, 1, 4, bias=False)

    def forward(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        return self.conv3(F.leaky_relu(self.bn2(self.conv2(x)), 0.2)).flatten()


def main():
    g, d = Generator().double(), Discriminator().double()
    with torch.no_grad():
        for prefix, model in (("g.", g), ("d.", d)):
            for name, p in model.named_parameters():
                p.copy_(torch.from_numpy(parameter(prefix + name, tuple(p.shape))) * (0.25 if p.dim() == 4 else 1))
    of_g, of_d = (torch.optim.Adam(m.parameters(), lr=0.0002, betas=(0.5, 0.999)) for m in (g, d))
    images = torch.from_numpy(uniform("image", (STEPS, BATCH, 1, 16, 16))).double()
    noise = torch.from_numpy(uniform("noise", (STEPS, BATCH, NOISE, 1, 1))).double()
    one, zero = torch.ones(BATCH).double(), torch.zeros(BATCH).double()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcgan.txt")
    with open(path, "w", encoding="ascii") as file:
        for step in range(STEPS):
            d.zero_grad()
            made = g(noise[step])
            loss_d = F.binary_cross_entropy_with_logits(d(images[step]), one)
            loss_d = loss_d + F.binary_cross_entropy_with_logits(d(made.detach()), zero)
            loss_d.backward()
            of_d.step()
            g.zero_grad()
            loss_g = F.binary_cross_entropy_with_logits(d(made), one)
            loss_g.backward()
            of_g.step()
            print(f"{loss_d.item():.12f}\n{loss_g.item():.12f}", file=file)


main()
