"""tools/gpu-compile: compiles kernels offline for GPUs, and prints and judges their figures."""
import argparse
import concurrent.futures
import fnmatch
import os
import pathlib
import re
import subprocess
import sys

import compilers as compilers_module
import table
from cache import Cache
from kernels import kernel_class
from targets import TARGETS, Failure, compile_kernels, suits

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXCEPTIONS = ROOT / "tools/gpu_compile/exceptions.txt"
TABLE = ROOT / "tests/gpu/table"
FOR_ALL = ("gfx906", "sm_80", "dg2")  # also compile kernels that no plan chooses by itself
TABLE_TARGETS = ("gfx90a", "gfx940", "gfx1030", "gfx1100", "sm_80", "sm_90")  # have a table in tests/gpu/table
FMA_SHARE, FMA_WAVES, FMA_OCCUPANCY, MEMORY_OCCUPANCY = 0.7, 2, 0.25, 0.5
WITHOUT_UNIT = ("intel",)


def read_exceptions(path):
    """Reads lines of: target, kernel, options, figure (the first three with * and ?), reason.
    `tiles:` before a figure: for options that only --tiles compiles."""
    rows = []
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            words = line.split(None, 4)
            if len(words) < 5:
                sys.exit(f"gpu-compile: {path}: no reason: {line}")
            rows.append(words)
    return rows


def launches(program, vendor, tiles):
    """Returns {(file, options): {kernel: (work-items, chosen)}} of plans for the vendor's GPUs.
    chosen: not only if another variant declines."""
    result = subprocess.run([program, vendor, *tiles], capture_output=True, text=True)
    for line in result.stderr.splitlines():
        print(f"gpu-compile: {line}", file=sys.stderr)
    if result.returncode:
        sys.exit(f"gpu-compile: {program} {vendor}: exit status {result.returncode}")
    found = {}
    for line in result.stdout.splitlines():
        file, options, kernel, items, role = line.split("\t")
        kernels = found.setdefault((file, options), {})
        chosen = role == "chosen" or kernels.get(kernel, (0, False))[1]
        kernels[kernel] = (int(items), chosen)
    return dict(sorted(found.items()))


def kernels_of(root):
    """Returns {(file, kernel)} of the sources that GPUs run."""
    found = set()
    folder = root / "clkernels"
    for place in ("*/gpu", "*/portable", "comm", "bench"):
        for path in sorted(folder.glob(place + "/*.cl")):
            for name in re.findall(r"\b(?:kernel|KERNEL)\s+(?:__attribute__\(\(.*?\)\)\)?\s*)?void\s+(\w+)\s*\(", path.read_text()):
                found.add((str(path.relative_to(folder)), name))
    return found


def problems(kind, figures):
    """Yields (figure, problem) of a kernel that compiled."""
    if figures.spills:
        yield "spills", f"{figures.spills} spilled"
    if figures.scratch:
        yield "scratch", f"{figures.scratch} bytes of scratch"
    if figures.occupancy is None:
        return
    share = figures.inner.share() if figures.inner else None
    if kind in ("fma", "matrix") and figures.waves < FMA_WAVES and figures.occupancy < FMA_OCCUPANCY:
        yield "occupancy", f"occupancy {figures.occupancy:.2f} below {FMA_OCCUPANCY}, waves below {FMA_WAVES}"
    if kind == "matrix" and not figures.inner.matrix:
        yield "matrix", "no loop has instructions of a matrix unit"
    if kind == "fma" and (share is None or share < FMA_SHARE):
        yield "fma", f"share of FMA {share or 0:.2f} below {FMA_SHARE}"
    if kind == "memory" and figures.occupancy < MEMORY_OCCUPANCY:
        yield "occupancy", f"occupancy {figures.occupancy:.2f} below {MEMORY_OCCUPANCY}"
    if kind == "memory" and figures.inner.narrow:
        yield "vector", f"{figures.inner.narrow}: most is not loaded by vectors"


