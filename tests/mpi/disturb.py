"""Runs jobs of cltrain-launch --ranks whose ranks are killed, stopped, added and removed at random.

    python3 tests/mpi/disturb.py CLTRAIN MPIEXEC tools/cltrain-launch [--runs 20] [--seed N] [--virtual-shards V]

LeNet on Fashion-MNIST. Each run must end, have each step once and each sample once an epoch, and lose no step that a
checkpoint had before a rank was lost. The accuracies are compared with those of five undisturbed runs. With
--virtual-shards, the losses of all steps and the last model and optimizer must be those of the undisturbed run.
"""
import argparse
import hashlib
import json
import os
import random
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

LOOK = 0.02 # seconds between looks at the heartbeats
KINDS = ("kill", "stop", "grow", "shrink")


class Run:
    """One job. `words` are the options of train; `most` is its number of disturbances."""

    def __init__(self, programs, words, rng, most, every, pause=(1.0, 5.0), deadline=6, limit=900):
        self.command, self.mpiexec, self.launcher = programs
        self.words, self.rng, self.most, self.every = words, rng, most, every
        self.pause, self.deadline, self.limit = pause, deadline, limit
        self.folder = tempfile.mkdtemp(prefix="cltrain-disturb-")
        self.beats = os.path.join(self.folder, "beats")
        os.mkdir(self.beats)
        self.done = []    # disturbances: seconds, kind, step
        self.reached = {} # attempt (process of rank 0): the highest step that a rank began
        self.order = []   # attempts, as they came

    def path(self, name):
        return os.path.join(self.folder, name)

    def begin(self):
        train = ["train", *self.words, "--checkpoint-dir", self.path("run"), "--checkpoint-every", str(self.every),
                 "--metrics", self.path("metrics"), "--oversubscribe", "-q"]
        with open(self.path("out"), "wb") as out:
            return subprocess.Popen([sys.executable, "-B", self.launcher, "--ranks", "1:4", "-n", "2", "--deadline",
                                     str(self.deadline), "--heartbeat", self.beats, "--program", self.command, "--mpiexec", self.mpiexec,
                                     "--", *train], stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    def ranks(self):
        from cltrain_ranks import Rank # the caller sets the path
        found = []
        for number in range(4):
            try:
                with open(os.path.join(self.beats, f"rank-{number}"), "rb") as file:
                    rank = Rank(file.read())
            except (OSError, ValueError, struct.error): # not there, or not written yet
                continue
            if rank.process_state() not in ("", "Z", "X"):
                found.append(rank)
        return found

    def note(self, ranks):
        first = next((r.pid for r in ranks if r.rank == 0), None)
        if first is not None and first not in self.reached:
            self.reached[first] = 0
            self.order.append(first)
        if first is not None:
            self.reached[first] = max(self.reached[first], *(r.step for r in ranks))

    def resize(self, text):
        return subprocess.run([sys.executable, "-B", self.launcher, "--resize", text, "--job", self.beats],
                              capture_output=True, check=False, timeout=60).returncode

    def disturb(self, ranks):
        kind = self.rng.choice(KINDS)
        if kind in ("kill", "stop"):
            rank = self.rng.choice(ranks)
            try:
                os.kill(rank.pid, signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
            except ProcessLookupError:
                return
        elif self.resize("+1" if kind == "grow" else "-1"):
            return # beyond the limits: nothing happened
        self.done.append((kind, max(r.step for r in ranks)))

    def go(self):
        """Runs the job. Returns its exit code; None: it hung."""
        child, began = self.begin(), time.monotonic()
        due, alone = began + self.rng.uniform(*self.pause), began
        try:
            while child.poll() is None:
                now = time.monotonic()
                if now - began > self.limit:
                    return None
                ranks = self.ranks()
                self.note(ranks)
                alone = now if ranks else alone
                trains = any(r.step for r in ranks)
                if trains and now > due and len(self.done) < self.most:
                    self.disturb(ranks)
                    due = time.monotonic() + self.rng.uniform(*self.pause)
                elif not ranks and now - alone > 5: # perhaps all ranks were lost, and the job waits
                    self.resize("2")
                    alone = now
                time.sleep(LOOK)
            return child.returncode
        finally:
            child.kill()
            child.wait()

    def records(self):
        with open(self.path("metrics"), encoding="utf-8") as file:
            lines = [json.loads(line) for line in file]
        changes = [r for r in lines if "after_step" in r]
        return changes, [r for r in lines if "step" in r], [r for r in lines if "test_accuracy" in r]

    def problems(self, samples, epochs):
        """Compares the metrics with what a run without disturbances has. Returns texts."""
        changes, steps, ends = self.records()
        found = []
        if [r["step"] for r in steps] != list(range(1, len(steps) + 1)):
            found.append("steps are missing or twice")
        for epoch in range(1, epochs + 1):
            used = sum(r["samples"] for r in steps if r["epoch"] == epoch)
            if used != samples:
                found.append(f"epoch {epoch} has {used} samples of {samples}")
        if [r["epoch"] for r in ends] != list(range(1, epochs + 1)):
            found.append("ends of epochs are missing or twice")
        # Attempts that trained: each but the first begins behind a checkpoint that was complete. The rank that
        # writes it reduces gradients only behind it, so the others can begin the next step before, but not end it.
        trained = [self.reached[pid] for pid in self.order if self.reached[pid]]
        after = [c["after_step"] for c in changes]
        for reached, resumed in zip(trained, after[1:]) if len(trained) == len(after) else ():
            if resumed < (reached - 2) // self.every * self.every:
                found.append(f"went on after step {resumed}, though step {reached} had begun")
        for c in changes[1:]:
            if c["steps_lost"] > self.every + 1:
                found.append(f"{c['steps_lost']} steps lost, with a checkpoint every {self.every}")
        return found

    def accuracy(self):
        return self.records()[2][-1]["test_accuracy"]

    def bits(self):
        """Returns what must be equal with virtual shards: the losses of all steps, and hashes of the last checkpoint."""
        last = self.path(os.path.join("run", max(n for n in os.listdir(self.path("run")) if n.startswith("step-"))))
        hashes = []
        for name in ("model.safetensors", "optimizer.safetensors"):
            with open(os.path.join(last, name), "rb") as file:
                hashes.append(hashlib.sha256(file.read()).hexdigest())
        _, steps, ends = self.records()
        return hashes, [r["loss"] for r in steps], [(r["test_loss"], r["test_accuracy"]) for r in ends]

    def said(self):
        with open(self.path("out"), encoding="utf-8") as file:
            return file.read()

    def clean(self):
        shutil.rmtree(self.folder, ignore_errors=True)


def report(run, number, code):
    changes = run.records()[0]
    lost = sum(c.get("steps_lost", 0) for c in changes)
    idle = [(c["cause"], c["seconds_without_training"]) for c in changes[1:]]
    print(f"run {number}: exit {code}, accuracy {run.accuracy():.4f}, ranks {[c['ranks'] for c in changes]}, "
          f"{[f'{kind} at {step}' for kind, step in run.done]}, {lost} steps done again, "
          f"{sum(seconds for _, seconds in idle):.1f} s without training in {len(idle)} changes", flush=True)
    return idle


def undisturbed(programs, words, seeds, bits=None):
    """Returns the accuracies of runs on two ranks. Appends their bits to a list."""
    found = []
    for seed in seeds:
        run = Run(programs, [*words, "--seed", str(seed)], random.Random(seed), 0, 1000000)
        code = run.go()
        if code != 0:
            sys.exit(f"undisturbed run with seed {seed}: exit {code}\n{run.said()}")
        found.append(run.accuracy())
        if bits is not None:
            bits.append(run.bits())
        run.clean()
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs=3, metavar="PROGRAM")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31), help="of the disturbances")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--most", type=int, default=5, help="disturbances of a run")
    parser.add_argument("--global-batch", default="fixed")
    parser.add_argument("--virtual-shards", type=int, metavar="V", help="4 or more")
    options = parser.parse_args()
    programs = [os.path.abspath(p) if os.sep in p else p for p in options.programs]
    sys.path.insert(0, os.path.join(os.path.dirname(programs[2]), "launch"))
    words = ["--model", "lenet", "--data", "fashion-mnist", "--devices", "pocl@1", "--batch", "64", "--lr", "0.05",
             "--schedule", "cosine", "--epochs", str(options.epochs), "--global-batch", options.global_batch]
    words += (["--virtual-shards", str(options.virtual_shards)] if options.virtual_shards else
              ["--tune", "off", "--split", "equal"])
    print(f"seed of the disturbances: {options.seed}", flush=True)
    bits = [] if options.virtual_shards else None
    usual = undisturbed(programs, words, range(1, 6), bits)
    print("undisturbed, seeds 1 to 5: " + " ".join(f"{a:.4f}" for a in usual), flush=True)
    idle, accuracies, apart, bad = [], [], [], 0
    for number in range(options.runs):
        run = Run(programs, [*words, "--seed", str(number % 5 + 1)], random.Random(options.seed + number), options.most,
                  100)
        code = run.go()
        problems = run.problems(60000, options.epochs) if code == 0 else ["it hung" if code is None else f"exit {code}"]
        if code == 0 and bits and run.bits() != bits[number % 5]:
            problems.append("its losses, model or optimizer have other bits than those of the undisturbed run")
        if problems:
            bad += 1
            print(f"run {number}: {'; '.join(problems)}: {run.done}\n{run.said()}(files in {run.folder})", flush=True)
            continue
        idle += report(run, number, code)
        accuracies.append(run.accuracy())
        apart.append(abs(accuracies[-1] - usual[number % 5]))
        run.clean()
    print(f"{bad} of {options.runs} runs failed")
    if not accuracies:
        return 1
    within = sum(min(usual) <= a <= max(usual) for a in accuracies)
    print(f"accuracy: mean {statistics.mean(accuracies):.4f}, {min(accuracies):.4f} to {max(accuracies):.4f}; "
          f"undisturbed: mean {statistics.mean(usual):.4f}, {min(usual):.4f} to {max(usual):.4f}; {within} of "
          f"{len(accuracies)} runs are within; the most from the undisturbed run of the same seed: {max(apart):.4f}")
    for cause in ("asked", "lost"):
        seconds = [s for c, s in idle if c == cause]
        if seconds:
            print(f"{len(seconds)} changes of cause {cause}: median {statistics.median(seconds):.1f} s without training, "
                  f"most {max(seconds):.1f} s")
    fits = min(usual) <= statistics.mean(accuracies) <= max(usual) and max(apart) <= max(usual) - min(usual)
    return 0 if fits and not bad else 1


if __name__ == "__main__":
    sys.exit(main())
