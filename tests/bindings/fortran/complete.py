"""Every function of the headers is in module cltrain, or has a reason in runtime/bindings/fortran/tables.py. What
emit.py cannot write is in its list of what is missing, and keeps nothing else from being written.

    complete.py ROOT API.JSON MISSING.TXT
"""
import copy
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT, API, MISSING = sys.argv[1:]
EMIT = f"{ROOT}/runtime/bindings/fortran/emit.py"
sys.path[:0] = [f"{ROOT}/runtime/bindings/fortran", f"{ROOT}/runtime/bindings/generate"]
import api as description  # noqa: E402
import tables  # noqa: E402

VOID = {"name": "", "c": "void", "kind": "void", "type": "void", "depth": 0, "count": None, "const": False,
        "direction": "in"}


def item(name, c, **rest):
    return {**VOID, "name": name, "c": c, "kind": "scalar", "type": "int", **rest}


def function(name, *params):
    return {"name": name, "header": "cltrain/train.h", "library": "cltrain", "unstable": False, "deprecated": False,
            "doc": "Of the test.", "returns": VOID, "params": list(params)}


def emit(data, folder):
    """Returns what is missing, and the sources, of a description."""
    path = os.path.join(folder, "api.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file)
    subprocess.run([sys.executable, "-B", EMIT, path, folder], check=True)
    texts = {}
    for name in ("missing.txt", "cltrain_c.f90", "cltrain_types.f90", "cltrain_calls.f90", "cltrain.f90"):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            texts[name] = file.read()
    return texts.pop("missing.txt").splitlines(), texts


def every_function(described, texts):
    """The module shows each function that has no reason to be left out."""
    with open(os.path.join(os.path.dirname(MISSING), "cltrain_steps.f90"), encoding="utf-8") as file:
        steps = file.read()
    for row in described.stable():
        reason = tables.LEFT_OUT.get(row["name"]) or tables.LEFT_OUT_HEADERS.get(row["header"])
        name = re.compile(rf"\b{row['name']}\b")
        if reason == tables.BY_HAND and name.search(steps):
            continue
        if reason is None and not name.search(texts["cltrain.f90"]):
            sys.exit(f"{row['name']} is neither in module cltrain nor in tables.py")
        if reason is not None and len(reason) < 10:
            sys.exit(f"tables.py: {row['name']} has no reason: {reason!r}")


# (what is missing, the function that needs it, the struct of it)
def cases(data):
    texts = item("texts", "const char *const *texts", kind="string", type="char", depth=1, count="n", const=True)
    struct = copy.deepcopy(next(row for row in data["structs"] if row["name"] == "clt_watched"))
    struct.update(name="clt_test_names", init=None)
    struct["members"][0].update(name="names", c="const char *const *names", depth=1, count=None)
    given = item("names", "const clt_test_names *names", kind="struct", type="clt_test_names", depth=1, const=True)
    call = {**item("call", "void (*call)(..)", kind="callback", type=""), "returns": VOID, "doc": "", "params": [
        item("user", "void *user", kind="user", type="void"),
        item("room", "mpi", kind="mpi", type="MPI_Comm")]}
    user = item("user", "void *user", kind="user", type="void")
    yield "an array of texts", function("clt_test_texts", texts, item("n", "int n")), None
    yield "names", function("clt_test_struct", given), struct
    yield "argument of kind mpi", function("clt_test_callback", call, user), None
    yield "add_unheard", function("clt_test_kind", item("x", "unheard x", kind="unheard")), None


def main():
    with open(MISSING, encoding="utf-8") as file:
        missing = file.read()
    if missing:
        sys.exit("emit.py could not write these functions. Give them rows in runtime/bindings/fortran/tables.py:\n" + missing)
    with open(API, encoding="utf-8") as file:
        data = json.load(file)
    tried = 0
    with tempfile.TemporaryDirectory() as folder:
        found, whole = emit(data, folder)
        if found:
            sys.exit(f"missing.txt is empty, but emit.py misses {found}")
        every_function(description.Api(API), whole)
        for part, added, struct in cases(data):
            changed = copy.deepcopy(data)
            changed["functions"].append(added)
            changed["structs"] += [struct] if struct else []
            found, texts = emit(changed, folder)
            if len(found) != 1 or not found[0].startswith(added["name"] + ": ") or part not in found[0]:
                sys.exit(f"{added['name']} is not missing for {part!r}: {found}")
            if texts != whole:
                sys.exit(f"{added['name']} cannot be written, and changes other sources")
            tried += 1
        changed = copy.deepcopy(data)
        changed["functions"] = [row for row in data["functions"] if row["name"] != "clt_nearest"]
        found, _ = emit(changed, folder)
        if found != ["tables.py: there is no clt_nearest"]:
            sys.exit(f"a row of tables.py without a function is not told: {found}")
    print(f"{len(data['functions'])} functions; {tried} that cannot be written are told")


main()
