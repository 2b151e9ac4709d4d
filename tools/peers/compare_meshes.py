#!/usr/bin/env python3
"""Times the axes of --parallel on two devices against one device, or against data parallelism, by turns.

    compare_meshes.py --cltrain PATH [--devices pocl/2] [--blocks 9] [--case NAME...] [--markdown]

Run it by hand, on a machine with two cores that does nothing else. Each case is one `cltrain bench meshes`. Prints the
median, least and largest ratio of each mesh to the first one, and what the project asks for. `--markdown` prints the
rows of docs/parallel.md. All cases take about half an hour on two cores and 12 GiB.
"""

import argparse
import array
import json
import os
import random
import struct
import subprocess
import tempfile
import zipfile

GPT2 = ("gpt2:124M", None, "--seq-len", "64")
# Name, text, model and arrays, meshes, batch, steps in a block, further options, and the least ratios asked for.
CASES = (
    ("zero", "GPT-2 124M, T = 64, AdamW", GPT2, ("dp=2", "dp=2,zero=1"), 4, 4, ("--optimizer", "adamw"), (0.95,)),
    ("tp", "GPT-2 124M, T = 64", GPT2, ("dp=2", "tp=2"), 4, 4, (), (1.0,)),
    ("pp", "GPT-2 124M, T = 64", GPT2, ("dp=2", "tp=2", "pp=2,accumulate=8"), 32, 1, (), (0.9, 0.8)),
    ("space", "U-Net of width 16, 512 x 512", ("unet:sync,width=16", ((3, 512, 512), (1, 512, 512))),
     ("dp=1", "space=2"), 1, 2, (), (1.6,)),
    ("attention", "causal attention, T = 2048, 8 x 64", ("attention", ((2048, 512), (2048, 512))),
     ("dp=1", "time=2"), 1, 4, (), (1.5,)),
    ("lstm", "LSTM of 8 layers, hidden 512, T = 256", ("lstm", ((256, 512), (256, 512))),
     ("dp=1", "time=2"), 16, 1, (), (1.4,)),
)  # fmt: skip
# Model files of one layer, whose positions are split along time.
LAYERS = {
    "attention": [{"name": "qkv", "op": "linear", "in": "x", "out": 1536},
                  {"op": "attention", "heads": 8, "causal": True}],
    "lstm": [{"op": "lstm", "in": "x", "hidden": 512, "layers": 8}],
}  # fmt: skip


def write_arrays(path, shapes, samples):
    """Writes arrays x and y of random f32 numbers as NPZ. Samples repeat a block of numbers, which is enough for speed."""
    block = array.array("f", [random.uniform(-1, 1) for _ in range(65536)]).tobytes()
    with zipfile.ZipFile(path, "w") as file:
        for name, shape in zip(("x_train", "y_train"), shapes):
            size = 4 * samples
            for n in shape:
                size *= n
            header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {(samples, *shape)}, }}"
            header += " " * (-(len(header) + 11) % 64) + "\n"
            head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
            file.writestr(name + ".npy", head + (block * (size // len(block) + 1))[:size])


def measure(options, case, folder):
    _, _, (model, shapes, *more), meshes, batch, steps, extra, _ = case
    if shapes:
        data = os.path.join(folder, "data.npz")
        write_arrays(data, shapes, 4 * batch)
        more = ["--data", "npz:" + data]
    if model in LAYERS:
        text = {"inputs": [{"name": "x", "time": 1}, {"name": "y", "time": 1}],
                "nodes": [*LAYERS[model][:-1], {"name": "out", **LAYERS[model][-1]}],
                "outputs": {"out": "out"}, "losses": [{"op": "mse", "in": ["out", "y"]}]}  # fmt: skip
        model = os.path.join(folder, "model.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump(text, file)
    line = [options.cltrain, "bench", "meshes", *meshes, "--model", model, *more, "--batch", str(batch), "--steps",
            str(steps), "--blocks", str(options.blocks), "--devices", options.devices, "--tune", "off", "--json",
            *extra]  # fmt: skip
    return json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)["rows"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--devices", default="pocl/2")
    parser.add_argument("--blocks", type=int, default=9)
    parser.add_argument("--case", action="append", choices=[case[0] for case in CASES])
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    for case in CASES:
        if options.case and case[0] not in options.case:
            continue
        with tempfile.TemporaryDirectory() as folder:
            first, *others = measure(options, case, folder)
        for row, asked in zip(others, case[-1]):
            ratio = row["ratio"]
            name = f"{case[1]}, batch {case[4]}"
            found = f"{ratio['median']:.2f} ({ratio['min']:.2f} to {ratio['max']:.2f})"
            if options.markdown:
                print(f"| {name} | `{row['mesh']}` | `{first['mesh']}` | {found} |", flush=True)
            else:
                print(f"{name}: {row['mesh']} is {found} times as fast as {first['mesh']}; asked {asked}", flush=True)


if __name__ == "__main__":
    main()
