#!/usr/bin/env python3
"""Compares replicas that are averaged now and then (--parallel local=N) with synchronous training.

    local_sgd.py accuracy [--seeds 5] [--epochs 10] ...   test accuracy, paired by seed
    local_sgd.py slow [--seconds 20] ...                 speed of a replica beside one three times slower

`slow` trains on two ranks, each on a core of its own, synchronised by time. It compares the rate of rank 1 alone, beside
an equal rank, and beside one whose device takes three times as long. It needs mpiexec, taskset and a build with
-DCLT_TESTING=ON, whose hook slows a device down. The hook sleeps, so the slow rank leaves its share of caches and
memory to the other. Nothing else may run on the machine.
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
    local = ("--parallel", f"local={o.replicas}", "--sync-every", o.sync_every, "--outer", o.outer, "--wire", o.wire)
    differences = []
    print("seed  synchronous  local   difference (points)")
    for seed in range(1, o.seeds + 1):
        one = train(o.command, folder, *usual, "--split", "equal", "--seed", seed)[1][-1]["test_accuracy"]
        two = train(o.command, folder, *usual, *local, "--seed", seed)[1][-1]["test_accuracy"]
        differences.append(100 * (two - one))
        print(f"{seed:4}  {one:11.4f}  {two:.4f}  {differences[-1]:+.2f}", flush=True)
    print(f"mean difference {statistics.mean(differences):+.2f} points", end="")
    print(f", standard deviation {statistics.stdev(differences):.2f}" if o.seeds > 1 else "")


def speed(o, folder, replicas, slow=None):
    """Returns the samples a second of the last replica, from the second synchronisation to the end. Each replica is a
    rank with one device on a core of its own; synchronisations and the waits for other replicas count. The first rank
    takes `slow` times as long."""
    metrics = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.remove(metrics)
    part = o.batch // 2 # of one replica
    steps = max(1, round(o.seconds * o.rate / part))
    words = ["train", "--quiet", "--metrics", metrics, "--model", o.model, "--data", o.data, "--batch", part * replicas,
             "--steps", steps, "--lr", o.lr, "--devices", "pocl@1", "--tune", "off", "--parallel", f"local={replicas}",
             "--sync-every", o.period, "--oversubscribe"]
    cores = sorted(os.sched_getaffinity(0))[-replicas:]
    ranks = []
    for core in cores:
        hook = ["env", f"CLT_TESTING_SLOW=pocl={slow}"] if slow and not ranks else []
        ranks += [*([":"] if ranks else []), "-n", "1", "taskset", "-c", str(core), *hook, o.command, *map(str, words)]
    subprocess.run([o.mpiexec, *ranks], check=True, stdout=subprocess.DEVNULL)
    with open(metrics, encoding="utf-8") as file:
        syncs = [r for r in map(json.loads, file) if "sync" in r][1:]
    if len(syncs) < 3: # too short
        return 0
    return (sum(r["replica_samples"][-1] for r in syncs) /
            sum(r["period_seconds"] + r["sync_seconds"] for r in syncs))


def slow(o, folder):
    """Runs alone find the rate, so that all runs take about o.seconds."""
    o.rate, found = 1000.0, 0
    while not found:
        o.rate *= 2
        found = speed(o, folder, 1)
    o.rate = found
    print("samples/s of a replica on one core        ratios of the last column")
    print("turn    alone  beside an equal  beside a slow one  to alone  to equal")
    ratios = []
    for turn in range(o.seeds):
        alone = speed(o, folder, 1)
        equal = speed(o, folder, 2)
        beside = speed(o, folder, 2, o.factor)
        ratios.append((beside / alone, beside / equal))
        print(f"{turn + 1:4}  {alone:7.0f}  {equal:15.0f}  {beside:17.0f}  {ratios[-1][0]:8.3f}  {ratios[-1][1]:8.3f}",
              flush=True)
    print("median ratio to alone {:.3f}, to equal {:.3f}".format(*map(statistics.median, zip(*ratios))))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=("accuracy", "slow"))
    p.add_argument("--command", default="build/bin/cltrain")
    p.add_argument("--model", default="lenet")
    p.add_argument("--data", default="fashion-mnist")
    p.add_argument("--devices", default="pocl/2")
    p.add_argument("--replicas", type=int, default=2)
    p.add_argument("--sync-every", default="8")
    p.add_argument("--outer", default="nesterov:lr=0.7,momentum=0.5")
    p.add_argument("--wire", default="f32", help="accuracy: type of the replicas' parameters on the wire")
    p.add_argument("--optimizer", default="momentum")
    p.add_argument("--lr", type=float, default=0.1)
    p.add_argument("--schedule", default="cosine")
    p.add_argument("--batch", type=int, default=256)
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--mpiexec", default="mpiexec")
    p.add_argument("--period", default="2s", help="slow: time between synchronisations")
    p.add_argument("--factor", type=float, default=3, help="slow: how much longer the slow device takes")
    p.add_argument("--seconds", type=float, default=20, help="slow: of a run, about")
    p.add_argument("--seeds", type=int, default=5)
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (accuracy if o.what == "accuracy" else slow)(o, folder)


if __name__ == "__main__":
    main()
