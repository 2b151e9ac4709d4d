#!/usr/bin/env python3
"""Trains Hugging Face's GPT-2 on the bytes of a text, with the setting of `cltrain train --model gpt2:nano --data text:FILE`.

    torch_gpt.py --text bible.txt [--seq-len 128] [--batch 32] [--steps 2000] [--lr 1e-3] [--warmup 100]

Its losses are compared with those of that run. It trains on windows of the first nine tenths, in a random order each
epoch, and tests on the last tenth. PyTorch's AdamW, weight decay 0.1 on matrices, cosine to 0 after a linear warm-up,
f32. Run it by hand: it needs torch, transformers and numpy from PyPI. Prints the training loss every 100 steps and the
test loss at the end.
"""

import argparse
import math
import time

import numpy as np
import torch
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel


def windows(data, length):
    """Returns samples that overlap only in the one token that is only predicted."""
    count = (len(data) - 1) // length
    return np.stack([data[i * length : (i + 1) * length + 1] for i in range(count)]).astype(np.int64)


def loss_of(model, batch):
    logits = model(batch[:, :-1]).logits
    return functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), batch[:, 1:].reshape(-1))


def test_loss(model, samples, batch):
    model.eval()
    total = 0.0
    with torch.no_grad():
        for i in range(0, len(samples), batch):
            part = torch.from_numpy(samples[i : i + batch])
            total += loss_of(model, part).item() * len(part)
    return total / len(samples)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", required=True)
    for name, value in (("seq-len", 128), ("batch", 32), ("steps", 2000), ("warmup", 100), ("seed", 0), ("layers", 3), ("heads", 4), ("width", 128)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--lr", type=float, default=1e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    data = np.fromfile(args.text, np.uint8)
    border = len(data) * 9 // 10
    train, test = windows(data[:border], args.seq_len), windows(data[border:], args.seq_len)
    config = GPT2Config(vocab_size=256, n_positions=args.seq_len, n_embd=args.width, n_layer=args.layers, n_head=args.heads,
                        resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}], lr=args.lr)
    print(f"{sum(p.numel() for p in model.parameters())} parameters, {len(train)} windows, {len(test)} for tests")
    order, begin = np.array([], np.int64), time.time()
    model.train()
    for step in range(args.steps):
        if len(order) < args.batch:
            order = np.concatenate([order, rng.permutation(len(train))])
        part, order = torch.from_numpy(train[order[: args.batch]]), order[args.batch :]
        rate = args.lr * 0.5 * (1 + math.cos(math.pi * step / args.steps)) * min(1.0, (step + 1) / args.warmup)
        for group in optimizer.param_groups:
            group["lr"] = rate
        loss = loss_of(model, part)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 100 == 99:
            print(f"step {step + 1}  loss {loss.item():.4f}  {time.time() - begin:.0f} s", flush=True)
    print(f"test loss {test_loss(model, test, args.batch):.4f}")


if __name__ == "__main__":
    main()
