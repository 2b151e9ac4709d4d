#!/usr/bin/env python3
"""Compares the planner's predictions of meshes with steps that are measured, and its choice with the best mesh.

    tools/peers/predict_meshes.py build/bin/cltrain [--devices pocl/2] [--turns 5] [--json FILE]

For each model, `plan --parallel auto` predicts and ranks the meshes of the devices. `bench meshes` then measures every
mesh by turns. The script prints a row for each (model, mesh): predicted and measured milliseconds of a step, and the
error. At the end it prints the median and the largest error, and how much longer the chosen mesh's step took than the
best measured one's. The machine must be quiet: print the load with the result.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys

# Model, data and options; and the meshes of two devices that are compared.
CASES = [
    ("lenet", ["--data", "synthetic:1x28x28", "--batch", "256"], ["dp=2", "dp=2 zero 1", "tp=2"]),
    ("gpt2:nano", ["--data", "synthetic", "--seq-len", "64", "--classes", "256", "--batch", "32", "--optimizer",
                   "adamw"], ["dp=2", "dp=2 zero 1", "tp=2", "pp=2 accumulate 4", "time=2"]),
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
    return {mesh: float(ms) for mesh, ms in rows}, name


def measure(command, model, options, devices, meshes, turns):
    """Returns {mesh: measured milliseconds of a step}, by turns."""
    words = [m.replace(" zero ", ",zero=").replace(" accumulate ", ",accumulate=") for m in meshes]
    # The plan does not measure kernels either.
    text = run([command, "bench", "meshes", *words, "--model", model, *options, "--devices", devices, "--blocks",
                str(turns), "--tune", "off", "--json"])
    result = json.loads(text)
    return {m: 1000 * result["batch"] / row["samples_per_s"]["median"] for m, row in zip(meshes, result["rows"])}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("command")
    arguments.add_argument("--devices", default="pocl/2")
    arguments.add_argument("--turns", type=int, default=5)
    arguments.add_argument("--models", default="", help="only models that begin with this")
    arguments.add_argument("--json")
    options = arguments.parse_args()
    errors, choices, rows = [], [], []
    print(f"load {os.getloadavg()[0]:.2f} before")
    print(f"{'model':20} {'mesh':22} {'predicted':>10} {'measured':>10} {'error':>7}")
    for model, more, pairs in CASES:
        if not model.startswith(options.models):
            continue
        predicted, chosen = ranking(options.command, model, more, options.devices)
        meshes = [m for m in dict.fromkeys([chosen, *pairs, *list(predicted)[:4]]) if m in predicted]
        measured = measure(options.command, model, more, options.devices, meshes, options.turns)
        for mesh in pairs:
            if mesh not in predicted:
                print(f"{model:20} {mesh:22} not among the rows that the plan prints")
                continue
            error = predicted[mesh] / measured[mesh] - 1
            errors.append(abs(error))
            rows.append({"model": model, "mesh": mesh, "predicted_ms": predicted[mesh],
                         "measured_ms": measured[mesh]})
            print(f"{model:20} {mesh:22} {predicted[mesh]:10.3f} {measured[mesh]:10.3f} {100 * error:6.1f}%", flush=True)
        best = min(measured, key=measured.get)
        ratio = measured[chosen] / measured[best]
        choices.append(ratio)
        print(f"{model:20} chose {chosen}; the best of {len(meshes)} measured is {best}: {ratio:.3f} times its step")
    print(f"load {os.getloadavg()[0]:.2f} after")
    print(f"{len(errors)} pairs: median error {100 * statistics.median(errors):.1f} %, largest {100 * max(errors):.1f} %; "
          f"choices at most {max(choices):.3f} times the best")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"rows": rows, "choices": choices}, file, indent=2)


main()
