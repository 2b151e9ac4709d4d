#!/usr/bin/env python3
"""Writes goldens of normalisation from PyTorch in f64: make_norm.py [--out DIR] [--check]. Format: README.md beside."""

import argparse
import os

import torch
from torch.nn import functional

from make_ops import Cases, compare
from safetensors_file import save


def layer_norm(c):
    for shape, axes, affine in [((5, 10), 1, "wb"), ((3, 4, 6), 2, "wb")]:
        size = shape[-axes:]
        inputs = {"x": c.random(*shape, scale=2.0)}
        inputs.update({name: c.random(*size) for name in affine})
        c.add(lambda x, w=None, b=None: functional.layer_norm(x, size, w, b), inputs, {"axes": axes, "eps": 1e-5})


def rms_norm(c):
    for shape, axes, affine in [((5, 10), 1, "w"), ((3, 4, 6), 2, "w")]:
        size = shape[-axes:]
        inputs = {"x": c.random(*shape, scale=2.0)}
        inputs.update({name: c.random(*size) for name in affine})
        eps = torch.finfo(torch.float32).eps
        c.add(lambda x, w=None: functional.rms_norm(x, size, w, eps), inputs, {"axes": axes, "eps": eps})


def batch_norm(c):
    for shape, affine in [((6, 5), "wb"), ((5, 3, 4, 5), "wb")]:
        inputs = {"x": c.random(*shape, scale=2.0)}
        inputs.update({name: c.random(shape[1]) for name in affine})
        c.add(lambda x, w=None, b=None: functional.batch_norm(x, None, None, w, b, training=True), inputs, {"eps": 1e-5})


def group_norm(c):
    for shape, groups, affine in [((3, 6, 4, 5), 2, "wb"), ((2, 4, 9), 4, "wb")]:
        inputs = {"x": c.random(*shape, scale=2.0)}
        inputs.update({name: c.random(shape[1]) for name in affine})
        c.add(lambda x, w=None, b=None: functional.group_norm(x, groups, w, b), inputs, {"groups": groups, "eps": 1e-5})


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=os.path.join(here, "ops"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for function in (layer_norm, rms_norm, batch_norm, group_norm):
        cases = Cases(function.__name__)
        function(cases)
        tensors, metadata = cases.finish()
        path = os.path.join(options.out, function.__name__ + ".safetensors")
        if options.check:
            compare(path, tensors)
        else:
            save(path, tensors, metadata)
        print(f"{function.__name__}: {metadata['cases']} cases, {sum(t.nbytes for t in tensors.values())} bytes")


if __name__ == "__main__":
    main()
