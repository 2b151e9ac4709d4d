#!/usr/bin/env python3
"""Writes goldens of whole models from PyTorch in f64: models.safetensors, described in README.md beside.

    make_models.py [--out DIR] [--check]

--check recomputes every stored f64 number and compares instead of writing. The networks are written here with torch.nn
alone, with the names of torchvision's ResNet and Hugging Face's GPT2Model; tools/peers/torch_models.py compares with those
packages themselves.
"""

import argparse
import json
import math
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from lenet import versions
from safetensors_file import load, save

FILE = "models.safetensors"
STEPS = 3
THREADS = [1, 2]
KINK_MARGIN = 4
GRADIENT_ERROR = 5e-5
SEEDS = 60


class Watch:
    """What ReLU and max pooling decide by: distances from zero, and of the largest from the second."""

    def __init__(self):
        self.seen = None

    def relu(self, x):
        if self.seen is not None:
            self.seen.append(x.detach())
        return functional.relu(x)

    def max_pool(self, x, kernel, stride, padding=0):
        if self.seen is not None:
            wide = functional.pad(x.detach(), [padding] * 4, value=-1e3)
            windows = wide.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(4)
            first, second = windows.topk(2, -1)[0].unbind(-1)
            # Of zeros behind a ReLU it does not matter which is taken: their gradient is zero.
            self.seen.append(torch.where(first > 0, first - second, torch.ones_like(first)))
        return functional.max_pool2d(x, kernel, stride, padding)


