"""Draws mutants: small seeded changes of one line of a kernel or of host code.

A mutant is {id, kind, file, line, before, after, context}. `before` and `after` are the line
without its indentation. `context` has the two lines before and after it, by which it is found again
in other trees.
"""
import functools
import os
import random
import re

SEED = 21
KINDS = ("operator", "bound", "statement", "constant", "condition", "index")
SKIP_FILES = ("clkernels/core/builtins.clh", "clkernels/tuning/", "clkernels/bench/")
# A mutant must not send signals to other processes or remove their files.
DANGEROUS = re.compile(r"\b(kill|unlink|unlinkat|rmdir|remove|rename|renameat|shm_unlink|ftruncate|system|exec\w*)\s*\(")
TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
SWAPS = {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", " % ": " / ", " && ": " || ", " || ": " && ",
         " & ": " | ", " | ": " & ", " << ": " >> ", " >> ": " << ", " += ": " -= ", " -= ": " += ",
         " *= ": " += ", " == ": " != ", " != ": " == ", "min(": "max(", "max(": "min("}  # fmt: skip
BOUNDS = {" < ": " <= ", " <= ": " < ", " > ": " >= ", " >= ": " > "}
PAIRS = [("i", "j"), ("x", "y"), ("h", "w"), ("m", "n"), ("r", "c"), ("first", "last"), ("begin", "end"),
         ("height", "width"), ("rows", "columns"), ("from", "to"), ("in", "out"), ("a", "b"), ("src", "dst")]  # fmt: skip
STATEMENT = re.compile(r"^(?:\*?[A-Za-z_][\w.>\[\]()*-]*(?:\s*(?:[-+*/|&]|<<|>>)?=\s.*|\(.*\)|\+\+|--)|CLT_TRY\(.*\));( *\\)?$")
DECLARATION = re.compile(r"^(return|break|continue|goto|const|static|typedef|else|case|default)\b")


def blank(text):
    """Returns the text with \\x01 in place of comments and strings' contents, so that no change
    hits them."""
    return TOKEN.sub(lambda m: re.sub(r"[^\n]", "\x01", m.group(0)), text)


def replaced(line, at, length, text):
    return line[:at] + text + line[at + length:]


def places(clear, table):
    """Yields (position, text, replacement) for each occurrence of a text of the table."""
    for text, other in table.items():
        at = clear.find(text)
        while at >= 0:
            word = text[0].isalpha()
            if not word or not (at and (clear[at - 1].isalnum() or clear[at - 1] == "_")):
                yield at, text, other
            at = clear.find(text, at + 1)


def operators(line, clear, _):
    return [replaced(line, at, len(t), o) for at, t, o in places(clear, SWAPS)]


def bounds(line, clear, _):
    found = [replaced(line, at, len(t), o) for at, t, o in places(clear, BOUNDS)]
    for m in re.finditer(r" [+-] 1\b(?![.\w])", clear):
        found.append(replaced(line, m.start(), len(m.group(0)), ""))
    return found


def statements(line, clear, previous):
    end = previous.rstrip().rstrip("\\").rstrip()
    whole = end == "" or end[-1] in ";{}:)" or end.endswith(("else", "\x01"))
    if not whole or not STATEMENT.match(clear.strip()) or DECLARATION.match(clear.strip()):
        return []
    if clear.count("(") != clear.count(")"):
        return []
    indent = len(line) - len(line.lstrip())
    return [line[:indent] + ";" + (" \\" if line.endswith("\\") else "")]


def constants(line, clear, _):
    found = []
    for m in re.finditer(r"(?<![\w.])(\d+\.\d*f?|\d+)(?![\w.])", clear):
        text = m.group(1)
        if "." in text:
            number = float(text.rstrip("f"))
            other = "1.0" if number == 0 else "2.0" if number == 1 else repr(number + 1)
            other += "f" if text.endswith("f") else ""
        elif text.startswith("0") and text != "0":
            continue
        else:
            other = {"0": "1", "1": "2"}.get(text, str(int(text) + 1))
        found.append(replaced(line, m.start(1), len(text), other))
    return found


def conditions(line, clear, _):
    m = re.search(r"\bif \((.*)\)([ {\\]*)$", clear)
    if not m:
        return []
    depth = 0
    for c in m.group(1):
        depth += (c == "(") - (c == ")")
        if depth < 0:
            return []
    return [line[:m.start(1)] + "!(" + line[m.start(1):m.end(1)] + ")" + line[m.end(1):]] if depth == 0 else []


def siblings(name, names):
    """Returns names of the file that an author could confuse with this one."""
    found = [b if name == a else a for a, b in PAIRS if name in (a, b)]
    if len(name) > 1:
        for i, c in enumerate(name):
            for other in ("xy" if c in "xy" else "hw" if c in "hw" else "mnk" if c in "mnk" else
                          "0123" if c.isdigit() else ""):
                found.append(name[:i] + other + name[i + 1:])
    return [f for f in found if f != name and f in names]


