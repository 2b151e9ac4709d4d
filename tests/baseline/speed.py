#!/usr/bin/env python3
"""Speed of two builds of the command beside each other: B over A, in alternating pairs.

    speed.py A/bin/cltrain B/bin/cltrain [--pairs 15] [--out FILE]

For each model the samples a second of `bench train`, and the seconds from the start of `train` to the first
step's line in --metrics: cold (empty caches) and warm. A ratio above 1 means that B is faster. Printed are the
geometric mean over the pairs and its lower 95 % bound (one-sided, Student's t of the logarithms). Run it on a
machine that does nothing else.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time

import bits

# model: batch, steps of a block (a block takes about a second), further options
MODELS = {"lenet": (256, 100, ()), "resnet18:small": (32, 5, ()), "gpt2:nano": (16, 5, ("--seq-len", "64"))}
# Student's t, one-sided 95 %, by degrees of freedom.
T = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753, 1.746,
     1.740, 1.734, 1.729, 1.725, 1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699)  # fmt: skip


def samples_per_s(command, model, folder):
    batch, steps, more = MODELS[model]
    words = [command, "bench", "train", "--model", model, "--data", "synthetic", "--batch", str(batch), *more,
             "--tune", "off", "--devices", "pocl", "--blocks", "5", "--warmup", "3", "--steps", str(steps),
             "--cache-dir", os.path.join(folder, "cache"), "--json"]  # fmt: skip
    out = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    return json.loads(out)["samples_per_s"]["median"]


def first_step(command, model, folder, cache):
    """Returns the seconds from the start of the process to its first line of metrics."""
    data, metrics = os.path.join(folder, "data"), os.path.join(folder, "metrics.jsonl")
    batch, _, more = MODELS[model]
    what = "text:" + os.path.join(data, "text.txt") if model.startswith("gpt2") else "idx:" + data
    if os.path.exists(metrics):
        os.remove(metrics)
    words = [command, "train", "--model", model, "--data", what, "--batch", str(min(batch, 128)), *more,
             "--tune", "off", "--devices", "pocl", "--steps", "1", "--cache-dir", cache, "--metrics", metrics,
             "--quiet"]  # fmt: skip
    os.makedirs(os.path.join(cache, "pocl"), exist_ok=True)
    environment = dict(os.environ, POCL_CACHE_DIR=os.path.join(cache, "pocl"), XDG_CACHE_HOME=cache)
    begin = time.monotonic()
    child = subprocess.Popen(words, env=environment)
    seconds = None
    while child.poll() is None:
        if seconds is None and os.path.exists(metrics) and os.path.getsize(metrics):
            seconds = time.monotonic() - begin
        time.sleep(0.002)
    if child.returncode or not os.path.getsize(metrics):
        raise SystemExit(f"speed: {' '.join(words)} ended with {child.returncode}")
    return seconds or time.monotonic() - begin


def summary(logarithms):
    mean = statistics.mean(logarithms)
    n = len(logarithms)
    if n < 2:
        return {"ratio": round(math.exp(mean), 4), "lower": None, "pairs": n}
    half = T[min(n - 1, len(T)) - 1] * statistics.stdev(logarithms) / math.sqrt(n)
    return {"ratio": round(math.exp(mean), 4), "lower": round(math.exp(mean - half), 4), "pairs": n}


def measure(commands, model, folder, pairs):
    """Returns {what: [(A, B) of each pair]}. Larger is faster."""
    found = {"samples/s": [], "first step, cold": [], "first step, warm": []}
    for pair in range(pairs):
        got = {}
        for side in (0, 1) if pair % 2 == 0 else (1, 0):
            with tempfile.TemporaryDirectory() as cache:
                cold = first_step(commands[side], model, folder, cache)
                warm = first_step(commands[side], model, folder, cache)
            got[side] = {"samples/s": samples_per_s(commands[side], model, folder), "first step, cold": 1 / cold,
                         "first step, warm": 1 / warm}  # fmt: skip
        for what, values in found.items():
            values.append((got[0][what], got[1][what]))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--out")
    options = parser.parse_args()
    result = {"machine": bits.machine(options.b), "load": os.getloadavg()[0], "models": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "data"))
        bits.write_data(os.path.join(folder, "data"))
        for model in options.models.split(","):
            found = measure((options.a, options.b), model, folder, options.pairs)
            result["models"][model] = {}
            for what, values in found.items():
                row = summary([math.log(b / a) for a, b in values])
                row["A"], row["B"] = (round(statistics.median(v[i] for v in values) if "step" not in what else
                                            1 / statistics.median(v[i] for v in values), 3) for i in (0, 1))  # fmt: skip
                row["each pair, B over A"] = [round(b / a, 3) for a, b in values]
                result["models"][model][what] = row
                print(f"{model}, {what}: A {row['A']}, B {row['B']}; B is {row['ratio']} times as fast, lower bound "
                      f"{row['lower']} ({row['pairs']} pairs)", flush=True)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
