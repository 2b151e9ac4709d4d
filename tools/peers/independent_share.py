#!/usr/bin/env python3
"""Compares two devices and two ranks with two independent trainings, in slices of a fraction of a second.

    independent_share.py --cltrain PATH [--model lenet|mlp:4096,4096|...] [--seconds 60] [--slice 0.5]

`independent` is two processes with one core and half of the batch each: the rate that two devices would have without
any exchange. All programs are started. Then each runs for a slice in turn while the others are stopped (SIGSTOP), and
its heartbeat file gives the number of its steps. A machine that others use changes its speed within seconds, but
hardly from one slice to the next. So shares of neighbouring slices scatter far less than shares of whole runs
(compare_devices.py, which also measures PyTorch and TensorFlow). Run it by hand, on a machine with two cores. Prints
samples per second, the median of the shares of `independent`, their quarters, and the share of the sums. Then the
independent trainings run for --lockstep seconds more, and the last line says which share of their samples would be left if
each step took as long as the slower of the two. It estimates what waiting for each other costs on such a machine.
"""

import argparse
import json
import os
import shlex
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time

SETTLING = 0.15  # seconds at the beginning of a slice that do not count
STEP_AT = 48  # offset in the heartbeat file, see <cltrain/heartbeat.h>


class Program:
    """A training that runs until it is killed."""

    def __init__(self, options, folder, name, devices, batch, core=None, ranks=0):
        self.batch, self.beats = batch, os.path.join(folder, name)
        self.metrics = os.path.join(folder, name + ".jsonl")
        os.mkdir(self.beats)
        line = [options.cltrain, "train", "--model", options.model, "--data", options.data, "--devices", devices, "--batch",
                str(batch), "--steps", "1000000000", "--tune", "off", "--quiet", "--heartbeat", self.beats,
                "--metrics", self.metrics, *shlex.split(options.options)]  # fmt: skip
        if ranks:
            line = ["mpiexec", "-n", str(ranks), *line]
        self.line, self.core, self.child, self.pids = line, core, None, []

    def start(self):
        keep = (lambda: os.sched_setaffinity(0, {self.core})) if self.core is not None else None
        self.child = subprocess.Popen(self.line, preexec_fn=keep, stdout=subprocess.DEVNULL)
        self.pids = [self.child.pid]

    def step(self):
        try:
            with open(os.path.join(self.beats, "rank-0"), "rb") as file:
                return struct.unpack_from("=q", file.read(), STEP_AT)[0]
        except (OSError, struct.error):
            return 0

    def begin(self):
        """Waits until the program's steps advance. mpiexec's processes are in other sessions, and
        are found by their parents."""
        while self.step() < 5:
            if self.child.poll() is not None:
                sys.exit(f"{self.child.args[0]} ended with {self.child.returncode}")
            time.sleep(0.05)
        children = {}
        for line in subprocess.run(["ps", "-eo", "pid=,ppid="], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines():
            pid, parent = map(int, line.split())
            children.setdefault(parent, []).append(pid)
        for pid in self.pids:
            self.pids.extend(children.get(pid, []))

    def signal(self, number):
        for pid in self.pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def time_slice(programs, seconds):
    """Returns the samples per second of each program."""
    for program in programs:
        program.signal(signal.SIGCONT)
    time.sleep(SETTLING)
    began, before = time.monotonic(), [p.step() for p in programs]
    time.sleep(seconds)
    samples = [(p.step() - b) * p.batch for p, b in zip(programs, before, strict=True)]
    took = time.monotonic() - began
    for program in programs:
        program.signal(signal.SIGSTOP)
    return [count / took for count in samples]


def last_steps(program, seconds):
    """Returns the seconds of the last steps of an ended program, the last step first."""
    steps, total = [], 0
    with open(program.metrics, encoding="utf-8") as file:
        records = [json.loads(line) for line in file if line.endswith("}\n")]
    for record in reversed(records):
        if "samples_per_s" in record and total < seconds:
            steps.append(record["samples"] / record["samples_per_s"])
            total += steps[-1]
    return steps


def lockstep(programs, seconds):
    """Returns the share of the programs' steps that is left if they begin each step together."""
    for program in programs:
        program.signal(signal.SIGCONT)
    time.sleep(seconds + 1)
    for program in programs:
        program.signal(signal.SIGTERM)  # which ends after a step, so that both end at the same time
    for program in programs:
        program.child.wait()
    times = [last_steps(program, seconds) for program in programs]
    left = total = 0
    for pair in zip(*times, strict=False):
        if total < seconds:
            total += max(pair)
            left += 1
    return 2 * left / total / sum(len(steps) / sum(steps) for steps in times)


def measure(groups, options):
    for programs in groups.values():
        for program in programs:
            program.start()
        for program in programs:
            program.begin()
        for program in programs:
            program.signal(signal.SIGSTOP)
    rates = {name: [] for name in groups}
    end = time.monotonic() + options.seconds
    while time.monotonic() < end:
        for name in [*groups] if len(rates["independent"]) % 2 else reversed([*groups]):
            rates[name].append(time_slice(groups[name], options.slice))
    return rates


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--model", default="lenet")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--options", default="", help="further options of cltrain train")
    parser.add_argument("--platform", default="pocl")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--slice", type=float, default=0.5)
    parser.add_argument("--lockstep", type=float, default=10)
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:2]
    groups = {}
    with tempfile.TemporaryDirectory() as folder:
        try:
            groups["independent"] = [
                Program(options, folder, f"core-{core}", options.platform, options.batch // 2, core=core) for core in cores
            ]
            groups["2 devices"] = [Program(options, folder, "devices", options.platform + "/2", options.batch)]
            groups["2 ranks"] = [Program(options, folder, "ranks", options.platform, options.batch, ranks=2)]
            rates = measure(groups, options)
            together = lockstep(groups["independent"], options.lockstep)
        finally:
            for programs in groups.values():
                for program in programs:
                    program.signal(signal.SIGKILL)
                    if program.child:
                        program.child.wait()
    print(f"{options.model}, batch {options.batch}: {'samples/s':>20} {'of independent':>28} {'of sums':>9} {'of coupled':>11}")
    alone = [sum(pair) for pair in rates["independent"]]
    coupled = [2 * min(pair) for pair in rates["independent"]]
    for name, found in rates.items():
        all_rates = [sum(each) for each in found]
        shares = [rate / other for rate, other in zip(all_rates, alone, strict=True)]
        waiting = [rate / other for rate, other in zip(all_rates, coupled, strict=True) if other]
        low, middle, high = statistics.quantiles(shares, n=4, method="inclusive")
        print(f"{name:28} {statistics.median(all_rates):10,.0f} {middle:14.2f} ({low:.2f} to {high:.2f}) "
              f"{sum(all_rates) / sum(alone):8.2f} {statistics.median(waiting):11.2f}")  # fmt: skip
    print(f"independent, each step as long as the slower one: {together:.2f}")


if __name__ == "__main__":
    main()
