"""Functions that the check scripts share: the tree's files, and C text without comments and
strings."""
import os
import re

FOLDERS = ("runtime", "comm", "models", "tests", "tools", "clkernels")

TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)


def files(root, *suffixes):
    """Returns the files with one of the suffixes, relative to root and sorted."""
    found = []
    for folder in FOLDERS:
        for base, names, leaves in os.walk(os.path.join(root, folder)):
            names[:] = [n for n in names if not n.startswith(".")]
            for leaf in leaves:
                if leaf.endswith(suffixes):
                    found.append(os.path.relpath(os.path.join(base, leaf), root))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def blank(text):
    """Returns the text with spaces in place of comments and strings' contents. Lines keep their
    numbers."""
    def replace(match):
        token = match.group(0)
        spaces = re.sub(r"[^\n]", " ", token)
        return token[0] + spaces[1:-1] + token[-1] if token[0] in "\"'" else spaces
    return TOKEN.sub(replace, text)


def uncomment(text):
    """Returns the text with spaces in place of comments."""
    def replace(match):
        token = match.group(0)
        return re.sub(r"[^\n]", " ", token) if token[0] == "/" else token
    return TOKEN.sub(replace, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def report(subject, problems, passed):
    """Prints the outcome. Returns the exit status."""
    for problem in problems:
        print(problem)
    if problems:
        print(f"{subject}: {len(problems)} problem(s)")
        return 1
    print(f"{subject}: {passed}")
    return 0
