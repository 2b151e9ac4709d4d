"""Compiles for each target, and reads a kernel's figures from the compiler's output."""
import re
import subprocess
import tempfile
from pathlib import Path

from assembly import Inner, bodies

# target: (vendor, most waves of a SIMD, or most warps of a multiprocessor, which has 4 SIMDs)
TARGETS = {"gfx906": ("amd", 10), "gfx90a": ("amd", 8), "gfx940": ("amd", 8), "gfx1030": ("amd", 16),
           "gfx1100": ("amd", 16),
           "sm_75": ("nvidia", 32), "sm_80": ("nvidia", 64), "sm_90": ("nvidia", 64),
           "tgllp": ("intel", 0), "dg2": ("intel", 0), "pvc": ("intel", 0)}  # fmt: skip
# Targets of kernels for a matrix unit, by the option that selects the unit; and the targets that compile no others.
UNITS = {"MMA": ("sm_80", "sm_90"), "MFMA": ("gfx90a", "gfx940"), "WMMA": ("gfx1100",)}
UNITS_ONLY = ("gfx940", "gfx1100")
SHARED = {"sm_75": 64 << 10, "sm_80": 164 << 10, "sm_90": 228 << 10}
GROUPS = {"sm_75": 16, "sm_80": 32, "sm_90": 32}
LOCAL = 64 << 10  # bytes of local memory of AMD's compute units
WAVES = {"gfx1030": (2, 32), "gfx1100": (2, 32)}  # SIMDs of a compute unit, work-items of a wave; others: 4, 64
COMMON = ["-x", "cl", "-Wno-everything", "-Xclang", "-finclude-default-header", "-O3"]


def suits(target, options):
    """Whether the target can run kernels with these options."""
    unit = re.search(r"-DUNIT_(MMA|MFMA|WMMA)\b", options)
    return target in UNITS[unit.group(1)] if unit else target not in UNITS_ONLY


def standard(options):
    """Returns the language option, unless the options have one."""
    return [] if any(o.startswith("-cl-std=") for o in options) else ["-cl-std=CL1.2"]


class Figures:
    """The figures of one kernel on one target; None: unknown."""

    def __init__(self):
        self.registers = self.spills = self.scratch = self.local = None
        self.waves = self.occupancy = self.inner = None


class Failure(Exception):
    """A compiler's message, or missing output."""


def complete(figures, *names):
    """Returns the figures. Fails if one of these names is unknown."""
    for kernel, f in figures.items():
        lost = [name for name in names if getattr(f, name) is None]
        if lost:
            raise Failure(f"the compiler's output says nothing of {kernel}'s {', '.join(lost)}")
    return figures


def call(command, compilers):
    result = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=compilers.environment)
    said = result.stdout + result.stderr
    if result.returncode:
        lines = [line for line in said.splitlines() if "error" in line.lower()] or said.splitlines() or ["no message"]
        raise Failure("; ".join(lines[:3]))
    return said


def read_amd(said, assembly, target):
    """Returns {kernel: figures} from the compiler's remarks and its assembly."""
    kernels = set(re.findall(r"^\s*\.amdhsa_kernel (\w+)", assembly, re.M))
    figures, at, spills = {}, None, {"SGPRs Spill", "VGPRs Spill"}
    for line in said.splitlines():
        match = re.search(r"remark:\s+([^:]+): (\S+) \[-Rpass", line)
        if not match:
            continue
        key, value = match.group(1).strip(), match.group(2)
        if key == "Function Name":
            at = figures[value] = Figures()
            at.said = set()
            continue
        at.said.add(key)
        if key == "VGPRs" or key == "AGPRs":
            at.registers = (at.registers or 0) + int(value)
        elif key.startswith("ScratchSize"):
            at.scratch = int(value)
        elif key.startswith("Occupancy"):
            at.waves = int(value)
            at.occupancy = at.waves / TARGETS[target][1]
        elif key in spills:
            at.spills = (at.spills or 0) + int(value)
        elif key.startswith("LDS"):
            at.local = int(value)
    figures = {name: f for name, f in figures.items() if name in kernels}
    for f in figures.values():
        f.spills = f.spills if spills <= f.said else None
    for name, lines in bodies(assembly, "amd").items():
        if name in figures:
            figures[name].inner = Inner(lines, "amd")
    return complete(figures, "registers", "spills", "scratch", "local", "waves", "inner")


