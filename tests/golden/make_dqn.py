"""Writes dqn.txt: what PyTorch's float64 DQN (4 numbers, two hidden layers of 16, two actions) loses in 50 steps of AdamW by
Huber's loss on 32 transitions each, with a target network that is given the weights before every tenth step; README.md has
the formula of weights and transitions. Then the norm of each parameter, in the order of their names. Run with a Python that
has torch."""
import os

import torch
from torch import nn
from torch.nn import functional as F

from formula import integers, parameter, uniform

BATCH, STEPS, COPY_EVERY, GAMMA = 32, 50, 10, 0.99


def network():
    model = nn.Sequential()
    for number, (n_in, n_out) in enumerate([(4, 16), (16, 16), (16, 2)]):
        model.add_module(f"layer{number + 1}", nn.Linear(n_in, n_out))
        if number < 2:
            model.add_module(f"relu{number + 1}", nn.ReLU())
    return model.double()


def main():
    policy, target = network(), network()
    with torch.no_grad():
        for name, p in policy.named_parameters():
            p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.01, weight_decay=0.01)
    s = torch.from_numpy(uniform("state", (STEPS, BATCH, 4), 2)).double()
    following = torch.from_numpy(uniform("next", (STEPS, BATCH, 4), 2)).double()
    action = torch.from_numpy(integers("action", (STEPS, BATCH), 2)).long()
    is_end = torch.from_numpy(integers("end", (STEPS, BATCH), 5)) == 0
    losses = []
    for step in range(STEPS):
        if step % COPY_EVERY == 0:
            target.load_state_dict(policy.state_dict())
        with torch.no_grad():
            best = target(following[step]).max(1).values
        wanted = 1 + GAMMA * torch.where(is_end[step], 0.0, best)
        loss = F.smooth_l1_loss(policy(s[step]).gather(1, action[step][:, None])[:, 0], wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dqn.txt")
    with open(path, "w", encoding="ascii") as file:
        for loss in losses:
            print(f"{loss:.12f}", file=file)
        for name, p in sorted(policy.named_parameters()):
            print(f"{name} {p.norm().item():.12f}", file=file)


main()
