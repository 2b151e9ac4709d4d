#!/usr/bin/env python3
"""Compares training steps with what the machine can do at most, by turns. Run by hand.

    compare_limit.py --cltrain PATH [--cltrain OTHER] [--models gpt2-64,gpt2-512,lenet,resnet18] [--rounds 3]

Compiles model_limit.c, which is independent of cltrain. A round runs it, then `cltrain bench train` of each PATH, then
model_limit again. The limit of a step is the model's products at the rate of multiply-adds in registers, plus the bytes
that the optimizer moves at the memory's rate. OpenBLAS' time is that of the same products, plus the same bytes. Both are
the better of the two measurements around a training.

The products of a convolution are those of its images' windows, without copying the windows. Attention counts half of its
products, because half of the weights are masked. Activations, norms and losses count nothing.

Prints the median, least and largest of all rounds: seconds of a step, and its part of the limit and of OpenBLAS' time.
"""

import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MOST_ROWS = 16384  # of a product; more rows are counted as several products


class Products:
    """The products of a step: forward, and for each the gradients of both operands."""

    def __init__(self):
        self.list, self.flops = [], 0

    def add(self, m, n, k, trans, count=1.0):
        while m > MOST_ROWS and trans[0] == "N":
            m, count = -(-m // 2), 2 * count
        while k > MOST_ROWS and trans[0] == "T":
            k, count = -(-k // 2), 2 * count
        self.list.append((m, n, k, trans, count))
        self.flops += 2.0 * m * n * k * count

    def layer(self, rows, out, inner, count=1.0, first=False, stored="NN"):
        """x [rows, inner] times a weight, which is stored [inner, out], or with NT [out, inner]."""
        self.add(rows, out, inner, stored, count)
        if not first:
            self.add(rows, inner, out, "NT" if stored == "NN" else "NN", count)
        if stored == "NN":
            self.add(inner, out, rows, "TN", count)
        else:
            self.add(out, inner, rows, "TN", count)


def gpt2(batch, tokens):
    layers, heads, width, vocabulary = 12, 12, 768, 50257
    p, rows = Products(), batch * tokens
    for out, inner in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width)):
        p.layer(rows, out, inner, layers)
    p.layer(rows, vocabulary, width, stored="NT")
    pairs, head = 0.5 * layers * heads * batch, width // heads
    p.add(tokens, tokens, head, "NT", 2 * pairs)  # scores and gradients of weights
    p.add(tokens, head, tokens, "NN", 2 * pairs)  # outputs and gradients of queries
    p.add(tokens, head, tokens, "TN", 2 * pairs)  # gradients of keys and values
    return p


def lenet(batch):
    p = Products()
    p.layer(batch * 26 * 26, 20, 9, first=True, stored="NT")
    p.layer(batch * 9 * 9, 50, 20 * 25, stored="NT")
    p.layer(batch, 128, 50 * 4 * 4, stored="NT")
    p.layer(batch, 10, 128, stored="NT")
    return p


def resnet18(batch, channels=3):
    p = Products()

    def convolution(side, out, inner, kernel, first=False):
        p.layer(batch * side * side, out, inner * kernel * kernel, first=first, stored="NT")

    convolution(32, 64, channels, 3, first=True)
    side, inner = 32, 64
    for stage in range(4):
        out = 64 << stage
        for block in range(2):
            if stage and not block:
                side //= 2
                convolution(side, out, inner, 1)
            convolution(side, out, inner, 3)
            convolution(side, out, out, 3)
            inner = out
    p.layer(batch, 10, 512, stored="NT")
    return p


def gpt2_command(batch, tokens):
    return ["--model", "gpt2", "--seq-len", str(tokens), "--classes", "50257", "--batch", str(batch), "--optimizer", "adamw",
            "--weight-decay", "0.1"]  # fmt: skip


def resnet_command(batch):
    return ["--model", "resnet18", "--data", "synthetic:3x32x32", "--batch", str(batch), "--optimizer", "momentum", "--lr", "0.1"]


