#!/usr/bin/env python3
"""Writes goldens of torch.nn.LSTM and torch.nn.GRU in f64: recurrent.safetensors, described in README.md.

    make_recurrent.py [--out DIR]
"""

import argparse
import pathlib

import numpy as np
import safetensors_file
import torch

B, T, I, H = 5, 7, 6, 9


def case(tensors, prefix, kind, bidirectional, lengths):
    torch.manual_seed(3)
    layers, directions = 2, 1 + bidirectional
    net = kind(I, H, layers, batch_first=True, bidirectional=bidirectional)
    # Numbers that f32 holds exactly: the parameters are rounded to it before all goes on in f64.
    net = net.float().double()
    x = torch.randn(B, T, I).double().requires_grad_()
    dy = torch.randn(B, T, directions * H).double()
    h0 = torch.randn(layers * directions, B, H).double().requires_grad_()
    lstm = kind is torch.nn.LSTM
    c0 = torch.randn(layers * directions, B, H).double().requires_grad_()
    state = (h0, c0) if lstm else h0
    if lengths:
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        y, last = net(packed, state)
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first=True, total_length=T)
        tensors[f"{prefix}.lengths"] = np.array(lengths, dtype=np.int32)
    else:
        y, last = net(x, state)
    h_n, c_n = last if lstm else (last, None)
    (y * dy).sum().backward()
    for name, value in net.state_dict().items():
        tensors[f"{prefix}.{name}"] = value.numpy()
    for name, value in net.named_parameters():
        tensors[f"{prefix}.grad.{name}"] = value.grad.numpy()
    more = {"x": x, "dy": dy, "h0": h0, "y": y, "h_n": h_n, "dx": x.grad, "dh0": h0.grad}
    if lstm:
        more |= {"c0": c0, "c_n": c_n, "dc0": c0.grad}
    for name, value in more.items():
        tensors[f"{prefix}.{name}"] = value.detach().numpy()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).parent)
    out = parser.parse_args().out
    tensors = {}
    for name, kind in (("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU)):
        case(tensors, name, kind, False, None)
        case(tensors, f"{name}.both", kind, True, [7, 3, 1, 7, 5])
    metadata = {"torch": torch.__version__, "numpy": np.__version__}
    safetensors_file.save(out / "recurrent.safetensors", tensors, metadata)


main()
