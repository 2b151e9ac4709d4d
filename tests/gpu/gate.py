"""The gate of gpu-compile finds what is seeded: gate.py MAIN COMPILERS. Exit 77 where there is no compiler."""
import pathlib
import subprocess
import sys
import tempfile

KERNELS = {
    "good": "global float4 *y = (global float4 *)x; y[get_global_id(0)] = fma(y[get_global_id(0)], (float4)(a), (float4)(n));",
    "scratch": "float t[64]; for (int i = 0; i < 64; i++) t[i] = x[i]; for (int i = 0; i < n; i++) t[x[i] > a ? i & 63 : "
               "n & 63] += a; x[get_global_id(0)] = t[n & 63] + t[n / 2 & 63];",
    "gemm": "float s = 0; for (int i = 0; i < n; i++) s = fma(x[i] / a, x[i * n] + s, exp(s)); x[get_global_id(0)] = s;",
    "error": "x[0] = y;",
}  # fmt: skip
WANTED = {"scratch": "bytes of scratch", "gemm": "share of FMA", "error": "undeclared"}


def main(program, compilers):
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        (root / "clkernels/gpu").mkdir(parents=True)
        lines = ""
        for kernel, body in KERNELS.items():
            (root / f"clkernels/gpu/{kernel}.cl").write_text(
                f"kernel void {kernel}(global float *x, float a, int n) {{ {body} }}\n")
            lines += f"gpu/{kernel}.cl\t\t{kernel}\t64\n"
        launches = root / "launches"
        launches.write_text(f"#!/bin/sh\ncat <<'END'\n{lines}END\n")
        launches.chmod(0o755)
        result = subprocess.run([sys.executable, "-B", program, "--launches", launches, "--compilers", compilers,
                                 "--root", root, "gfx90a", "sm_80"], capture_output=True, text=True)  # fmt: skip
    if result.returncode == 77:
        return 77
    bad = [line for line in result.stdout.splitlines() if line.startswith("BAD")]
    print(result.stdout + result.stderr)
    if any("good" in line for line in bad):
        print("gate.py: a sound kernel is reported")
        return 1
    # A vendor's compiler may be missing.
    tried = [t for t in ("gfx90a", "sm_80") if any(line.startswith(t) for line in result.stdout.splitlines())]
    for kernel, why in WANTED.items():
        for target in tried:
            if not any(target in line and f"{kernel}.cl" in line and why in line for line in bad):
                print(f"gate.py: {target}: {kernel} is not reported for its {why}")
                return 1
    return 77 if not tried else 0 if result.returncode == 1 else 1


sys.exit(main(*sys.argv[1:]))