def amd_occupancy(target, figures, items):
    """Returns the share of a compute unit's waves, as registers and local memory allow. The compiler
    rounds up what local memory allows to one wave for each SIMD."""
    simds, lanes = WAVES.get(target, (4, 64))
    groups = LOCAL // figures.local if figures.local else 1 << 20
    return min(figures.waves, groups * -(-items // lanes) / simds) / TARGETS[target][1]


def amd_library(compilers, target):
    """Returns the options for AMD's library of functions. Debian 12 has none for gfx1100, so that kernels are linked with
    gfx1030's."""
    if target != "gfx1100":
        return [f"--rocm-device-lib-path={compilers.amd}"]
    names = ("opencl", "ockl", "ocml", "oclc_isa_version_1030", "oclc_abi_version_400")
    return ["-nogpulib"] + [word for name in names
                            for word in ("-Xclang", "-mlink-builtin-bitcode", "-Xclang", f"{compilers.amd}/{name}.bc")]


def compile_amd(compilers, target, source, options, folder, sizes):
    """Returns {kernel: figures} of a source file."""
    out = folder / "out.s"
    said = call([compilers.clang, *COMMON, *standard(options), "--target=amdgcn-amd-amdhsa", f"-mcpu={target}",
                 *amd_library(compilers, target), "-Rpass-analysis=kernel-resource-usage", *options, "-S",
                 source, "-o", out], compilers)  # fmt: skip
    figures = read_amd(said, out.read_text(), target)
    for name, f in figures.items():
        f.occupancy = amd_occupancy(target, f, sizes.get(name, 64))
    return figures


def nvidia_occupancy(target, figures, items):
    """Returns the share of a multiprocessor's warps, as registers, shared memory and groups allow."""
    most = TARGETS[target][1]
    warps = max(1, (items + 31) // 32)
    registers = (max(figures.registers, 16) * 32 + 255) // 256 * 256 * warps
    groups = min(65536 // registers, GROUPS[target], most // warps)
    groups = min(groups, SHARED[target] // ((figures.local or 0) + 1024))
    return groups * warps / most


def compile_ptx(compilers, source, options, folder):
    """Returns the PTX file, which serves all targets."""
    ptx = folder / "out.ptx"
    least = "sm_80" if "-DUNIT_MMA" in options else "sm_75"
    call([compilers.clang, *COMMON, *standard(options), "--target=nvptx64-nvidia-nvcl", f"-march={least}", "-nogpulib", "-Xclang",
          "-mlink-builtin-bitcode", "-Xclang", compilers.libclc, *options, "-S", source, "-o", ptx], compilers)  # fmt: skip
    return ptx


def read_nvidia(said, ptx, target, sizes):
    """Returns {kernel: figures} from ptxas' output and the PTX."""
    figures, at = {}, None
    for line in said.splitlines():
        name = re.search(r"Compiling entry function '(\w+)'", line)
        if name:
            at = figures[name.group(1)] = Figures()
        spills = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if spills and at:
            at.spills = int(spills.group(2)) + int(spills.group(3))
            at.scratch = int(spills.group(1))
        used = re.search(r"Used (\d+) registers", line)
        if used and at:
            at.registers = int(used.group(1))
            smem = re.search(r"(\d+) bytes smem", line)
            at.local = int(smem.group(1)) if smem else 0
    for name, lines in bodies(ptx, "nvidia").items():
        if name in figures:
            figures[name].inner = Inner(lines, "nvidia")
    complete(figures, "registers", "spills", "scratch", "local", "inner")
    for name, f in figures.items():
        f.occupancy = nvidia_occupancy(target, f, sizes.get(name, 64))
        f.waves = round(f.occupancy * TARGETS[target][1] / 4)
    return figures


def compile_nvidia(compilers, target, ptx, folder, sizes):
    said = call([compilers.ptxas, "-v", f"-arch={target}", ptx, "-o", folder / "out.cubin"], compilers)
    return read_nvidia(said, ptx.read_text(), target, sizes)


def compile_intel(compilers, target, source, options, folder, names):
    said = call([compilers.ocloc, "compile", "-q", "-file", source, "-device", target, "-out_dir", folder, "-options",
                 " ".join(["-w", *standard(options), *options])], compilers)  # fmt: skip
    made = b"".join(p.read_bytes() for p in folder.glob("*.bin")) + b"".join(p.read_bytes() for p in folder.glob("*.gen"))
    figures = {}
    for name in names:
        if name.encode() not in made:
            raise Failure(f"the compiler's output has no {name}")
        figures[name] = Figures()
        spilled = re.search(rf"kernel {name}\b.*?spill\w*\D+(\d+)", said)
        figures[name].spills = int(spilled.group(1)) if spilled else None
    return figures


def compile_kernels(compilers, cache, targets, root, file, options, sizes):
    """Returns [(target, {kernel: figures} or a Failure)] for targets of one vendor. sizes: {kernel:
    work-items of a group}. The result also has kernels of the file that are not in sizes, except
    for Intel. Failures are not cached."""
    vendor = TARGETS[targets[0]][0]
    source = Path(root) / "clkernels" / file
    given = ["-I" + str(Path(root) / "clkernels"), *options.split()]
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder, ptx = Path(name), None
        for target in targets:
            path = cache.path(target, file, options, sizes)
            figures = cache.load(path)
            if figures is not None:
                results.append((target, figures))
                continue
            try:
                if vendor == "amd":
                    figures = compile_amd(compilers, target, source, given, folder, sizes)
                elif vendor == "nvidia":
                    ptx = ptx or compile_ptx(compilers, source, given, folder)
                    figures = compile_nvidia(compilers, target, ptx, folder, sizes)
                else:
                    figures = compile_intel(compilers, target, source, given, folder, sizes)
                lost = [k for k in sizes if k not in figures]
                if lost:
                    raise Failure(f"the compiler said nothing of {', '.join(lost)}")
                cache.store(path, figures)
                results.append((target, figures))
            except Failure as failure:
                results.append((target, failure))
    return results
