#!/usr/bin/env python3
"""PyTorch's time for full training steps (forward, loss, backward, update), as JSON.

ResNet-50: torchvision's, MSE against one-hot targets, SGD lr 0.001 (as in PyTorch's
model parallel tutorial). GPT-2 124M: cross-entropy over all tokens, AdamW. LSTM: two layers of
200, 10,000 words, the hidden state of a step goes into the next, SGD with clipped gradients.
Nothing is held back: fused optimizers, scaled_dot_product_attention; on a GPU cuDNN's own choice by
measuring.
"""
import argparse
import json
import resource
import statistics
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, n_embd, n_head):
        super().__init__()
        self.head_dim = n_embd // n_head
        self.ln_1, self.ln_2 = nn.LayerNorm(n_embd), nn.LayerNorm(n_embd)
        self.attn, self.attn_proj = nn.Linear(n_embd, 3 * n_embd), nn.Linear(n_embd, n_embd)
        self.fc, self.fc_proj = nn.Linear(n_embd, 4 * n_embd), nn.Linear(4 * n_embd, n_embd)

    def forward(self, x):
        b, t, _ = x.shape  # of tensor parallel ranks, each has some of the heads
        q, k, v = (y.view(b, t, -1, self.head_dim).transpose(1, 2)
                   for y in self.attn(self.ln_1(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).flatten(2))
        return x + self.fc_proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 124M, without dropout."""

    def __init__(self, n_vocab=50257, n_ctx=1024, n_embd=768, n_layer=12, n_head=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(n_vocab, n_embd), nn.Embedding(n_ctx, n_embd)
        self.h = nn.ModuleList(Block(n_embd, n_head) for _ in range(n_layer))
        self.ln_f = nn.LayerNorm(n_embd)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # the embedding is tied


class LSTM(nn.Module):
    """As in PyTorch's word_language_model, without dropout."""

    def __init__(self, n_vocab=10000, n_hidden=200, n_layer=2):
        super().__init__()
        self.encoder = nn.Embedding(n_vocab, n_hidden)
        self.rnn = nn.LSTM(n_hidden, n_hidden, n_layer, batch_first=True)
        self.decoder = nn.Linear(n_hidden, n_vocab)
        self.hidden = None
        for p in (self.encoder.weight, self.decoder.weight):
            nn.init.uniform_(p, -0.1, 0.1)

    def forward(self, ids):
        y, hidden = self.rnn(self.encoder(ids), self.hidden)
        self.hidden = tuple(h.detach() for h in hidden)
        return self.decoder(y)


def fused(optimizer, parameters, **options):
    """The fused form where this PyTorch has one for the device."""
    try:
        return optimizer(parameters, fused=True, **options)
    except (TypeError, RuntimeError):
        return optimizer(parameters, **options)


MODELS = ("resnet18", "resnet34", "resnet50", "gpt2", "lstm")


def setup(args):
    """Model, loss function, optimizer (the one asked for, if any), input, targets."""
    wanted = getattr(args, "optimizer", None)
    device = getattr(args, "device", "cpu")

    def optimize(parameters, default):
        if (wanted or default) == "adamw":
            return fused(torch.optim.AdamW, parameters, lr=3e-4)
        return fused(torch.optim.SGD, parameters, lr=0.001)

    if args.model.startswith("resnet"):
        import torchvision
        model = getattr(torchvision.models, args.model)().to(device)
        x = torch.randn(args.batch, 3, args.image, args.image, device=device)
        y = F.one_hot(torch.randint(1000, (args.batch,), device=device), 1000).float()
        optimizer = optimize(model.parameters(), "sgd")
        if args.channels_last:
            model = model.to(memory_format=torch.channels_last)
            x = x.to(memory_format=torch.channels_last)
        return model, F.mse_loss, optimizer, x, y
    is_lstm = args.model == "lstm"
    model = (LSTM() if is_lstm else GPT2()).to(device)
    n_words = 10000 if is_lstm else 50257
    x, y = torch.randint(n_words, (2, args.batch, args.tokens), device=device)
    optimizer = optimize(model.parameters(), "sgd" if is_lstm else "adamw")
    return model, lambda a, b: F.cross_entropy(a.flatten(0, 1), b.flatten()), optimizer, x, y


def stepper(model, loss_of, optimizer, x, y, compiles, clip_norm=0, dtype="f32"):
    """A function that trains one step and returns its loss; bf16 is by autocast."""
    def forward(x, y):
        with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype == "bf16"):
            return loss_of(model(x), y)

    if compiles:
        forward = torch.compile(forward)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = forward(x, y)
        loss.backward()
        if clip_norm:
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        return loss.item()

    return step


def use_device(args):
    """How F32 is multiplied there; ends where PyTorch does not reach the device."""
    if not args.device.startswith("cuda"):
        return
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} reaches no CUDA device here")
    is_tf32 = args.matmul_precision == "tf32"
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = is_tf32
    torch.backends.cudnn.benchmark = True


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--image", type=int, default=128, help="height and width, resnets")
    parser.add_argument("--tokens", type=int, default=256, help="per sample, gpt2 and lstm")
    parser.add_argument("--clip-norm", type=float, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=5, help="timed steps, after two others")
    parser.add_argument("--dtype", choices=("f32", "bf16"), default="f32")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1")
    parser.add_argument("--matmul-precision", choices=("f32", "tf32"), default="f32",
                        help="how f32 is multiplied on CUDA devices")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true", help="torch.compile model and loss")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    use_device(args)
    model, loss_of, optimizer, x, y = setup(args)

    step = stepper(model, loss_of, optimizer, x, y, args.compile, args.clip_norm, args.dtype)
    start = time.perf_counter()
    losses = [step()]
    first = time.perf_counter() - start
    losses.append(step())
    times, cpu_times, faults = [], [], resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(args.repeat):
        start, cpu_start = time.perf_counter(), time.process_time()
        losses.append(step())
        times.append(time.perf_counter() - start)
        cpu_times.append(time.process_time() - cpu_start)
    usage = resource.getrusage(resource.RUSAGE_SELF)

    is_gpu = x.device.type == "cuda"
    median = statistics.median(times)
    unit, n = ("images", args.batch) if args.model.startswith("resnet") else \
        ("tokens", args.batch * args.tokens)
    json.dump({
        f"{unit}_per_second": n / median,
        "step_ms": {"median": median * 1e3, "min": min(times) * 1e3},
        "cpu_ms": statistics.mean(cpu_times) * 1e3,
        "first_step_ms": first * 1e3,
        "page_faults_per_step": (usage.ru_minflt - faults) / args.repeat,
        "resident_bytes": usage.ru_maxrss * 1024,
        "device_bytes": torch.cuda.max_memory_allocated() if is_gpu else 0,
        "device": torch.cuda.get_device_name() if is_gpu else "cpu",
        "losses": losses,
        "torch": torch.__version__,
    }, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
