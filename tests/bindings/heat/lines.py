"""Counts the lines that the examples of models/examples/heat add to their simulations or change: at most 40 in each
language. Changed lines count twice, as in `diff`. The table in docs/embedding.md has the same numbers.

    lines.py ROOT [CLANG_FORMAT]
"""
import ast
import difflib
import os
import re
import subprocess
import sys

MOST = 40
LANGUAGES = {"C": "c", "C++": "cpp", "Fortran": "f90", "Python": "py"}


def formatted(path, clang_format):
    """Returns the lines of a source, and fails if lines are saved by its format."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    lines = text.split("\n")
    assert max(map(len, lines)) <= 120, f"{path}: a line is longer than 120 columns"
    if path.endswith((".c", ".cpp")):
        if clang_format:
            text = subprocess.run([clang_format, "--style=file", path], check=True, capture_output=True, text=True).stdout
        return text.split("\n")
    assert not any(";" in line for line in lines), f"{path}: statements share a line"
    if path.endswith(".py"):
        first = [node.lineno for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
        assert len(first) == len(set(first)), f"{path}: statements share a line"
    return lines


def added(name, extension, folder, clang_format):
    old, new = (formatted(os.path.join(folder, f"{name}{end}.{extension}"), clang_format) for end in ("_untouched", ""))
    changes = [line for line in difflib.ndiff(old, new) if line[:2] in ("+ ", "- ")]
    assert len(changes) > 5, f"{name}.{extension} is its untouched simulation"
    return len(changes)


def main(root, clang_format=None):
    folder = os.path.join(root, "models", "examples", "heat")
    with open(os.path.join(root, "docs", "embedding.md"), encoding="utf-8") as file:
        rows = re.findall(r"^\| ([^|]+) \| `heat\.\w+`: (\d+) \| `heat_mpi\.\w+`: (\d+) \|$", file.read(), re.M)
    table = {language: (int(serial), int(ranks)) for language, serial, ranks in rows}
    for language, extension in LANGUAGES.items():
        found = tuple(added(name, extension, folder, clang_format) for name in ("heat", "heat_mpi"))
        print(f"{language}: {found[0]} lines, {found[1]} with ranks")
        assert max(found) <= MOST, f"{language}: more than {MOST} lines"
        assert table.get(language) == found, f"docs/embedding.md says {table.get(language)} of {language}"
    assert len(table) == len(LANGUAGES), "docs/embedding.md has a row too many"


if __name__ == "__main__":
    main(*sys.argv[1:])
