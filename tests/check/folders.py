"""Checks which folders of the library and of the command include which. No two folders may include
each other, directly or through others. Subfolders may include only those that ORDER places below
them. docs/architecture.md must show all of them; `folders.py ROOT --write` updates the page."""
import collections
import os
import re
import sys

import source

# The subfolders of a folder, lowest first. Each may include those before it. New subfolders are
# added here.
ORDER = {
    "runtime/device": ("core", "program", "discover"),
    "runtime/data": ("core", "image", "files", "arrays", "csv", "folders", "text", "formats", "tokenizer", "reservoir",
                     "loader"),
    "runtime/ops": ("core", "collective", "shape", "elementwise", "matmul", "reduce", "conv", "norm", "pool",
                    "loss", "attention", "recurrent", "index"),
    "runtime/train": ("report", "program", "metrics", "store", "ranks", "core", "planner", "step", "saved", "setup", "meshes", "fit",
                      "async", "local"),
    "comm": ("core", "mpi", "ranks", "communicator", "kinds", "transports"),
    "tools/cltrain": ("text", "options", "output", "devices", "ranks", "datasets", "job", "saved", "bench", "commands"),
}
PAGE, BEGIN, END = "docs/architecture.md", "<!-- folders:begin -->\n", "<!-- folders:end -->"
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
# Names in include lines are relative to these.
ROOTS = ("runtime/", "", "tools/cltrain/")


def graph_of(texts):
    """Returns {folder: {included folder: the first such line}}. texts: {path: text}."""
    edges = collections.defaultdict(dict)
    for path, text in sorted(texts.items()):
        folder = os.path.dirname(path)
        edges[folder] = edges[folder]
        for name in INCLUDE.findall(source.uncomment(text)):
            found = next((r + name for r in ROOTS if r + name in texts), None)
            if found and os.path.dirname(found) != folder:
                edges[folder].setdefault(os.path.dirname(found), f"{path} includes {name}")
    return edges


def reached(edges, start):
    seen, unread = set(), [start]
    while unread:
        for folder in edges.get(unread.pop(), ()):
            if folder not in seen:
                seen.add(folder)
                unread.append(folder)
    return seen


def circles(edges):
    return [f"{a} and {b} include each other, be it through others: {line}"
            for a in sorted(edges) for b, line in sorted(edges[a].items()) if a in reached(edges, b)]


def upward(edges):
    """Returns includes from a subfolder to one that ORDER places above it, and folders that ORDER
    lacks."""
    problems = []
    for folder in sorted(edges):
        parent, _, name = folder.rpartition("/")
        order = ORDER.get(parent)
        if not order:
            continue
        if name not in order:
            problems.append(f"{folder}: ORDER of tests/check/folders.py does not place it in {parent}")
            continue
        for below, line in sorted(edges[folder].items()):
            other_parent, _, other = below.rpartition("/")
            if other_parent == parent and other in order and order.index(other) > order.index(name):
                problems.append(f"{folder} is below {below}: {line}")
    return problems


def layers(edges):
    """Returns {folder: layer}. A layer is one above the highest that the folder includes. There
    must be no circles."""
    found = {}

    def layer(folder):
        if folder not in found:
            found[folder] = 1 + max((layer(f) for f in edges.get(folder, ())), default=-1)
        return found[folder]

    for folder in edges:
        layer(folder)
    return found


def drawing(edges):
    """Draws the top layer first. Each folder is listed with its includes, without those that they
    include themselves."""
    level = layers(edges)
    lines = []
    for folder in sorted(level, key=lambda f: (-level[f], f)):
        below = edges.get(folder, {})
        direct = [b for b in below if not any(b in reached(edges, other) for other in below)]
        lines.append(f"{level[folder]:2d}  {folder}" + (f" -> {', '.join(sorted(direct))}" if direct else ""))
    return "```text\n" + "\n".join(lines) + "\n```\n"


def main(root, write=None):
    paths = [p for p in source.files(root, ".c", ".h", ".def")
             if p.startswith(("runtime/", "comm/", "tools/cltrain/")) and not p.startswith("runtime/include/")]
    edges = graph_of({p: source.read(root, p) for p in paths})
    problems = circles(edges) + upward(edges)
    if not problems:
        text = source.read(root, PAGE)
        before, rest = text.split(BEGIN)
        after = rest[rest.index(END):]
        fresh = before + BEGIN + drawing(edges) + after
        if write and fresh != text:
            with open(os.path.join(root, PAGE), "w", encoding="utf-8") as file:
                file.write(fresh)
        elif fresh != text:
            problems.append(f"{PAGE}: the folders have changed: run tests/check/folders.py . --write")
    return source.report("folders", problems, f"{len(edges)} folders include each other one way")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
