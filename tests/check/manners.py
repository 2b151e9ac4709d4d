"""Checks that the library is a good guest in its host program: it does not print, exit, change the
environment, allocate past base/alloc.h, or start threads past base/thread.h. Code that depends on a
kernel variant must use a column of its row, not its name. No marker of unfinished work may be left
anywhere."""
import re
import sys

import source

BANNED = {
    "prints": r"\b(?:printf|vprintf|puts|putchar|perror)\s*\(|\b(?:stdout|stderr)\b",
    "ends the process": r"\b(?:exit|_exit|_Exit|quick_exit|abort|assert)\s*\(",
    "changes the environment": r"\b(?:setenv|unsetenv|putenv|clearenv|setlocale|signal|sigaction)\s*\(",
    "starts threads past base/thread.h, which blocks signals": r"\bpthread_create\s*\(",
    "allocates past base/alloc.h":
        r"\b(?:malloc|calloc|realloc|strdup|strndup|aligned_alloc|posix_memalign|v?asprintf)\s*\(",
}
# The processes that this file forks are the library's own: they may end, and have signals of their own.
FORKS = "runtime/device/program/compile_helpers.c"
# Folders that see variants. They must not compare a variant's name with a string.
VARIANTS = ("runtime/ops/", "runtime/passes/", "runtime/plan/", "runtime/exec/", "runtime/tune/", "runtime/train/")
BY_NAME = re.compile(r"\bstr(?:n?cmp|n?casecmp|str)\s*\("
                     r"(?:[^;,\"]*(?:->|\.)name\s*,\s*\"|\s*\"[^\"]*\"\s*,[^;,\"]*(?:->|\.)name\b)")
MARKER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX|HA" r"CK)\b")


def library(path):
    return path.startswith(("runtime/", "comm/")) and not path.startswith("runtime/bindings/")


def check_file(path, text):
    problems = []
    if path.endswith((".c", ".h")) and library(path):
        code = source.blank(text)
        for what, pattern in BANNED.items():
            # comm/mpi is a separate library, which cannot use the other library's internals.
            if "allocates" in what and (path == "runtime/base/alloc.c" or path.startswith("comm/mpi/")):
                continue
            if path == FORKS and ("ends" in what or "environment" in what):
                continue
            if "threads" in what and path == "runtime/base/thread.c":
                continue
            for match in re.finditer(pattern, code):
                problems.append(f"{path}:{source.line_of(code, match.start())}: "
                                f"{match.group(0)}: {what}")
    if path.startswith(VARIANTS):
        code = source.uncomment(text)
        for match in BY_NAME.finditer(code):
            problems.append(f"{path}:{source.line_of(code, match.start())}: {match.group(0)}..: "
                            "asks for a name: make a column of the table")
    for match in MARKER.finditer(text):
        problems.append(f"{path}:{source.line_of(text, match.start())}: {match.group(0)}: "
                        "finish it, or open an issue")
    return problems


def main(root):
    paths = source.files(root, ".c", ".h", ".cl", ".clh", ".def", ".py", ".sh", ".txt", ".cmake")
    problems = []
    for path in paths:
        problems += check_file(path, source.read(root, path))
    return source.report("manners", problems, f"{len(paths)} files")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
