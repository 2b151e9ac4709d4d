"""Compiles <cltrain/cltrain.hpp> with all compilers, standards and modes, without a warning; the snippets of
docs/cpp.md; and programs that must be refused with a clear message.

    compile.py ROOT BUILD COMPILER...
"""
import os
import re
import subprocess
import sys

ROOT, BUILD, COMPILERS = sys.argv[1], sys.argv[2], sys.argv[3:]
WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-pedantic", "-Werror"]
FOLDERS = [f"{BUILD}/bindings/include", f"{ROOT}/runtime/include", f"{ROOT}/models/include"]
HEAD = "#include <cltrain/cltrain.hpp>\n"
# (program, what the compiler's message contains)
REFUSED = [
    ("void f() { bool x[4]; clt::array a(x); }", "cltrain takes no arrays of bool"),
    ("void f() { std::vector<bool> x(4); clt::array a(x); }", ""),
    ("#include <complex>\nvoid f() { std::vector<std::complex<double>> x(4); clt::array a(x); }", "complex numbers"),
    ("void f() { std::vector<unsigned> x(4); clt::array a(x); }", "cltrain takes arrays of float"),
    ("void f() { clt::array a(std::vector<float>(4)); }", "give it a name"),
    ("void f(bool *x) { clt::whole(x); }", "cltrain takes no arrays of bool"),
    ("#include <complex>\nvoid f(std::complex<float> *x) { clt::whole(x); }", "complex numbers"),
    ("void f(short *x) { clt::whole(x); }", "cltrain takes arrays of float"),
    ("void f(double *x) { clt::whole(x); }", "give clt::view with a shape"),
    ("void f() { clt::feed a{\"x\", std::array<double, 4>{}}; }", "give it a name"),
    ("void f(clt::store &s) { std::vector<double> w(4); s.get(\"w\", w); }", "get_array converts them"),
    ("void f(clt::store &s) { const std::vector<double> w(4); s.set(\"w\", w); }", "set_array converts them"),
    ("void f(clt::trainer &t) { clt::trainer u = t; }", "deleted"),
    ("void f(clt::store &s) { const std::vector<float> w(4); s.get(\"w\", w); }", "which is const"),
]


def compiles(compiler, text, *options):
    command = [compiler, *WARNINGS, *(f"-I{folder}" for folder in FOLDERS), *options, "-fsyntax-only", "-x", "c++", "-"]
    run = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    return run.returncode == 0, run.stderr


def snippets(page):
    """Returns the C++ blocks of a page, each with its line."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    return [(text.count("\n", 0, match.start()) + 1, match[1])
            for match in re.finditer(r"^```cpp\n(.*?)^```", text, re.M | re.S)]


def main():
    problems = []
    modes = [("-std=c++17",), ("-std=c++20",), ("-std=c++17", "-DCLT_NO_EXCEPTIONS"),
             ("-std=c++17", "-fno-exceptions", "-fno-rtti")]
    for compiler in COMPILERS:
        for mode in modes:
            # Two translation units in one: the header may be included twice.
            passed, message = compiles(compiler, HEAD + HEAD + "int main() { return 0; }\n", *mode)
            if not passed:
                problems.append(f"{compiler} {' '.join(mode)}: {message}")
            passed, message = compiles(compiler, "#include <cltrain/comm.h>\n" + HEAD, "-DCL_TARGET_OPENCL_VERSION=120", *mode)
            if not passed:
                problems.append(f"{compiler} {' '.join(mode)}, with comm.h: {message}")
        for text, words in REFUSED:
            passed, message = compiles(compiler, HEAD + text, "-std=c++17", "-Wno-unused", "-Wno-unused-variable")
            if passed or words not in message:
                problems.append(f"{compiler}: not refused with '{words}': {text}\n{message[:2000]}")
    found = snippets("docs/cpp.md")
    if not found:
        problems.append("docs/cpp.md: no snippet was found")
    with open(os.path.join(ROOT, "tests/bindings/cpp/snippets.hpp"), encoding="utf-8") as file:
        before = file.read()
    # Statements stand in a function behind the declarations of snippets.hpp.
    for line, text in found:
        includes = "".join(re.findall(r"^#[^\n]*\n", text, re.M))
        body = re.sub(r"^#[^\n]*\n", "", text, flags=re.M)
        inside = body if re.search(r"^(?:int main|void \w+\()", body, re.M) else f"void snippet()\n{{\n{body}}}\n"
        for compiler in COMPILERS:
            passed, message = compiles(compiler, includes + before + inside, "-std=c++17", "-Wno-unused-variable",
                                       "-Wno-unused-but-set-variable", "-DCL_TARGET_OPENCL_VERSION=120", "-Wno-shadow")
            if not passed:
                problems.append(f"docs/cpp.md:{line}: {compiler}: {message[:3000]}")
    for problem in problems:
        print(problem)
    print(f"{len(COMPILERS)} compilers, {len(modes)} modes, {len(REFUSED)} programs refused, {len(found)} snippets: "
          f"{len(problems)} problem(s)")
    return 1 if problems else 0


sys.exit(main())
