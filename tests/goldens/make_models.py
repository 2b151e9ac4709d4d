#!/usr/bin/env python3
"""Writes goldens of whole models from PyTorch in f64: models_NAME.safetensors, described in README.md beside.

    make_models.py [--out DIR] [--check | --strays] [--only PATTERN]

--check recomputes every stored f64 number and compares instead of writing. --strays runs PyTorch in f32 a few more times
for each trajectory and prints how much of the allowed deviation it uses. The networks are those of networks.py;
tools/peers/torch_models.py compares with the packages that they have their names from.
"""

import argparse
import copy
import fnmatch
import json
import math
import os
import sys
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from lenet import versions
from networks import WATCH, GPT2, LanguageModel, Regressor, ResNet, RowsOfImages, TwoBranch, UNet, ViT
from safetensors_file import load, save

BATCHES = 4  # a run goes round these; with batch norm each step has its own
MIN_STEPS = 20
ENVELOPE_END = 1e-3
SPLITS, THREADS, ULP_RUNS = [1, 2, 4], [1, 2], 6
KINK_MARGIN, WANTED_MARGIN, CANDIDATES = 4, 10, 40
GRADIENT_ERROR = 5e-5
SEEDS = 80
TRIES = 5

MOMENTUM = {"optimizer": "momentum", "lr": 0.002, "momentum": 0.9, "weight_decay": 5e-4, "groups": []}
ADAM = {"optimizer": "adam", "lr": 5e-3, "weight_decay": 0, "groups": []}
ADAMW = {"optimizer": "adamw", "lr": 2e-3, "weight_decay": 0.1, "groups": [["1d", 1, 0]]}


# Of networks in which so many ReLUs decide that few runs stay away from all kinks for long.
SHORT = 24, (0, 5, 10, 15, 20)


class Case(NamedTuple):
    model: str  # the command line's
    make: object
    batch: int
    fields: dict  # name: (classes, shape of a sample); classes 0: floats
    settings: dict
    steps: int = 48
    snapshots: tuple = (0, 5, 10, 20, 40)


def images(shape, classes=10):
    return {"image": (0, shape), "label": (classes, ())}


def text(length, vocabulary):
    return {"tokens": (vocabulary, (length,)), "targets": (vocabulary, (length,))}


def arrays(x, y):
    return {"x": (0, x), "y": (0, y)}


CASES = {
    "resnet18": Case("resnet18:width=2", lambda: ResNet([2, 2, 2, 2], False, 2, True, 10), 8, images((3, 12, 12)), MOMENTUM, *SHORT),
    "bottleneck": Case("resnet50:width=2,blocks=1", lambda: ResNet([1, 1, 1, 1], True, 2, True, 10), 8,
                       images((3, 12, 12)), MOMENTUM, *SHORT),
    "vit": Case("vit-tiny:layers=2,heads=2,width=16", lambda: ViT(2, 2, 16, 4, 3, 12, 10), 8, images((3, 12, 12)),
                ADAMW | {"groups": [["1d|pos_embed", 1, 0]]}),
    "two-branch": Case("two-branch:weight=0.5,width=2", lambda: TwoBranch(0.5, 2, 8, 10), 8, images((1, 8, 8)), ADAM),
    "unet": Case("unet:levels=2,width=4", lambda: UNet(2, 4, 3, 2), 6, arrays((3, 8, 12), (2, 8, 12)), ADAM),
    "gpt2": Case("gpt2:layers=2,heads=2,width=16,positions=16", lambda: GPT2(2, 2, 16, 16, 29), 5, text(12, 29), ADAMW),
    "lstm-text": Case("lstm:hidden=9,layers=2", lambda: LanguageModel(9, 2, 29), 5, text(12, 29), ADAM),
    "lstm-rows": Case("lstm:hidden=9", lambda: RowsOfImages(14, 9, 1, 10), 5, images((2, 6, 7)), ADAM),
    "lstm-last": Case("lstm-regressor:hidden=9", lambda: Regressor(4, 9, 1, 3, False), 5, arrays((7, 4), (3,)), ADAM),
    "lstm-each": Case("lstm-regressor:hidden=9,layers=2", lambda: Regressor(4, 9, 2, 2, True), 5,
                      arrays((7, 4), (7, 2)), ADAM),
}  # fmt: skip


# --- numbers that are not stored -----------------------------------------------------------------------------------------


