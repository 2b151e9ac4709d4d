"""Tests that gpu-compile finds seeded problems. Usage: gate.py MAIN COMPILERS. Exit 77 if there is
no compiler."""
import pathlib
import re
import subprocess
import sys
import tempfile

KERNELS = {
    "good": "global float4 *y = (global float4 *)x; y[get_global_id(0)] = fma(y[get_global_id(0)], (float4)(a), (float4)(n));",
    "scratch": "float t[64]; for (int i = 0; i < 64; i++) t[i] = x[i]; for (int i = 0; i < n; i++) t[x[i] > a ? i & 63 : "
               "n & 63] += a; x[get_global_id(0)] = t[n & 63] + t[n / 2 & 63];",
    "gemm": "float s = 0; for (int i = 0; i < n; i++) s = fma(x[i] / a, x[i * n] + s, exp(s)); x[get_global_id(0)] = s;",
    "occupancy": "local float4 s[2400]; global float4 *y = (global float4 *)x; s[get_local_id(0)] = y[get_global_id(0)]; "
                 "barrier(CLK_LOCAL_MEM_FENCE); y[get_global_id(0)] = s[(get_local_id(0) + n) % 2400] * a;",
    "prologue": "float4 v = ((global float4 *)x)[get_global_id(0)]; float s = v.x + v.y + v.z + v.w; for (int i = "
                "get_global_id(0); i < n; i += 256) s += x[i]; x[get_global_id(0)] = s;",
    "scalar": "x[get_global_id(0)] = a * x[get_global_id(0) + n];",
    "excepted": "x[get_global_id(0)] = a * x[get_global_id(0) + n];",
    "compared": "global float4 *y = (global float4 *)x; y[get_global_id(0)] = y[get_global_id(0)] * a;",
    "error": "x[0] = y;",
}  # fmt: skip
WANTED = {"scratch": "bytes of scratch", "gemm": "share of FMA", "occupancy": "occupancy 0.",
          "prologue": "a loop: most is not loaded by vectors", "scalar": "outside of loops: most is not",
          "compared": "occupancy 100 %, 999 % before", "error": "undeclared"}  # fmt: skip
EXCEPTIONS = """* excepted - vector it is excepted here
gfx90a good - spills it does not spill
sm_80 good - spills it does not spill
* scalar - tiles:vector only with tiles
gfx90a good - tiles:spills it does not spill with tiles either
sm_80 good - tiles:spills it does not spill with tiles either
"""
UNSEEN = "kernel void unseen(global float *x) { x[0] = 0; }\n"


def main(program, compilers):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "clkernels/test/gpu").mkdir(parents=True)
        lines = ""
        for kernel, body in KERNELS.items():
            (root / f"clkernels/test/gpu/{kernel}.cl").write_text(
                f"kernel void {kernel}(global float *x, float a, int n) {{ {body} }}\n")
            lines += f"test/gpu/{kernel}.cl\t\t{kernel}\t64\tchosen\n"
        (root / "clkernels/test/gpu/good.cl").open("a").write(UNSEEN)
        (root / "exceptions.txt").write_text(EXCEPTIONS)
        launches = root / "launches"
        launches.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        launches.chmod(0o755)
        command = [sys.executable, "-B", program, "--launches", launches, "--compilers", compilers, "--root", root,
                   "--exceptions", root / "exceptions.txt", "--table", root / "table", "gfx90a", "sm_80"]  # fmt: skip
        subprocess.run(command + ["--renew"], capture_output=True)
        for path in (root / "table").glob("*.txt"):
            # In the tables `compared` has more occupancy than it can have now.
            path.write_text(re.sub(r"\d+( +\S+ +\S+ +\S+  compared )", r"999\1", path.read_text()))
        result, tiles = (subprocess.run(command + more, capture_output=True, text=True) for more in ([], ["--tiles"]))
    if result.returncode == 77:
        return 77
    bad, bad_tiles = ([line for line in r.stdout.splitlines() if line.startswith("BAD")] for r in (result, tiles))
    print(result.stdout + result.stderr)
    if any("good of" in line or "excepted of" in line for line in bad):
        print("gate.py: a sound kernel is reported, or one that is excepted")
        return 1
    # A vendor's compiler may be missing.
    tried = [t for t in ("gfx90a", "sm_80") if any(line.startswith(t) for line in result.stdout.splitlines())]
    for kernel, why in WANTED.items():
        for target in tried:
            if not any(target in line and f"{kernel}.cl" in line and why in line for line in bad):
                print(f"gate.py: {target}: {kernel} is not reported for its {why}")
                return 1
    for target in tried:
        if not any(f"{target} good - spills: excepts nothing" in line for line in bad):
            print(f"gate.py: {target}: an exception that excepts nothing is not reported")
            return 1
        lost = f"{target} good - tiles:spills: excepts nothing"
        if any(lost in line for line in bad) or not any(lost in line for line in bad_tiles):
            print(f"gate.py: {target}: an exception for tiles is judged without them, or never")
            return 1
    if any("scalar of" in line for line in bad_tiles):
        print("gate.py: an exception for tiles does not hold with them")
        return 1
    if tried and not any("unseen of test/gpu/good.cl: in no plan" in line for line in bad):
        print("gate.py: a kernel that no plan launches is not reported")
        return 1
    return 77 if not tried else 0 if result.returncode == 1 else 1


sys.exit(main(*sys.argv[1:]))
