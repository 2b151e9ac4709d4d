"""Each function of the stable headers has a counterpart in C++, or a reason in runtime/bindings/cpp/lists.py.
Descriptions in which something is missing or too much are refused.

    functions.py ROOT API.JSON
"""
import copy
import json
import os
import subprocess
import sys
import tempfile

ROOT, API = sys.argv[1:]
EMIT = f"{ROOT}/runtime/bindings/cpp/emit.py"


def check(path):
    run = subprocess.run([sys.executable, "-B", EMIT, path, "--check"], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout + run.stderr


def added(data, like, name):
    """Adds a function that is like another one."""
    row = copy.deepcopy(next(row for row in data["functions"] if row["name"] == like))
    row["name"] = name
    data["functions"].append(row)


def unheard(data):
    """Adds a function with a parameter for which there is no rule."""
    added(data, "clt_trainer_steps", "clt_steps_of")
    data["functions"][-1]["params"][0].update(name="memory", kind="memory", direction="inout", depth=2)


def without(data, name):
    data["functions"] = [row for row in data["functions"] if row["name"] != name]


# (what the check says, how the description is changed)
CASES = [
    ("clt_comm_more: comm.hpp does not have it", lambda data: added(data, "clt_comm_size", "clt_comm_more")),
    ("clt_world_more: comm.hpp does not have it", lambda data: added(data, "clt_world_open_mpi", "clt_world_more")),
    ("clt_steps_of: memory: no rule", unheard),
    ("lists.py: there is no clt_nearest", lambda data: without(data, "clt_nearest")),
    ("lists.py: there is no clt_comm_start", lambda data: without(data, "clt_comm_start")),
]


def main():
    code, text = check(API)
    print(text, end="")
    if code:
        sys.exit(1)
    with open(API, encoding="utf-8") as file:
        data = json.load(file)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "api.json")
        for message, change in CASES:
            changed = copy.deepcopy(data)
            change(changed)
            with open(path, "w", encoding="utf-8") as file:
                json.dump(changed, file)
            code, text = check(path)
            if code != 1 or message not in text:
                sys.exit(f"{message!r} is not said:\n{text}")
    print(f"{len(CASES)} changed descriptions are refused")


main()