def hashed(salt, count):
    """Numbers in [-1, 1) that f32 holds exactly, with 16 bits, from the integer hash lowbias32 (Wellons)."""
    x = (np.arange(count, dtype=np.uint64) + 0x9E3779B9 * (salt + 1)) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x846CA68B) & 0xFFFFFFFF
    return ((x ^ (x >> 16)) >> 16).astype(np.float64) / 32768 - 1


def inputs_of(case, seed):
    """Field f of floats is 2 * hashed(1000 + 10 * seed + f); whole numbers are random, and stored."""
    rng = np.random.default_rng(seed)
    found, before = {}, None
    for f, (name, (classes, shape)) in enumerate(case.fields.items()):
        size = (case.batch, *shape)
        if not classes:
            found[name] = 2 * hashed(1000 + 10 * seed + f, math.prod(size)).reshape(size)
        elif name == "targets":
            found[name] = np.concatenate([before[:, 1:], rng.integers(0, classes, (case.batch, 1))], 1).astype(np.int32)
            found[name][0, ::3] = -100
        else:
            found[name] = before = rng.integers(0, classes, size).astype(np.int32)
    return found


def middle_and_scale(name, value, norms):
    """What a tensor's initial elements are about: powers of two, so that middle + scale * hashed is exact in f32."""
    kind = name.rsplit(".", 1)[-1]
    if kind == "num_batches_tracked":
        return 7, 0
    if kind == "running_var" or (kind == "weight" and name.rsplit(".", 1)[0] in norms):
        return 1, 0.25
    if value.dim() < 2 or kind == "pos_embed":
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


def initial_state(rows):
    return {name: middle + scale * hashed(salt, math.prod(shape)).reshape(shape)
            for salt, (name, kind, shape, middle, scale) in enumerate(rows)}  # fmt: skip


def packed(state):
    return np.concatenate([np.asarray(v, np.float64).ravel() for v in state.values()])


def unpacked(rows, values):
    state, at = {}, 0
    for name, _, shape, *_ in rows:
        count = math.prod(shape)
        state[name] = values[at : at + count].astype(np.float64).reshape(shape)
        at += count
    assert at == len(values)
    return state


# --- PyTorch -------------------------------------------------------------------------------------------------------------


def make(case, state, dtype):
    model = case.make().to(dtype)
    # A copy rounds to the model's type; counters stay whole numbers.
    model.load_state_dict({n: torch.tensor(v) for n, v in state.items()}, strict=True)
    return model


def feed(inputs, dtype):
    return [torch.tensor(a).to(torch.int64 if a.dtype == np.int32 else dtype) for a in inputs.values()]


def step(model, data, splits=1):
    """Loss of the whole batch, with its gradients in .grad; parts' sums are divided by the whole batch's weight."""
    model.zero_grad(set_to_none=True)
    parts = list(zip(*(torch.tensor_split(d, splits) for d in data)))
    if splits == 1:
        losses = model.losses(*data)
        loss = sum(coefficient * total / weight for coefficient, total, weight in losses)
        loss.backward()
        return loss.item()
    with torch.no_grad():
        weights = [weight for _, _, weight in model.losses(*data)]
    whole = 0.0
    for part in parts:
        loss = sum(coefficient * total / w for (coefficient, total, _), w in zip(model.losses(*part), weights))
        loss.backward()
        whole += loss.item()
    return whole


def matches(pattern, name, parameter):
    return any(parameter.dim() <= 1 if p == "1d" else fnmatch.fnmatch(name, p) for p in pattern.split("|"))


