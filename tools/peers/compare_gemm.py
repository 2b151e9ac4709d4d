#!/usr/bin/env python3
"""Compares matrix products with OpenBLAS, by turns: `cltrain bench gemm --compare` over sets of shapes.

    compare_gemm.py --cltrain build/bin/cltrain [--sets square,gpt2,lenet,resnet,random] [--tune 20] [--threads 1] [--avx2]

Without --tune the kernels are the defaults of a first run: no record of a measurement is read. Prints each product,
the geometric mean and the least of their ratios. `random` are 40 shapes that --seed draws.
Instead of a set, sizes such as 64x120x256+1000x1000x1000 can be given. With --avx2, PoCL and
OpenBLAS use vectors of 256 bits also where the processor has longer ones. --threads limits the threads of both. A part of a
device, as pocl@1, is no fair limit for small products: each of its launches takes 2 to 4 us more.
"""
import argparse
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile

TOKENS = 256
SETS = {
    "square": [(n, n, n) for n in (512, 768, 1000, 1024, 1536, 2048, 3072, 4096)],
    # batch times tokens, and the layers of GPT-2 124M
    "gpt2": [(rows, n, k) for rows in (8, 64, TOKENS, 4 * TOKENS) for n, k in ((2304, 768), (768, 768), (3072, 768), (768, 3072))]
    + [(TOKENS, 50257, 768)],
    # the layers after the convolutions
    "lenet": [(b, n, k) for b in (8, 64, 256) for n, k in ((120, 400), (84, 120), (10, 84), (120, 256))],
    # 1 x 1 convolutions of an image of 28, 14 and 7 pixels as products, and the last layer
    "resnet": [(b, 1000, 512) for b in (8, 64, 256)] + [(49 * 8, 512, 256), (196 * 8, 256, 128), (784 * 8, 128, 64)],
}


def random_shapes(seed, count=40):
    """Sizes from 16 to 3000, uniform in their logarithm."""
    draw = random.Random(seed)
    return [tuple(round(math.exp(draw.uniform(math.log(16), math.log(3000)))) for _ in range(3)) for _ in range(count)]


def shapes_of(name, seed):
    """A set's name, or sizes MxNxK joined by +."""
    if name == "random":
        return random_shapes(seed)
    if name in SETS:
        return SETS[name]
    if not re.fullmatch(r"\d+x\d+x\d+(\+\d+x\d+x\d+)*", name):
        sys.exit(f"compare_gemm.py: --sets {name}: give sizes as 64x128x256+32x32x32, or of: random, {', '.join(SETS)}")
    return [tuple(map(int, shape.split("x"))) for shape in name.split("+")]


def environment(avx2, threads, cache):
    env = dict(os.environ, XDG_CACHE_HOME=cache)
    for name in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
        env.pop(name, None)
    if threads:
        env.update(POCL_MAX_PTHREAD_COUNT=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    if avx2:
        env.update(OPENBLAS_CORETYPE="Haswell", POCL_LLVM_CPU_NAME="haswell", POCL_KERNELLIB_NAME="avx2",
                   POCL_CACHE_DIR=os.path.join(cache, "pocl-avx2"))
    return env


def measure(options, shapes, trans, env):
    command = [options.cltrain, "bench", "gemm", "--compare", "--json", "--devices", options.devices, "--blocks", str(options.blocks)]
    command += ["--tune", str(options.tune)] if options.tune else ["--tune", "off"]
    command += ["--trans", trans] + [str(n) for shape in shapes for n in shape]
    return json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout)


def theirs(row):
    """Microseconds of OpenBLAS."""
    return 1e6 * row["median_seconds"] * row["ratio"]


def print_mean(name, rows):
    if not rows:
        return
    mean = math.exp(sum(math.log(row["ratio"]) for row in rows) / len(rows))
    least = min(rows, key=lambda row: row["ratio"])
    print(f"{name}: geometric mean {mean:.3f}, least {least['ratio']:.3f} ({least['name']}), {len(rows)} products", flush=True)


def report(name, rows):
    """Prints the mean of a set. A launch costs microseconds, so products of less than 20 us (OpenBLAS' time) have a line of
    their own with what they take more, and the others their own mean."""
    print_mean(name, rows)
    short = [row for row in rows if theirs(row) < 20]
    if short:
        print_mean(name + ", 20 us and more", [row for row in rows if theirs(row) >= 20])
        more = sorted(1e6 * row["median_seconds"] - theirs(row) for row in short)
        print(f"{name}, {len(short)} products below 20 us: {statistics.median(more):.1f} us more "
              f"({more[0]:.1f} to {more[-1]:.1f})", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--sets", default="square,gpt2,lenet,resnet,random")
    parser.add_argument("--trans", default="NN,NT,TN")
    parser.add_argument("--tune", type=float, default=0, help="seconds of measuring kernels before each product")
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=0, help="of PoCL and of OpenBLAS; 0: one for each core")
    parser.add_argument("--avx2", action="store_true")
    options = parser.parse_args()
    every = []
    with tempfile.TemporaryDirectory() as cache:
        env = environment(options.avx2, options.threads, cache)
        for name in options.sets.split(","):
            shapes = shapes_of(name, options.seed)
            of_set = []
            for trans in options.trans.split(","):
                for start in range(0, len(shapes), 20):
                    result = measure(options, shapes[start : start + 20], trans, env)
                    if not every:
                        print(f"{result['device']}, {result['other']}, {result['limit_flops_per_s'] / 1e9:.0f} GFLOP/s in registers")
                    for row in result["rows"]:
                        print(f"  {row['name']:28} {row['variant']:10} {row['tile']:24} {row['median_seconds'] * 1e6:10.1f} us "
                              f"{row['of_limit']:5.2f} of limit {row['ratio']:5.2f} of OpenBLAS", flush=True)
                    of_set += result["rows"]
                    every += result["rows"]
            report(name, of_set)
    report("all", every)


if __name__ == "__main__":
    main()
