#!/usr/bin/env python3
"""Makes tests/golden/llama and llama-tied: small Llamas of random weights as transformers saves them, and
llama.txt: for each, its loss on a text of bytes, and the bytes that follow a prompt, by transformers 5.24 and
PyTorch 2.15.

    make_llama.py FOLDER
"""
import os
import shutil
import sys

import torch
import transformers

TOKENS = 16
TEXT = bytes((i * i * 7 + i // 5) % 251 for i in range(8 * TOKENS + 1))
PROMPT = b"weft"


def make(folder, file, is_tied, n_layers, theta):
    torch.manual_seed(11)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=256, hidden_size=16, intermediate_size=40, num_hidden_layers=n_layers, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, rope_theta=theta,
        initializer_range=0.3, bos_token_id=None, eos_token_id=None, tie_word_embeddings=is_tied))
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "generation_config.json"))
    model = model.double()
    tokens = torch.tensor(list(TEXT))
    x, y = tokens[:-1].view(-1, TOKENS), tokens[1:].view(-1, TOKENS)
    with torch.no_grad():
        loss = torch.nn.functional.cross_entropy(model(x).logits.reshape(-1, 256), y.reshape(-1)).item()
        answer = list(PROMPT)
        for _ in range(12):
            answer.append(model(torch.tensor([answer])).logits[0, -1].argmax().item())
    print(os.path.basename(folder), f"{loss:.9f}", *answer[len(PROMPT):], file=file)


with open(os.path.join(sys.argv[1], "llama.txt"), "w") as text:
    make(os.path.join(sys.argv[1], "llama"), text, False, 2, 100.0)
    make(os.path.join(sys.argv[1], "llama-tied"), text, True, 1, 5e5)
