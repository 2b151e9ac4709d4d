#!/usr/bin/env python3
"""Times PyTorch on CUDA, f32 without TF32: products (cuBLAS), convolutions (cuDNN) and LeNet's step. For gpu-check.sh.

    torch_gpu.py --probe                                       prints what is there; exit 1 if it cannot be measured
    torch_gpu.py [--quick] "gemm M N K" "conv NxCxHxW OxKHxKW [--stride S] [--padding P] [--groups G]" lenet

Prints a line of JSON as soon as a result is known. {"peer"} has the versions. Each other line has the argument that it
is `of`, the name of a row of `cltrain bench`, and the seconds, or an error. The seconds are the median of 9 stretches
of about 20 ms between two CUDA events.
"""

import argparse
import json
import os
import statistics
import sys

try:
    import torch
except ImportError as error:
    sys.exit(f"{sys.executable}: {error}")

STRETCH, RUNS, BATCH = 0.02, 9, 256


def probe():
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} finds no CUDA device")
    return (f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
            f"{torch.cuda.get_device_name()}")  # fmt: skip


def stretch(call, count):
    """Returns the seconds per call of `count` calls."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 1000 / count


def measure(call, runs):
    for _ in range(3):
        call()
    count = max(1, int(STRETCH / max(stretch(call, 3), 1e-7)))
    return statistics.median(stretch(call, count) for _ in range(runs))


def gemm(words, runs):
    m, n, k = (int(w) for w in words)
    for trans in ("NN", "NT", "TN"):
        a = torch.rand((k, m) if trans[0] == "T" else (m, k), device="cuda")
        b = torch.rand((n, k) if trans[1] == "T" else (k, n), device="cuda")
        a, b = (x.t() if t == "T" else x for x, t in zip((a, b), trans))
        out = torch.empty(m, n, device="cuda")
        yield f"gemm {m}x{n}x{k} {trans}", measure(lambda: torch.mm(a, b, out=out), runs)


def conv(words, runs):
    parser = argparse.ArgumentParser()
    parser.add_argument("input")
    parser.add_argument("weight")
    for name, usual in (("stride", 1), ("padding", 0), ("groups", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    given = parser.parse_args(words)
    n, c, h, w = (int(x) for x in given.input.split("x"))
    o, kh, kw = (int(x) for x in given.weight.split("x"))
    x = torch.rand(n, c, h, w, device="cuda")
    weight = torch.rand(o, c // given.groups, kh, kw, device="cuda")
    bias = torch.rand(o, device="cuda")
    rest = ([given.stride] * 2, [given.padding] * 2, [1, 1])
    y = torch.nn.functional.conv2d(x, weight, bias, *rest, given.groups)
    dy = torch.rand_like(y)

    def backward(mask):
        return torch.ops.aten.convolution_backward(dy, x, weight, [o], *rest, False, [0, 0], given.groups, mask)

    yield "conv2d", measure(lambda: torch.nn.functional.conv2d(x, weight, bias, *rest, given.groups), runs)
    yield "conv2d_data_grad", measure(lambda: backward([True, False, False]), runs)
    yield "conv2d_weight_grad", measure(lambda: backward([False, True, True]), runs)


def lenet(words, runs):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "goldens"))
    from lenet import LeNet

    torch.manual_seed(0)
    model = LeNet().cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    x = torch.rand(BATCH, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (BATCH,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()

    yield "step", measure(step, runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--probe", action="store_true")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("what", nargs="*")
    given = parser.parse_args([w for w in sys.argv[1:] if w])
    text = probe()
    if given.probe:
        print(text)
        return
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    print(json.dumps({"peer": text}), flush=True)
    failed = False
    for what in given.what:
        kind, *words = what.split()
        try:
            for name, seconds in {"gemm": gemm, "conv": conv, "lenet": lenet}[kind](words, 3 if given.quick else RUNS):
                print(json.dumps({"of": what, "name": name, "seconds": seconds}), flush=True)
        except RuntimeError as error:  # also errors of CUDA: memory, a driver that does not fit
            failed = True
            print(f"{what}: {error}", file=sys.stderr)
            print(json.dumps({"of": what, "error": str(error).splitlines()[0]}), flush=True)
    sys.exit(failed)


main()
