#!/usr/bin/env python3
"""Compares asynchronous training of LeNet with synchronous training.

    tools/peers/async_lenet.py accuracy BUILD [EPOCHS [OPTION...]]   test accuracy of five seeds, S = 16, 4 workers, 2 holders
    tools/peers/async_lenet.py straggler BUILD                       rate of a worker while another one is five times slower

The second needs a build with CLT_TESTING. Both run one after the other, by turns.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

LAUNCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "cltrain-launch")
OPTIONS = ["--model", "lenet", "--data", "fashion-mnist", "--devices", "pocl", "--tune", "off", "--quiet"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def launch(command, workers, words, **variables):
    subprocess.run([sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", command, "--", "train", *OPTIONS, *words],
                   check=True, stderr=subprocess.DEVNULL, env={**os.environ, **variables})


def accuracy(command, folder, epochs):
    rows = []
    for seed in range(1, 6):
        words = ["--batch", "64", "--lr", "0.1", "--epochs", epochs, "--seed", str(seed), *sys.argv[4:]]
        one, other = os.path.join(folder, "sync"), os.path.join(folder, "async")
        subprocess.run([command, "train", *OPTIONS, *words, "--metrics", one], check=True)
        launch(command, 4, [*words, "--async", "16", "--servers", "2", "--metrics", other])
        found = [[r for r in read(path) if "test_accuracy" in r][-1]["test_accuracy"] for path in (one, other)]
        steps = [r for r in read(other) if "step" in r]
        print(f"seed {seed}: synchronous {found[0]:.4f}, asynchronous {found[1]:.4f}, mean staleness "
              f"{statistics.mean(r['staleness'] for r in steps):.2f}, {steps[-1]['discarded']} discarded", flush=True)
        rows.append(found)
    means = [statistics.mean(r[i] for r in rows) for i in (0, 1)]
    print(f"mean: synchronous {means[0]:.4f}, asynchronous {means[1]:.4f}")


def straggler(command, folder):
    rates = {"": [], "1:5": []}
    log = os.path.join(folder, "events")
    for _ in range(5):
        for slow, found in rates.items():
            launch(command, 2, ["--batch", "256", "--steps", "400", "--async", "16", "--events", log],
                   CLT_TESTING_SLOW_WORKER=slow)
            times = [e["time"] for e in read(log) if e["event"] == "push" and e["worker"] == 0][10:]
            found.append((len(times) - 1) / (times[-1] - times[0]))
    alone, beside = (statistics.median(r) for r in rates.values())
    print(f"gradients/s of worker 0: {alone:.1f} beside an equal worker, {beside:.1f} beside one that is five times slower")


def main():
    command = os.path.join(sys.argv[2], "bin", "cltrain")
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "accuracy":
            accuracy(command, folder, sys.argv[3] if len(sys.argv) > 3 else "3")
        else:
            straggler(command, folder)


if __name__ == "__main__":
    main()
