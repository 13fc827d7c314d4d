"""Writes lstm.txt: what PyTorch's float64 LSTM of two layers (16 hidden, an embedding of 12, 20 words; README.md has the
formula of weights and words) loses in six steps of SGD with clipped gradients, 4 streams of 5 words a batch, where the
hidden state goes from batch to batch and begins with zeros again at the fourth; then the norm of each parameter, in
the order of their names. Run with a Python that has torch."""
import os

import torch
from torch import nn
from torch.nn import functional as F

from formula import integers, parameter

WORDS, EMBEDDING, HIDDEN, STREAMS, TOKENS, STEPS = 20, 12, 16, 4, 5, 6
LR, CLIP = 2.0, 0.25


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Embedding(WORDS, EMBEDDING)
        self.rnn = nn.LSTM(EMBEDDING, HIDDEN, 2, batch_first=True)
        self.decoder = nn.Linear(HIDDEN, WORDS)

    def forward(self, ids, hidden):
        y, hidden = self.rnn(self.encoder(ids), hidden)
        return self.decoder(y), hidden


def main():
    model = Model().double()
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(torch.from_numpy(parameter(name, tuple(p.shape))))
    words = torch.from_numpy(integers("words", (STREAMS, STEPS * TOKENS + 1), WORDS))
    losses, hidden = [], None
    for step in range(STEPS):
        first = step * TOKENS
        if step == 3:
            hidden = None
        logits, hidden = model(words[:, first:first + TOKENS], hidden)
        hidden = tuple(h.detach() for h in hidden)
        loss = F.cross_entropy(logits.flatten(0, 1), words[:, first + 1:first + TOKENS + 1].flatten())
        model.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        with torch.no_grad():
            for p in model.parameters():
                p -= LR * p.grad
        losses.append(loss.item())
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lstm.txt")
    with open(path, "w", encoding="ascii") as file:
        for loss in losses:
            print(f"{loss:.12f}", file=file)
        for name, p in sorted(model.named_parameters()):
            print(f"{name} {p.norm().item():.12f}", file=file)


main()
