#!/usr/bin/env python3
"""Times training steps of GPT-2 and ResNet-18 here and in PyTorch, eager and compiled, by turns in one run. Run by hand.

    compare_models.py --cltrain PATH --torch PYTHON [--models gpt2,resnet18] [--devices pocl] [--rounds 3] [--markdown]

PYTHON is an interpreter that has the package (README.md says how to make one). GPT-2 has 124 million parameters, batch
4, 64 tokens per sample, f32, AdamW with weight decay 0.1, on random tokens. ResNet-18 takes batches of 128 random
images of 32 x 32, with SGD and momentum. Every program is a process of its own that warms up and then times stretches
of steps. A round runs each program once.

Prints for each program the median, least and largest steps per second of all rounds, the ratio of our rate to it, and
its largest resident memory (VmHWM; ours is that of `cltrain train`). Then prints our share of the limit that
`cltrain bench train` measures: the arithmetic at the rate of multiply-adds in registers, and the optimizer's reads
and writes at the memory's rate.
"""

import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY = 50257
MODELS = {
    "gpt2": ["--model", "gpt2", "--seq-len", "64", "--classes", str(VOCABULARY), "--batch", "4", "--optimizer", "adamw",
             "--weight-decay", "0.1"],
    "resnet18": ["--model", "resnet18", "--batch", "128", "--optimizer", "momentum",
                 "--lr", "0.1", "--weight-decay", "0.0001"],
}  # fmt: skip
PEERS = {
    "gpt2": {"eager": [], "eager, transformers": ["--implementation", "transformers"], "compiled": ["--compile"]},
    "resnet18": {"eager, channels last": ["--channels-last"], "compiled": ["--compile"],
                 "compiled, channels last": ["--compile", "--channels-last"]},
}  # fmt: skip
STEPS = {"gpt2": 2, "resnet18": 3}


class Model:
    def __init__(self, name, options, folder):
        self.name, self.options, self.folder = name, options, folder
        self.arguments, self.data = list(MODELS[name]), []
        if name == "gpt2":
            self.data = ["--tokens", self.tokens()]
            self.arguments += ["--data", "tokens:" + self.data[1]]
        else:
            self.arguments += ["--data", "cifar10:" + self.images()]
        self.times, self.memory, self.found = {}, {}, []

    def tokens(self):
        path = os.path.join(self.folder, "tokens.bin")
        draw = random.Random(1)
        numbers = array.array("H", (draw.randrange(VOCABULARY) for _ in range(200000)))
        if sys.byteorder == "big":
            numbers.byteswap()
        with open(path, "wb") as file:
            numbers.tofile(file)
        return path

    def images(self):
        """Writes CIFAR-10's files with random images, because `train`, whose memory is measured,
        takes no synthetic data."""
        draw = random.Random(1)
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            with open(os.path.join(self.folder, name), "wb") as file:
                for _ in range(400):
                    file.write(bytes([draw.randrange(10)]) + draw.randbytes(3072))
        return self.folder

    def command(self, *verb):
        options = self.options
        return [options.cltrain, *verb, *self.arguments, "--devices", options.devices, "--tune", options.tune]

    def ours(self):
        steps = ["--steps", str(STEPS[self.name]), "--warmup", "2", "--blocks", str(self.options.runs), "--json"]
        done = run(self.command("bench", "train") + steps)
        found = json.loads(done[done.index("{") :])
        self.found.append(found)
        return [found["step_seconds"][part] for part in ("min", "median", "max")], None

    def peer(self, more):
        done = run([self.options.torch, os.path.join(HERE, "torch_train.py"), self.name, *self.data, *more, "--steps",
                    str(STEPS[self.name]), "--runs", str(self.options.runs)])  # fmt: skip
        found = json.loads(done.splitlines()[-1])
        return found["step_s"], found["peak_mib"]

    def round(self):
        programs = {"cltrain": self.ours}
        programs.update({f"PyTorch, {n}": lambda m=m: self.peer(m) for n, m in PEERS[self.name].items()})
        for name, program in programs.items():
            times, memory = program()
            self.times.setdefault(name, []).extend(times)
            self.memory[name] = max(self.memory.get(name, 0), memory or 0)
            print(f"{self.name}: {name}: {1 / statistics.median(times):.3f} steps/s", file=sys.stderr, flush=True)

    def measure_memory(self):
        """Measures the memory of a training without the benchmark's own buffers."""
        process = subprocess.Popen(self.command("train") + ["--steps", "3", "--quiet"], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit("cltrain train failed")
        self.memory["cltrain"] = round(usage.ru_maxrss / 1024)

    def report(self):
        own = 1 / statistics.median(self.times["cltrain"])
        best = max(1 / statistics.median(t) for name, t in self.times.items() if name != "cltrain")
        for name, times in self.times.items():
            rate = 1 / statistics.median(times)
            text = f"{rate:.3f} ({1 / max(times):.3f} to {1 / min(times):.3f})"
            ratio = "" if name == "cltrain" else f"{own / rate:.2f}"
            memory = f"{self.memory[name]:,} MiB"
            if self.options.markdown:
                print(f"| {self.name}, {name} | {text} | {ratio} | {memory} |")
            else:
                print(f"{self.name + ', ' + name:34} {text:28} steps/s {ratio:>6} {memory:>12}")
        of_limit = statistics.median(f["of_step_limit"] for f in self.found)
        limit = statistics.median(f["limit_step_seconds"] for f in self.found)
        flop = self.found[0]["flops_per_sample"] * self.found[0]["batch"]
        print(f"{self.name}: {own / best:.2f} times the faster of PyTorch; {of_limit:.2f} of the limit, {1 / limit:.3f} steps/s for "
              f"{1e-9 * flop:.1f} GFLOP and {1e-9 * self.found[0]['update_bytes']:.2f} GB of the optimizer a step")  # fmt: skip


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=dict(os.environ, OMP_NUM_THREADS="2"))  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--torch", required=True)
    parser.add_argument("--models", default="gpt2,resnet18")
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=4, help="stretches of each program in a round")
    parser.add_argument("--tune", default="10", help="as cltrain's")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models = [Model(name, options, folder) for name in options.models.split(",")]
        for model in models:
            model.measure_memory()
        for _ in range(options.rounds):
            for model in models:
                model.round()
    for model in models:
        model.report()


if __name__ == "__main__":
    main()
