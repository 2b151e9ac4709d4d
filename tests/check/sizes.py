"""Checks that no source file has over 600 lines, no function over 100, and that no two .c files of
the library have one name."""
import os
import sys

import source

FILE_LINES = 600
FUNCTION_LINES = 100


def functions(text):
    """Yields (first line, lines) of each function body. The format puts only a function's braces
    alone in the first column."""
    start = 0
    for number, line in enumerate(text.split("\n"), 1):
        if line.rstrip() == "{":
            start = number
        elif line.startswith("}") and start:
            yield start, number - start + 1
            start = 0


def check_file(path, text):
    problems = []
    lines = text.count("\n")
    if lines > FILE_LINES:
        problems.append(f"{path}: {lines} lines, {FILE_LINES} at most: split it by subject")
    if path.endswith((".c", ".cl", ".clh", ".h")):
        for line, length in functions(source.blank(text)):
            if length > FUNCTION_LINES:
                problems.append(f"{path}:{line}: a function of {length} lines, "
                                f"{FUNCTION_LINES} at most")
    return problems


def twins(paths):
    """Returns problems for .c files of the library that share a name."""
    seen, problems = {}, []
    for path in paths:
        library = path.startswith(("runtime/", "comm/", "models/"))
        if not path.endswith(".c") or not library or path.startswith(("models/examples/", "runtime/bindings/")):
            continue
        first = seen.setdefault(os.path.basename(path), path)
        if first != path:
            problems.append(f"{path}: {first} has the same name")
    return problems


def main(root):
    paths = source.files(root, ".c", ".h", ".cl", ".clh", ".def", ".py", ".sh")
    problems = []
    for path in paths:
        problems += check_file(path, source.read(root, path))
    problems += twins(paths)
    return source.report("sizes", problems, f"{len(paths)} files are of reasonable size")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