def indices(line, clear, names):
    found = []
    for m in re.finditer(r"\[([^\[\]\x01]+)\]", clear):
        found.append(replaced(line, m.start(1), len(m.group(1)), m.group(1) + " + 1"))
    for m in re.finditer(r"(?<![\w.>\"#])[a-z]\w*\b(?!\()", clear):
        for other in siblings(m.group(0), names):
            found.append(replaced(line, m.start(), len(m.group(0)), other))
    return found


MAKERS = dict(zip(KINDS, (operators, bounds, statements, constants, conditions, indices)))


def candidates(path, text):
    """Returns {kind: [(line number, [changed lines])]} of a file."""
    lines, clear = text.split("\n"), blank(text).split("\n")
    found = {kind: [] for kind in KINDS}
    inside = False  # within a function or macro; definitions of types and tables are left out
    for i, line in enumerate(lines):
        if line.startswith("{"):
            inside = True
        elif line.startswith("}"):
            inside = False
        stripped = clear[i].strip()
        macro = bool(stripped.endswith("\\") or (i and lines[i - 1].endswith("\\")))
        if not (inside or macro) or not stripped.strip("\x01") or stripped.startswith("#"):
            continue
        if DANGEROUS.search(line) or stripped.startswith(("static const", "enum", "typedef", "extern")):
            continue
        near = set(re.findall(r"[A-Za-z_]\w*", "\n".join(clear[max(0, i - 25):i + 10])))
        for kind, make in MAKERS.items():
            extra = clear[i - 1] if kind == "statement" and i else near
            changed = [c for c in make(line, clear[i], extra) if c != line]
            if changed:
                found[kind].append((i, changed))
    return found


def sources(tree, kind):
    roots, ends = (("clkernels",), (".cl", ".clh")) if kind == "kernel" else (("runtime", "comm"), (".c",))
    found = []
    for root in roots:
        for base, folders, files in os.walk(os.path.join(tree, root)):
            folders.sort()
            found += [os.path.relpath(os.path.join(base, f), tree) for f in sorted(files) if f.endswith(ends)]
    return [f for f in found if not f.startswith(SKIP_FILES)]


def draw(tree, count, accept):
    """Draws `count` mutants of kernels and as many of host code. accept(mutant) may refuse a
    mutant."""
    rng = random.Random(SEED)
    mutants = []
    for what in ("kernel", "host"):
        texts = {}
        pool = {kind: [] for kind in KINDS}
        for path in sources(tree, what):
            with open(os.path.join(tree, path), encoding="utf-8") as file:
                texts[path] = file.read()
            for kind, rows in candidates(path, texts[path]).items():
                pool[kind] += [(path, number, changed) for number, changed in rows]
        taken, drawn = set(), 0
        while drawn < count:
            path, number, changed = rng.choice(pool[KINDS[drawn % len(KINDS)]])
            after = rng.choice(changed)
            if (path, number) in taken:
                continue
            taken.add((path, number))
            lines = texts[path].split("\n")
            mutant = {"id": f"{what[0]}{drawn:03}", "kind": KINDS[drawn % len(KINDS)], "file": path,
                      "line": number + 1, "before": lines[number].strip(), "after": after.strip(),
                      "context": [s.strip() for s in lines[max(0, number - 2):number] + lines[number + 1:number + 3]]}
            if accept(mutant):
                mutants.append(mutant)
                drawn += 1
    return mutants


@functools.lru_cache
def stripped(tree, what):
    """Returns [(path, lines without the spaces around them)]."""
    found = []
    for path in sources(tree, what):
        with open(os.path.join(tree, path), encoding="utf-8") as file:
            found.append((path, [s.strip() for s in file.read().split("\n")]))
    return found


def find(mutant, tree):
    """Returns (path, index of the line) in a tree that may have been edited or moved since, or
    None."""
    what = "kernel" if mutant["id"][0] == "k" else "host"
    best, place = 0, None
    for path, lines in stripped(tree, what):
        for i, line in enumerate(lines):
            if line != mutant["before"]:
                continue
            # Lines as short as "break;" stand everywhere, so they say nothing of the place.
            around = lines[max(0, i - 2):i] + lines[i + 1:i + 3]
            score = sum(c in around and len(c) > 8 for c in mutant["context"]) + 2 * (path == mutant["file"]) + \
                (os.path.basename(path) == os.path.basename(mutant["file"])) + (len(line) > 30)
            score -= abs(i + 1 - mutant["line"]) / 1e5
            if score > best:
                best, place = score, (path, i)
    return place if best > 0.9 else None
