#!/usr/bin/env python3
"""Images a second from JPEGs in the page cache: `cltrain bench load` and load_images.c (libjpeg-turbo
and a plain resize in C, one thread a processor), by turns. Needs a C compiler and libturbojpeg.

The C program makes the images: waves, discs and noise from a seed. Both programs decode at the same
scale, resize the shorter side to 256 and keep the middle 224 x 224 as floats. The pixels are compared
with those of `cltrain data inspect` by their mean and deviation."""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
# Width, height, chroma subsampling, number of files.
SETS = [(500, 375, "420", 200), (500, 375, "444", 200), (1920, 1080, "420", 40), (1920, 1080, "444", 40)]
SIZE = 224


def output(*command):
    return subprocess.run([str(c) for c in command], check=True, stdout=subprocess.PIPE, text=True).stdout


def build(folder):
    program = os.path.join(folder, "load_images")
    subprocess.run(["cc", "-O3", "-march=native", os.path.join(HERE, "load_images.c"), "-o", program,
                    "-lturbojpeg", "-lpthread", "-lm"], check=True)  # fmt: skip
    return program


def same_pixels(cltrain, peer, folder):
    """Compares the first image of the peer with a data set that has only that image."""
    dump, one = os.path.join(folder, "first.bin"), os.path.join(folder, "one")
    output(peer, "read", folder, 1, 1, dump)
    for part in ("train", "val"):
        os.makedirs(os.path.join(one, part, "a"), exist_ok=True)
        link = os.path.join(one, part, "a", "0.jpg")
        if not os.path.exists(link):
            os.link(os.path.join(folder, "train", "a", "00000.jpg"), link)
    found = json.loads(output(cltrain, "data", "inspect", "images:" + one, "--json"))
    ours = next(f for f in found["splits"][0]["fields"] if f["name"] == "image")
    with open(dump, "rb") as file:
        pixels = file.read()
    planes = [pixels[c * SIZE * SIZE:(c + 1) * SIZE * SIZE] for c in range(3)]
    theirs = [statistics.fmean(p) / 255 for p in planes] + [statistics.pstdev(p) / 255 for p in planes]
    for mine, other in zip(ours["normalize"], theirs):
        if abs(mine - other) > 0.5 / 255:
            raise SystemExit(f"{folder}: the programs read different pixels: {ours['normalize']} and {theirs}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    options = parser.parse_args()
    blocks = max(1, round(options.seconds / 0.5))
    with tempfile.TemporaryDirectory() as top:
        peer = build(top)
        print(f"{options.threads} threads; images/s, median of {options.rounds} rounds (least to most)")
        for width, height, chroma, count in SETS:
            folder = os.path.join(top, f"{width}-{chroma}")
            print(output(peer, "make", folder, count, width, height, chroma, 7).strip() + f", {chroma}")
            same_pixels(options.cltrain, peer, folder)
            rate = float(output(peer, "read", folder, options.threads, 1))
            passes = max(1, round(rate * options.seconds / count))
            ours, theirs = [], []
            for _ in range(options.rounds):
                theirs.append(float(output(peer, "read", folder, options.threads, passes)))
                found = json.loads(output(options.cltrain, "bench", "load", "--data", "images:" + folder,
                                          "--blocks", blocks, "--json"))
                ours.append(found["samples_per_s"]["median"])
            ratios = [a / b for a, b in zip(ours, theirs)]
            for name, values, form in ("cltrain", ours, ".0f"), ("C", theirs, ".0f"), ("ratio", ratios, ".2f"):
                least, most = format(min(values), form), format(max(values), form)
                print(f"    {name:8s} {statistics.median(values):{form}} ({least} to {most})", flush=True)


if __name__ == "__main__":
    main()