WATCH = Watch()


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        kernels = [1, 3, 1] if bottleneck else [3, 3]
        widths = [inputs] + [width] * (len(kernels) - 1) + [outputs]
        self.parts = len(kernels)
        for i, kernel in enumerate(kernels):
            own = stride if i == (1 if bottleneck else 0) else 1
            setattr(self, f"conv{i + 1}", conv(widths[i], widths[i + 1], kernel, own))
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.parts + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = WATCH.relu(y) if i < self.parts else y
        return WATCH.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, width, small, classes):
        super().__init__()
        self.small = small
        self.conv1 = conv(3, width, 3 if small else 7, 1 if small else 2)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            for b in range(count):
                layers.append(Block(inputs, width << stage, 2 if stage and not b else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = WATCH.relu(self.bn1(self.conv1(x)))
        x = x if self.small else WATCH.max_pool(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))

    def loss(self, image, label):
        return functional.cross_entropy(self(image), label)


class Conv1D(nn.Module):
    """x weight + bias: the weight lies input by output."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.attn["c_attn"](x).split(width, -1))  # fmt: skip
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.attn["c_proj"](y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp["c_proj"](gelu_new(self.mlp["c_fc"](self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width, positions, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def loss(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class LanguageModel(nn.Module):
    def __init__(self, hidden, layers, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, vocabulary)

    def loss(self, tokens, targets):
        logits = self.fc(self.lstm(self.embedding(tokens))[0])
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


class RowsOfImages(nn.Module):
    def __init__(self, inputs, hidden, layers, classes):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def loss(self, image, label):
        rows = image.transpose(1, 2).flatten(2)
        return functional.cross_entropy(self.fc(self.lstm(rows)[0][:, -1]), label)


class Regressor(nn.Module):
    def __init__(self, inputs, hidden, layers, outputs, each):
        super().__init__()
        self.each = each
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, outputs)

    def loss(self, x, y):
        h = self.lstm(x)[0]
        return functional.mse_loss(self.fc(h if self.each else h[:, -1]), y)


class TwoBranch(nn.Module):
    def __init__(self, weight, side, classes):
        super().__init__()
        self.weight = weight
        self.features = nn.ModuleDict({"conv1": nn.Conv2d(1, 16, 3, padding=1), "conv2": nn.Conv2d(16, 32, 3, padding=1),
                                       "fc": nn.Linear(32 * (side // 4) ** 2, 128)})  # fmt: skip
        self.classifier = nn.Linear(128, classes)
        self.decoder = nn.ModuleDict({"fc1": nn.Linear(128, 256), "fc2": nn.Linear(256, side * side)})

    def loss(self, image, label):
        x = WATCH.max_pool(WATCH.relu(self.features["conv1"](image)), 2, 2)
        x = WATCH.max_pool(WATCH.relu(self.features["conv2"](x)), 2, 2)
        x = WATCH.relu(self.features["fc"](x.flatten(1)))
        again = self.decoder["fc2"](WATCH.relu(self.decoder["fc1"](x)))
        classes = functional.cross_entropy(self.classifier(x), label)
        return classes + self.weight * functional.mse_loss(again, image.flatten(1))


def images(seed, batch, channels, side, classes):
    rng = np.random.default_rng(seed)
    shape = (batch, channels, *(side if isinstance(side, tuple) else (side, side)))
    return {"image": rng.standard_normal(shape, np.float32), "label": rng.integers(0, classes, batch, np.int32)}


def text(seed, batch, length, vocabulary):
    rng = np.random.default_rng(seed)
    all_tokens = rng.integers(0, vocabulary, (batch, length + 1), np.int32)
    tokens, targets = all_tokens[:, :-1].copy(), all_tokens[:, 1:].copy()
    targets[0, ::3] = -100
    return {"tokens": tokens, "targets": targets}


def arrays(seed, batch, x, y):
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, *x), np.float32), "y": rng.standard_normal((batch, *y), np.float32)}


# name: the command line's model, PyTorch's, inputs by seed, learning rate
CASES = {
    "resnet18": ("resnet18:width=3", lambda: ResNet([2, 2, 2, 2], False, 3, True, 10),
                 lambda seed: images(seed, 6, 3, 8, 10), 0.02),
    "gpt2": ("gpt2:layers=2,heads=2,width=16,positions=16", lambda: GPT2(2, 2, 16, 16, 29),
             lambda seed: text(seed, 5, 12, 29), 0.1),
    "lstm.text": ("lstm:hidden=9,layers=2", lambda: LanguageModel(9, 2, 29), lambda seed: text(seed, 5, 12, 29), 0.1),
    "lstm.rows": ("lstm:hidden=9", lambda: RowsOfImages(14, 9, 1, 10), lambda seed: images(seed, 5, 2, (6, 7), 10), 0.1),
    "lstm.last": ("lstm-regressor:hidden=9", lambda: Regressor(4, 9, 1, 3, False),
                  lambda seed: arrays(seed, 5, (7, 4), (3,)), 0.1),
    "lstm.each": ("lstm-regressor:hidden=9,layers=2", lambda: Regressor(4, 9, 2, 2, True),
                  lambda seed: arrays(seed, 5, (7, 4), (7, 2)), 0.1),
    "two-branch": ("two-branch:weight=0.5", lambda: TwoBranch(0.5, 8, 10), lambda seed: images(seed, 6, 1, 8, 10), 0.05),
}  # fmt: skip
CLASSES = {"label": 10, "tokens": 29, "targets": 29}


def hashed(salt, count):
    """Numbers in [-1, 1) that f32 holds exactly, with 16 bits, from the integer hash lowbias32 (Wellons)."""
    x = (np.arange(count, dtype=np.uint64) + 0x9E3779B9 * (salt + 1)) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 16).astype(np.float64) / 32768 - 1


def middle_and_scale(name, value, norms):
    """What a tensor's initial elements are about: powers of two, so that middle + scale * hashed is exact in f32."""
    kind = name.rsplit(".", 1)[-1]
    if kind == "num_batches_tracked":
        return 7, 0
    if kind == "running_var" or (kind == "weight" and name.rsplit(".", 1)[0] in norms):
        return 1, 0.25
    if value.dim() < 2:
        return 0, 0.25
    inputs = value.numel() / value.shape[0]
    return 0, 2.0 ** round(math.log2(math.sqrt(6 / inputs)))


def description(model):
    """[name, dtype, shape, middle, scale] of all parameters and states."""
    norms = {n for n, m in model.named_modules() if isinstance(m, (nn.BatchNorm2d, nn.LayerNorm))}
    rows = []
    for name, value in model.state_dict().items():
        dtype = "f32" if value.is_floating_point() else "i32"
        rows.append([name, dtype, list(value.shape), *middle_and_scale(name, value, norms)])
    return rows


def make(case, rows, dtype):
    model = CASES[case][1]()
    state = {}
    for salt, (name, kind, shape, middle, scale) in enumerate(rows):
        value = middle + scale * hashed(salt, math.prod(shape)).reshape(shape)
        state[name] = torch.as_tensor(value).to(torch.float64 if kind == "f32" else torch.int64)
    model.load_state_dict(state, strict=True)
    return model.to(dtype)


def feed(inputs, dtype):
    return [torch.tensor(a).to(dtype if a.dtype == np.float32 else torch.int64) for a in inputs.values()]


def run(case, rows, inputs, dtype):
    """Losses before, between and after STEPS steps of SGD; of the first step gradients and the states that it left."""
    model = make(case, rows, dtype)
    data = feed(inputs, dtype)
    with torch.no_grad():
        outside = model.eval().loss(*data).item()
    model.train()
    optimizer = torch.optim.SGD(model.parameters(), lr=CASES[case][3], foreach=False)
    losses, gradients, states = [], None, None
    for _ in range(STEPS + 1):
        optimizer.zero_grad()
        loss = model.loss(*data)
        losses.append(loss.item())
        loss.backward()
        if gradients is None:
            gradients = {n: p.grad.double().numpy().copy() for n, p in model.named_parameters()}
            states = {n: b.double().numpy().copy() for n, b in model.named_buffers()}
        optimizer.step()
    return np.array([*losses, outside]), gradients, states


def away_from_kinks(case, rows, inputs):
    seen = {}
    for dtype in (torch.float64, torch.float32):
        WATCH.seen = []
        make(case, rows, dtype).loss(*feed(inputs, dtype))
        seen[dtype], WATCH.seen = WATCH.seen, None
    return all(wide.abs().min() > KINK_MARGIN * (wide - narrow).abs().max()
               for wide, narrow in zip(seen[torch.float64], seen[torch.float32]))  # fmt: skip


def relative(have, want):
    return np.linalg.norm(have - want) / np.linalg.norm(want)


def golden(case, rows, inputs):
    """The case's tensors; None where rounding to f32 would switch a ReLU or a maximum."""
    if not away_from_kinks(case, rows, inputs):
        return None
    losses, gradients, states = run(case, rows, inputs, torch.float64)
    loss_error, gradient_error = np.zeros(len(losses)), np.zeros(len(gradients))
    for threads in THREADS:
        torch.set_num_threads(threads)
        single, narrow, _ = run(case, rows, inputs, torch.float32)
        loss_error = np.maximum(loss_error, np.abs(single / losses - 1))
        gradient_error = np.maximum(gradient_error, [relative(narrow[n], g) for n, g in gradients.items()])
    if gradient_error.max() > GRADIENT_ERROR:
        return None
    tensors = {"losses": losses, "loss_error": loss_error, "grad_error": gradient_error,
               "grad": np.concatenate([g.ravel() for g in gradients.values()]).astype(np.float32)}  # fmt: skip
    tensors |= inputs
    if states:
        tensors["states"] = np.concatenate([s.ravel() for s in states.values()]).astype(np.float32)
    return tensors


def make_case(case):
    rows = description(CASES[case][1]())
    for seed in range(SEEDS):
        inputs = CASES[case][2](seed)
        tensors = golden(case, rows, inputs)
        if tensors:
            break
    else:
        sys.exit(f"{case}: no inputs away from kinks")
    print(f"{case}: seed {seed}, losses {tensors['losses']}, PyTorch's f32: losses {tensors['loss_error'].max():.1e}, "
          f"gradients {tensors['grad_error'].max():.1e}; {tensors['grad'].size} parameters", flush=True)  # fmt: skip
    about = {"model": CASES[case][0], "lr": CASES[case][3], "tensors": rows,
             "parameters": [n for n, _ in CASES[case][1]().named_parameters()],
             "fields": [[n, CLASSES.get(n, 0)] for n in inputs]}  # fmt: skip
    return tensors, about


def check(path):
    stored, metadata = load(path)
    for case in CASES:
        about = json.loads(metadata[case])
        inputs = {n: stored[f"{case}.{n}"] for n, _ in about["fields"]}
        if about["tensors"] != description(CASES[case][1]()) or about["model"] != CASES[case][0]:
            sys.exit(f"{case}: other tensors or another model")
        losses, gradients, states = run(case, about["tensors"], inputs, torch.float64)
        found = {"losses": (losses, 1e-10), "grad": (np.concatenate([g.ravel() for g in gradients.values()]), 1e-7)}
        if states:
            found["states"] = (np.concatenate([s.ravel() for s in states.values()]), 1e-7)
        for name, (have, limit) in found.items():
            error = relative(have, stored[f"{case}.{name}"].astype(np.float64))
            if not error <= limit:
                sys.exit(f"{case}.{name}: relative difference {error:.2e} is more than {limit:.0e}")
    print("every stored f64 number was found again")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    path = os.path.join(options.out, FILE)
    if options.check:
        check(path)
        return
    tensors, metadata = {}, versions()
    for case in CASES:
        own, about = make_case(case)
        tensors |= {f"{case}.{name}": array for name, array in own.items()}
        metadata[case] = json.dumps(about, separators=(",", ":"))
    metadata["cases"] = json.dumps(list(CASES))
    save(path, tensors, metadata)
    print(f"{os.path.getsize(path)} bytes")


if __name__ == "__main__":
    main()
