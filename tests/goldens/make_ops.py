#!/usr/bin/env python3
"""Writes goldens of single operators and optimizers from PyTorch in f64. Format: README.md beside.

    make_ops.py [--out DIR] [--check]

Inputs and upstream gradients are f64 values that f32 holds exactly, so a kernel can be given the very same numbers.
--check computes everything again and compares instead of writing.
"""

import argparse
import json
import os
import sys
import zlib

import numpy as np
import torch
from torch.nn import functional

from lenet import IGNORE_INDEX, versions
from optimizers import Lion, Muon
from safetensors_file import load, save


class Cases:
    """The cases of one operator: c00, c01, ..."""

    def __init__(self, op):
        self.op = op
        self.tensors = {}
        self.metadata = dict(versions(), op=op)
        self.count = 0
        self.generator = torch.Generator().manual_seed(zlib.crc32(op.encode()))

    def random(self, *shape, scale=1.0):
        values = torch.randn(shape, generator=self.generator, dtype=torch.float64) * scale
        return values.float().double()

    def distinct(self, *shape):
        """No two equal: what max and its gradient need away from ties."""
        count = int(np.prod(shape))
        return ((torch.randperm(count, generator=self.generator) - count // 2).double() / 64).reshape(shape)

    def add(self, function, inputs, attributes, constants=None, outputs=None):
        """inputs: name -> tensor, differentiated; constants: name -> tensor, not. Writes y, dy and d<input>."""
        prefix = f"c{self.count:02d}"
        self.count += 1
        leaves = {name: value.clone().requires_grad_() for name, value in inputs.items()}
        y = function(*leaves.values(), *(constants or {}).values())
        dy = self.random(*y.shape)
        gradients = torch.autograd.grad(y, list(leaves.values()), dy)
        stored = dict(inputs, **(constants or {}), y=y, dy=dy, **(outputs or {}))
        stored.update({"d" + name: g for name, g in zip(leaves, gradients)})
        for name, value in stored.items():
            value = value.detach().numpy()
            if value.dtype == np.int64:
                value = value.astype(np.int32)
            self.tensors[f"{prefix}.{name}"] = np.atleast_1d(value).copy()
        self.metadata[prefix] = json.dumps(attributes, sort_keys=True)

    def finish(self):
        self.metadata["cases"] = str(self.count)
        return self.tensors, self.metadata


def conv2d(c):
    # N, C, H, W, O, kernel, stride, padding, dilation, groups, bias
    for n, ch, h, w, o, kernel, stride, padding, dilation, groups, bias in [
        (3, 1, 9, 9, 5, (3, 3), (1, 1), (0, 0), (1, 1), 1, True),
        (2, 5, 8, 7, 7, (5, 5), (1, 1), (2, 2), (1, 1), 1, True),
        (1, 3, 11, 5, 4, (3, 2), (2, 1), (1, 0), (1, 1), 1, False),
        (5, 2, 7, 13, 3, (1, 1), (1, 1), (0, 0), (1, 1), 1, True),
        (2, 3, 7, 7, 2, (1, 1), (2, 3), (0, 0), (1, 1), 1, False),
        (2, 4, 12, 11, 6, (3, 3), (1, 1), (2, 2), (2, 2), 1, True),
        (3, 2, 13, 17, 3, (3, 5), (3, 2), (2, 4), (1, 3), 1, True),
        (2, 6, 7, 6, 9, (3, 3), (1, 1), (1, 1), (1, 1), 3, True),
        (3, 5, 6, 6, 5, (3, 3), (2, 2), (1, 1), (1, 1), 5, False),
        (2, 3, 7, 5, 6, (2, 3), (1, 2), (1, 1), (2, 1), 3, True),
        (1, 1, 1, 1, 1, (1, 1), (1, 1), (0, 0), (1, 1), 1, True),
        (1, 2, 1, 7, 3, (1, 7), (1, 1), (0, 0), (1, 1), 1, True),
        (1, 1, 3, 3, 2, (5, 5), (4, 4), (3, 3), (1, 1), 1, True),
        (17, 1, 5, 5, 2, (2, 2), (1, 1), (0, 0), (1, 1), 1, True),
        (2, 17, 4, 4, 19, (3, 3), (1, 1), (1, 1), (1, 1), 1, True),
    ]:
        inputs = {"x": c.random(n, ch, h, w), "w": c.random(o, ch // groups, *kernel)}
        if bias:
            inputs["b"] = c.random(o)

        def function(x, w, b=None):
            return functional.conv2d(x, w, b, stride, padding, dilation, groups)

        c.add(function, inputs, dict(stride=stride, padding=padding, dilation=dilation, groups=groups, bias=bias))


POOLS = [
    # shape, kernel, stride, padding, ceil mode
    ((2, 3, 8, 8), (2, 2), (2, 2), (0, 0), False),
    ((3, 5, 9, 7), (2, 2), (2, 2), (0, 0), False),
    ((3, 5, 9, 7), (2, 2), (2, 2), (0, 0), True),
    ((1, 2, 7, 11), (3, 3), (2, 2), (1, 1), False),
    ((2, 1, 7, 11), (3, 3), (2, 2), (1, 1), True),
    ((2, 3, 6, 5), (3, 2), (1, 1), (1, 1), False),
    ((1, 1, 5, 13), (2, 5), (3, 4), (1, 2), True),
    ((2, 2, 10, 10), (3, 3), (4, 4), (0, 0), True),
    ((2, 2, 6, 6), (2, 2), (3, 3), (1, 1), True),
    ((17, 2, 4, 4), (4, 4), (4, 4), (0, 0), False),
    ((1, 1, 1, 1), (1, 1), (1, 1), (0, 0), False),
]


def avg_pool2d(c):
    for shape, kernel, stride, padding, ceil in POOLS:
        for counted in (True, False) if padding != (0, 0) or ceil else (True,):
            c.add(
                lambda x: functional.avg_pool2d(x, kernel, stride, padding, ceil, counted),
                {"x": c.random(*shape)},
                dict(kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil, count_include_pad=counted),
            )


def max_pool2d(c):
    for shape, kernel, stride, padding, ceil in POOLS:
        c.add(
            lambda x: functional.max_pool2d(x, kernel, stride, padding, 1, ceil),
            {"x": c.distinct(*shape)},
            dict(kernel=kernel, stride=stride, padding=padding, ceil_mode=ceil, ties=False),
        )
    # Equal values in a window: the first one in row order gets the gradient.
    x = torch.randint(0, 3, (2, 3, 7, 7), generator=c.generator).double()
    c.add(lambda x: functional.max_pool2d(x, 3, 2, 1), {"x": x},
          dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1), ceil_mode=False, ties=True))  # fmt: skip
    # All negative, padded: padding must never win.
    c.add(lambda x: functional.max_pool2d(x, 3, 2, 1), {"x": -c.random(2, 3, 5, 5).abs() - 1},
          dict(kernel=(3, 3), stride=(2, 2), padding=(1, 1), ceil_mode=False, ties=False))  # fmt: skip


UNARY_SHAPES = [(1,), (7,), (3, 5), (2, 3, 5, 7), (257,)]


def adaptive_avg_pool2d(c):
    for shape, size in [((2, 3, 7, 7), (1, 1)), ((3, 2, 10, 13), (7, 7)), ((1, 2, 3, 4), (5, 9)), ((2, 2, 8, 6), (4, 3))]:
        c.add(lambda x: functional.adaptive_avg_pool2d(x, size), {"x": c.random(*shape)}, dict(size=size))


def upsample2d(c):
    # shape, size or None, scale or None, align corners or None for the nearest element
    for shape, size, scale, align in [
        ((2, 3, 4, 5), None, (2, 2), False),
        ((2, 1, 5, 7), None, (1.5, 2.7), False),
        ((1, 2, 9, 11), (4, 5), None, False),
        ((2, 2, 4, 6), (9, 7), None, True),
        ((1, 1, 3, 3), (1, 8), None, True),
        ((3, 1, 4, 5), None, (2, 3), None),
        ((1, 2, 9, 10), (4, 7), None, None),
        ((2, 1, 4, 9), None, (1.2, 2.3), False),
    ]:
        mode = "nearest" if align is None else "bilinear"
        c.add(
            lambda x: functional.interpolate(x, size, scale, mode, align),
            {"x": c.random(*shape)},
            dict(size=size or (0, 0), scale=scale or (0, 0), nearest=align is None, align_corners=bool(align)),
        )


def conv_transpose2d(c):
    # N, C, H, W, O, kernel, stride, padding, output padding, dilation, groups
    for n, ch, h, w, o, kernel, stride, padding, more, dilation, groups in [
        (2, 4, 5, 4, 6, (2, 2), (2, 2), (0, 0), (0, 0), (1, 1), 1),
        (2, 3, 4, 6, 5, (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), 1),
        (1, 4, 3, 5, 6, (3, 2), (3, 1), (2, 0), (2, 0), (2, 3), 2),
    ]:
        inputs = {"x": c.random(n, ch, h, w), "w": c.random(ch, o // groups, *kernel), "b": c.random(o)}
        c.add(
            lambda x, w, b: functional.conv_transpose2d(x, w, b, stride, padding, more, groups, dilation),
            inputs,
            dict(stride=stride, padding=padding, output_padding=more, dilation=dilation, groups=groups),
        )


def conv3d(c):
    # N, C, D, H, W, O, kernel, stride, padding, dilation, groups
    for n, ch, d, h, w, o, kernel, stride, padding, dilation, groups in [
        (2, 3, 4, 5, 6, 5, (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), 1),
        (1, 4, 9, 6, 7, 6, (2, 3, 2), (3, 2, 1), (2, 1, 0), (2, 1, 2), 2),
    ]:
        inputs = {"x": c.random(n, ch, d, h, w), "w": c.random(o, ch // groups, *kernel), "b": c.random(o)}
        c.add(
            lambda x, w, b: functional.conv3d(x, w, b, stride, padding, dilation, groups),
            inputs,
            dict(stride=stride, padding=padding, dilation=dilation, groups=groups),
        )


def unary(c, function, **attributes):
    for shape in UNARY_SHAPES:
        c.add(function, {"x": c.random(*shape, scale=2.0)}, attributes)
    # The ends of the range, zero of both signs, and numbers next to it.
    ends = [-1e4, -100.0, -30.0, -10.0, -5.0, -1e-3, -1e-20, -0.0, 0.0, 1e-20, 1e-3, 5.0, 10.0, 30.0, 100.0, 1e4]
    c.add(function, {"x": torch.tensor(ends, dtype=torch.float64).float().double()}, attributes)


def relu(c):
    unary(c, functional.relu)


def leaky_relu(c):
    for slope in (0.01, 0.25):
        unary(c, lambda x: functional.leaky_relu(x, slope), slope=slope)


def sigmoid(c):
    unary(c, torch.sigmoid)


def tanh(c):
    unary(c, torch.tanh)


def gelu(c):
    for approximate in ("none", "tanh"):
        unary(c, lambda x: functional.gelu(x, approximate=approximate), approximate=approximate)


def softmax_cases(c, function):
    for shape, axis, scale in [
        ((1, 1), 1, 1.0), ((3, 10), 1, 1.0), ((17, 7), 1, 30.0), ((5, 257), 1, 3.0), ((4, 3, 5), 1, 2.0),
        ((4, 3, 5), 2, 2.0), ((7, 5), 0, 1.0), ((2, 1009), 1, 1.0), ((2, 3, 2, 5), 1, 4.0),
    ]:  # fmt: skip
        c.add(lambda x: function(x, axis), {"x": c.random(*shape, scale=scale)}, dict(axis=axis))
    # Shifted far from zero, and one logit that dwarfs the rest.
    x = c.random(3, 11) + torch.tensor([[500.0], [-500.0], [0.0]], dtype=torch.float64)
    x[2, 4] = 300.0
    c.add(lambda x: function(x, 1), {"x": x.float().double()}, dict(axis=1))


def softmax(c):
    softmax_cases(c, torch.softmax)


def log_softmax(c):
    softmax_cases(c, torch.log_softmax)


def cross_entropy(c):
    for n, classes, smoothing, ignored, scale in [
        (5, 10, 0.0, 0.0, 1.0), (1, 1, 0.0, 0.0, 1.0), (1, 7, 0.0, 0.0, 5.0), (17, 3, 0.1, 0.0, 1.0),
        (13, 10, 0.0, 0.5, 3.0), (31, 11, 0.2, 0.4, 2.0), (3, 1009, 0.1, 0.0, 1.0), (7, 5, 1.0, 0.3, 1.0),
        (64, 10, 0.0, 0.9, 30.0),
    ]:  # fmt: skip
        labels = torch.randint(0, classes, (n,), generator=c.generator)
        if ignored:
            drop = torch.rand(n, generator=c.generator) < ignored
            drop[-1] = False
            drop[0] = True
            labels = torch.where(drop, IGNORE_INDEX, labels)
        for reduction in ("mean", "sum"):
            c.add(
                lambda x, labels: functional.cross_entropy(
                    x, labels, ignore_index=IGNORE_INDEX, label_smoothing=smoothing, reduction=reduction),
                {"x": c.random(n, classes, scale=scale)},
                dict(label_smoothing=smoothing, ignore_index=IGNORE_INDEX, reduction=reduction),
                {"labels": labels},
            )  # fmt: skip


def mse_loss(c):
    for shape in [(1,), (7,), (3, 5), (17, 11), (2, 3, 5)]:
        for reduction in ("mean", "sum"):
            c.add(lambda x, t: functional.mse_loss(x, t, reduction=reduction),
                  {"x": c.random(*shape), "t": c.random(*shape)}, dict(reduction=reduction))  # fmt: skip


def pair_losses(c):
    def case(loss, function, shape, target, weights=None, **numbers):
        inputs = {"x": c.random(*shape, scale=3.0 if loss[0] == "b" else 1.0), "t": target.float().double()}
        c.add(function, inputs, dict(loss=loss, **numbers), {} if weights is None else {"w": weights})

    for shape in [(1,), (7,), (5, 3)]:
        chance = c.random(*shape).sigmoid()
        bce, kl = functional.binary_cross_entropy_with_logits, functional.kl_div
        case("bce_with_logits", lambda x, t: bce(x, t, reduction="sum"), shape, chance.round())
        case("bce_with_logits", lambda x, t: bce(x, t, reduction="sum"), shape, chance)
        weights = c.random(shape[-1]).exp().float().double()
        case("bce_with_logits, weighted", lambda x, t, w: bce(x, t, pos_weight=w, reduction="sum"), shape, chance,
             weights)  # fmt: skip
        for number in (0.25, 1.0):
            case("huber", lambda x, t: functional.huber_loss(x, t, reduction="sum", delta=number), shape,
                 c.random(*shape), delta=number)  # fmt: skip
            case("smooth_l1", lambda x, t: functional.smooth_l1_loss(x, t, reduction="sum", beta=number), shape,
                 c.random(*shape), beta=number)  # fmt: skip
        case("kl_div", lambda x, t: kl(x, t, reduction="sum"), shape, chance)
        case("kl_div of logarithms", lambda x, t: kl(x, t, reduction="sum", log_target=True), shape, chance.log())


BROADCASTS = [
    ((3, 5), (3, 5)), ((1,), (1,)), ((7, 5), (5,)), ((5,), (7, 5)), ((4, 3, 5), (3, 1)), ((4, 1, 5), (1, 3, 1)),
    ((2, 3, 4, 5), (1, 3, 1, 1)), ((2, 3, 4, 5), (2, 1, 4, 1)), ((3, 1), (1, 7)), ((6, 7), (1,)), ((1,), (6, 7)),
    ((1, 1, 3), (5, 1, 1)), ((257,), (257,)),
]  # fmt: skip


def binary(c, function, divide=False):
    for left, right in BROADCASTS:
        b = c.random(*right)
        if divide:
            b = torch.where(b < 0, -1.0, 1.0) * (b.abs() + 0.5)
        c.add(function, {"a": c.random(*left), "b": b.float().double()}, {})


def add(c):
    binary(c, torch.add)


def sub(c):
    binary(c, torch.sub)


def mul(c):
    binary(c, torch.mul)


def div(c):
    binary(c, torch.div, divide=True)


REDUCTIONS = [
    ((3, 5), (0,)), ((3, 5), (1,)), ((3, 5), (0, 1)), ((7,), (0,)), ((2, 3, 5, 7), (0, 2, 3)), ((2, 3, 5, 7), (1,)),
    ((2, 3, 5, 7), (0, 3)), ((2, 3, 5, 7), (2, 3)), ((1, 1), (0,)), ((3, 1009), (1,)), ((1009, 3), (0,)),
]  # fmt: skip


def reduction(c, function, make):
    for shape, axes in REDUCTIONS:
        for keep in (False, True):
            c.add(lambda x: function(x, axes, keep), {"x": make(*shape)}, dict(axes=axes, keepdims=keep))


def sum_(c):
    reduction(c, torch.sum, c.random)


def mean(c):
    reduction(c, torch.mean, c.random)


def max_(c):
    reduction(c, torch.amax, c.distinct)


def pad(c):
    for shape, before, after, value in [
        ((3, 5), (0, 1), (0, 2), 0.0), ((3, 5), (2, 0), (1, 3), 1.5), ((2, 3, 4, 5), (0, 0, 1, 2), (0, 0, 2, 1), -2.0),
        ((7,), (3,), (0,), 0.0), ((1, 1), (1, 1), (1, 1), 0.0), ((2, 3, 5), (0, 2, 0), (0, 0, 0), 0.5),
    ]:  # fmt: skip
        widths = [w for pair in reversed(list(zip(before, after))) for w in pair]
        c.add(lambda x: functional.pad(x, widths, value=value), {"x": c.random(*shape)},
              dict(before=before, after=after, value=value))  # fmt: skip


def concat(c):
    for shapes, axis in [
        ([(3, 5), (3, 2)], 1), ([(3, 5), (1, 5), (7, 5)], 0), ([(2, 3, 4, 5), (2, 1, 4, 5), (2, 11, 4, 5)], 1),
        ([(2, 3, 1), (2, 3, 6)], 2), ([(4,)], 0),
    ]:  # fmt: skip
        inputs = {f"x{i}": c.random(*shape) for i, shape in enumerate(shapes)}
        c.add(lambda *xs: torch.cat(xs, axis), inputs, dict(axis=axis, inputs=len(shapes)))


def slice_(c):
    for shape, begin, end in [
        ((5, 7), (0, 2), (5, 6)), ((5, 7), (1, 0), (2, 7)), ((2, 3, 5, 7), (0, 1, 2, 3), (2, 3, 4, 7)),
        ((11,), (10,), (11,)), ((3, 4), (0, 0), (3, 4)), ((4, 13, 3), (0, 5, 0), (4, 12, 3)),
    ]:  # fmt: skip
        index = tuple(slice(b, e) for b, e in zip(begin, end))
        c.add(lambda x: x[index], {"x": c.random(*shape)}, dict(begin=begin, end=end))


def transpose(c):
    for shape, permutation in [
        ((3, 5), (1, 0)), ((2, 3, 5, 7), (0, 2, 3, 1)), ((2, 3, 5, 7), (0, 3, 1, 2)), ((2, 3, 5), (2, 1, 0)),
        ((2, 3, 5), (0, 2, 1)), ((17, 1, 19), (2, 0, 1)), ((2, 3, 2, 3, 2), (4, 2, 0, 3, 1)), ((7,), (0,)),
    ]:  # fmt: skip
        c.add(lambda x: x.permute(permutation).contiguous(), {"x": c.random(*shape)}, dict(permutation=permutation))


def reshape(c):
    for shape, to in [((3, 5, 7), (3, 35)), ((6, 4), (2, 3, 4)), ((2, 3, 5), (30,)), ((7,), (7, 1, 1))]:
        c.add(lambda x: x.reshape(to), {"x": c.random(*shape)}, dict(shape=to))


def linear(c):
    for n, inputs, outputs, bias in [
        (1, 1, 1, True), (3, 5, 7, True), (17, 13, 10, True), (5, 31, 2, False), (1, 257, 3, True), (33, 1, 5, True),
        (7, 50, 49, True),
    ]:  # fmt: skip
        tensors = {"x": c.random(n, inputs), "w": c.random(outputs, inputs)}
        if bias:
            tensors["b"] = c.random(outputs)
        c.add(functional_linear, tensors, dict(bias=bias))


def functional_linear(x, w, b=None):
    return functional.linear(x, w, b)


def matmul(c):
    for m, n, k in [(1, 1, 1), (3, 5, 7), (17, 19, 23), (1, 31, 5), (13, 1, 9), (50, 49, 3)]:
        for ta, tb in [(False, False), (True, False), (False, True), (True, True)]:
            a = c.random(*((k, m) if ta else (m, k)))
            b = c.random(*((n, k) if tb else (k, n)))
            c.add(lambda a, b: (a.T if ta else a) @ (b.T if tb else b), {"a": a, "b": b},
                  dict(transpose_a=ta, transpose_b=tb))  # fmt: skip
    for batch in [(3,), (2, 3)]:
        c.add(torch.matmul, {"a": c.random(*batch, 5, 7), "b": c.random(*batch, 7, 2)},
              dict(transpose_a=False, transpose_b=False))  # fmt: skip


def attention(c):
    # Heads of q, of k and v, and the mask that is added; every sixth element of the last takes no key.
    for heads, groups, mask in [(2, 2, (2, 2, 5, 7)), (4, 2, (1, 4, 5, 7)), (2, 1, (1, 1, 5, 7)), (2, 2, (2, 1, 1, 7)),
                                (2, 2, (1, 2, 5, 1)), (2, 2, (1, 2, 5, 7))]:
        added = c.random(*mask)
        if c.count == 5:
            added.view(-1)[::6] = -torch.inf
        c.add(lambda q, k, v, m: functional.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True),
              {"q": c.random(2, heads, 5, 4), "k": c.random(2, groups, 7, 4), "v": c.random(2, groups, 7, 4), "mask": added},
              dict(heads=heads))


OPERATORS = {
    "attention": attention,
    "adaptive_avg_pool2d": adaptive_avg_pool2d, "upsample2d": upsample2d, "conv_transpose2d": conv_transpose2d,
    "conv3d": conv3d,
    "conv2d": conv2d, "avg_pool2d": avg_pool2d, "max_pool2d": max_pool2d, "relu": relu, "leaky_relu": leaky_relu,
    "sigmoid": sigmoid, "tanh": tanh, "gelu": gelu, "softmax": softmax, "log_softmax": log_softmax,
    "cross_entropy": cross_entropy, "mse_loss": mse_loss, "add": add, "sub": sub, "mul": mul, "div": div, "sum": sum_,
    "mean": mean, "max": max_, "pad": pad, "concat": concat, "slice": slice_, "transpose": transpose,
    "reshape": reshape, "linear": linear, "matmul": matmul,
    "pair_losses": pair_losses,
}  # fmt: skip

SIZES = [(7, 5), (11,), (1,)]
STEPS = 6


def optimizers():
    """Parameters p0, p1, p2 after each of STEPS updates with given gradients, in f64."""
    c = Cases("optimizers")
    adam = dict(lr=0.01, betas=(0.9, 0.999), eps=1e-8)
    sgd, kinds = torch.optim.SGD, []
    kinds.append(("sgd", sgd, dict(lr=0.1)))
    kinds.append(("sgd", sgd, dict(lr=0.1, weight_decay=0.03)))
    kinds.append(("momentum", sgd, dict(lr=0.05, momentum=0.9, weight_decay=0.01)))
    kinds.append(("nesterov", sgd, dict(lr=0.05, momentum=0.9, weight_decay=0.01, nesterov=True)))
    kinds.append(("adam", torch.optim.Adam, dict(adam)))
    kinds.append(("adam", torch.optim.Adam, dict(adam, weight_decay=0.1)))
    kinds.append(("adam", torch.optim.Adam, dict(lr=0.02, betas=(0.8, 0.95), eps=1e-4)))
    kinds.append(("adamw", torch.optim.AdamW, dict(adam, weight_decay=0.1)))
    kinds.append(("rmsprop", torch.optim.RMSprop, dict(lr=0.01, alpha=0.99, eps=1e-8)))
    kinds.append(("rmsprop", torch.optim.RMSprop, dict(lr=0.02, alpha=0.9, eps=1e-3, momentum=0.8, weight_decay=0.1)))
    kinds.append(("rmsprop", torch.optim.RMSprop, dict(lr=0.01, alpha=0.9, eps=1e-4, centered=True)))
    kinds.append(("rmsprop", torch.optim.RMSprop, dict(lr=0.01, alpha=0.95, eps=1e-2, centered=True, momentum=0.9,
                                                       weight_decay=0.05)))
    kinds.append(("adagrad", torch.optim.Adagrad, dict(lr=0.01, eps=1e-10)))
    kinds.append(("adagrad", torch.optim.Adagrad, dict(lr=0.1, eps=1e-3, lr_decay=0.2, weight_decay=0.1)))
    kinds.append(("adagrad", torch.optim.Adagrad, dict(lr=0.05, eps=1e-6, initial_accumulator_value=0.5)))
    kinds.append(("lion", Lion, dict(lr=0.01, betas=(0.9, 0.99))))
    kinds.append(("lion", Lion, dict(lr=0.02, betas=(0.95, 0.98), weight_decay=0.3)))
    muon = dict(lr=0.02, momentum=0.95, adamw_lr=0.003, betas=(0.9, 0.95), eps=1e-10)
    kinds.append(("muon", Muon, dict(muon)))
    kinds.append(("muon", Muon, dict(muon, lr=0.05, momentum=0.8, weight_decay=0.3)))
    kinds.append(("muon", Muon, dict(muon, lr=0.01, weight_decay=0.1, match=True)))
    for index, (name, kind, settings) in enumerate(kinds):
        for clip in (0.0, 2.0):
            prefix = f"c{c.count:02d}"
            c.count += 1
            start = [c.random(*size) for size in SIZES]
            gradients = [[c.random(*size, scale=0.1 if step == 2 else 1.0) for size in SIZES] for step in range(STEPS)]
            parameters = [torch.nn.Parameter(p.clone()) for p in start]
            optimizer = kind(parameters, **settings)
            norms, after = [], [[] for _ in SIZES]
            for step in gradients:
                for p, g in zip(parameters, step):
                    p.grad = g.clone()
                limit = clip if clip else float("inf")
                norms.append(float(torch.nn.utils.clip_grad_norm_(parameters, limit)))
                optimizer.step()
                for kept, p in zip(after, parameters):
                    kept.append(p.detach().numpy().copy())
            for i in range(len(SIZES)):
                c.tensors[f"{prefix}.p{i}"] = start[i].numpy()
                c.tensors[f"{prefix}.g{i}"] = np.stack([step[i].numpy() for step in gradients])
                c.tensors[f"{prefix}.after{i}"] = np.stack(after[i])
            c.tensors[prefix + ".norm"] = np.array(norms)
            attributes = dict(dict(momentum=0.0, weight_decay=0.0, betas=(0.0, 0.0), eps=0.0), **settings)
            attributes.pop("nesterov", None)
            c.metadata[prefix] = json.dumps(dict(attributes, optimizer=name, clip_norm=clip), sort_keys=True)
    return c.finish()


def compare(path, tensors):
    stored, _ = load(path)
    if sorted(stored) != sorted(tensors):
        sys.exit(f"{path}: other tensors than this script makes")
    for name, value in tensors.items():
        if stored[name].shape != value.shape or not np.allclose(stored[name], value, rtol=1e-11, atol=1e-13):
            sys.exit(f"{path}: {name} differs")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=os.path.join(here, "ops"))
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    files = {}
    for name, function in OPERATORS.items():
        cases = Cases(name)
        function(cases)
        files[name] = cases.finish()
    files["optimizers"] = optimizers()
    os.makedirs(options.out, exist_ok=True)
    for name, (tensors, metadata) in files.items():
        path = os.path.join(options.out, name + ".safetensors")
        if options.check:
            compare(path, tensors)
        else:
            save(path, tensors, metadata)
        print(f"{name}: {metadata['cases']} cases, {sum(t.nbytes for t in tensors.values())} bytes")


if __name__ == "__main__":
    main()
