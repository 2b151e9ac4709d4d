"""tools/gpu-compile: which kernels compile offline for which GPU, and with what figures."""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import subprocess
import sys

import compilers as compilers_module
from targets import TARGETS, Failure, compile_kernels

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCEPTIONS = ROOT / "tools/gpu_compile/exceptions.txt"
FMA_SHARE, FMA_WAVES, FMA_OCCUPANCY, MEMORY_OCCUPANCY = 0.7, 2, 0.25, 0.5


def read_exceptions():
    """Lines of: target, kernel, options, figure (the first three with * and ?), reason."""
    rows = []
    for line in EXCEPTIONS.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 4)
            if len(words) < 5:
                sys.exit(f"gpu-compile: {EXCEPTIONS}: no reason: {line}")
            rows.append(words)
    return rows


def launches(program, vendor, tiles):
    """{(file, options): {kernel: work-items}} that plans for the vendor's GPUs launch."""
    result = subprocess.run([program, vendor, *tiles], check=True, capture_output=True, text=True)
    out = result.stdout
    for line in result.stderr.splitlines():
        print(f"gpu-compile: {line}", file=sys.stderr)
    found = {}
    for line in out.splitlines():
        file, options, kernel, items = line.split("\t")
        found.setdefault((file, options), {})[kernel] = int(items)
    return dict(sorted(found.items()))


def kernel_class(file, kernel):
    """fma and memory have floors; other kernels only must not spill."""
    if not file.startswith("gpu/"):
        return "other"
    return "fma" if kernel.startswith(("gemm", "conv2d")) and not kernel.endswith("sum") else "memory"


def problems(kind, figures):
    """(figure, what is wrong) of a kernel that compiled."""
    if figures.spills:
        yield "spills", f"{figures.spills} spilled"
    if figures.scratch:
        yield "scratch", f"{figures.scratch} bytes of scratch"
    if figures.occupancy is None:
        return
    share = figures.inner.share() if figures.inner else None
    if kind == "fma" and figures.waves < FMA_WAVES and figures.occupancy < FMA_OCCUPANCY:
        yield "occupancy", f"occupancy {figures.occupancy:.2f} below {FMA_OCCUPANCY}, waves below {FMA_WAVES}"
    if kind == "fma" and (share is None or share < FMA_SHARE):
        yield "fma", f"share of FMA {share or 0:.2f} below {FMA_SHARE}"
    if kind == "memory" and figures.occupancy < MEMORY_OCCUPANCY:
        yield "occupancy", f"occupancy {figures.occupancy:.2f} below {MEMORY_OCCUPANCY}"
    if kind == "memory" and figures.inner and not figures.inner.wide:
        yield "vector", "no vector loads"


def shown(value, form="{}"):
    return "-" if value is None else form.format(value)


class Report:
    def __init__(self):
        self.exceptions = read_exceptions()
        self.bad, self.rows, self.used = [], 0, set()
        self.worst = {}
        print(f"{'target':8} {'class':6} {'reg':>4} {'spill':>5} {'scratch':>7} {'local':>6} {'waves':>5} "
              f"{'occup':>5} {'fma':>5}  kernel")  # fmt: skip

    def excepted(self, target, kernel, options, figure):
        for i, row in enumerate(self.exceptions):
            flat = options.replace(" ", "") or "-"
            if fnmatch.fnmatchcase(target, row[0]) and fnmatch.fnmatchcase(kernel, row[1]) and \
                    fnmatch.fnmatchcase(flat, row[2]) and row[3] == figure:  # fmt: skip
                self.used.add(i)
                return True
        return False

    def fail(self, target, what, why):
        self.bad.append(f"{target}: {what}: {why}")

    def add(self, target, file, options, kernel, f):
        kind = kernel_class(file, kernel)
        share = f.inner.share() if f.inner and kind == "fma" else None
        self.rows += 1
        marks = ""
        for figure, why in problems(kind, f):
            if self.excepted(target, kernel, options, figure):
                marks += f" (excepted: {figure})"
            else:
                self.fail(target, f"{kernel} of {file} {options}", why)
        print(f"{target:8} {kind:6} {shown(f.registers):>4} {shown(f.spills):>5} {shown(f.scratch):>7} "
              f"{shown(f.local):>6} {shown(f.waves):>5} {shown(f.occupancy, '{:.2f}'):>5} "
              f"{shown(share, '{:.2f}'):>5}  {kernel} {file} {options}{marks}")  # fmt: skip
        worst = self.worst.setdefault((TARGETS[target][0], kind), [0, 1.0, 1.0, 0])
        worst[0] += 1
        worst[1] = min(worst[1], f.occupancy if f.occupancy is not None else 1)
        worst[2] = min(worst[2], share if share is not None else 1)
        worst[3] += f.spills or 0

    def close(self):
        print()
        for (vendor, kind), (count, occupancy, share, spills) in sorted(self.worst.items()):
            text = f"{vendor}, {kind}: {count} compile offline"
            if vendor != "intel":
                text += f"; lowest occupancy {occupancy:.2f}, spills {spills}"
            if kind == "fma" and vendor != "intel":
                text += f", lowest share of FMA {share:.2f}"
            print(text)
        for line in self.bad:
            print(f"BAD {line}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", required=True)
    parser.add_argument("--compilers", required=True, type=pathlib.Path)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--fetch-only", action="store_true")
    parser.add_argument("--root", default=ROOT, type=pathlib.Path, help="the tree with clkernels/")
    parser.add_argument("--tiles", action="store_true", help="also the tiles that a tuner would try")
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    unknown = [t for t in given.targets if t not in TARGETS]
    if unknown:
        print(f"gpu-compile: no target {unknown[0]}; there are {', '.join(TARGETS)}", file=sys.stderr)
        return 2
    if given.fetch:
        compilers_module.fetch(given.compilers)
    compilers = compilers_module.Compilers(given.compilers)
    usable = []
    for vendor in ("amd", "nvidia", "intel"):
        missing = compilers.missing(vendor)
        if missing:
            print(f"gpu-compile: nothing is compiled for {vendor}: {missing} not found "
                  "(tools/gpu-compile BUILD fetches what is missing)", file=sys.stderr)  # fmt: skip
        else:
            usable.append(vendor)
    if given.fetch_only:
        return 0 if usable else 1
    if not usable:
        return 77
    report = Report()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for vendor in usable:
            targets = [t for t in TARGETS if TARGETS[t][0] == vendor and (not given.targets or t in given.targets)]
            every = launches(given.launches, vendor, ["tiles"] if given.tiles else []) if targets else {}
            for (file, options), sizes in every.items():
                jobs.append((file, options, pool.submit(compile_kernels, compilers, targets, given.root, file, options, sizes)))
        for file, options, job in jobs:
            for target, result in job.result():
                if isinstance(result, Failure):
                    report.fail(target, f"{file} {options}", str(result))
                    continue
                for kernel, figures in result.items():
                    report.add(target, file, options, kernel, figures)
    report.close()
    return 1 if report.bad else 0


sys.exit(main())
