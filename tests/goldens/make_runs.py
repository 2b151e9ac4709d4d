#!/usr/bin/env python3
"""Writes goldens of 50 training steps from PyTorch in f64: runs_NAME.safetensors, described in README.md beside.

    make_runs.py [--out DIR] [--check] [--only PATTERN]

--check computes the f64 losses again and compares instead of writing. The models are larger than those of make_models.py,
and their inputs may lie near kinks of ReLU. What such a kink does is in the envelope, because the f32 runs meet it too.
"""

import argparse
import fnmatch
import json
import os
import sys

import numpy as np
import torch

from lenet import versions
from make_models import BATCHES, Case, description, feed, images, initial_state, inputs_of, make, make_optimizer, moved_by_an_ulp, step, text
from networks import GPT2, ResNet
from safetensors_file import load, save

STEPS = 50
ULP_RUNS = 6

ADAMW = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "groups": [["1d", 1, 0]]}
MOMENTUM = {"optimizer": "momentum", "lr": 0.002, "momentum": 0.9, "weight_decay": 5e-4, "groups": []}
RESNET18 = Case("resnet18:width=16,sync", lambda: ResNet([2, 2, 2, 2], False, 16, True, 10), 8, images((3, 32, 32)), MOMENTUM)
# The case, and the micro-batches of a step. Batch norm takes the statistics of each micro-batch.
CASES = {
    "gpt2-nano": (Case("gpt2:nano,positions=64", lambda: GPT2(3, 4, 128, 64, 65), 8, text(32, 65), ADAMW), 1),
    "resnet18": (RESNET18, 1),
    "resnet18-micro": (RESNET18, 4),
}  # fmt: skip


def losses(case, state, splits, dtype, shuffle=None, memory_format=torch.contiguous_format):
    """The loss before each update."""
    model = make(case, state, dtype).to(memory_format=memory_format)
    optimizer = make_optimizer(case, model)
    found = []
    for s in range(STEPS):
        batch = feed(inputs_of(case, s % BATCHES), dtype)
        if shuffle:
            orders = [torch.randperm(len(part), generator=shuffle) for part in torch.tensor_split(batch[0], splits)]
            order = torch.cat([o + sum(len(b) for b in orders[:i]) for i, o in enumerate(orders)])
            batch = [d[order] for d in batch]
        found.append(step(model, batch, splits))
        optimizer.step()
    return np.array(found)


def f32_runs(case, state, splits):
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for seed in (None, 1, 2):
            yield losses(case, state, splits, torch.float32, torch.Generator().manual_seed(seed) if seed else None)
    with torch.backends.mkldnn.flags(enabled=False):
        yield losses(case, state, splits, torch.float32)
    if "image" in case.fields:
        yield losses(case, state, splits, torch.float32, memory_format=torch.channels_last)
    for seed in range(ULP_RUNS):
        yield losses(case, moved_by_an_ulp(state, seed), splits, torch.float32)


def make_run(name, case, splits):
    rows = description(case.make())
    state = initial_state(rows)
    golden = losses(case, state, splits, torch.float64)
    envelope = np.zeros(STEPS)
    for run in f32_runs(case, state, splits):
        envelope = np.maximum(envelope, np.abs(run - golden))
    envelope = np.maximum.accumulate(envelope)
    tensors = {"loss": golden, "kernel_envelope": envelope}
    for field, (classes, _) in case.fields.items():
        if classes:
            tensors[field] = np.stack([inputs_of(case, seed)[field] for seed in range(BATCHES)])
    print(f"{name}: loss {golden[0]:.4f} to {golden[-1]:.4f}, envelope {envelope[0]:.1e}, {envelope[9]:.1e} at 9, {envelope[-1]:.1e}", flush=True)
    about = case.settings | {"model": case.model, "batch": case.batch, "batches": BATCHES, "accumulate": splits, "snapshots": [],
                             "seeds": list(range(BATCHES)), "tensors": rows,
                             "parameters": [n for n, _ in case.make().named_parameters()],
                             "fields": [[n, c, list(s)] for n, (c, s) in case.fields.items()]}  # fmt: skip
    return tensors, about


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="*", help="names, for example resnet18*")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    for name, (case, splits) in CASES.items():
        path = os.path.join(options.out, f"runs_{name}.safetensors")
        if not fnmatch.fnmatch(name, options.only):
            continue
        if options.check:
            again = losses(case, initial_state(description(case.make())), splits, torch.float64)
            if not np.allclose(load(path)[0]["loss"], again, rtol=1e-9, atol=0):
                sys.exit(f"{name}: other losses")
            continue
        tensors, about = make_run(name, case, splits)
        save(path, tensors, versions() | {"about": json.dumps(about, separators=(",", ":"))})
        print(f"    {os.path.getsize(path)} bytes", flush=True)
    if options.check:
        print("every f64 loss was found again")


if __name__ == "__main__":
    main()
