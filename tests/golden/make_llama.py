#!/usr/bin/env python3
"""Makes tests/golden/llama and its relatives: small models of random weights as transformers saves them, and
llama.txt: for each, its loss on a text of bytes, and the bytes that follow a prompt, by transformers 5.24 and
PyTorch 2.15.

    make_llama.py FOLDER [NAME...]

With names, only these models are made anew; their lines go to standard output.
"""
import os
import shutil
import sys

import torch
import transformers

TOKENS = 16
TEXT = bytes((i * i * 7 + i // 5) % 251 for i in range(8 * TOKENS + 1))
PROMPT = b"weft"
SCALED = dict(rope_type="llama3", factor=8.0, low_freq_factor=0.5, high_freq_factor=2.0,
              original_max_position_embeddings=16)

# Sizes that differ from the usual ones; the scaled model has a frequency on each side of both limits.
MODELS = {
    "llama": ("Llama", dict(rope_theta=100.0)),
    "llama-tied": ("Llama", dict(rope_theta=5e5, num_hidden_layers=1, tie_word_embeddings=True)),
    "llama-scaled": ("Llama", dict(hidden_size=32, num_hidden_layers=1, tie_word_embeddings=True, rms_norm_eps=1e-2,
                                   rope_parameters=dict(SCALED, rope_theta=100.0))),
    "qwen2": ("Qwen2", dict(num_hidden_layers=1, tie_word_embeddings=True, rope_theta=1e6, rms_norm_eps=1e-6)),
    "mistral": ("Mistral", dict(rope_theta=100.0, sliding_window=5)),
}


def make(folder, file, name, sizes):
    torch.manual_seed(11)
    model = getattr(transformers, name + "ForCausalLM")(getattr(transformers, name + "Config")(**{**dict(
        vocab_size=256, hidden_size=16, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-5, initializer_range=0.3, bos_token_id=None,
        eos_token_id=None, tie_word_embeddings=False), **sizes}))
    for key, value in model.named_parameters():
        if key.endswith(".bias"):  # zeros are no test
            torch.nn.init.normal_(value)
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


names = sys.argv[2:]
with open(os.path.join(sys.argv[1], "llama.txt"), "w") if not names else sys.stdout as text:
    for name in names or MODELS:
        make(os.path.join(sys.argv[1], name), text, *MODELS[name])
