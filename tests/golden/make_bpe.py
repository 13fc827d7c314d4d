"""Makes tests/golden/bpe with Hugging Face's tokenizers (pip install tokenizers): a small byte-level BPE,
learnt from the texts below, as vocab.json and merges.txt and as tokenizer.json, and what it makes of
texts that are hard: cases.txt has in turn a text as JSON, and its tokens."""
import json
import os
import random
import sys

from tokenizers import ByteLevelBPETokenizer

here = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bpe")
os.makedirs(here, exist_ok=True)
lines = [
    "On a loom the warp stands still and the weft is the thread that is carried across.",
    "It's what we're told; they've said I'd go, you'll see, don't and can't, 's 't 're 've 'm 'll 'd.",
    "In 1998 there were 12 345 of 3.14159, ½ and ² and Ⅷ, at 10:34 (UTC+2).",
    "Die Größe der Straße, l'été à Zürich, ça va? Привет, мир! 你好，世界。 こんにちは",
    "for (int i = 0; i < n; i++) {\n    sum += x[i] * y[i];\n}\t\treturn sum;  // done",
    "the the the thread threads threading then there their they",
]
learner = ByteLevelBPETokenizer()
learner.train_from_iterator(lines * 3, vocab_size=256 + 300, min_frequency=2, special_tokens=["<|endoftext|>"])
learner.save_model(here)
learner.save(os.path.join(here, "tokenizer.json"), pretty=False)

texts = lines + [
    "", " ", "  ", "   a", "a   ", "a \n b", "\n\n\n", "\r\n x\r\n", "\t\ta", " \u00a0x", "x\u00a0\u00a0y", "\u2003\u2003z",
    "\u180ex \u180e", "\x1c\x1d a", "\u0085b", "\u200bzero width", "\ufeffBOM",
    "I'M 'S 's's'st 'LL 'll've", "don’t", "it''s", "'", "''", "' s",
    "naïve café e\u0301 \u0301", "١٢٣ ४५", "a1b2 c3", "_x __y", "a_b", "!!!???", " !? !", "<|endoftext|>",
    "one<|endoftext|>two <|endoftext|> three", "<|endoftext", "<|endoftext|><|endoftext|>", "😀 👩‍👩‍👧 🇩🇪!", "\U0010ffff\U00010000",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐐷", "a" * 300, " " * 50 + "end", "ab" * 100, "the" * 60, "\x00\x01\x7f", "ﬁ ﬂ Å", "日本語のテキスト", "ไทย", "हिन्दी",
]
draw = random.Random(1)
pool = list("ab 's  \n\tthre1½é你😀.,_") + ["the", " the", "'t", "\u00a0", "\u0301"]
texts += ["".join(draw.choice(pool) for _ in range(draw.randint(1, 60))) for _ in range(120)]
with open(os.path.join(here, "cases.txt"), "w") as out:
    for text in texts:
        encoded = learner.encode(text)
        assert learner.decode(encoded.ids, skip_special_tokens=False) == text, text
        out.write(json.dumps(text) + "\n" + json.dumps(encoded.ids) + "\n")
print(len(texts), "texts,", learner.get_vocab_size(), "tokens", file=sys.stderr)