def shown(value, form="{}"):
    return "-" if value is None else form.format(value)


class Report:
    def __init__(self, exceptions, tiles):
        self.path, self.tiles = exceptions, tiles
        self.exceptions = read_exceptions(exceptions)
        self.bad, self.rows, self.used = [], 0, set()
        self.launched, self.compiled = set(), set()
        self.worst = {}
        print(f"{'target':8} {'class':6} {'reg':>4} {'spill':>5} {'scratch':>7} {'local':>6} {'waves':>5} "
              f"{'occup':>5} {'fma':>5} {'matrix':>6}  kernel")  # fmt: skip

    def named(self, figure):
        """Returns a figure's names in the lines that apply now."""
        return (figure, "tiles:" + figure) if self.tiles else (figure,)

    def excepted(self, target, kernel, options, figure):
        for i, row in enumerate(self.exceptions):
            flat = options.replace(" ", "") or "-"
            if fnmatch.fnmatchcase(target, row[0]) and fnmatch.fnmatchcase(kernel, row[1]) and \
                    fnmatch.fnmatchcase(flat, row[2]) and row[3] in self.named(figure):  # fmt: skip
                self.used.add(i)
                return True
        return False

    def fail(self, target, what, why):
        self.bad.append(f"{target}: {what}: {why}")

    def cover(self, vendor, root, every):
        """Fails for kernels of the sources that no plan of the vendor launches."""
        launched = {(file, kernel) for (file, _), kernels in every.items() for kernel in kernels}
        if vendor in WITHOUT_UNIT:
            launched |= {(file, kernel) for file, kernel in kernels_of(root) if "matrix_probe.cl" in file or "_matrix.cl" in file}
        self.launched |= launched
        for file, kernel in sorted(kernels_of(root) - launched):
            self.launched.add((file, kernel))
            self.fail(vendor, f"{kernel} of {file}", "in no plan of tests/gpu")
        for file, kernel in sorted(launched):
            if "/cpu/" in file or "/batch_blocked/" in file:
                self.fail(vendor, f"{kernel} of {file}", "a CPU's kernel is launched")

    def finish(self, ran):
        """Checks what only the whole table shows. ran: the targets of the table. A line of
        exceptions is judged if all its targets are among them, and the tiles that it needs."""
        for file, kernel in sorted(self.compiled - self.launched):
            self.fail("all", f"{kernel} of {file}", "in no plan of tests/gpu")
        for i, row in enumerate(self.exceptions):
            if row[3].startswith("tiles:") and not self.tiles:
                continue
            if i not in self.used and all(t in ran for t in TARGETS if fnmatch.fnmatchcase(t, row[0])):
                self.fail("all", f"{self.path.name}: {' '.join(row[:4])}", "excepts nothing: remove the line")

    def add(self, target, file, options, kernel, f, chosen):
        kind = kernel_class(file, kernel, chosen)
        share = f.inner.share() if f.inner and kind == "fma" else None
        matrix = f"{f.inner.matrix}/{f.inner.matrix + f.inner.beside}" if f.inner and kind == "matrix" else "-"
        self.rows += 1
        marks = ""
        for figure, why in problems(kind, f):
            if self.excepted(target, kernel, options, figure):
                marks += f" (excepted: {figure})"
            else:
                self.fail(target, f"{kernel} of {file} {options}", why)
        print(f"{target:8} {kind:6} {shown(f.registers):>4} {shown(f.spills):>5} {shown(f.scratch):>7} "
              f"{shown(f.local):>6} {shown(f.waves):>5} {shown(f.occupancy, '{:.2f}'):>5} "
              f"{shown(share, '{:.2f}'):>5} {matrix:>6}  {kernel} {file} {options}{marks}")  # fmt: skip
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


