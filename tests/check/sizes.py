"""Checks that no source file has over 600 lines, and no function over 100."""
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


def main(root):
    paths = source.files(root, ".c", ".h", ".cl", ".clh", ".def", ".py", ".sh")
    problems = []
    for path in paths:
        problems += check_file(path, source.read(root, path))
    return source.report("sizes", problems, f"{len(paths)} files are of reasonable size")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
