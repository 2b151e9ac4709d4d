#!/usr/bin/env python3
"""Times PyTorch on LeNet and Fashion-MNIST, and trains it, for comparison with this runtime. Run by hand.

    torch_lenet.py speed    [--compile] [--channels-last] [--bytes] [--threads 2] [--steps 30] [--runs 15]
    torch_lenet.py accuracy [--seed 0] [--epochs 10] [--lr 0.2] [--cosine]
    torch_lenet.py epochs   [--compile] [--epochs 3]
    torch_lenet.py memory   [--bytes]

Prints one JSON object. The loop has no loader: the whole set is in memory, and a batch is one index_select with a
random permutation. --bytes keeps the images as bytes and converts each batch (less memory). `speed` is the median of
--runs timed stretches of --steps steps after a warm-up. `best` is the fastest of them, which a disturbed machine
hides. `images_per_cpu_s` counts processor time of all threads instead; with --threads 1 a busy machine disturbs it
least. The loss is read once per stretch. `epochs` times whole epochs: every batch, and the accuracy on the test set
after them.
"""

import argparse
import json
import math
import os
import resource
import statistics
import sys
import time

import torch
from torch.nn import functional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "goldens"))
from lenet import LeNet, load_fashion_mnist  # noqa: E402


class Trainer:
    def __init__(self, options):
        torch.manual_seed(options.seed)
        self.options = options
        self.format = torch.channels_last if options.channels_last else torch.contiguous_format
        self.images, self.labels = self.load("train")
        self.model = LeNet().to(memory_format=self.format)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=options.lr, fused=True)
        self.forward = self.loss
        if options.compile:
            self.forward = torch.compile(self.loss, mode=options.mode, dynamic=False)

    def load(self, part):
        images, labels = load_fashion_mnist(self.options.data, part)
        return images if self.options.bytes else self.prepare(images), labels

    def prepare(self, images):
        return (images.float() / 255).contiguous(memory_format=self.format)

    def loss(self, x, y):
        return functional.cross_entropy(self.model(x), y)

    def batches(self):
        """Yields shuffled batches of one epoch; the last batch is smaller."""
        order = torch.randperm(len(self.labels))
        for index in order.split(self.options.batch):
            x = self.images.index_select(0, index)
            yield self.prepare(x) if self.options.bytes else x, self.labels.index_select(0, index)

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(x, y)
        loss.backward()
        self.optimizer.step()
        return loss

    def stretch(self, steps):
        """Returns images, seconds and processor seconds of `steps` steps of whole batches."""
        done, images = 0, 0
        begin, cpu = time.perf_counter(), time.process_time()
        while done < steps:
            for x, y in self.batches():
                if done == steps:
                    break
                if len(y) == self.options.batch:
                    loss = self.step(x, y)
                    images += len(y)
                    done += 1
        loss.item()
        return images, time.perf_counter() - begin, time.process_time() - cpu

    @torch.no_grad()
    def accuracy(self, images, labels):
        right = 0
        for x, y in zip(images.split(1000), labels.split(1000)):
            x = self.prepare(x) if self.options.bytes else x
            right += int((self.model(x).argmax(1) == y).sum())
        return right / len(labels)


def speed(trainer, options):
    begin = time.perf_counter()
    trainer.stretch(1)
    first = time.perf_counter() - begin
    trainer.stretch(20)
    rates, cpu_rates = [], []
    for _ in range(options.runs):
        images, seconds, cpu_seconds = trainer.stretch(options.steps)
        rates.append(images / seconds)
        cpu_rates.append(images / cpu_seconds)
    return {"images_per_s": round(statistics.median(rates)), "best": round(max(rates)),
            "images_per_cpu_s": round(statistics.median(cpu_rates)),
            "runs": [round(r) for r in rates], "first_step_s": round(first, 3)}  # fmt: skip


def accuracy(trainer, options):
    images, labels = trainer.load("t10k")
    epochs, step = [], 0
    total = options.epochs * -(-len(trainer.labels) // options.batch)
    for _ in range(options.epochs):
        for x, y in trainer.batches():
            if options.cosine:
                trainer.optimizer.param_groups[0]["lr"] = options.lr * 0.5 * (1 + math.cos(math.pi * step / total))
            trainer.step(x, y)
            step += 1
        epochs.append(trainer.accuracy(images, labels))
    return {"seed": options.seed, "cosine": options.cosine, "test_accuracy": epochs[-1], "epochs": epochs}


def epochs(trainer, options):
    images, labels = trainer.load("t10k")
    seconds = []
    for _ in range(options.epochs):
        begin = time.perf_counter()
        for x, y in trainer.batches():
            loss = trainer.step(x, y)
        found = trainer.accuracy(images, labels)
        seconds.append(round(time.perf_counter() - begin, 3))
        assert math.isfinite(loss.item())
    return {"epoch_seconds": seconds, "samples": len(trainer.labels), "test_accuracy": found}


def memory(trainer, options):
    trainer.stretch(options.steps)
    return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["speed", "accuracy", "epochs", "memory"])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--mode", default="default", help="torch.compile's mode")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--cosine", action="store_true", help="accuracy: lr falls to 0 as half a cosine")
    parser.add_argument("--bytes", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    trainer = Trainer(options)
    result = {"what": options.what, "torch": torch.__version__, "threads": options.threads, "batch": options.batch,
              "cpu_capability": torch.backends.cpu.get_cpu_capability(), "compile": options.compile,
              "channels_last": options.channels_last, "bytes": options.bytes}  # fmt: skip
    result.update({"speed": speed, "accuracy": accuracy, "epochs": epochs, "memory": memory}[options.what](trainer, options))
    # Linux counts ru_maxrss in KiB. Helpers of torch.compile are processes of their own, which it
    # does not include.
    result["peak_rss_mib"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
