"""Structs of operators' attributes have no padding, because equal attributes are compared and hashed as memory
(runtime/passes/simplify.c). A compiler may leave anything in padding."""
import os
import re
import subprocess
import sys
import tempfile

import source

# How operators name the struct of their attributes.
NAMED = re.compile(r"(?:\.attr_bytes = sizeof\(|CLT_ATTRIBUTES\(\s*|CLT_CONV_MEMBERS\(\s*)(\w+)")
STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.S)
WARNING = re.compile(r"^(.*?):(\d+):\d+: warning: padding .*$", re.M)
# The operators of these structs have `build`: they become other nodes.
CALLS = ("_call", "_options", "STRUCT", "TYPE")


def structs(root):
    """Returns {name: (file, first line, last line, body)} of all structs, and the names of attributes."""
    found, named = {}, set()
    for path in source.files(root, ".c", ".h"):
        if path.startswith("runtime" + os.sep):
            text = source.blank(source.read(root, path))
            named.update(name for name in NAMED.findall(text.replace("\\\n", "\n")) if not name.endswith(CALLS))
            for match in STRUCT.finditer(text):
                lines = [source.line_of(text, at) for at in match.span()]
                found.setdefault(match[1], []).append((path, *lines, match[2]))
    return found, named


def with_members(found, named):
    """Adds the structs that are members of structs."""
    rest, whole = list(named), set()
    while rest:
        name = rest.pop()
        if name not in whole and name in found:
            whole.add(name)
            rest += [word for _, _, _, body in found[name] for word in re.findall(r"(\w+) (?!\*)\w+", body)]
    return whole


def padded(root, compiler, folders, paths, names):
    """Returns the places {(file, line)} of warnings about padding, and whether a struct that has padding was
    among them. `names` are structs of headers."""
    with tempfile.TemporaryDirectory() as scratch:
        headers = os.path.join(scratch, "headers.c")
        with open(headers, "w", encoding="utf-8") as file:
            file.writelines(f'#include "{path.removeprefix("runtime" + os.sep)}"\n' for path in paths if path.endswith(".h"))
            file.write("typedef struct control { char one; int two; } control;\n")
            # Clang lays out only the structs that are used.
            file.writelines(f"char use_{name}[sizeof({name})];\n" for name in [*names, "control"])
        sources = [headers] + [os.path.join(root, path) for path in paths if path.endswith(".c")]
        include = [f"-I{folder}" for folder in (os.path.join(root, "runtime"), os.path.join(root, "runtime", "include"), *folders)]
        run = subprocess.run([compiler, "-std=c11", "-D_GNU_SOURCE", "-DCL_TARGET_OPENCL_VERSION=120", "-fsyntax-only",
                              "-Wpadded", *include, *sources], capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        places = {(os.path.relpath(os.path.realpath(file), os.path.realpath(root)), int(line))
                  for file, line in WARNING.findall(run.stderr)}
        seen = any(file == headers for file, _ in WARNING.findall(run.stderr))
        return places, seen


def main(root, compiler, *folders):
    found, named = structs(root)
    checked = with_members(found, named)
    paths = sorted({place[0] for name in checked for place in found[name]})
    headers = [name for name in sorted(checked) if all(place[0].endswith(".h") for place in found[name])]
    places, seen = padded(root, compiler, folders, paths, headers)
    problems = [f"{file}:{line}: struct {name} has padding: add a member 'unused'"
                for name in sorted(checked) for path, first, last, _ in found[name] for file, line in sorted(places)
                if file == path and first <= line <= last]
    problems += [f"struct {name} of attributes was not found" for name in sorted(named - set(found))]
    if not seen:
        problems.append(f"{compiler} does not report padding")
    return source.report("attributes", problems, f"{len(checked)} structs without padding")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
