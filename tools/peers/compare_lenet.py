#!/usr/bin/env python3
"""Times whole epochs of LeNet on Fashion-MNIST here, in PyTorch and in TensorFlow, by turns in one run. Run by hand.

    compare_lenet.py --cltrain PATH [--torch PYTHON] [--tensorflow PYTHON] [--devices pocl,pocl/2] [--rounds 6]

PYTHON is an interpreter that has the package (README.md says how to make one). Without it these rows are left out. An
epoch is 60,000 training samples with their loading, and the evaluation of 10,000. Every program runs --epochs of them.
The first one, which compiles and measures, does not count. Prints the median, least and largest rates, and the ratio
of our best rate to each. `--markdown` prints the rows of README.md's table.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SAMPLES = 60000
PEER_FLOP = 13.2e6  # per image of a training step, as PyTorch executes it


def ours(options, device):
    """Returns the seconds of each epoch after the first."""
    with tempfile.TemporaryDirectory() as folder:
        metrics = os.path.join(folder, "m.jsonl")
        subprocess.run([options.cltrain, "train", "--model", "lenet", "--data", "fashion-mnist", "--batch", "256",
                        "--lr", "0.2", "--epochs", str(options.epochs), "--devices", device, "--metrics", metrics,
                        "--quiet"], check=True)  # fmt: skip
        with open(metrics, encoding="utf-8") as file:
            ends = [r["seconds"] for r in map(json.loads, file) if "step" not in r]
    return [after - before for before, after in zip(ends, ends[1:])]


def peer(options, python, script, *more):
    command = [python, os.path.join(HERE, script), *more, "--epochs", str(options.epochs)]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout.splitlines()[-1])["epoch_seconds"][1:]


def programs(options):
    rows = [(f"cltrain on {d}", lambda d=d: ours(options, d)) for d in options.devices.split(",")]
    if options.torch:
        for name, more in (("eager", ()), ("compiled", ("--compile",))):
            rows.append((f"PyTorch, {name}", lambda m=more: peer(options, options.torch, "torch_lenet.py", "epochs", *m)))
    if options.tensorflow:
        for name, more in (("tf.function", ()), ("XLA", ("--jit",))):
            rows.append(
                (f"TensorFlow, {name}", lambda m=more: peer(options, options.tensorflow, "tensorflow_lenet.py", *m))
            )
    return rows


def peak(options):
    """Returns the FLOP/s that one of our devices reaches with independent multiply-adds."""
    command = [options.cltrain, "bench", "gemm", "512", "512", "512", "--devices", options.devices.split(",")[0], "--json"]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(run.stdout)["limit_flops_per_s"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--torch")
    parser.add_argument("--tensorflow")
    parser.add_argument("--devices", default="pocl,pocl/2")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    rows = programs(options)
    rates = {name: [] for name, _ in rows}
    for r in range(options.rounds):
        for name, run in rows:
            rates[name].append(SAMPLES / statistics.median(run()))
            print(f"round {r + 1}: {name}: {rates[name][-1]:,.0f} images/s", file=sys.stderr)
    best = max(statistics.median(rates[name]) for name, _ in rows if name.startswith("cltrain"))
    for name, _ in rows:
        middle = statistics.median(rates[name])
        text = f"{middle:,.0f} ({min(rates[name]):,.0f} to {max(rates[name]):,.0f})"
        ratio = "" if name.startswith("cltrain") else f"{best / middle:.2f}"
        print(f"| {name} | {text} | {ratio} |" if options.markdown else f"{name:24} {text:32} {ratio}")
    print(f"Of the arithmetic limit at {PEER_FLOP / 1e6} MFLOP an image: {best * PEER_FLOP / peak(options):.2f}")


if __name__ == "__main__":
    main()