class Tables:
    """The tables in the repository, and the figures of this run."""

    def __init__(self, folder, compilers):
        self.folder, self.compilers, self.rows = folder, compilers, {}

    def path(self, target):
        return self.folder / f"{target}.txt"

    def add(self, target, file, kernel, options, figures):
        if target in TABLE_TARGETS:
            table.add(self.rows.setdefault(target, {}), table.key_of(file, kernel, options), figures)

    def write(self):
        for target, rows in self.rows.items():
            table.write(self.path(target), target, self.compilers.version(TARGETS[target][0]), rows)
            print(f"wrote {self.path(target)}: {len(rows)} lines")

    def judge(self, report):
        """Compares with the tables. Another version of a compiler has other figures."""
        for target, rows in self.rows.items():
            path = self.path(target)
            if not path.is_file():
                print(f"{target}: there is no table {path}: nothing to compare with")
                continue
            compiler, old = table.read(path)
            version = self.compilers.version(TARGETS[target][0])
            if compiler != version:
                print(f"{target}: {path} is of {compiler}, and here is {version}: not compared")
                continue
            found, unknown = table.compare(old, rows)
            for (kernel, file, options), why in found:
                report.fail(target, f"{kernel} of {file} {options}",
                            f"{why} (table/{path.name}). If this is the price of a gain: tools/gpu-compile BUILD --renew")  # fmt: skip
            if unknown:
                print(f"{target}: {len(rows) - len(unknown)} lines compared with {path.name}; new: "
                      + ", ".join(sorted({kernel for kernel, _, _ in unknown})))  # fmt: skip
            else:
                print(f"{target}: {len(rows)} lines compared with {path.name}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--launches", required=True)
    parser.add_argument("--compilers", required=True, type=pathlib.Path)
    parser.add_argument("--fetch", action="store_true")
    parser.add_argument("--fetch-only", action="store_true")
    parser.add_argument("--root", default=ROOT, type=pathlib.Path, help="the tree with clkernels/")
    parser.add_argument("--exceptions", default=EXCEPTIONS, type=pathlib.Path)
    parser.add_argument("--tiles", action="store_true", help="also the tiles that a tuner would try")
    parser.add_argument("--table", default=TABLE, type=pathlib.Path, help="the folder of tables to compare with")
    parser.add_argument("--renew", action="store_true", help="writes the tables instead")
    parser.add_argument("targets", nargs="*")
    given = parser.parse_args()
    if given.renew and not given.targets:
        given.targets = list(TABLE_TARGETS)
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
    cache = Cache(compilers, given.root)
    report = Report(given.exceptions, given.tiles)
    tables = Tables(given.table, compilers)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = []
        for vendor in usable:
            targets = [t for t in TARGETS if TARGETS[t][0] == vendor and (not given.targets or t in given.targets)]
            every = launches(given.launches, vendor, ["tiles"] if given.tiles else []) if targets else {}
            if targets:
                report.cover(vendor, given.root, every)
            for (file, options), kernels in every.items():
                sizes = {kernel: items for kernel, (items, _) in kernels.items()}
                chosen = any(chosen for _, chosen in kernels.values())
                own = "/gpu/" in file
                wanted = [t for t in targets if suits(t, options) and (chosen or own or t in FOR_ALL)]
                if not wanted:
                    continue
                jobs.append((file, options, kernels, pool.submit(compile_kernels, compilers, cache, wanted, given.root, file, options, sizes)))
        for file, options, kernels, job in jobs:
            for target, result in job.result():
                if isinstance(result, Failure):
                    report.fail(target, f"{file} {options}", str(result))
                    continue
                report.compiled |= {(file, kernel) for kernel in result}
                for kernel, (_, chosen) in kernels.items():
                    report.add(target, file, options, kernel, result[kernel], chosen)
                    if (chosen or "/gpu/" in file) and not given.tiles:
                        tables.add(target, file, kernel, options, result[kernel])
    report.finish([t for t in given.targets or TARGETS if TARGETS[t][0] in usable])
    if given.renew:
        tables.write()
    else:
        tables.judge(report)
    report.close()
    cache.trim()
    print(f"{cache.misses} compiled, {cache.hits} known from earlier runs")
    return 1 if report.bad else 0


sys.exit(main())
