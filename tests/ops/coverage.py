#!/usr/bin/env python3
"""Fails if a variant of an operator is in no plan that the operators' tests compared with a
reference.

    coverage.py OPS.DEF FOLDER

FOLDER has the lists that the tests wrote: op_teardown of harness.h writes them to the file that
CLT_OPS_RUN names. The lists are removed, so that they are used once.
"""

import pathlib
import re
import sys

# Features that a variant needs of the device. A variant is left out, with a message, if the device
# lacks the feature, and must be compared if the device has it.
NEEDS = {
    # PoCL reports no sub-groups. Intel's runtime does: vendor.variants_compared.
    ("softmax", "rows_gpu_subgroups"): "subgroups",
    ("softmax_grad", "rows_gpu_subgroups"): "subgroups",
    ("log_softmax", "rows_gpu_subgroups"): "subgroups",
    ("log_softmax_grad", "rows_gpu_subgroups"): "subgroups",
    ("cross_entropy", "rows_gpu_subgroups"): "subgroups",
    ("cross_entropy_grad", "rows_gpu_subgroups"): "subgroups",
    # Nothing is divided for a device with one compute unit.
    ("matmul", "gemm_split"): "units",
    ("linear", "gemm_split"): "units",
    ("linear_weight_grad", "gemm_split"): "units",
    # libclblast.so.1 may not be installed; tools/test installs it.
    ("matmul", "clblast"): "clblast",
    ("linear", "clblast"): "clblast",
    ("linear_weight_grad", "clblast"): "clblast",
}

# Collectives have no kernels. These tests compare them with a reference.
ELSEWHERE = {
    "all_gather": "train.axis_collectives",
    "reduce_scatter": "train.axis_collectives",
    "shift": "passes.space and train.space",
    "hand_on": "passes.time and train.time",
}


def read(folder):
    """Returns the device's features, {(operator, variant): compared}, and problems of the lists."""
    has, variants, problems, devices = set(), {}, [], set()
    for path in sorted(folder.glob("*.txt")):
        for line in path.read_text().splitlines():
            word, rest = line.split(" ", 1)
            if word == "device":
                devices.add(rest)
            elif word == "has":
                has.add(rest)
            elif word in ("compared", "listed"):
                row = tuple(rest.split())
                variants[row] = variants.get(row, False) or word == "compared"
        path.unlink()
    if len(devices) != 1:
        problems.append(f"the lists are of {len(devices)} devices: {', '.join(sorted(devices))}")
    return has, variants, problems


def main():
    definition, folder = map(pathlib.Path, sys.argv[1:])
    has, variants, problems = read(folder)
    operators = re.findall(r"^CLT_OP\((\w+)\)", definition.read_text(), re.M)
    if not operators:
        problems.append(f"{definition} has no operators")
    for name in ELSEWHERE:
        if name not in operators:
            problems.append(f"{name} of ELSEWHERE does not exist")
    for name in operators:
        if name in ELSEWHERE:
            continue
        if not any(op == name for op, _ in variants):
            problems.append(f"operator {name} is in no test's list")
        elif not any(compared for (op, _), compared in variants.items() if op == name):
            problems.append(f"operator {name} was never compared")
    for row in NEEDS:
        if row not in variants:
            problems.append(f"{' '.join(row)} of NEEDS does not exist")
    for row, compared in variants.items():
        name = f"variant {row[1]} of {row[0]}"
        if compared:
            continue
        if NEEDS.get(row, "cpu") not in has:
            print(f"left out: {name} needs {NEEDS.get(row, 'cpu')}, which this device lacks")
        elif row[1] != "-":
            problems.append(f"{name} was never compared")
    print(f"{len(operators)} operators, {len(variants)} variants, {sum(variants.values())} of them compared")
    for problem in problems:
        print(f"coverage.py: {problem}")
    sys.exit(1 if problems else 0)


main()
