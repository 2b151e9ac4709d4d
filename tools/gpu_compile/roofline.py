"""Predicts the time of every kernel on GPUs that are not here, from the counts of its launches and
of its instructions, and prints docs/gpus.md.
Usage: roofline.py GPU_LAUNCHES COMPILERS"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys

import compilers as compilers_module
from cache import Cache
from gpus import GPUS, LATENCY, Launch, predict
from kernels import compiles_for, kernel_class
from targets import Failure, compile_kernels

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TEXT = (HERE / "roofline.md").read_text()


def is_product(line):
    return kernel_class(line["file"], line["kernel"], True) == "fma"


class Work:
    """The launches of one GPU's plans."""

    NAMES = ("file", "options", "kernel", "model", "node", "op", "shape", "items", "group", "flops", "bytes")

    def __init__(self, program, gpu):
        said = subprocess.run([program, gpu.name.lower()], capture_output=True, text=True, check=True).stdout
        nodes = {}
        self.lines = self.chosen([dict(zip(self.NAMES, line.split("\t"))) for line in said.splitlines()])
        for line in self.lines:
            nodes.setdefault((line["model"], line["node"], line["op"], line["shape"]), []).append(line)
        for lines in nodes.values():
            # A node's operations are those of its products, in equal parts.
            products = {(line["kernel"], line["options"]) for line in lines if is_product(line)}
            for line in lines:
                flops = float(line["flops"]) / len(products) if is_product(line) else 0
                line["work"] = Launch(int(line["items"]), int(line["group"]), flops, float(line["bytes"]))

    @staticmethod
    def chosen(lines):
        """Returns all launches of models, and the largest launch of a layer of each kernel that is in
        no model."""
        kept = [line for line in lines if line["model"] != "layer"]
        known, largest = {(line["kernel"], line["file"]) for line in kept}, {}
        for line in lines:
            key = line["kernel"], line["file"]
            if key not in known and (key not in largest or float(line["bytes"]) > float(largest[key]["bytes"])):
                largest[key] = line
        return kept + list(largest.values())

    def compile(self, compilers, cache, gpu):
        """Returns {(file, options, kernel, group): figures}. A launch whose instructions the target
        does not have is left out."""
        jobs, found = {}, {}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for line in self.lines:
                if compiles_for(gpu.target, line["options"]):
                    jobs.setdefault((line["file"], line["options"]), {})[line["kernel"]] = int(line["group"])
            running = {key: pool.submit(compile_kernels, compilers, cache, [gpu.target], ROOT, *key, sizes)
                       for key, sizes in jobs.items()}  # fmt: skip
            for (file, options), job in running.items():
                _, result = job.result()[0]
                if isinstance(result, Failure):
                    sys.exit(f"roofline: {gpu.target}: {file} {options}: {result}")
                for kernel, figures in result.items():
                    found[file, options, kernel] = figures
        return found


def predictions(program, compilers, cache, gpu):
    """Returns {(kernel, file): [(line, prediction)]}, longest first."""
    work = Work(program, gpu)
    figures, found = work.compile(compilers, cache, gpu), {}
    for line in work.lines:
        known = figures.get((line["file"], line["options"], line["kernel"]))
        if known:
            found.setdefault((line["kernel"], line["file"]), []).append((line, predict(line["work"], known, gpu)))
    for lines in found.values():
        lines.sort(key=lambda pair: -pair[1].seconds)
    return found


def number(x):
    return f"{x:.0f}" if x >= 10 else f"{x:.1f}" if x >= 1 else f"{x:.2g}"


def cell(prediction, product):
    rate = prediction.flops / 1e12 if product else prediction.bytes / 1e9
    return f"{number(rate)} ({100 * prediction.share():.0f} %, {prediction.bound})"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def step_rows(every, models):
    """Returns a row for each model: the sum of its launches' times."""
    rows = []
    for model, batch in models:
        row = [model, str(batch)]
        for gpu in GPUS:
            pairs = [pair for lines in every[gpu.name].values() for pair in lines if pair[0]["model"] == model]
            seconds, roof = sum(p.seconds for _, p in pairs), sum(p.roof for _, p in pairs)
            row.append(f"{number(1000 * seconds)} ms ({100 * roof / seconds:.0f} %)")
        rows.append(row)
    return rows


def kernel_rows(every, product):
    """Returns a row for each kernel, of its longest launch on the first GPU that has it. A launch
    of another GPU with the same node is beside it."""
    rows, names = [], sorted({key for found in every.values() for key in found})
    for key in names:
        first = next(found[key][0] for found in (every[g.name] for g in GPUS) if key in found)
        line = first[0]
        if is_product(line) != product:
            continue
        row = [f"`{key[0]}`", f"{line['model']}: {line['op']} {' '.join(line['shape'].split())}"]
        for gpu in GPUS:
            same = [p for other, p in every[gpu.name].get(key, []) if (other["model"], other["op"], other["shape"]) ==
                    (line["model"], line["op"], line["shape"])]  # fmt: skip
            row.append(cell(same[0], product) if same else "-")
        rows.append(row)
    return rows


def main(program, folder):
    compilers = compilers_module.Compilers(folder)
    for vendor in sorted({gpu.vendor for gpu in GPUS}):
        missing = compilers.missing(vendor)
        if missing:
            sys.exit(f"roofline: {missing} not found: tools/gpu-compile --fetch BUILD fetches it")
    cache = Cache(compilers, ROOT)
    every = {gpu.name: predictions(program, compilers, cache, gpu) for gpu in GPUS}
    models = [("gpt2 f32", 8), ("gpt2 bf16", 8), ("resnet18 f32", 64), ("resnet18 bf16", 64), ("lenet f32", 256), ("lenet bf16", 256)]
    names = [gpu.name for gpu in GPUS]
    tables = {"STEPS": table(["model", "batch", *names], step_rows(every, models)),
              "PRODUCTS": table(["kernel", "launch", *names], kernel_rows(every, True)),
              "OTHERS": table(["kernel", "launch", *names], kernel_rows(every, False)),
              "LATENCY": f"{LATENCY * 1e9:.0f} ns",
              "COMPILERS": "; ".join(sorted({compilers.version(gpu.vendor) for gpu in GPUS}))}  # fmt: skip
    text = TEXT
    for name, value in tables.items():
        text = text.replace(f"@{name}@", value)
    print(text, end="")


if __name__ == "__main__":
    main(*sys.argv[1:])
