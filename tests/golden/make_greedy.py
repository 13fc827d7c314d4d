"""Writes gpt2-greedy.txt: what PyTorch's float64 GPT-2 of README.md says after a prompt, the likeliest token each time:
the prompt's 14 tokens, 50 more, and by how much each was ahead of the second (at least). Run with a Python that has torch."""
import os

import torch

from formula import integers, parameter
from networks import GPT2

here = os.path.dirname(os.path.abspath(__file__))
model = GPT2().double().eval()
with torch.no_grad():
    for name, p in model.named_parameters():
        p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))
tokens = [int(t) for t in integers("prompt", (14,), 256)]
least = 1e9
with torch.no_grad():
    for _ in range(50):
        best = model(torch.tensor([tokens]))[0, -1].topk(2)
        least = min(least, float(best.values[0] - best.values[1]))
        tokens.append(int(best.indices[0]))
with open(os.path.join(here, "gpt2-greedy.txt"), "w") as file:
    print(*tokens, file=file)
print("ahead by", least)
