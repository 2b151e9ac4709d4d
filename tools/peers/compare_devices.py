#!/usr/bin/env python3
"""Compares two devices and two ranks with two independent trainings, PyTorch DDP and TensorFlow's MirroredStrategy.

    compare_devices.py --cltrain PATH [--torch PYTHON] [--tensorflow PYTHON] [--model lenet|mlp] [--rounds 9]

Run it by hand, on a machine with two cores. All programs run by turns. `independent` is two processes at the same time,
with one core and half of the batch each: the rate that two devices would have without any exchange. Its rate is the sum
of both. The rate of `coupled` is twice the slower one's, because devices that train together wait for each other.

A machine that others use changes its speed within seconds. So the runs are short, `independent` runs before and after
each of them, and a program's share is its rate divided by the mean of these two. Printed are the median and the
quarters of the rounds' shares. `calm` are the shares for which the four processes of these two runs were equally fast,
within a tenth.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
MODELS = {"lenet": ("lenet", 20), "mlp": ("mlp:4096,4096", 2)}


def command(options, devices, batch):
    model, steps = MODELS[options.model]
    return [options.cltrain, "bench", "train", "--model", model, "--data", "fashion-mnist", "--devices", devices, "--batch",
            str(batch), "--steps", str(steps), "--warmup", str(steps), "--blocks", "3", "--tune", "off", "--json"]  # fmt: skip


def rate(text):
    return json.loads(text[text.index("{") :])["samples_per_s"]["median"]


def run(line):
    return rate(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)


def independent(options):
    line = command(options, options.platform, options.batch // 2)
    children = [
        subprocess.Popen(line, stdout=subprocess.PIPE, text=True, preexec_fn=lambda c=core: os.sched_setaffinity(0, {c}))
        for core in sorted(os.sched_getaffinity(0))[:2]
    ]
    return [rate(child.communicate()[0]) for child in children]


def peer(python, script, options):
    line = [python, os.path.join(HERE, script), "--model", options.model, "--batch", str(options.batch), "--steps",
            str(MODELS[options.model][1]), "--runs", "5"]  # fmt: skip
    found = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(found.splitlines()[-1])["images_per_s"]


def programs(options):
    rows = {
        "2 devices": lambda: run(command(options, options.platform + "/2", options.batch)),
        "2 ranks": lambda: run(["mpiexec", "-n", "2", *command(options, options.platform, options.batch)]),
    }
    if options.torch:
        rows["PyTorch DDP, 2 processes"] = lambda: peer(options.torch, "torch_ddp.py", options)
    if options.tensorflow:
        rows["TensorFlow Mirrored, 2 CPUs"] = lambda: peer(options.tensorflow, "tensorflow_mirrored.py", options)
    return rows


def spread(values):
    """Returns the median of shares, their quarters, and their number."""
    if len(values) < 2:
        return f"{values[0]:8.2f}" if values else "    none"
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{middle:8.2f} ({low:.2f} to {high:.2f}, {len(values)})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--torch")
    parser.add_argument("--tensorflow")
    parser.add_argument("--model", choices=sorted(MODELS), default="lenet")
    parser.add_argument("--platform", default="pocl")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    rows = programs(options)
    rates = {name: [] for name in ("independent", *rows)}
    shares = {name: {"independent": [], "calm": [], "coupled": []} for name in rows}
    for r in range(options.rounds):
        before = independent(options)
        for name, measure in rows.items():
            rates[name].append(measure())
            after = independent(options)
            rates["independent"].append(sum(after))
            shares[name]["independent"].append(2 * rates[name][-1] / (sum(before) + sum(after)))
            if max(before + after) < 1.1 * min(before + after):
                shares[name]["calm"].append(shares[name]["independent"][-1])
            shares[name]["coupled"].append(rates[name][-1] / (min(before) + min(after)))
            before = after
        print(f"round {r + 1}: " + ", ".join(f"{k} {v[-1]:,.0f}" for k, v in rates.items()), file=sys.stderr)
    print(f"{options.model}, batch {options.batch}: {'images/s':>21} {'of independent':>27} {'calm':>21} {'of coupled':>27}")
    for name, found in rates.items():
        print(f"{name:28} {statistics.median(found):10,.0f} ({min(found):,.0f} to {max(found):,.0f}) " +
              "".join(spread(values) for values in shares.get(name, {}).values()))


if __name__ == "__main__":
    main()
