#!/usr/bin/env python3
"""Images a second from a folder of JPEGs: torchvision's ImageFolder and DataLoader, and cltrain's loader."""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
import torchvision
from PIL import Image, ImageDraw
from torchvision import transforms

CLASSES, SAMPLES, EPOCHS = 10, 2000, 4


def write(folder, side):
    """Writes images of smooth colours, shapes and noise. The last tenth are test images."""
    rng = np.random.default_rng(1)
    for i in range(SAMPLES):
        part = os.path.join(folder, "val" if i >= SAMPLES * 9 // 10 else "train", str(i % CLASSES))
        os.makedirs(part, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 255, (8, 8, 3)).astype(np.uint8)).resize((side, side), Image.BICUBIC)
        draw = ImageDraw.Draw(image)
        for _ in range(12):
            (x, y), r = rng.integers(0, side, 2), rng.integers(side // 20 + 1, side // 5 + 2)
            box = [int(v) for v in (x - r, y - r, x + r, y + r)]
            draw.ellipse(box, fill=tuple(int(v) for v in rng.integers(0, 255, 3)))
        noisy = np.asarray(image).astype(np.int16) + rng.normal(0, 8, (side, side, 3)).astype(np.int16)
        Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(os.path.join(part, f"{i:05}.jpg"), quality=90)


def of_torchvision(folder, size, workers):
    change = transforms.Compose([transforms.Resize(size * 8 // 7), transforms.CenterCrop(size), transforms.ToTensor()])
    data = [torchvision.datasets.ImageFolder(os.path.join(folder, part), change) for part in ("train", "val")]
    rates = []
    for _ in range(EPOCHS):
        began, count = time.time(), 0
        for part in data:
            for images, _ in torch.utils.data.DataLoader(part, 64, shuffle=True, num_workers=workers):
                count += len(images)
        rates.append(count / (time.time() - began))
    return max(rates[1:])


def of_cltrain(folder, size, options):
    path = os.path.join(folder, "metrics.jsonl")
    command = [options.cltrain, "train", "--model", "softmax", "--data", "images:" + folder, "--image-size", str(size),
               "--batch", "64", "--epochs", str(EPOCHS), "--lr", "0.001", "--devices", options.devices, "--tune", "off", "--quiet",
               "--metrics", path]  # fmt: skip
    subprocess.run(command, check=True)
    with open(path, encoding="utf-8") as file:
        epochs = [row for row in map(json.loads, file) if "wait" in row]
    seconds = [after["seconds"] - before["seconds"] for before, after in zip(epochs, epochs[1:])]
    return SAMPLES / min(seconds), epochs[-1]["wait"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, options.side)
        rate, wait = of_cltrain(folder, options.size, options)
        print(f"cltrain {rate:.0f} images/s, training softmax and evaluating it, {100 * wait:.0f} % of it waiting")
        print(f"torchvision, {options.workers} workers: {of_torchvision(folder, options.size, options.workers):.0f} images/s")


if __name__ == "__main__":
    main()
