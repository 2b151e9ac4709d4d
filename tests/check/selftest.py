"""Tests the check scripts: each is shown a violation and a legal text."""
import sys

import compiler_warnings
import docs
import examples
import folders
import headers
import includes
import manners
import sizes
import source
import symbols

LONG = "int f(void)\n{\n" + "    x();\n" * 99 + "}\n"

# (checker, path, text, number of problems)
CASES = [
    (includes, "runtime/graph/a.c", '#include "ops/core/ops.h"\n', 1),
    (includes, "runtime/graph/a.c", '#include "base/vec.h"\n#include <cltrain/graph.h>\n', 0),
    (includes, "runtime/exec/a.c", '#include "comm/local.h"\n', 1),
    (includes, "runtime/exec/a.c", "#include <cltrain/unstable.h>\n", 1),
    (includes, "runtime/plan/a.c", "#include <cltrain/unstable.h>\n", 0),
    (includes, "models/examples/a.c", "#include <cltrain/unstable.h>\n", 1),
    (includes, "runtime/exec/a.c", "#include <CL/cl.h>\nint a(void) { return clFinish(q); }\n", 0),
    (includes, "runtime/plan/a.c", "void a(void) { clFinish(q); }\n", 1),
    (includes, "runtime/plan/a.c", '/* clFinish(q) */ const char *s = "clFinish(q)";\n', 0),
    (includes, "runtime/plan/a.c", "#include <CL/cl.h>\n", 1),
    (includes, "runtime/plan/a.h", "#include <cltrain/opencl.h>\n", 1),
    (includes, "runtime/include/cltrain/a.h", '#include "base/vec.h"\n', 1),
    (includes, "runtime/include/cltrain/a.h", "#include <CL/cl.h>\n", 1),
    (includes, "runtime/include/cltrain/opencl.h", "#include <CL/cl.h>\n", 0),
    (includes, "runtime/include/cltrain/comm.h", "#include <CL/cl.h>\n", 0),
    (includes, "runtime/plan/a.h", "#include <cltrain/comm.h>\n", 1),
    (includes, "models/lenet.c", '#include "graph/graph.h"\n', 1),
    (includes, "models/examples/embed.c", "#include <CL/cl.h>\nint a = clFinish(q);\n", 0),
    (includes, "runtime/bindings/generate/a.c", '#include "graph/graph.h"\n', 1),
    (includes, "runtime/bindings/generate/a.c", "#include <cltrain/opencl.h>\n", 0),
    (includes, "tools/cltrain/commands/train.c", '#include "options/options.h"\n', 0),
    (includes, "comm/local/a.c", "void a(void) { MPI_Barrier(c); }\n", 1),
    (includes, "comm/mpi/a.c", "#include <mpi.h>\nvoid a(void) { MPI_Barrier(c); }\n", 0),
    (includes, "comm/mpi/a.c", "void a(void) { MPI_Init(0, 0); }\n", 1),
    (includes, "tests/comm/a.c", "void a(void) { MPI_Init(0, 0); }\n", 0),
    (sizes, "runtime/ops/a.c", "x;\n" * 600, 0),
    (sizes, "runtime/ops/a.c", "x;\n" * 601, 1),
    (sizes, "runtime/ops/a.c", LONG, 1),
    (sizes, "runtime/ops/a.c", LONG.replace("    x();\n", "", 1), 0),
    (manners, "runtime/base/a.c", 'void a(void) { fprintf(stderr, "no"); }\n', 1),
    (manners, "runtime/base/a.c", "void a(void) { exit(1); }\n", 1),
    (manners, "runtime/bindings/generate/a.c", 'void a(void) { printf("fine"); }\n', 0),
    (manners, "runtime/base/a.c", "void *a(void) { return malloc(1); }\n", 1),
    (manners, "runtime/base/alloc.c", "void *a(void) { return malloc(1); }\n", 0),
    (manners, "comm/core/a.c", "int a(void) { return pthread_create(&t, NULL, work, NULL); }\n", 1),
    (manners, "runtime/base/thread.c", "int a(void) { return pthread_create(&t, NULL, work, NULL); }\n", 0),
    (manners, "runtime/base/a.c", "/* exit(1) */ void *a(void) { return clt_alloc(1); }\n", 0),
    (manners, "runtime/ops/a.c", 'int a(void) { return !strcmp(v->name, "direct"); }\n', 1),
    (manners, "runtime/plan/a.c", 'int a(void) { return !strncmp("dir", v->name, 3); }\n', 1),
    (manners, "runtime/ops/a.c", 'int a(void) { return strcmp(a->name, b->name); } /* v->name, "x" */\n', 0),
    (manners, "tests/base/a.c", "/* TO" "DO later */\n", 1),
    (manners, "tests/base/a.c", 'void a(void) { printf("fine"); }\n', 0),
]