def make_optimizer(case, model):
    s = case.settings
    found = {}
    for name, p in model.named_parameters():
        own = (s["lr"], s["weight_decay"])
        for pattern, lr, decay in s["groups"]:
            own = (s["lr"] * lr, decay) if matches(pattern, name, p) else own
        found.setdefault(own, []).append(p)
    groups = [{"params": p, "lr": lr, "weight_decay": decay} for (lr, decay), p in found.items()]
    # One tensor at a time: the arithmetic of PyTorch's documentation without fused kernels.
    if s["optimizer"] == "momentum":
        return torch.optim.SGD(groups, lr=s["lr"], momentum=s["momentum"], foreach=False)
    return {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[s["optimizer"]](groups, lr=s["lr"], foreach=False)


def seen_of(model, data):
    """What ReLU and max pooling decide by; the model stays as it is."""
    WATCH.seen = []
    with torch.no_grad():
        copy.deepcopy(model).losses(*data)
    seen, WATCH.seen = WATCH.seen, None
    return seen


def chosen_batches(case, state, first):
    """Seeds of batches, one for each step of a run, each the first (or the best) of some that is away from kinks there.

    A kink is decided by all images of a batch together where their statistics are, so images cannot be chosen one by one.
    """
    models = [make(case, state, torch.float64), make(case, state, torch.float32),
              make(case, moved_by_an_ulp(state, first), torch.float32)]  # fmt: skip
    optimizers = [make_optimizer(case, model) for model in models]
    seeds = []
    for _ in range(case.steps):
        best = (-1.0, first)
        for candidate in range(first, first + CANDIDATES):
            inputs = inputs_of(case, candidate)
            wide, *narrow = (seen_of(m, feed(inputs, p.dtype)) for m, p in zip(models, (next(m.parameters()) for m in models)))
            best = max(best, (min(distances(wide, n) for n in narrow), candidate))
            if best[0] > WANTED_MARGIN:
                break
        seeds.append(best[1])
        first = max(first, candidate) + 1
        for model, optimizer in zip(models, optimizers):
            step(model, feed(inputs_of(case, seeds[-1]), next(model.parameters()).dtype))
            optimizer.step()
    return seeds


class Run:
    """Training from a state, round the batches: losses before each update, the states before each snapshot, and
    what ReLU and max pooling decided by in each step."""

    def __init__(self, case, state, seeds, dtype, steps, splits=1, shuffle=None, memory_format=torch.contiguous_format):
        data = [feed(inputs_of(case, seed), dtype) for seed in seeds]
        model = make(case, state, dtype)
        if memory_format != torch.contiguous_format:
            model = model.to(memory_format=memory_format)
        optimizer = make_optimizer(case, model)
        self.losses, self.states, self.seen = [], {}, []
        for s in range(steps):
            if s in case.snapshots:
                self.states[s] = {n: v.double().numpy().copy() for n, v in model.state_dict().items()}
            batch = data[s % len(data)]
            if shuffle:
                order = torch.randperm(len(batch[0]), generator=shuffle)
                batch = [d[order] for d in batch]
            WATCH.seen = []
            self.losses.append(step(model, batch, splits))
            self.seen.append(WATCH.seen)
            WATCH.seen = None
            optimizer.step()
        self.losses = np.array(self.losses)


def distances(wide, narrow):
    """How many times the largest f32 error the nearest kink is away, the least of all layers."""
    return min((x.abs().min().item() / max((x - y).abs().max().item(), 1e-30) for x, y in zip(wide, narrow)),
               default=math.inf)  # fmt: skip


def kink_free(golden, run):
    """Steps before the first one in which a kink is so near that rounding could switch it."""
    for s, (wide, narrow) in enumerate(zip(golden.seen, run.seen)):
        if distances(wide, narrow) < KINK_MARGIN:
            return s
    return len(run.seen)


def moved_by_an_ulp(state, seed):
    """Each number moved to a neighbouring float or left, at random: what one rounding does."""
    rng = np.random.default_rng(seed)
    moved = {}
    for name, value in state.items():
        near = np.nextafter(value.astype(np.float32), np.where(rng.integers(0, 2, value.shape), np.inf, -np.inf).astype(np.float32))
        still = name.endswith("num_batches_tracked") | (rng.integers(0, 3, value.shape) == 0)
        moved[name] = np.where(still, value, near.astype(np.float64))
    return moved


def has_batch_norm(case):
    return any(isinstance(m, nn.BatchNorm2d) for m in case.make().modules())


def f32_runs(case, state, seeds, steps):
    """(whether it is one of the envelope's own, run), of all f32 runs."""
    # A part of a batch has other statistics than the batch: with batch norm its order is changed instead.
    whole = has_batch_norm(case)
    for threads in THREADS:
        torch.set_num_threads(threads)
        for splits in SPLITS:
            shuffle = torch.Generator().manual_seed(splits) if whole and splits > 1 else None
            yield True, Run(case, state, seeds, torch.float32, steps, 1 if whole else splits, shuffle)
    with torch.backends.mkldnn.flags(enabled=False):
        yield False, Run(case, state, seeds, torch.float32, steps)
    if "image" in case.fields:
        yield False, Run(case, state, seeds, torch.float32, steps, memory_format=torch.channels_last)
    for seed in range(ULP_RUNS):
        yield False, Run(case, moved_by_an_ulp(state, seed), seeds, torch.float32, steps)


def trajectory(case, state, seeds):
    """The f64 run, its envelopes, and how many of its steps are compared; None where those are too few."""
    golden = Run(case, state, seeds, torch.float64, case.steps)
    end = kink_free(golden, Run(case, state, seeds, torch.float32, case.steps))
    if end < MIN_STEPS:
        print(f"    a kink is too near in step {end}", flush=True)
        return None
    envelope, wider = np.zeros(case.steps), np.zeros(case.steps)
    for own, run in f32_runs(case, state, seeds, case.steps):
        off = np.abs(run.losses - golden.losses)
        envelope = np.maximum(envelope, off) if own else envelope
        wider = np.maximum(wider, off)
        # Only where elements lie as in the golden can they be compared. What a switch does before is in the envelope.
        if not own:
            end = min(end, max(kink_free(golden, run), MIN_STEPS))
    envelope, wider = np.maximum.accumulate(envelope), np.maximum.accumulate(wider)
    past = np.nonzero(envelope > ENVELOPE_END)[0]
    if len(past):
        end = min(end, max(int(past[0]) + 1, MIN_STEPS))
    return golden, envelope[:end], wider[:end]


def evaluate(case, state, inputs, dtype):
    """Loss outside training; loss, gradients and new statistics in training."""
    model, data = make(case, state, dtype), feed(inputs, dtype)
    with torch.no_grad():
        outside = sum(c * t / w for c, t, w in model.eval().losses(*data)).item()
    model.train()
    WATCH.seen = []
    loss = step(model, data)
    seen, WATCH.seen = WATCH.seen, None
    gradients = {n: p.grad.double().numpy().copy() for n, p in model.named_parameters()}
    states = {n: b.double().numpy().copy() for n, b in model.named_buffers()}
    return np.array([loss, outside]), gradients, states, seen


def relative(have, want):
    return np.linalg.norm(have - want) / np.linalg.norm(want)


def snapshot(case, state, seed):
    """Losses, gradients and statistics with a batch, and PyTorch's own error; None where it is near a kink."""
    inputs = inputs_of(case, seed)
    losses, gradients, states, wide = evaluate(case, state, inputs, torch.float64)
    loss_error, gradient_error = 0.0, np.zeros(len(gradients))
    for threads in THREADS:
        torch.set_num_threads(threads)
        single, narrow, _, seen = evaluate(case, state, inputs, torch.float32)
        if distances(wide, seen) < KINK_MARGIN:
            return None
        loss_error = max(loss_error, np.abs(single / losses - 1).max())
        gradient_error = np.maximum(gradient_error, [relative(narrow[n], g) for n, g in gradients.items()])
    if gradient_error.max() > GRADIENT_ERROR:
        return None
    return losses, loss_error, packed(gradients), gradient_error, packed(states) if states else None


# --- files ---------------------------------------------------------------------------------------------------------------


def first_that_works(what, tried):
    for number, found in tried:
        if found:
            return number, found
    sys.exit(f"{what}: no inputs away from kinks")


def make_case(name, case):
    rows = description(case.make())
    start = initial_state(rows)
    chosen = has_batch_norm(case)
    tried = (chosen_batches(case, start, s) if chosen else list(range(s, s + BATCHES)) for s in range(0, 100 * TRIES, 100))
    seeds, (golden, envelope, wider) = first_that_works(name, ((s, trajectory(case, start, s)) for s in tried))
    batches = len(seeds)
    steps = len(wider)
    tensors = {"loss": golden.losses[:steps], "envelope": envelope, "kernel_envelope": wider}
    columns = {"losses": [], "loss_error": [], "grad_error": []}
    beyond = 20000 if has_batch_norm(case) else 2000  # batches that no run has
    for k, at in enumerate(case.snapshots):
        # Half precision keeps the files small; the snapshot is what was stored.
        values = packed(golden.states[at]).astype(np.float16)
        state = unpacked(rows, values) if k else start
        seed, (losses, loss_error, grad, grad_error, states) = first_that_works(
            f"{name}, snapshot {at}", ((s, snapshot(case, state, s)) for s in range(beyond + SEEDS * k, beyond + SEEDS * (k + 1))))
        seeds.append(seed)
        for key, value in zip(columns, (losses, loss_error, grad_error)):
            columns[key].append(value)
        tensors |= {f"{at}.grad": grad.astype(np.float32)}
        tensors |= {f"{at}.values": values} if k else {}
        tensors |= {f"{at}.states": states.astype(np.float32)} if states is not None else {}
    tensors |= {key: np.array(value) for key, value in columns.items()}
    for field, (classes, _) in case.fields.items():
        if classes:
            tensors[field] = np.stack([inputs_of(case, seed)[field] for seed in seeds])
    print(f"{name}: {grad.size} parameters; seeds {seeds}; {steps} steps, loss {golden.losses[0]:.4f} to {golden.losses[steps - 1]:.4f}, "
          f"envelope {envelope[-1]:.1e} ({wider[19]:.1e} at 19, {wider[-1]:.1e}); gradients' f32 error "
          + " ".join(f"{e.max():.1e}" for e in columns["grad_error"]), flush=True)  # fmt: skip
    about = case.settings | {"model": case.model, "batch": case.batch, "batches": batches, "snapshots": case.snapshots, "seeds": seeds,
                             "tensors": rows, "parameters": [n for n, _ in case.make().named_parameters()],
                             "fields": [[n, c, list(s)] for n, (c, s) in case.fields.items()]}  # fmt: skip
    return tensors, about


def check(name, case, path):
    stored, metadata = load(path)
    about = json.loads(metadata["about"])
    rows, seeds, batches = description(case.make()), about["seeds"], about["batches"]
    if about["tensors"] != rows or about["model"] != case.model:
        sys.exit(f"{name}: other tensors or another model")

    def close(what, have, want, limit):
        error = relative(np.asarray(have), want.astype(np.float64))
        if not error <= limit:
            sys.exit(f"{name}, {what}: relative difference {error:.2e} is more than {limit:.0e}")

    for field, (classes, _) in case.fields.items():
        for j, seed in enumerate(seeds):
            if classes and not np.array_equal(stored[field][j], inputs_of(case, seed)[field]):
                sys.exit(f"{name}, {field}: other inputs")
    run = Run(case, initial_state(rows), seeds[:batches], torch.float64, len(stored["loss"]))
    close("loss", run.losses, stored["loss"], 1e-9)
    for k, at in enumerate(case.snapshots):
        state = unpacked(rows, stored[f"{at}.values"]) if k else initial_state(rows)
        losses, gradients, states, _ = evaluate(case, state, inputs_of(case, seeds[batches + k]), torch.float64)
        close(f"losses {at}", losses, stored["losses"][k], 1e-10)
        close(f"{at}.grad", packed(gradients), stored[f"{at}.grad"], 1e-7)
        if states:
            close(f"{at}.states", packed(states), stored[f"{at}.states"], 1e-7)


def strays(name, case, path):
    """How much of 1e-5 + 4 x envelope other f32 runs use: batches in random orders."""
    stored, metadata = load(path)
    about = json.loads(metadata["about"])
    start = initial_state(about["tensors"])
    used = []
    for seed in range(100, 106):
        run = Run(case, moved_by_an_ulp(start, seed) if seed % 2 else start, about["seeds"][: about["batches"]], torch.float32,
                  len(stored["loss"]), 1, torch.Generator().manual_seed(seed))  # fmt: skip
        off = np.abs(run.losses - stored["loss"])
        used.append([(off / (1e-5 + 4 * stored[e])).max() for e in ("envelope", "kernel_envelope")])
    print(f"{name}: {np.max(used, 0)[0]:.2f} of envelope's, {np.max(used, 0)[1]:.2f} of kernel_envelope's", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--strays", action="store_true")
    parser.add_argument("--only", default="*", help="names, for example lstm-*")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    for name, case in CASES.items():
        path = os.path.join(options.out, f"models_{name}.safetensors")
        if not fnmatch.fnmatch(name, options.only):
            continue
        if options.check or options.strays:
            (check if options.check else strays)(name, case, path)
            continue
        tensors, about = make_case(name, case)
        save(path, tensors, versions() | {"about": json.dumps(about, separators=(",", ":"))})
        print(f"    {os.path.getsize(path)} bytes", flush=True)
    if options.check:
        print("every stored f64 number was found again")


if __name__ == "__main__":
    main()
