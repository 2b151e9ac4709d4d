#!/usr/bin/env python3
"""Times PyTorch's training steps of GPT-2 and ResNet-18, and measures their memory. Run by hand.

    torch_train.py gpt2     [--tokens FILE] [--implementation plain|transformers] [--compile] [--batch 4] [--length 64]
    torch_train.py resnet18 [--compile] [--channels-last] [--batch 128]

Prints one JSON object. GPT-2 has 124 million parameters (50257 tokens, as many positions as a sample, no dropout). It
learns from FILE of u16 tokens, at random positions, with fused AdamW and weight decay 0.1 on all parameters. `plain` is
written here with PyTorch's fastest parts: one linear for query, key and value, scaled_dot_product_attention, GELU by
tanh, the output's weight tied to the embedding, and the loss over all positions' logits. `transformers` is Hugging
Face's GPT2LMHeadModel with the same attention. ResNet-18 is torchvision's for 32 x 32 images: 3 x 3 stem without max
pooling, ten classes, fused SGD with momentum. All data are in memory. `step_s` has the seconds per step of each of
--runs stretches of --steps steps after a warm-up.
"""

import argparse
import json
import math
import resource
import sys
import time

import torch
from torch import nn
from torch.nn import functional

LAYERS, HEADS, WIDTH, VOCABULARY = 12, 12, 768, 50257


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, HEADS, -1).transpose(1, 2) for part in self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.proj(functional.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Plain(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(positions, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)
        for block in self.h:
            for layer in (block.c_proj, block.proj):
                nn.init.normal_(layer.weight, std=0.02 / math.sqrt(2 * LAYERS))

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return functional.linear(self.ln_f(x), self.wte.weight)


def transformers_model(positions):
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_positions=positions, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, use_cache=False,
                        attn_implementation="sdpa")  # fmt: skip
    return GPT2LMHeadModel(config)


class Text:
    def __init__(self, options):
        self.options = options
        self.model = (transformers_model if options.implementation == "transformers" else Plain)(options.length)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
        data = open(options.tokens, "rb").read() if options.tokens else None
        self.tokens = torch.frombuffer(bytearray(data), dtype=torch.uint16).int() if data else torch.randint(VOCABULARY, (100000,))

    def batch(self):
        length = self.options.length
        at = torch.randint(len(self.tokens) - length - 1, (self.options.batch,)).tolist()
        rows = torch.stack([self.tokens[i : i + length + 1] for i in at]).long()
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def loss(self, x, y):
        logits = self.model(x)
        logits = logits if self.options.implementation == "plain" else logits.logits
        return functional.cross_entropy(logits.flatten(0, 1), y.flatten())


class Images:
    def __init__(self, options):
        import torchvision

        self.options = options
        self.format = torch.channels_last if options.channels_last else torch.contiguous_format
        model = torchvision.models.resnet18(num_classes=10)
        model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
        self.model = model.to(memory_format=self.format)
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, fused=True)
        self.images, self.labels = torch.randn(2048, 3, 32, 32).to(memory_format=self.format), torch.randint(10, (2048,))

    def batch(self):
        index = torch.randint(len(self.labels), (self.options.batch,))
        return self.images.index_select(0, index).contiguous(memory_format=self.format), self.labels.index_select(0, index)

    def loss(self, x, y):
        return functional.cross_entropy(self.model(x), y)


def peak_mib():
    """Returns Linux' VmHWM. Unlike ru_maxrss, it does not include the process that started this
    one."""
    with open("/proc/self/status", encoding="utf-8") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return round(int(line.split()[1]) / 1024)


def measure(subject, options):
    loss = torch.compile(subject.loss, dynamic=False) if options.compile else subject.loss
    last = None

    def stretch(steps):
        nonlocal last
        begin = time.perf_counter()
        for _ in range(steps):
            x, y = subject.batch()
            subject.optimizer.zero_grad(set_to_none=True)
            last = loss(x, y)
            last.backward()
            subject.optimizer.step()
        last.item()
        return (time.perf_counter() - begin) / steps

    first = stretch(1)
    stretch(options.warmup)
    times = [round(stretch(options.steps), 6) for _ in range(options.runs)]
    if not math.isfinite(last.item()):
        sys.exit("the loss is not finite")
    return {"first_step_s": round(first, 3), "step_s": times, "loss": round(last.item(), 4)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=["gpt2", "resnet18"])
    parser.add_argument("--tokens")
    parser.add_argument("--implementation", choices=["plain", "transformers"], default="plain")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    options = parser.parse_args()
    options.batch = options.batch or (4 if options.model == "gpt2" else 128)
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    subject = (Text if options.model == "gpt2" else Images)(options)
    subject.model.train()
    result = {"model": options.model, "implementation": options.implementation, "torch": torch.__version__, "threads": options.threads,
              "batch": options.batch, "compile": options.compile, "channels_last": options.channels_last,
              "parameters": sum(p.numel() for p in subject.model.parameters())}  # fmt: skip
    result.update(measure(subject, options))
    result["peak_mib"] = peak_mib()
    result["peak_children_mib"] = round(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
