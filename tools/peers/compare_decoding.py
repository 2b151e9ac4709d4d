#!/usr/bin/env python3
"""Times decoding of GPT-2 (124 million parameters) in f32 and bf16 by turns, beside the memory's rate. Run by hand.

    compare_decoding.py --cltrain PATH [--tokens 120] [--samples 1] [--rounds 5] [--devices pocl]

Writes a checkpoint with pseudo-random weights. Compiles read_limit.c, which only reads an array of the size of the
weights with one thread on each core. A round runs `cltrain sample --greedy` in f32, then in bf16, with read_limit before,
between and after. The first round warms up caches and is not counted.

Prints for each the median, least and largest of all rounds. "of the limit" is the bytes of weights that a token reads,
times tokens a second, over the mean of the rates before and after. The rate of a virtual machine can change within
seconds. The script leaves out runs between rates that differ by more than a tenth, and prints how many remain.
"""

import argparse
import array
import json
import os
import random
import re
import statistics
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY, POSITIONS, WIDTH, LAYERS = 50257, 1024, 768, 12
# Numbers of the weights that every token reads: all but the embedding of positions.
READ = VOCABULARY * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH


def shapes():
    yield "wte.weight", (VOCABULARY, WIDTH)
    yield "wpe.weight", (POSITIONS, WIDTH)
    for i in range(LAYERS):
        for part, rows, columns in (("attn.c_attn", WIDTH, 3 * WIDTH), ("attn.c_proj", WIDTH, WIDTH),
                                    ("mlp.c_fc", WIDTH, 4 * WIDTH), ("mlp.c_proj", 4 * WIDTH, WIDTH)):  # fmt: skip
            yield f"h.{i}.{part}.weight", (rows, columns)
            yield f"h.{i}.{part}.bias", (columns,)
        for part in ("ln_1", "ln_2"):
            yield f"h.{i}.{part}.weight", (WIDTH,)
            yield f"h.{i}.{part}.bias", (WIDTH,)
    yield "ln_f.weight", (WIDTH,)
    yield "ln_f.bias", (WIDTH,)


def write_model(path):
    """Weights repeat a block of a million numbers, from another place for each tensor."""
    draw = random.Random(1)
    block = array.array("f", (draw.gauss(0, 0.02) for _ in range(1000003))).tobytes()
    head, at, start = {}, 0, 0
    for name, dims in shapes():
        size = 4 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        head[name] = {"dtype": "F32", "shape": dims, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, dims in shapes():
            left = head[name]["data_offsets"][1] - head[name]["data_offsets"][0]
            if ".ln_" in name or name.startswith("ln_"):
                one = 1.0 if name.endswith("weight") else 0.0
                file.write(array.array("f", [one] * dims[0]).tobytes())
                continue
            start = place = (start + 4 * 7919) % len(block)
            while left:
                part = block[place : place + left]
                file.write(part)
                left -= len(part)
                place = 0


def limit(program, size):
    threads = len(os.sched_getaffinity(0))
    done = subprocess.run([program, str(size), str(threads), "9"], check=True, capture_output=True, text=True)
    return statistics.median(map(float, done.stdout.split()))


def rate(options, model, precision):
    command = [options.cltrain, "sample", "--model", "gpt2:124M", "--checkpoint", model, "--tokenizer", "bytes",
               "--prompt", "Hello", "--greedy", "--ids", "--tokens", str(options.tokens), "--samples",
               str(options.samples), "--devices", options.devices, "--precision", precision]  # fmt: skip
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(re.search(r"([0-9.]+) a second", done.stderr).group(1)) / options.samples


def show(name, unit, values):
    if not values:
        print(f"{name:<16} the memory's rate was never steady")
        return
    print(f"{name:<16} {statistics.median(values):8.2f} ({min(values):.2f} to {max(values):.2f}) {unit}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--cc", default="cc")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, program = os.path.join(folder, "model.safetensors"), os.path.join(folder, "read_limit")
        write_model(model)
        subprocess.run([options.cc, "-O3", "-march=native", "-pthread", os.path.join(HERE, "read_limit.c"), "-o",
                        program], check=True)  # fmt: skip
        memory, steps = [limit(program, 4 * READ)], {"f32": [], "bf16": []}
        shares = {precision: [] for precision in steps}
        for turn in range(options.rounds + 1):
            for precision, values in steps.items():
                values.append(rate(options, model, precision))
                memory.append(limit(program, 4 * READ))
                before, after = memory[-2:]
                if turn and abs(before - after) <= 0.1 * max(before, after):
                    size = READ * (4 if precision == "f32" else 2)
                    shares[precision].append(values[-1] * size * 2 / (before + after))
        steps = {precision: values[1:] for precision, values in steps.items()}
        show("reading", "GB/s", [m / 1e9 for m in memory])
        for precision, values in steps.items():
            show(precision, "tokens a second of each text", values)
            show("  of the limit", f"in {len(shares[precision])} rounds", shares[precision])
        show("bf16 over f32", "", [b / f for f, b in zip(steps["f32"], steps["bf16"])])


if __name__ == "__main__":
    main()
