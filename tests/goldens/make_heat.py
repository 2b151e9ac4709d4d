#!/usr/bin/env python3
"""Writes heat.safetensors: the losses of PyTorch on the samples that models/examples/heat draws. README.md beside
describes the file.

    PYTHONPATH=BUILD/bindings/python make_heat.py [--out DIR]     records draws and initial values, and trains
    make_heat.py --check                                          computes the f64 losses again and compares
"""

import argparse
import os
import sys

import numpy as np
import torch

from heat import CELLS, RODS, STEPS, record_draws, rods_of, samples_of
from lenet import versions
from make_models import moved_by_an_ulp
from safetensors_file import load, save

HIDDEN = 64
ULP_RUNS = 6
CASES = {"serial": 1, "ranks": 2}


def losses(start, draws, dtype, parts=1, shuffle=None):
    """The loss before each update. `draws`: of each rank. `parts`: of a batch, whose gradients are added."""
    model = torch.nn.Sequential(torch.nn.Linear(CELLS, HIDDEN), torch.nn.Tanh(), torch.nn.Linear(HIDDEN, CELLS)).to(dtype)
    names = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    with torch.no_grad():
        for name, parameter in zip(names, model.parameters()):
            parameter.copy_(torch.from_numpy(np.array(start[name])))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
    states = [rods_of(rank) for rank in range(len(draws))]
    found = []
    for step in range(STEPS):
        batch = [samples_of(s, d[step]) for s, d in zip(states, draws)]
        x, y = (torch.from_numpy(np.concatenate(half)).to(dtype) for half in zip(*batch))
        if shuffle:
            order = torch.randperm(len(x), generator=shuffle)
            x, y = x[order], y[order]
        optimizer.zero_grad()
        loss = 0.0
        for a, b in zip(x.chunk(parts), y.chunk(parts)):
            part = ((model(a) - b) ** 2).sum() / y.numel()
            part.backward()
            loss += part.item()
        found.append(loss)
        optimizer.step()
    return np.array(found)


def f32_runs(start, draws):
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for parts in (1, 2, 4):
            yield losses(start, draws, torch.float32, parts)
        for seed in (1, 2):
            yield losses(start, draws, torch.float32, 1, torch.Generator().manual_seed(seed))
    with torch.backends.mkldnn.flags(enabled=False):
        yield losses(start, draws, torch.float32)
    for seed in range(ULP_RUNS):
        yield losses(moved_by_an_ulp(start, seed), draws, torch.float32)


def record():
    """Returns the initial values and the draws, which come from cltrain."""
    import cltrain as clt

    store = clt.Store(clt.mlp(CELLS, [HIDDEN], CELLS), "cpu", seed=0)
    tensors = {"param." + name: np.array(store[name], np.float32) for name in store}
    for rank in range(max(CASES.values())):
        tensors[f"draws.{rank}"] = record_draws(clt, rank)
    return tensors


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    path = os.path.join(options.out, "heat.safetensors")
    torch.use_deterministic_algorithms(True)
    tensors = load(path)[0] if options.check else record()
    start = {name[6:]: values for name, values in tensors.items() if name.startswith("param.")}
    for case, ranks in CASES.items():
        draws = [tensors[f"draws.{rank}"] for rank in range(ranks)]
        golden = losses(start, draws, torch.float64)
        if options.check:
            if not np.allclose(tensors[case + ".loss"], golden, rtol=1e-9, atol=0):
                sys.exit(f"{case}: the f64 losses are others")
            continue
        envelope = np.max([np.abs(run - golden) for run in f32_runs(start, draws)], 0)
        envelope = np.maximum.accumulate(envelope)
        tensors |= {case + ".loss": golden, case + ".kernel_envelope": envelope}
        print(f"{case}: loss {golden[0]:.6f} to {golden[-1]:.6f}, envelope {envelope[0]:.1e}, {envelope[-1]:.1e} at the end")
    if options.check:
        print("every stored f64 number was found again")
    else:
        save(path, tensors, versions())


if __name__ == "__main__":
    main()
