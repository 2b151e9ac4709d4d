#!/usr/bin/env python3
"""Compares the planner's predictions of meshes with steps that are measured, and its choice with the best mesh.

    tools/peers/predict_meshes.py build/bin/cltrain [--devices pocl/2] [--turns 5] [--json FILE]

For each model, `plan --parallel auto` predicts and ranks the meshes of the devices. `bench meshes` then measures every
mesh that the plan prints by turns. The plan runs before and after the turns, and the mean of its two predictions counts:
the machine's speed changes slowly. The script prints a row for each (model, mesh): predicted and measured milliseconds
of a step, and the error. At the end it prints the median and the largest error of the ten pairs, and how much longer the
chosen meshes' steps took than the best measured ones'. The machine must be quiet: a pipeline or a collective is late if
another process has the core. The script prints the load.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time

# Model, data and options; and the meshes of two devices that are compared.
CASES = [
    ("lenet", ["--data", "synthetic:1x28x28", "--batch", "256"], ["dp=2", "dp=2 zero 1", "tp=2"]),
    ("gpt2:nano", ["--data", "synthetic", "--seq-len", "64", "--classes", "256", "--batch", "32", "--optimizer",
                   "adamw"], ["dp=2", "tp=2", "pp=2 accumulate 4", "time=2"]),
    ("mlp:1024,1024", ["--data", "synthetic:1x28x28", "--batch", "256"], ["dp=2", "tp=2", "pp=2 accumulate 2"]),
]


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def ranking(command, model, options, devices):
    """Returns {mesh: predicted milliseconds} and the mesh that is chosen."""
    text = run([command, "plan", "--model", model, *options, "--devices", devices, "--parallel", "auto"])
    rows = re.findall(r"^ +\d+  (\S+=\d+(?: zero \d| accumulate \d+|:sequence)*) +([\d.]+) ", text, re.M)
    chosen = re.search(r"^trains on (\S+): --parallel \S+(?: --zero (\d))?(?: --accumulate (\d+))?", text, re.M)
    name = chosen[1] + (f" zero {chosen[2]}" if chosen[2] else "") + (
        f" accumulate {chosen[3]}" if chosen[3] else "")
    stages = re.search(r"^trains on .* --stages '(.*)' does", text, re.M)
    return {mesh: float(ms) for mesh, ms in rows}, name + (f" stages {stages[1]}" if stages else "")


def measure(command, model, options, devices, meshes, turns):
    """Returns {mesh: measured milliseconds of a step}, by turns."""
    words = [m.replace(" zero ", ",zero=").replace(" accumulate ", ",accumulate=").replace(" stages ", ",stages=")
             for m in meshes]
    # The plan does not measure kernels either.
    text = run([command, "bench", "meshes", *words, "--model", model, *options, "--devices", devices, "--blocks",
                str(turns), "--tune", "off", "--json"])
    result = json.loads(text)
    return {m: 1000 * result["batch"] / row["samples_per_s"]["median"] for m, row in zip(meshes, result["rows"])}


def compare(options, model, more, pairs):
    """Prints the rows of a model. Returns them, and the ratio of the chosen mesh's step to the best one's."""
    before, chosen = ranking(options.command, model, more, options.devices)
    meshes = list(dict.fromkeys([chosen, *[m for m in pairs if m in before], *before]))
    measured = measure(options.command, model, more, options.devices, meshes, options.turns)
    after, _ = ranking(options.command, model, more, options.devices)
    rows = []
    for mesh in pairs:
        if mesh not in before or mesh not in after:
            sys.exit(f"{model}: the plan prints no row for {mesh}")
        predicted = (before[mesh] + after[mesh]) / 2
        error = predicted / measured[mesh] - 1
        rows.append({"model": model, "mesh": mesh, "predicted_ms": predicted, "measured_ms": measured[mesh],
                     "error": error})
        print(f"{model:20} {mesh:22} {predicted:10.3f} {measured[mesh]:10.3f} {100 * error:6.1f}%", flush=True)
    best = min(measured, key=measured.get)
    ratio = measured[chosen] / measured[best]
    print(f"{model:20} chose {chosen}; the best of {len(meshes)} measured is {best}: {ratio:.3f} times its step",
          flush=True)
    return rows, {"model": model, "chosen": chosen, "best": best, "ratio": ratio}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("command")
    arguments.add_argument("--devices", default="pocl/2")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--models", default="", help="only models that begin with this")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    rows, choices = [], []
    began = time.monotonic()
    print(f"load {os.getloadavg()[0]:.2f} before")
    print(f"{'model':20} {'mesh':22} {'predicted':>10} {'measured':>10} {'error':>7}")
    for model, more, pairs in CASES:
        if not model.startswith(options.models):
            continue
        of_model, choice = compare(options, model, more, pairs)
        rows += of_model
        choices.append(choice)
    print(f"load {os.getloadavg()[0]:.2f} after; {time.monotonic() - began:.0f} s")
    if not rows:
        sys.exit(f"--models {options.models}: no model begins so")
    errors = [abs(r["error"]) for r in rows]
    result = {"pairs": len(errors), "median_error": statistics.median(errors), "largest_error": max(errors),
              "largest_ratio": max(c["ratio"] for c in choices)}
    print(f"{len(errors)} pairs: median error {100 * result['median_error']:.1f} %, largest "
          f"{100 * result['largest_error']:.1f} %; choices at most {result['largest_ratio']:.3f} times the best")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({**result, "rows": rows, "choices": choices}, file, indent=2)


main()
