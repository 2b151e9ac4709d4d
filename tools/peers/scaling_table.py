#!/usr/bin/env python3
"""Measures the time per sample of training steps for batches from 1 to 4096, and on 1 to 8 devices and ranks.

    scaling_table.py measure --cltrain PATH --into scaling.json [--models lenet,mlp] [--kinds batch,devices,ranks]
    scaling_table.py table scaling.json                    the Markdown of docs/performance.md
    scaling_table.py draw scaling.json -o scaling.png      the picture, with gnuplot

Run it by hand on a quiet machine. `measure` adds its rows to the file, and replaces rows of the same name, so that parts
may run one after the other. The first run of a shape compiles its kernels: `--compile` does only that. More ranks than
cores share the cores, and are labelled as oversubscribed.
"""
import argparse
import json
import os
import platform
import subprocess
import sys
import time

# Name: how it is trained, its largest batch, and its batch on several devices.
TEXT = ["--data", "synthetic", "--seq-len", "64", "--classes", "256"]
MODELS = {
    "lenet": (["--model", "lenet", "--data", "synthetic:1x28x28"], 4096, 256),
    "mlp": (["--model", "mlp", "--data", "synthetic:1x28x28"], 4096, 256),
    "gpt2:nano": (["--model", "gpt2:nano", *TEXT], 256, 32),
    "resnet18:small": (["--model", "resnet18:small", "--data", "synthetic:3x32x32"], 256, 64),
}
BATCHES = [1, 4, 16, 64, 256, 1024, 4096]
COUNTS = [1, 2, 4, 8]
KINDS = ("batch", "devices", "ranks")


def bench(options, row, steps, blocks):
    model, batch, devices, ranks = row
    cores = sorted(os.sched_getaffinity(0))[:options.cores]
    line = [options.cltrain, "bench", "train", *MODELS[model][0], "--batch", str(batch), "--tune", "off", "--devices",
            options.platform + (f"/{devices}" if devices > 1 else ""), "--steps", str(steps), "--warmup", str(steps),
            "--blocks", str(blocks), "--json"]  # fmt: skip
    if ranks > 1:
        line = [*options.mpiexec.split(), "-n", str(ranks), *line]
        if ranks > len(cores):
            line.append("--oversubscribe")
    # Several devices or ranks have a core each, and so has one that is compared with them.
    taken = len(cores) if not devices else min(len(cores), max(devices, ranks))
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True, timeout=600,
                          preexec_fn=lambda: os.sched_setaffinity(0, set(cores[:taken])))  # fmt: skip
    return json.loads(done.stdout[done.stdout.index("{"):])["step_seconds"]


def measure_row(options, row):
    """Returns the seconds per sample: the median, the least and the most of the blocks."""
    step = bench(options, row, 1, 1)["median"]
    if options.compile:
        return None
    steps = max(1, min(1000, round(options.seconds / options.blocks / step)))
    found = bench(options, row, steps, options.blocks)
    return [found[key] / row[1] for key in ("median", "min", "max")]


def rows_of(options, model):
    """Yields the kind and the number of each row, and the row: model, batch, devices, ranks. 0 devices are one device
    with all cores."""
    most, fixed = MODELS[model][1:]
    for batch in BATCHES:
        if batch <= most:
            yield "batch", batch, (model, batch, 0, 1)
    for count in COUNTS:
        if count <= options.cores:
            yield "devices", count, (model, fixed, count, 1)
    for count in COUNTS:
        if count <= options.cores or (model == "lenet" and count <= 2 * options.cores):
            yield "ranks", count, (model, fixed, 1, count)


