#!/usr/bin/env python3
"""Measures PyTorch's f32 errors in the 3 x 3 convolutions of ResNet-18, in the unit of the tests of Winograd's method.

    torch_conv_error.py [--images 2] [--weight-images 1,9]

The unit is the error of one sequence of f32 multiply-adds, which `kernels.winograd` and `kernels.winograd_weight` print
cltrain's errors in: roots of mean squared errors against sums of doubles. Prints PyTorch's for the output, the gradient of the
input, and the gradient of the weights. A test's number divided by that is the error in units of PyTorch's. Needs PyTorch.
"""
import argparse

import torch
import torch.nn.functional as F

LAYERS = [(64, 32), (128, 16), (256, 8), (512, 4)]  # channels, height and width


def root(x):
    return x.double().square().mean().sqrt().item()


def multiply_adds(a, b):
    """a [M, K] times b [K, N], each element one sequence of f32 multiply-adds."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total = (total.double() + a[:, k : k + 1].double() * b[k].double()).float()
    return total


def patches(x):
    """[C * 9, N * H * W]"""
    columns = F.unfold(x, 3, padding=1)
    return columns.permute(1, 0, 2).reshape(columns.shape[1], -1)


def rows(y):
    """[C, N * H * W]"""
    return y.permute(1, 0, 2, 3).reshape(y.shape[1], -1)


def errors(channels, side, images):
    """PyTorch's errors of output, input gradient and weight gradient, over those of sequences."""
    draw = lambda *shape: torch.rand(*shape) * 2 - 1  # noqa: E731
    x, w = draw(images, channels, side, side), draw(channels, channels, 3, 3)
    g = draw(images, channels, side, side)
    x.requires_grad_(), w.requires_grad_()
    x2, w2 = x.detach().double().requires_grad_(), w.detach().double().requires_grad_()
    y, exact = F.conv2d(x, w, padding=1), F.conv2d(x2, w2, padding=1)
    y.backward(g)
    exact.backward(g.double())
    flipped = w.detach().flip(2, 3).transpose(0, 1).reshape(channels, -1)
    with torch.no_grad():
        plain = [
            multiply_adds(w.reshape(channels, -1), patches(x)) - rows(exact),
            multiply_adds(flipped, patches(g)) - rows(x2.grad),
            multiply_adds(rows(g), patches(x).T) - w2.grad.reshape(channels, -1),
        ]
        theirs = [y - exact, x.grad - x2.grad, w.grad - w2.grad]
    return [root(a) / root(b) for a, b in zip(theirs, plain)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2)
    parser.add_argument("--weight-images", default="1,9")
    options = parser.parse_args()
    torch.manual_seed(1)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads")
    for channels, side in LAYERS:
        forward, data, _ = errors(channels, side, options.images)
        print(f"{channels} channels, {side} x {side}: output {forward:.2f}, gradient of the input {data:.2f}", end="")
        for images in map(int, options.weight_images.split(",")):
            print(f", of the weights with {images} images {errors(channels, side, images)[2]:.2f}", end="", flush=True)
        print()


if __name__ == "__main__":
    main()
