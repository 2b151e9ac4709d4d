#!/usr/bin/env python3
"""Fails if an operator of ops.def is in no plan that the operators' tests compare with a reference.

    coverage.py OPS.DEF FOLDER

FOLDER has the lists that the tests left: what op_teardown of harness.h writes where CLT_OPS_RUN says.
"""

import pathlib
import re
import sys


def main():
    definition, folder = map(pathlib.Path, sys.argv[1:])
    operators = re.findall(r"^CLT_OP\((\w+)\)", definition.read_text(), re.M)
    run = set()
    for path in folder.glob("*.txt"):
        run.update(path.read_text().split())
    missing = [name for name in operators if name not in run]
    print(f"{len(operators)} operators, {len(missing)} without a test case: {' '.join(missing)}")
    sys.exit(1 if missing or not operators else 0)


main()
