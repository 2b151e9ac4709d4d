"""Checks that each public header compiles by itself, as C11 and as C++11, without a warning, and
documents every function. <cltrain/cltrain.h> includes all headers except those that need other
libraries' headers."""
import os
import re
import subprocess
import sys

import source

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Wpedantic", "-Werror"]


def compile_header(compiler, language, include_dirs, name):
    command = compiler + language + WARNINGS + ["-fsyntax-only", "-DCL_TARGET_OPENCL_VERSION=120"]
    for folder, system in include_dirs:
        command += ["-isystem" if system else "-I", folder]
    run = subprocess.run(command + ["-"], input=f"#include <{name}>\nint clt_test_unit;\n",
                         capture_output=True, text=True)
    return run.returncode == 0, run.stderr.strip()


APART = {"cltrain", "opencl", "comm", "mpi", "unstable"}


def missing_from_all(root):
    folder = "runtime/include/cltrain/"
    text = source.read(root, folder + "cltrain.h")
    subjects = {path[len(folder):-2] for path in source.files(root, ".h")
                if path.startswith(folder)}
    return [f"<cltrain/cltrain.h> does not include <cltrain/{name}.h>"
            for name in sorted(subjects - APART) if f"<cltrain/{name}.h>" not in text]


def undocumented(text):
    """Returns functions without a comment. A comment counts for all functions up to the next blank
    line."""
    paragraphs = re.split(r"\n\n(?! \*)", text)
    return [name for paragraph in paragraphs if "/*" not in paragraph
            for name in re.findall(r"^(?:CLT_API )?(?!typedef)\w[\w *]*?\b(clt_\w+)\(", paragraph, re.M)]


def main(root, opencl, c_compiler, cxx_compiler=""):
    roots = [os.path.join(root, folder) for folder in ("runtime/include", "models/include")]
    include_dirs = [(folder, False) for folder in roots if os.path.isdir(folder)] + [(opencl, True)]
    names = []
    for path in source.files(root, ".h"):
        for folder in ("runtime/include/", "models/include/"):
            if path.startswith(folder):
                names.append(path[len(folder):])
    compilers = [("C", [c_compiler], ["-std=c11", "-x", "c"])]
    if cxx_compiler:
        compilers.append(("C++", [cxx_compiler], ["-std=c++11", "-x", "c++"]))
    problems = missing_from_all(root)
    problems += [f"{path}: {name} has no comment" for path in source.files(root, ".h")
                 if path.startswith(("runtime/include/", "models/include/"))
                 for name in undocumented(source.read(root, path))]
    for name in names:
        if name == "cltrain/mpi.h":
            continue  # needs MPI's header; the tests of comm/mpi compile it
        for label, compiler, language in compilers:
            fine, message = compile_header(compiler, language, include_dirs, name)
            if not fine:
                problems.append(f"<{name}> alone as {label}:\n{message}")
    languages = " and ".join(label for label, _, _ in compilers)
    return source.report("public headers", problems, f"{len(names)} compile alone as {languages}")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
