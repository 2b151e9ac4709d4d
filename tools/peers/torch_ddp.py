#!/usr/bin/env python3
"""Times PyTorch's DistributedDataParallel over processes of one thread each (gloo). Run by hand; compare_devices.py runs it too.

    torch_ddp.py [--model lenet|mlp] [--processes 2] [--batch 256] [--steps 30] [--runs 9]

The batch is the global batch. Each process has an equal part, from its half of the samples (as DistributedSampler
divides them), with all data in memory. Prints one JSON object: images per second of all processes together.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "goldens"))
from lenet import LeNet, load_fashion_mnist  # noqa: E402


def build(name):
    if name == "lenet":
        return LeNet()
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
                         nn.Linear(4096, 10))  # fmt: skip


def work(rank, options, rendezvous):
    torch.set_num_threads(1)
    if options.pin:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=options.processes)
    torch.manual_seed(0)
    images, labels = load_fashion_mnist(options.data, "train")
    images = images[rank :: options.processes].float() / 255
    labels = labels[rank :: options.processes]
    model = DistributedDataParallel(build(options.model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    batch = options.batch // options.processes

    def stretch(steps):
        begin = time.perf_counter()
        order = torch.randperm(len(labels))
        for index in [order[at : at + batch] for at in range(0, steps * batch, batch)]:
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(images.index_select(0, index)), labels.index_select(0, index))
            loss.backward()
            optimizer.step()
        loss.item()
        dist.barrier()
        return steps * options.batch / (time.perf_counter() - begin)

    stretch(min(10, options.steps))
    rates = [stretch(options.steps) for _ in range(options.runs)]
    if rank == 0:
        print(json.dumps({"model": options.model, "torch": torch.__version__, "processes": options.processes,
                          "images_per_s": round(statistics.median(rates)), "runs": [round(r) for r in rates]}))  # fmt: skip
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["lenet", "mlp"], default="lenet")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--pin", action="store_true", help="each process to a core of its own")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (options, os.path.join(folder, "meet")), nprocs=options.processes)


if __name__ == "__main__":
    main()
