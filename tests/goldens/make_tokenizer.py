#!/usr/bin/env python3
"""Writes tokenizer/: a small byte-level BPE vocabulary, trained here by PyPI's `tokenizers` with GPT-2's
pre-tokenisation, and what `tokenizers` and `tiktoken` make of texts with it.

    pip install tokenizers==0.23.3 tiktoken==0.14.0
    python3 make_tokenizer.py
"""
import json
import os
import random

import tiktoken
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tokenizer")
PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

SENTENCES = """The quick brown fox jumps over the lazy dog, and the dog doesn't care.
We'll see what they've done; it's 42 degrees in 1999, isn't it? I'd say I'm sure you're right.
A kernel reads its arguments, computes, and writes; the host waits for the device.
Der Bär läuft über die Brücke. Où est la bibliothèque? El niño comió mañana.
Съешь же ещё этих мягких французских булок. 私は毎日本を読みます。 你好，世界！ 안녕하세요
for (int i = 0; i < n; i++) { sum += x[i] * y[i]; }  // a product
    return  sum   /   (double)n;
"""

CASES = [
    "", " ", "  ", "a", "Hello world", " Hello  world ", "the the the", "it's they'll WE'LL I'Ve 's 'll",
    "'", "''s", " 's", "don't", "x'y", "1234567890 12a34 ½ ² ٣ Ⅷ ፩", "a\nb\r\nc\t\td \n  \n e", "   x", "\n\n\nx",
    "x   ", "x \n", "!?...,;:", " !?", "a!b ?c", "é è ü ñ", "e\u0301", "日本語 テスト", "안녕 세계",
    "😀 😀👍🏽 🇩🇪", "\u00a0x\u00a0\u00a0y", "\u2003a\u3000b", "\u200bzero\u200bwidth", "\u180ea b\u180e c",
    "a\u0085b", "\x00\x01\x1c\x1d\x7f", "a\x1cb \x1f c", "\ufeffbom", "\U0001d518\U0001d7d8", "<|endoftext|>",
    "ſtrange ǅ ʰ ª º", "क्षत्रिय", "ไทย", "العربية ١٢٣", "x" * 300, "ab" * 200, " " * 100, "the" * 150 + "!",
    "\n" * 50 + "end", "'S 'T 'RE", "_under_score__ a_b", "http://x.org/?q=1&r=2#f", "3.14e-10",
]


def main():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=640, special_tokens=[], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(SENTENCES.split("\n") * 3, trainer)
    os.makedirs(FOLDER, exist_ok=True)
    tokenizer.model.save(FOLDER)
    path = os.path.join(FOLDER, "vocab.json")
    with open(path, encoding="utf-8") as file:
        vocabulary = json.load(file)
    vocabulary["<|endoftext|>"] = len(vocabulary)  # GPT-2's is its last one too
    with open(path, "w", encoding="utf-8") as file:
        json.dump(vocabulary, file, ensure_ascii=False)

    printed = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or b >= 174]
    others = [b for b in range(256) if b not in printed]
    bytes_of = {chr(b): b for b in printed} | {chr(256 + i): b for i, b in enumerate(others)}
    ranks = {bytes(bytes_of[c] for c in token): number for token, number in vocabulary.items()
             if token != "<|endoftext|>"}
    # tiktoken takes a token's number for its merge's rank: they agree where merges were numbered in order.
    second = tiktoken.Encoding("small", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens={})

    generator = random.Random(1)
    letters = SENTENCES + " \n\t'0123\u00a0\u2028é日😀"
    cases = CASES + SENTENCES.split("\n") + [SENTENCES]
    cases += ["".join(generator.choice(letters) for _ in range(generator.randrange(1, 60))) for _ in range(150)]
    rows = []
    for text in cases:
        ids = tokenizer.encode(text).ids
        assert ids == second.encode_ordinary(text), text
        assert second.decode(ids) == text
        rows.append({"text": text, "ids": ids})
    with open(os.path.join(FOLDER, "cases.json"), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print(f"{len(vocabulary)} tokens, {len(rows)} texts, {sum(len(r['ids']) for r in rows)} tokens in them")


main()
