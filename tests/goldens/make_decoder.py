#!/usr/bin/env python3
"""Writes goldens of text generation from transformers: decoder_gpt2.safetensors, a small GPT2LMHeadModel in the layout that
Hugging Face published gpt2 in ("transformer." before the names, masks beside the parameters), and decoder.safetensors, what
it makes of tokens: logits in f64 of every prefix, and generate(do_sample=False).

    make_decoder.py [--out DIR] [--check]

--check recomputes and compares instead of writing.
"""

import argparse
import os

import numpy as np
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from safetensors_file import load, save

WEIGHTS, FILE = "decoder_gpt2.safetensors", "decoder.safetensors"
LAYERS, HEADS, WIDTH, POSITIONS, VOCABULARY = 2, 2, 16, 24, 37
TEXTS, LENGTH, PROMPT = 2, 20, 5


def model():
    torch.manual_seed(5)
    config = GPT2Config(n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=POSITIONS, vocab_size=VOCABULARY,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=0, eos_token_id=None, pad_token_id=0,
                        attn_implementation="eager")
    network = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for name, p in network.named_parameters():
            p.copy_(torch.randn_like(p) * (0.3 if p.dim() > 1 else 0.1) + (1 if "ln" in name and "weight" in name else 0))
    return network


def layout(network):
    """As the file on the hub has it."""
    tensors = {}
    for name, value in network.state_dict().items():
        if name != "lm_head.weight":
            tensors[name] = value.numpy()
    mask = np.tril(np.ones((1, 1, POSITIONS, POSITIONS), np.float32))
    for i in range(LAYERS):
        tensors[f"transformer.h.{i}.attn.bias"] = mask
        tensors[f"transformer.h.{i}.attn.masked_bias"] = np.float32(-1e4).reshape(())
    return tensors


def golden(network):
    generator = torch.Generator().manual_seed(7)
    tokens = torch.randint(VOCABULARY, (TEXTS, LENGTH), generator=generator)
    double = model().double()
    double.load_state_dict(network.state_dict())
    with torch.no_grad():
        logits = double(tokens).logits
        made = double.generate(tokens[:, :PROMPT], do_sample=False, max_new_tokens=POSITIONS - PROMPT,
                               attention_mask=torch.ones(TEXTS, PROMPT, dtype=torch.int64))
        # What is chosen must not depend on rounding.
        top = double(made).logits.topk(2, -1)[0]
        margin = (top[..., 0] - top[..., 1])[:, PROMPT - 1:-1].min().item()
    assert margin > 1e-3, margin
    return {"tokens": tokens.int().numpy(), "logits": logits.numpy(), "generated": made.int().numpy()}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    network = model()
    for file, tensors in ((WEIGHTS, layout(network)), (FILE, golden(network))):
        path = os.path.join(options.out, file)
        if not options.check:
            save(path, tensors, {"format": "pt"})
            continue
        stored = load(path)
        stored = stored[0] if isinstance(stored, tuple) else stored
        assert set(stored) == set(tensors), file
        for name, value in tensors.items():
            assert np.allclose(stored[name], value, rtol=1e-12, atol=1e-12), (file, name)


if __name__ == "__main__":
    main()
