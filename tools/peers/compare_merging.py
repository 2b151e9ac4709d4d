#!/usr/bin/env python3
"""Compares steps of small models with and without merged launches, by turns. Run by hand.

    compare_merging.py --cltrain PATH [--models mlp,lenet,gpt2,lstm,two-branch] [--rounds 5] [--how off,on]

A round runs `cltrain bench train` with each value of --merge-launches in turn. Prints the median and the least seconds of a
step of all rounds, and the first value's time over each other's in the same round: more than 1 is faster than the first.

With the model mlp (64-64-10, batch 32) it also compiles mlp_openblas.c, which is plain C on one thread with OpenBLAS'
products and runs in every round. It first asserts that 64 losses of both agree within 1e-4, from the same parameters and
samples. `of C` is cltrain's time over that program's.
"""

import argparse
import array
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
SIDE, HIDDEN, CLASSES, BATCH, SAMPLES, RATE, LOSSES = 8, 64, 10, 32, 2048, 0.1, 64
MLP = ["--model", f"mlp:{HIDDEN}", "--batch", str(BATCH), "--lr", str(RATE), "--optimizer", "sgd"]

# The arguments, and steps of a block. {} is a folder.
MODELS = {
    "mlp": ([*MLP, "--data", "idx:{}"], 3000),
    "lenet": (["--model", "lenet", "--data", "synthetic", "--batch", "1"], 500),
    "gpt2": (["--model", "gpt2:nano", "--data", "text:{}/text", "--seq-len", "32", "--batch", "1"], 150),
    "lstm": (["--model", "lstm:hidden=64", "--data", "synthetic", "--batch", "16"], 300),
    "two-branch": (["--model", "two-branch", "--data", "synthetic", "--batch", "32"], 80),
    "lenet-256": (["--model", "lenet", "--data", "synthetic", "--batch", "256"], 30),
    "gpt2-16": (["--model", "gpt2:nano", "--data", "text:{}/text", "--seq-len", "64", "--batch", "16"], 20),
    "resnet18": (["--model", "resnet18:small", "--data", "synthetic:3x32x32", "--batch", "16"], 3),
}