def main():
    problems = []
    for checker, path, text, expected in CASES:
        found = checker.check_file(path, text)
        if len(found) != expected:
            problems.append(f"{checker.__name__}: {path}: {text!r}: expected {expected} problem(s), "
                            f"got {found}")
    header = ("#define M CLT_API int no(void)\nCLT_API clt_status clt_a(int b);\n"
              "/* CLT_API int clt_b(void); */\nCLT_API clt_value *clt_c(\n    int (*f)(int));\n")
    if symbols.declared(header) != {"clt_a", "clt_c"}:
        problems.append(f"symbols: declared() gives {symbols.declared(header)}")
    text = 'a /* b\n"c" */\n\n  d("/* e */  // f"); // g\n'
    if compiler_warnings.without_comments(text) != 'a\nd("/* e */ // f");':
        problems.append(f"compiler_warnings: {compiler_warnings.without_comments(text)!r} of {text!r}")
    tree, options = {"docs", "docs/a.md"}, {"train": {"--model"}}
    text = "`docs/a.md` `docs/b.md`\n\n    cltrain train --model x --modle y   not --this\n    cltrain trian\n"
    if len(docs.check_paths(".", tree, "a.md", text) + docs.check_commands("a.md", text, options)) != 3:
        problems.append("docs: a path, an option and a subcommand that do not exist are not found")
    table = "| `a.h`, `b.h` | one |\n| `c.h` | two, as `e.h` |\n"
    if len(docs.check_headers("a.md", table, ["a.h", "b.h", "c.h", "e.h", "unstable.h"])) != 1:
        problems.append("docs: a header that the table of headers lacks is not found")
    if docs.check_words("a.md", "`clt_a` clt_<b> CLT_D*, clt_c_<d>", {"clt_a"}) or not docs.check_words("", "CLT_B", set()):
        problems.append("docs: names of functions")
    page = "1. `a.c`: b\n2. `c.c`: d\n\n```c\nx;\ny;\n```\n\n    make\n"
    found = examples.check_page("a.patch", page, "+++ b/a.c\n+x;\n+++ b/e.c\n+z;\n")
    if len(found) != 3 or examples.commands(page) != ["make"]:
        problems.append(f"examples: {found}")
    text = "/* A. */\nCLT_API int clt_a(int b);\nCLT_API clt_value *clt_b(\n    int c);\n\nCLT_API void clt_c(void);\n"
    if headers.undocumented(text) != ["clt_c"]:
        problems.append(f"headers: {headers.undocumented(text)}")
    circle = {"runtime/a/x.h": '#include "b/y.h"\n', "runtime/b/y.h": '#include "c/z.h"\n',
              "runtime/c/z.h": '#include "a/x.h"\n', "runtime/d/w.h": '#include "a/x.h"\n'}
    if len(sizes.twins(["comm/a.c", "runtime/b/a.c", "runtime/a.h", "models/examples/a.c"])) != 1:
        problems.append("sizes: two files of one name are not found")
    if len(folders.circles(folders.graph_of(circle))) != 3:
        problems.append("folders: a circle of three folders is not found")
    circle["runtime/c/z.h"] = '/* #include "a/x.h" */\n'
    drawn = folders.drawing(folders.graph_of(circle))
    if folders.circles(folders.graph_of(circle)) or "3  runtime/d -> runtime/a\n" not in drawn:
        problems.append(f"folders: {drawn}")
    arrows = {"runtime/data/core/x.h": "", "runtime/data/image/y.h": '#include "data/core/x.h"\n',
              "runtime/data/new/w.h": ""}
    if len(folders.upward(folders.graph_of(arrows))) != 1:
        problems.append("folders: a subfolder without a place is not found")
    arrows = {"runtime/data/core/x.h": '#include "data/image/y.h"\n', "runtime/data/image/y.h": ""}
    if len(folders.upward(folders.graph_of(arrows))) != 1:
        problems.append("folders: an include of a subfolder above is not found")
    return source.report("check scripts", problems, f"{len(CASES) + 6} cases")


if __name__ == "__main__":
    sys.exit(main())
