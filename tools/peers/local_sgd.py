#!/usr/bin/env python3
"""Compares replicas that are averaged now and then (--parallel local=N) with synchronous training.

    local_sgd.py accuracy [--seeds 5] [--epochs 6] ...   test accuracy, paired by seed
    local_sgd.py slow                                    speed of a replica beside one three times slower

`slow` needs a build with -DCLT_TESTING=ON, whose hook slows a device down. Nothing else may run on the machine.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile


def train(command, folder, *words, **environment):
    """Trains, and returns the records of steps and of epochs."""
    metrics = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    subprocess.run([command, "train", "--quiet", "--metrics", metrics, *map(str, words)], check=True,
                   env={**os.environ, **environment})
    with open(metrics, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file]
    return [r for r in lines if "step" in r], [r for r in lines if "step" not in r]


def accuracy(o, folder):
    usual = ("--model", o.model, "--data", o.data, "--batch", o.batch, "--epochs", o.epochs, "--optimizer", o.optimizer,
             "--lr", o.lr, "--schedule", o.schedule, "--devices", o.devices)
    local = ("--parallel", f"local={o.replicas}", "--sync-every", o.sync_every, "--outer", o.outer)
    differences = []
    print("seed  synchronous  local   difference (points)")
    for seed in range(1, o.seeds + 1):
        one = train(o.command, folder, *usual, "--split", "equal", "--seed", seed)[1][-1]["test_accuracy"]
        two = train(o.command, folder, *usual, *local, "--seed", seed)[1][-1]["test_accuracy"]
        differences.append(100 * (two - one))
        print(f"{seed:4}  {one:11.4f}  {two:.4f}  {differences[-1]:+.2f}", flush=True)
    print(f"mean difference {statistics.mean(differences):+.2f} points", end="")
    print(f", standard deviation {statistics.stdev(differences):.2f}" if o.seeds > 1 else "")


def speed(o, folder, **environment):
    """Returns the samples a second of the last replica, while it trains."""
    steps, _ = train(o.command, folder, "--model", o.model, "--data", o.data, "--batch", o.batch, "--steps", o.steps,
                     "--lr", o.lr, "--devices", o.devices, "--parallel", f"local={o.replicas}", "--sync-every", "2s",
                     "--shuffle", "on", **environment)
    return statistics.median(r["replica_samples"][-1] / (r["period_seconds"] + r["sync_seconds"]) for r in steps[1:])


def slow(o, folder):
    ratios = []
    for turn in range(o.seeds):
        own = speed(o, folder)
        beside = speed(o, folder, CLT_TESTING_SLOW="#0=3")
        ratios.append(beside / own)
        print(f"turn {turn + 1}: {own:.0f} samples/s beside an equal replica, {beside:.0f} beside a slow one: "
              f"{ratios[-1]:.3f}", flush=True)
    print(f"median {statistics.median(ratios):.3f}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("accuracy", "slow"))
    p.add_argument("--command", default="build/bin/cltrain")
    p.add_argument("--model", default="lenet")
    p.add_argument("--data", default="fashion-mnist")
    p.add_argument("--devices", default="pocl/2")
    p.add_argument("--replicas", type=int, default=2)
    p.add_argument("--sync-every", default="8")
    p.add_argument("--outer", default="nesterov:lr=0.7,momentum=0.9")
    p.add_argument("--optimizer", default="momentum")
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--schedule", default="cosine")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--epochs", type=int, default=6)
    p.add_argument("--steps", type=int, default=2000)
    p.add_argument("--seeds", type=int, default=5)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (accuracy if o.what == "accuracy" else slow)(o, folder)


if __name__ == "__main__":
    main()
