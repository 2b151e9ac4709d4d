"""Describes the public headers as data for the bindings of other languages.

    describe.py read FOLDER --compiler CC --header ROOT NAME LIBRARY ...   writes FOLDER/parsed.json and FOLDER/layout.c
    describe.py join FOLDER LAYOUT OPERATORS VERSION OUT                   writes the description

`layout` is compiled from layout.c. It prints sizes, offsets and values, so the compiler computes them.
"""
import argparse
import json
import os
import re
import subprocess
import sys

import declarations
import layout
import tables

HERE = os.path.dirname(os.path.abspath(__file__))
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(CLT_\w+)(?:[ \t]+(\S[^\n]*))?$", re.MULTILINE)


def preprocess(compiler, headers, folder):
    """Returns the headers' declarations as the preprocessor gives them, without libc's."""
    unit = os.path.join(folder, "headers.c")
    with open(unit, "w", encoding="utf-8") as file:
        file.writelines(f"#include <{name}>\n" for _, name, _ in headers)
    roots = sorted({root for root, _, _ in headers})
    run = subprocess.run([*compiler, "-E", "-nostdinc", "-U__GNUC__", "-D__attribute__(x)=",
                          f"-I{os.path.join(HERE, 'fake')}", *(f"-I{root}" for root in roots), unit],
                         capture_output=True, text=True, check=False)
    if run.returncode:
        raise SystemExit(f"the preprocessor failed: {run.stderr.strip()}")
    return run.stdout


def constants(name, header):
    """Returns the macros of a header that have a value."""
    found, last = [], (0, "")
    code = "\n".join(header.code)
    for match in DEFINE.finditer(code):
        macro, value = match.groups()
        if value and macro not in tables.NO_CONSTANTS and not macro.endswith("_H"):
            line = code.count("\n", 0, match.start())
            doc = header.doc(line, "\n") or (last[1] if last[0] == line - 1 else "")
            found.append({"name": macro, "header": name, "doc": doc})
            last = (line, doc)
    return found


def read(options):
    os.makedirs(options.folder, exist_ok=True)
    sources = {}
    for root, name, library in options.header:
        with open(os.path.join(root, name), encoding="utf-8") as file:
            sources[os.path.join(root, name)] = (name, library, file.read())
    text = preprocess(options.compiler.split(), options.header, options.folder)
    reader = declarations.Reader(text, sources)
    macros = [row for name, header in reader.headers.items() for row in constants(name, header)]
    parsed = {
        "headers": [{"name": name, "library": library, "unstable": name == "cltrain/unstable.h",
                     "needs_opencl": bool(re.search(r"#include <CL/", source)) or name == "cltrain/mpi.h",
                     "needs_mpi": "#include <mpi.h>" in source, "doc": reader.headers[name].head()}
                    for name, library, source in sources.values()],
        "constants": macros, "enums": reader.enums, "handles": reader.handles, "structs": reader.structs,
        "callbacks": reader.callbacks, "functions": reader.functions}
    write(os.path.join(options.folder, "layout.c"), layout.program(parsed))
    write(os.path.join(options.folder, "parsed.json"), json.dumps(parsed, indent=1) + "\n")


def join(options):
    with open(os.path.join(options.folder, "parsed.json"), encoding="utf-8") as file:
        parsed = json.load(file)
    measured = json.loads(subprocess.run([options.layout], capture_output=True, text=True, check=True).stdout)
    operators = json.loads(subprocess.run([options.operators], capture_output=True, text=True, check=True).stdout)
    layout.join(parsed, measured)
    texts = operators["statuses"]
    for enum in parsed["enums"]:
        for value in enum["values"]:
            if enum["name"] == "clt_status":
                value["doc"] = texts[value["name"]]
    functions = {function["name"]: function for function in parsed["functions"]}
    for row in operators["operators"]:
        function = functions.get("clt_" + row["name"]) if row["callable"] else None
        row["function"] = function["name"] if function else None
        optional = {operand["name"] for operand in row["operands"] if operand["optional"]}
        for item in function["params"] if function else []:
            if item["name"] in optional:
                item["nullable"] = True
    libraries = []
    for function in parsed["functions"]:
        if function["library"] not in libraries:
            libraries.append(function["library"])
    write(options.out, json.dumps({"version": options.version, "format": 1, "libraries": libraries, **parsed,
                                   "operators": operators["operators"]}, indent=1) + "\n")


def write(path, text):
    """Writes a file at once, so that a build that is interrupted leaves no half of it."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    first = commands.add_parser("read")
    first.add_argument("folder")
    first.add_argument("--compiler", required=True)
    first.add_argument("--header", nargs=3, action="append", required=True)
    first.set_defaults(run=read)
    second = commands.add_parser("join")
    for name in ("folder", "layout", "operators", "version", "out"):
        second.add_argument(name)
    second.set_defaults(run=join)
    options = parser.parse_args(arguments)
    options.run(options)


if __name__ == "__main__":
    main(sys.argv[1:])