def processor():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            return next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.machine()


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(["git", "-C", here, "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE, text=True)
    return done.stdout.strip() or "unknown"


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def measure(options):
    found = load(options.into) if os.path.exists(options.into) else {"rows": {}}
    found.update(machine=processor(), cores=options.cores, platform=options.platform, commit=commit(),
                 date=time.strftime("%Y-%m-%d"))
    for model in options.models.split(","):
        for kind, number, row in rows_of(options, model):
            if kind not in options.kinds.split(","):
                continue
            times = measure_row(options, row)
            print(model, kind, number, "compiled" if times is None else f"{1e6 * times[0]:.1f} us", file=sys.stderr)
            if times is None:
                continue
            found["rows"].setdefault(model, {}).setdefault(kind, {})[str(number)] = times
            with open(options.into, "w", encoding="utf-8") as file:
                json.dump(found, file, indent=1)


def cell(times):
    if not times:
        return ""
    middle, least, most = (1e6 * t for t in times)
    form = ".0f" if middle >= 100 else ".1f"
    return f"{middle:,{form}} ({least:,{form}} to {most:,{form}})"


def table(options):
    found = load(options.file)
    models = [m for m in MODELS if m in found["rows"]]
    print(f"{found['machine']}, {found['cores']} cores, {found['platform']}, f32, {found['date']}, commit {found['commit']}.")
    print("Microseconds per sample: the median of the blocks (least to most).")
    for kind, head in (("batch", "batch"), ("devices", "devices, a core each"), ("ranks", "ranks, a core each")):
        numbers = sorted({int(n) for m in models for n in found["rows"][m].get(kind, {})})
        if not numbers:
            continue
        shown = [m for m in models if kind in found["rows"][m]]
        heads = [m if kind == "batch" else f"{m}, batch {MODELS[m][2]}" for m in shown]
        print(f"\n| {head} | " + " | ".join(heads) + " |")
        print("|---|" + "---|" * len(shown))
        for number in numbers:
            label = " oversubscribed" if kind != "batch" and number > found["cores"] else ""
            cells = [cell(found["rows"][m][kind].get(str(number))) for m in shown]
            print(f"| {number}{label} | " + " | ".join(cells) + " |")


def draw(options):
    found = load(options.file)
    lines = ["set terminal pngcairo size 900,520 enhanced font ',11'", f"set output '{options.output}'",
             "set logscale xy", "set xlabel 'samples in a batch'", "set ylabel 'microseconds per sample'",
             "set format y '%g'", "set grid", "set key outside right", "set xtics (1, 4, 16, 64, 256, 1024, 4096)",
             f"set title \"Training steps, {found['machine']}, {found['cores']} cores\" noenhanced"]  # fmt: skip
    plots, blocks = [], []
    for model in MODELS:
        rows = found["rows"].get(model, {}).get("batch", {})
        if rows:
            plots.append(f"'-' using 1:2:3:4 with yerrorlines pt 7 lw 2 title '{model}' noenhanced")
            blocks.append("".join(f"{n} {1e6 * t[0]} {1e6 * t[1]} {1e6 * t[2]}\n"
                                  for n, t in sorted(rows.items(), key=lambda r: int(r[0]))) + "e\n")
    if not plots:
        sys.exit(f"{options.file}: no rows of batches, which the picture shows; measure them with --kinds batch")
    script = "\n".join(lines) + "\nplot " + ", ".join(plots) + "\n" + "".join(blocks)
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    subjects = parser.add_subparsers(dest="subject", required=True)
    run = subjects.add_parser("measure")
    run.add_argument("--cltrain", required=True)
    run.add_argument("--into", required=True)
    run.add_argument("--models", default=",".join(MODELS))
    run.add_argument("--kinds", default=",".join(KINDS))
    run.add_argument("--platform", default="pocl")
    run.add_argument("--mpiexec", default="mpiexec", help="with its options; Open MPI needs --oversubscribe beyond its slots")
    run.add_argument("--cores", type=int, default=len(os.sched_getaffinity(0)))
    run.add_argument("--seconds", type=float, default=1.5, help="of the timed blocks of a row")
    run.add_argument("--blocks", type=int, default=5)
    run.add_argument("--compile", action="store_true", help="compile the kernels, and measure nothing")
    subjects.add_parser("table").add_argument("file")
    picture = subjects.add_parser("draw")
    picture.add_argument("file")
    picture.add_argument("-o", "--output", required=True)
    options = parser.parse_args()
    {"measure": measure, "table": table, "draw": draw}[options.subject](options)


if __name__ == "__main__":
    main()