def floats(values):
    numbers = array.array("f", values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def write_idx(path, dims, values):
    with open(path, "wb") as file:
        file.write(struct.pack(f">{1 + len(dims)}I", 0x800 + len(dims), *dims) + bytes(values))


def write_parameters(path, tensors):
    """Writes a .safetensors file of f32 tensors: a name, a shape and values each."""
    head, data = {}, b""
    for name, (shape, values) in tensors.items():
        more = floats(values)
        head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_files(folder):
    """Writes the MLP's samples and parameters, for both programs, and a text."""
    draw = random.Random(1)
    size = SIDE * SIDE
    pixels = [draw.randrange(256) for _ in range(SAMPLES * size)]
    labels = [draw.randrange(CLASSES) for _ in range(SAMPLES)]
    for prefix in "train", "t10k":
        write_idx(os.path.join(folder, prefix + "-images-idx3-ubyte"), (SAMPLES, SIDE, SIDE), pixels)
        write_idx(os.path.join(folder, prefix + "-labels-idx1-ubyte"), (SAMPLES,), labels)
    tensors = {}
    for name, rows, columns in (("fc1", HIDDEN, size), ("fc2", CLASSES, HIDDEN)):
        tensors[name + ".weight"] = ([rows, columns], [draw.uniform(-0.125, 0.125) for _ in range(rows * columns)])
        tensors[name + ".bias"] = ([rows], [0.0] * rows)
    write_parameters(os.path.join(folder, "first.safetensors"), tensors)
    with open(os.path.join(folder, "mlp.bin"), "wb") as file:
        for _, values in tensors.values():
            file.write(floats(values))
        file.write(floats([p / 255 for p in pixels]) + floats(labels))
    with open(os.path.join(folder, "text"), "w", encoding="ascii") as file:
        file.write("".join(draw.choice("abcdefghijklmnopqrstuvwxyz \n") for _ in range(200000)))


def run_c(options, program, folder, steps, blocks):
    command = [program, options.openblas, os.path.join(folder, "mlp.bin"), SAMPLES, BATCH, SIDE * SIDE, HIDDEN, CLASSES, RATE,
               steps, blocks]  # fmt: skip
    done = subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout
    pairs = [line.split() for line in done.splitlines()]
    return [[float(value) for name, value in pairs if name == kind] for kind in ("loss", "step")]


def check_losses(options, program, folder):
    want = run_c(options, program, folder, LOSSES, 0)[0]
    for how in options.how.split(","):
        metrics = os.path.join(folder, how + ".jsonl")
        subprocess.run([options.cltrain, "train", *MLP, "--data", "idx:" + folder, "--init", os.path.join(folder, "first.safetensors"),
                        "--shuffle", "off", "--steps", str(LOSSES), "--devices", options.devices, "--tune", "off",
                        "--metrics", metrics, "--merge-launches", how], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
        with open(metrics, encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        got = [r["loss"] for r in records if "loss" in r and "step" in r][:LOSSES]
        worst = max(abs(a - b) / abs(b) for a, b in zip(got, want))
        assert len(got) == LOSSES and worst < 1e-4, f"{how}: {len(got)} losses differ by up to {worst}"
        print(f"mlp, --merge-launches {how}: {LOSSES} losses differ by at most {worst:.1e} from the program in C")


def measure(options, name, how, folder):
    arguments, steps = MODELS[name]
    command = [options.cltrain, "bench", "train", *[a.format(folder) for a in arguments], "--devices", options.devices,
               "--tune", "off", "--steps", str(steps), "--warmup", str(max(2, steps // 10)), "--blocks", "3", "--json",
               "--merge-launches", how]  # fmt: skip
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(done[done.index("{") :])["step_seconds"]["median"]


def spread(values, scale=1.0, digits=2):
    return f"{statistics.median(values) * scale:.{digits}f} (least {min(values) * scale:.{digits}f})"


def compare(options, name, program, folder):
    hows = options.how.split(",")
    times, of_c = {how: [] for how in hows}, {how: [] for how in hows}
    for _ in range(options.rounds):
        plain = statistics.median(run_c(options, program, folder, MODELS[name][1], 3)[1]) if name == "mlp" else 0
        for how in hows:
            times[how].append(measure(options, name, how, folder))
            of_c[how].append(times[how][-1] / plain if plain else 0)
    for how in hows:
        ratios = [a / b for a, b in zip(times[hows[0]], times[how])]
        text = f"{name}, {how}: step {spread(times[how], 1e6, 1)} us, ratio {spread(ratios)}"
        print(text + (f", {spread(of_c[how])} of C" if name == "mlp" else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--models", default="mlp,lenet,gpt2,lstm,two-branch", help="of " + ", ".join(MODELS))
    parser.add_argument("--how", default="off,on", help="values of --merge-launches")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--openblas", default="libopenblas.so.0")
    parser.add_argument("--cc", default="cc")
    options = parser.parse_args()
    unknown = [name for name in options.models.split(",") if name not in MODELS]
    if unknown:
        parser.error(f"--models: there is no {', '.join(unknown)}: choose of {', '.join(MODELS)}")
    os.environ.pop("OPENBLAS_CORETYPE", None)  # mlp_openblas takes the best kernels of this processor
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, "mlp_openblas")
        source = os.path.join(HERE, "mlp_openblas.c")
        subprocess.run([options.cc, "-O3", "-march=native", source, "-ldl", "-lm", "-o", program], check=True)
        write_files(folder)
        names = options.models.split(",")
        if "mlp" in names:
            check_losses(options, program, folder)
        for name in names:
            compare(options, name, program, folder)


if __name__ == "__main__":
    main()
