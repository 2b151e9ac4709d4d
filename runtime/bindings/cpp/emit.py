"""Writes <cltrain/cltrain.hpp> from api.json. Files that are written by hand and generated parts alternate:
HEAD, option classes, handle classes with members.hpp, functions, TAIL.

    emit.py API.JSON OUT | --check

With --check it writes nothing, and fails if a function or a member of C has no place in C++. Otherwise the
header says so in a comment.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "generate"))
import api  # noqa: E402
import lists  # noqa: E402
from wrap import Refused, Wrapper  # noqa: E402
import structs  # noqa: E402

TOP = """/*
 * cltrain for C++17. Written from the headers of C by runtime/bindings/cpp/emit.py; docs/cpp.md has the guide.
 *
 * Names are those of C without their prefix. Functions whose first parameter is a handle are its methods:
 * clt_trainer_step(t, ..) is t.step(..). Enumerators and structs without pointers are C's.
 */
#ifndef CLTRAIN_CLTRAIN_HPP
#define CLTRAIN_CLTRAIN_HPP

"""
END = "\n#endif\n"
OPEN, CLOSE = "namespace clt\n{\n", "} /* namespace clt */\n\n"
HEAD = ("errors.hpp", "handles.hpp", "memory.hpp", "values.hpp")
TAIL = ("by_hand.hpp", "comm.hpp")
# Headers that this one does not include. comm.hpp is for programs that do.
APART = ("cltrain/comm.h", "cltrain/mpi.h")
DESTROY = """template <> struct destroy<{name}> {{
    void operator()({name} *p) const
    {{
        {destroy}(p);
    }}
}};
"""


def comment(doc, indent=""):
    if not doc:
        return ""
    lines = doc.split("\n")
    if len(lines) == 1 and len(lines[0]) < 110:
        return f"{indent}/* {lines[0]} */\n"
    return f"{indent}/*\n" + "".join(f"{indent} * {line}".rstrip() + "\n" for line in lines) + f"{indent} */\n"


def main(description, out):
    described = api.Api(description)
    options = structs.Options(described)
    skipped = set(lists.HAND) | set(lists.OMITTED)
    problems, methods, free, bodies, results = [], {}, [], [], []
    for function in described.stable():
        if function["name"] in skipped or function["name"].endswith("_init"):
            continue
        if function["name"] in options.destroyers:
            continue
        if function["header"] in APART:
            problems.append(f"{function['name']}: comm.hpp does not have it")
            continue
        try:
            wrapped = Wrapper(function, described, options)
        except Refused as refused:
            problems.append(f"{function['name']}: {refused}")
            continue
        results += [wrapped.result_struct] if wrapped.result_struct else []
        target = methods.setdefault(wrapped.owner, []) if wrapped.owner else free
        target.append(comment(function["doc"], "    " if wrapped.owner else "") + wrapped.declarations())
        bodies.append(wrapped.definitions())
    known = {function["name"] for function in described.functions}
    problems += [f"lists.py: there is no {name}" for name in sorted(skipped) if name not in known]
    by_hand = re.sub(r"/\*.*?\*/", "", "".join(read(name) for name in (*HEAD, *TAIL, "members.hpp")), flags=re.S)
    problems += [f"lists.py: no file uses {name} of HAND" for name in sorted(lists.HAND)
                 if not re.search(rf"\b{name}\b", by_hand)]
    problems += [f"lists.py: {name} of OMITTED has no reason" for name, why in lists.OMITTED.items() if len(why) < 10]
    classes = [(api.short(h["name"]), h) for h in options.owned]
    parts = [TOP, read(HEAD[0]).replace(OPEN, prototypes(described) + OPEN, 1), *(read(name) for name in HEAD[1:])]
    parts += [OPEN, "\n/* --- options ----- */\n\n", options.text(comment), "\n/* --- handles ----- */\n\n"]
    parts += [f"class {name};\n" for name, _ in classes]
    parts.append("\nnamespace detail\n{\n")
    parts += [DESTROY.format(**handle) for _, handle in classes]
    parts.append("} /* namespace detail */\n\n")
    parts += [re.search(r"^struct \w+", result, re.M)[0] + ";\n" for result in results] + ["\n"]
    extras = extra_members()
    for name, handle in classes:
        parts.append(comment(handle["doc"]) + f"class {name} : public detail::handle<{handle['name']}>\n{{\n  public:\n"
                     "    using handle::handle;\n")
        if "default" not in options.creates.get(handle["name"], ()):
            parts.append(f"    {name}() = default;\n")
        parts += [*methods.get(handle["name"], []), extras.pop(name, ""), "};\n\n"]
    if extras:
        sys.exit(f"members.hpp: there is no class {sorted(extras)[0]}")
    parts += ["/* --- functions ----- */\n\n", *results, *free, "\n/* --- definitions ----- */\n\n", *bodies, CLOSE,
              *(read(name) for name in TAIL), END]
    problems += options.problems
    if out == "--check":
        print(f"{len(bodies)} functions, {len(classes)} handles, {len(options.structs)} option classes")
        for problem in problems:
            print(f"{problem}: add it to HAND or OMITTED of runtime/bindings/cpp/lists.py, or a rule to wrap.py")
        return 1 if problems else 0
    if problems:
        parts.insert(-1, "/* Not in this header yet: " + "; ".join(problems) + ". */\n")
    text = re.sub(r"/\* --- (\w+) -----\W*\*/", lambda m: f"/* --- {m[1]} ".ljust(97, "-") + " */", "".join(parts))
    with open(out + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(out + ".new", out)
    return 0


def prototypes(described):
    """Declares the functions of <cltrain/opencl.h>, so that programs without OpenCL's headers can include this one."""
    lines = ["struct _cl_context;\nstruct _cl_device_id;\nstruct _cl_command_queue;\n\nextern \"C\" {\n"]
    for function in described.functions:
        if function["header"] == "cltrain/opencl.h":
            params = ", ".join(item["c"] for item in function["params"])
            text = f"{function['returns']['c']} {function['name']}({params});\n"
            lines.append(re.sub(r"\b(cl_(?:mem|context|device_id|command_queue)) ", r"struct _\1 *", text))
    return "".join(lines) + "}\n\n"


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return file.read()


def extra_members():
    """Returns {class: members} of members.hpp, whose parts begin with `// class NAME`."""
    parts = re.split(r"^// class (\w+)\n", read("members.hpp"), flags=re.M)
    members = (re.sub(r"^(?=[^\n#])", "    ", part, flags=re.M).replace("    private:", "  private:")
               for part in parts[2::2])
    return dict(zip(parts[1::2], members))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
