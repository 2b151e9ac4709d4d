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
    """Also trains synchronously with the batch that four workers have together, which makes a quarter of the updates: the
    synchronous counterpart of four workers."""
    rows, names = [], ("synchronous", "asynchronous", "synchronous with four times the batch")
    for seed in range(1, 6):
        words = ["--lr", "0.1", "--epochs", epochs, "--seed", str(seed), *sys.argv[4:]]
        paths = [os.path.join(folder, name) for name in ("sync", "async", "wide")]
        for path, batch in ((paths[0], "64"), (paths[2], "256")):
            subprocess.run([command, "train", *OPTIONS, *words, "--batch", batch, "--metrics", path], check=True)
        launch(command, 4, [*words, "--batch", "64", "--async", "16", "--servers", "2", "--metrics", paths[1]])
        found = [[r for r in read(path) if "test_accuracy" in r][-1]["test_accuracy"] for path in paths]
        steps = [r for r in read(paths[1]) if "step" in r]
        print(f"seed {seed}: " + ", ".join(f"{name} {value:.4f}" for name, value in zip(names, found)) + ", mean staleness "
              f"{statistics.mean(r['staleness'] for r in steps):.2f}, {steps[-1]['discarded']} discarded", flush=True)
        rows.append(found)
    print("mean: " + ", ".join(f"{name} {statistics.mean(values):.4f}" for name, values in zip(names, zip(*rows))))
    gaps = [100 * (r[0] - r[1]) for r in rows]
    print(f"synchronous less asynchronous: {statistics.mean(gaps):.2f} points, standard deviation "
          f"{statistics.stdev(gaps):.2f}, largest {max(gaps):.2f}")


def straggler(command, folder):
    """The launcher binds each of two workers to half of the cores. Beside a worker that sleeps a hundred times as long as
    it computes, worker 0 is nearly alone."""
    rates = {"1:100": [], "": [], "1:5": []}
    log = os.path.join(folder, "events")
    print("gradients/s of worker 0: alone  beside an equal  beside one five times slower")
    for turn in range(5):
        for slow, found in rates.items():
            launch(command, 2, ["--batch", "256", "--steps", "400", "--async", "16", "--events", log],
                   CLT_TESTING_SLOW_WORKER=slow)
            times = [e["time"] for e in read(log) if e["event"] == "push" and e["worker"] == 0][10:]
            found.append((len(times) - 1) / (times[-1] - times[0]))
        print(f"turn {turn + 1}:" + "".join(f"  {found[-1]:.1f}" for found in rates.values()), flush=True)
    alone, equal, beside = rates.values()
    print(f"median ratio of the last to alone {statistics.median(b / a for a, b in zip(alone, beside)):.3f}, to equal "
          f"{statistics.median(b / a for a, b in zip(equal, beside)):.3f}")


def main():
    command = os.path.join(sys.argv[2], "bin", "cltrain")
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "accuracy":
            accuracy(command, folder, sys.argv[3] if len(sys.argv) > 3 else "3")
        else:
            straggler(command, folder)


if __name__ == "__main__":
    main()