# The command, the products, the arrays that the optimizer writes, and steps of a block
MODELS = {
    "gpt2-64": (gpt2_command(4, 64), gpt2(4, 64), 3, 3),
    "gpt2-512": (gpt2_command(1, 512), gpt2(1, 512), 3, 2),
    "lenet": (["--model", "lenet", "--data", "synthetic", "--batch", "256", "--lr", "0.2"], lenet(256), 1, 50),
    "resnet18": (resnet_command(64), resnet18(64), 2, 2),
    "resnet18-128": (resnet_command(128), resnet18(128), 2, 1),
}


def write_tokens(path):
    draw = random.Random(1)
    numbers = array.array("H", (draw.randrange(50257) for _ in range(200000)))
    if sys.byteorder == "big":
        numbers.byteswap()
    with open(path, "wb") as file:
        numbers.tofile(file)


def measure_limit(program, openblas, arrays, products):
    """Returns the rates of arithmetic and of updates, and OpenBLAS' time for the products."""
    command = [program, str(len(os.sched_getaffinity(0))), openblas, str(arrays)]
    command += [str(x) for product in products.list for x in product]
    lines = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines}


def measure_steps(options, cltrain, arguments, steps):
    command = [cltrain, "bench", "train", *arguments, "--devices", options.devices, "--tune", options.tune, "--steps", str(steps),
               "--warmup", "2", "--blocks", "3", "--json"]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(done[done.index("{") :])


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def compare(options, name, program, folder):
    arguments, products, arrays, steps = MODELS[name]
    if name.startswith("gpt2"):
        arguments = arguments + ["--data", "tokens:" + os.path.join(folder, "tokens.bin")]
    rows = {cltrain: [] for cltrain in options.cltrain}
    rates = []
    for _ in range(options.rounds):
        before = measure_limit(program, options.openblas, arrays, products)
        found = {cltrain: measure_steps(options, cltrain, arguments, steps) for cltrain in options.cltrain}
        after = measure_limit(program, options.openblas, arrays, products)
        limit = {key: (min if key == "products" else max)(before[key], after[key]) for key in before}
        rates.append(limit)
        for cltrain, values in found.items():
            update = values["update_bytes"] / limit["update"]
            least, blas = products.flops / limit["flops"] + update, limit["products"] + update
            step = values["step_seconds"]["median"]
            rows[cltrain].append((step, least / step, blas / step))
    print(f"{name}: {products.flops / 1e9:.2f} GFLOP and {values['update_bytes'] / 1e9:.3f} GB a step; "
          f"{spread([r['flops'] / 1e9 for r in rates], 0)} GFLOP/s, {spread([r['update'] / 1e9 for r in rates], 1)} GB/s, "
          f"OpenBLAS {spread([products.flops / r['products'] / 1e9 for r in rates], 0)} GFLOP/s")  # fmt: skip
    for cltrain, found in rows.items():
        step, of_limit, of_blas = zip(*found)
        print(f"  {cltrain}: step {spread(step, 4)} s, {spread(of_limit)} of the limit, {spread(of_blas)} of OpenBLAS", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cltrain", required=True, action="append")
    parser.add_argument("--models", default="gpt2-64,gpt2-512,lenet,resnet18")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--tune", default="off", help="as cltrain's")
    parser.add_argument("--openblas", default="libopenblas.so.0", help="the shared library")
    parser.add_argument("--cc", default="cc")
    options = parser.parse_args()
    unknown = [name for name in options.models.split(",") if name not in MODELS]
    if unknown:
        parser.error(f"--models: there is no {', '.join(unknown)}: choose of {', '.join(MODELS)}")
    os.environ.pop("OPENBLAS_CORETYPE", None)  # model_limit takes the best kernels of this processor
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "model_limit")
        source = os.path.join(HERE, "model_limit.c")
        subprocess.run([options.cc, "-O3", "-march=native", "-pthread", source, "-ldl", "-o", program], check=True)
        write_tokens(os.path.join(folder, "tokens.bin"))
        for name in options.models.split(","):
            compare(options, name, program, folder)


if __name__ == "__main__":
    main()
