"""Compiles the snippets in C of the pages, and knows which test has the others.

    snippets.py ROOT CC FOLDER...       compiles the C of docs/, and looks for blocks that no test has
    snippets.py --extract ROOT FOLDER   writes each page's CMakeLists.txt, program, and compiler's lines into FOLDER
"""
import os
import re
import subprocess
import sys

import source

# Languages of fenced blocks, and the test that compiles or runs the blocks of a page.
TESTED = {
    ("c", "README.md"): "check.docs, check.package",
    ("c", "CONTRIBUTING.md"): "check.examples",
    ("c", "docs/embedding.md"): "this one",
    ("cpp", "docs/cpp.md"): "bindings.cpp_compile",
    ("fortran", "docs/fortran.md"): "bindings.fortran.docs",
    ("python", "docs/python.md"): "bindings.python_docs",
    ("cmake", "docs/embedding.md"): "check.package",
    ("cmake", "docs/cpp.md"): "check.package",
    ("cmake", "docs/fortran.md"): "bindings.fortran.docs",
    ("text", "docs/architecture.md"): "a tree of folders, not a program",
}
# Code in an indented block would be in no test.
CODE = re.compile(r"^    .*(\bclt_(?!test_)\w+\(|\bclt::\w+|\bimport cltrain|\buse cltrain\b|\bfind_package\()", re.M)
COMPILERS = ("cc ", "c++ ", "gfortran ")


def pages(root):
    docs = sorted(name for name in os.listdir(os.path.join(root, "docs")) if name.endswith(".md"))
    return ["README.md", "CONTRIBUTING.md"] + [f"docs/{name}" for name in docs]


def fenced(text):
    """Returns (line, language, block) of each fenced block."""
    return [(text.count("\n", 0, match.start()) + 1, match[1], match[2])
            for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S)]


def check_listed(page, text):
    problems = [f"{page}:{line}: no test is known for a block of '{language}': add it to TESTED of snippets.py"
                for line, language, _ in fenced(text) if (language, page) not in TESTED]
    indented = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return problems + [f"{page}: `{match[0].strip()}` is in an indented block: fence it, with its language"
                       for match in CODE.finditer(indented)]


def check_c(root, compiler, folders, page, text):
    """Compiles each block as the body of a function, behind the declarations of snippets.h."""
    before = source.read(root, "tests/check/snippets.h")
    problems = []
    for line, language, block in fenced(text):
        if language == "c":
            program = f"{before}\nvoid snippet(void);\nvoid snippet(void)\n{{\n#line {line + 1} \"{page}\"\n{block}}}\n"
            command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused-variable", "-fsyntax-only",
                       "-DCL_TARGET_OPENCL_VERSION=120", *(f"-I{folder}" for folder in folders), "-x", "c", "-"]
            done = subprocess.run(command, input=program, capture_output=True, text=True, check=False)
            problems += [done.stderr] if done.returncode else []
    return problems


def extract(root, folder):
    """Writes FOLDER/PAGE/CMakeLists.txt and program for each block of CMake, and FOLDER/lines with the compiler's."""
    lines = []
    for page in pages(root):
        text = source.read(root, page)
        joined = re.sub(r"\\\n\s*", "", text)
        lines += [re.split(r"\s+# ", line)[0].strip() for line in re.findall(r"^    (.*)$", joined, re.M)
                  if line.startswith(COMPILERS)]
        name = os.path.basename(page)[:-3]
        for _, language, block in fenced(text):
            if language == "cmake":
                os.makedirs(os.path.join(folder, name))
                with open(os.path.join(folder, name, "CMakeLists.txt"), "w", encoding="utf-8") as file:
                    file.write(block)
    with open(os.path.join(folder, "lines"), "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main(root, compiler, *folders):
    problems, count = [], 0
    for page in pages(root):
        text = source.read(root, page)
        count += len(fenced(text))
        problems += check_listed(page, text)
        if page == "docs/embedding.md":
            problems += check_c(root, compiler, folders, page, text)
    return source.report("snippets", problems, f"{count} blocks of the pages are in tests")


if __name__ == "__main__":
    sys.exit(extract(*sys.argv[2:]) if sys.argv[1] == "--extract" else main(*sys.argv[1:]))
