#!/usr/bin/env python3
"""200 seeded mutants of kernels and host code, and which of them the tests kill.

    mutants.py draw --tree DIR --commands FILE   draws them anew (at commit 4fb8849; FILE: its compile_commands.json)
    mutants.py cover BUILD                       which tests execute which mutant's line or build its kernel file;
                                                 BUILD: a build of the tree with --coverage (see README.md)
    mutants.py run [--sample N --commit HASH | --changed FILE... | ID...] [--out FILE]
                                                 plants mutants and runs the tests until one fails
    mutants.py check BUILD                       the test baseline.mutants: few mutants, first with the test that killed them
    mutants.py report                            prints the recorded results

`run` and `check` plant in the build folder BUILD (plant.py), whose tests must be built. `run` continues where it
ended: it leaves out mutants that have a result, unless --again is given. It writes to mutants.json or, with --out,
to FILE. Both exit with 1 if a mutant survives that was killed according to mutants.json.

The first `check` in a build folder takes 20 of the killed mutants, chosen by a hash of the commit and their names.
Later ones take mutants in files that have changed since. If the test that killed a mutant on another machine passes,
the other tests that reach the mutant run for 60 core-seconds, the cheapest first. No mutant begins after 120
core-seconds in all.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time

import draw
import plant
import suite

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
LIST, COVER = os.path.join(HERE, "mutants.json"), os.path.join(HERE, "cover.json")
EXCLUDED = ("check.", "gpu.", "vendor.", "oclgrind.", "ops.variants_compared", "ops.pocl_locals", "ops.mutations")
CHECK_SECONDS = 120  # core-seconds after which `check` begins no mutant
lock = threading.Lock()


def read(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def write(path, what):
    """Writes a line for each entry of the lists and tables, so that differences are readable."""
    parts = []
    for key, value in what.items():
        if isinstance(value, list):
            rows = ",\n".join("  " + json.dumps(row) for row in value)
            parts.append(f' {json.dumps(key)}: [\n{rows}\n ]')
        elif isinstance(value, dict):
            rows = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(value.items()))
            parts.append(f' {json.dumps(key)}: {{\n{rows}\n }}')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write("{\n" + ",\n".join(parts) + "\n}\n")
    os.replace(path + ".new", path)


# --- draw ---------------------------------------------------------------------------------------


def compiled(commands, tree, path, text):
    """Returns a hash of the object of a changed host file; None if it does not compile."""
    row = commands[path]
    with tempfile.TemporaryDirectory() as folder:
        source, out = os.path.join(folder, "mutant.c"), os.path.join(folder, "mutant.o")
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        words = row["command"].split()
        words = [w for w in words[:words.index("-o")] if w not in ("-g", "-Werror") and "ccache" not in w]
        words += ["-w", "-DCLT_TESTING", "-frandom-seed=1", "-I" + os.path.dirname(os.path.join(tree, path)),
                  "-o", out, "-c", source]  # fmt: skip
        if subprocess.run(words, cwd=row["directory"], capture_output=True).returncode:
            return None
        with open(out, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()


def planted(tree, mutant, place):
    path, number = place
    with open(os.path.join(tree, path), encoding="utf-8") as file:
        lines = file.read().split("\n")
    line = lines[number]
    lines[number] = line[:len(line) - len(line.lstrip())] + mutant["after"]
    return "\n".join(lines)


def command_draw(options):
    tree = os.path.abspath(options.tree)
    commands = {os.path.relpath(r["file"], tree): r for r in read(options.commands)}
    sound, refused = {}, {"does not compile": 0, "same object code": 0}

    def accept(mutant):
        path = mutant["file"]
        if not path.endswith(".c"):
            return True
        if path not in commands:
            return False
        if path not in sound:
            with open(os.path.join(tree, path), encoding="utf-8") as file:
                sound[path] = compiled(commands, tree, path, file.read())
        got = compiled(commands, tree, path, planted(tree, mutant, (path, mutant["line"] - 1)))
        why = "does not compile" if not got else "same object code" if got == sound[path] else None
        if why:
            refused[why] += 1
        return not why

    mutants = draw.draw(tree, 100, accept)
    commit = subprocess.run(["git", "-C", tree, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    write(LIST, {"commit": commit.strip(), "seed": draw.SEED, "refused when drawn": refused, "mutants": mutants})
    print(f"{len(mutants)} mutants; left out when drawn: {refused}")


# --- cover --------------------------------------------------------------------------------------


def lines_run(gcda, gcno):
    """Returns {source file: {line: count}} of one object."""
    link = gcda[:-len(".gcda")] + ".gcno"
    if not os.path.exists(link):
        os.symlink(gcno, link)
    out = subprocess.run(["gcov", "--json-format", "--stdout", os.path.basename(gcda)], capture_output=True, text=True,
                         cwd=os.path.dirname(gcda)).stdout  # fmt: skip
    found = {}
    for text in out.splitlines():
        for file in json.loads(text)["files"]:
            counts = found.setdefault(file["file"], {})
            for line in file["lines"]:
                counts[line["line_number"]] = counts.get(line["line_number"], 0) + line["count"]
    return found


def host_reached(folder, build, places):
    """Returns the ids of the host mutants whose line was executed. places: {id: (path, line from
    0)}."""
    wanted = {}
    for name, (path, line) in places.items():
        wanted.setdefault(os.path.basename(path) + ".gcda", []).append((name, path, line + 1))
    reached = set()
    for base, _, files in os.walk(folder):
        for leaf in files:
            if leaf not in wanted:
                continue
            gcda = os.path.join(base, leaf)
            gcno = "/" + os.path.relpath(gcda, folder)[:-len(".gcda")] + ".gcno"
            if not os.path.isfile(gcno):
                continue
            for source, counts in lines_run(gcda, gcno).items():
                for name, path, line in wanted[leaf]:
                    if not source.endswith(path):
                        continue
                    # A statement of several lines is counted at its first line, a macro where it is
                    # used.
                    at = max((n for n in counts if n <= line), default=None)
                    if at is not None and (counts[at] or line - at > 3 and any(counts.values())):
                        reached.add(name)
    return reached


def cover_test(test, build, places, preload, limit):
    with tempfile.TemporaryDirectory() as folder:
        programs = os.path.join(folder, "programs")
        # Oclgrind and MPI's helpers load the library too. It does nothing there.
        outcome, wall, core, output = suite.run(test, dict(
            plant.private(os.path.dirname(os.path.abspath(build))), GCOV_PREFIX=os.path.join(folder, "gcda"), LD_PRELOAD=preload, CLT_PROGRAMS=programs), limit)  # fmt: skip
        files = set()
        if os.path.exists(programs):
            with open(programs, encoding="utf-8") as file:
                files = {"clkernels/" + line.strip() for line in file}
        reached = host_reached(os.path.join(folder, "gcda"), build, {n: p for n, p in places.items() if n[0] == "h"})
    reached |= {n for n, (path, _) in places.items() if path in files}
    return {"outcome": outcome, "seconds": round(wall, 1), "core": round(core, 1),
            "mutants": sorted(reached)}, output  # fmt: skip


def workers(count, items, work):
    """Calls work(number of the worker, item) for all items. Raises the first exception."""
    numbers = queue.Queue()
    for number in range(count):
        numbers.put(number)

    def one(item):
        number = numbers.get()
        try:
            work(number, item)
        finally:
            numbers.put(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(one, items))


def command_cover(options):
    build = os.path.abspath(options.build)
    mutants = read(LIST)["mutants"]
    places = {m["id"]: draw.find(m, ROOT) for m in mutants}
    places = {n: p for n, p in places.items() if p}
    preload = os.path.join(os.path.dirname(build), "programs.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", preload, os.path.join(HERE, "programs.c"), "-ldl"], check=True)
    tests = eligible(suite.load(build))
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    got = {"commit": commit.strip(), "tests": {}}
    if os.path.exists(COVER) and not options.again:
        got["tests"] = read(COVER)["tests"]

    def work(_, name):
        for attempt in range(2):
            row, output = cover_test(tests[name], build, places, preload, 1200)
            if row["outcome"] in ("pass", "skip"):
                break
            with open(os.path.join(os.path.dirname(build), f"cover-{name}.log"), "w", encoding="utf-8") as file:
                file.write(output)
        with lock:
            got["tests"][name] = row
            write(COVER, got)
            print(name, row["outcome"], row["seconds"], row["core"], len(row["mutants"]), flush=True)

    workers(options.jobs, [n for n in tests if n not in got["tests"]], work)


# --- run ----------------------------------------------------------------------------------------


def reason(output):
    """Returns the line of a test's output that says why it failed."""
    lines = [s.strip() for s in output.splitlines() if s.strip()]
    told = [s for s in lines if "ERROR" in s or "Error:" in s or s.startswith("ended by signal")]
    return (told or lines or ["?"])[0][:160]


def eligible(tests):
    """Returns the tests that cover.json must know: tests on PoCL, except slow ones and tests of
    texts and of GPU compilers."""
    return {n: t for n, t in tests.items() if not n.startswith(EXCLUDED) and "slow" not in t.labels}


def order(mutant, cover, tests, gates):
    """Returns the tests to run: first the one that killed the mutant before, then by core-seconds;
    the gates' tests last."""
    reached = {n: r for n, r in cover.items() if mutant["id"] in r["mutants"] and r["outcome"] == "pass"}
    names = sorted((n for n in reached if n in tests), key=lambda n: reached[n]["core"])
    if gates and mutant["id"][0] == "k":
        names += [n for n, t in tests.items() if n.startswith(gates) and t.base() in reached]
    before = mutant.get("result", {}).get("by")
    return [before] * (before in tests) + [n for n in names if n != before]


def kills(place, name, cover):
    """Returns (outcome, core-seconds, reason) of one test on the planted mutant."""
    limit = 60 + 8 * cover.get(place.tests[name].base(), {}).get("seconds", 60)
    outcome, _, core, output = place.run(name, limit)
    # Tests of deadlines may fail on a busy machine, so such a kill must happen twice.
    if outcome in ("fail", "timeout") and name.startswith(("mpi.", "train.planner", "train.balance", "cli.")):
        outcome, _, more, output = place.run(name, limit)
        core += more
    if outcome == "fail" and "does not build" in output and "error:" in output:
        outcome = "does not compile"
    return outcome, core, reason(output)


def try_mutant(place, mutant, cover, options, before):
    where = draw.find(mutant, ROOT)
    if not where:
        return {"state": "gone"}
    passed, spent = list(before.get("passed", [])), before.get("core", 0)
    names = [n for n in order(mutant, cover, place.tests, tuple(options.gates)) if n not in passed]
    try:
        place.put(where[0], planted(ROOT, mutant, where))
    except plant.Broken as message:
        return {"state": "does not compile", "why": reason(str(message))}
    for i, name in enumerate(names):
        if options.budget and spent > options.budget:
            return {"state": "open", "passed": passed, "core": round(spent), "left": names[i:]}
        outcome, core, why = kills(place, name, cover)
        spent += core
        if outcome == "does not compile":
            return {"state": outcome, "why": why}
        if outcome in ("fail", "timeout"):
            return {"state": "killed", "by": name, "tests": len(passed) + 1, "core": round(spent),
                    "why": "timeout" if outcome == "timeout" else why}  # fmt: skip
        passed.append(name)
    if any(n not in cover for n in eligible(place.tests)):
        return {"state": "open", "passed": passed, "core": round(spent), "left": ["what cover.json does not know yet"]}
    return {"state": "survived" if passed else "not reached", "tests": len(passed), "core": round(spent)}


def chosen(mutants, options):
    if options.ids:
        return [m for m in mutants if m["id"] in options.ids]
    if options.changed:
        return [m for m in mutants if (draw.find(m, ROOT) or [""])[0] in options.changed]
    return sample(mutants, options.commit, options.sample or len(mutants))


def sample(mutants, commit, count):
    return sorted(mutants, key=lambda m: hashlib.sha256(f"{commit} {m['id']}".encode()).hexdigest())[:count]


# --- check --------------------------------------------------------------------------------------


def file_hash(path):
    with open(os.path.join(ROOT, path), "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def command_check(options):
    recorded, cover = read(LIST)["mutants"], read(COVER)["tests"]
    killed = [m for m in recorded if m.get("result", {}).get("state") == "killed"]
    places = {m["id"]: draw.find(m, ROOT) for m in killed}
    hashes = {path: file_hash(path) for path in sorted({p[0] for p in places.values() if p})}
    state = os.path.join(options.build, "mutants", "checked.json")
    there = [m for m in killed if places[m["id"]]]
    if os.path.exists(state):
        before = read(state)["files"]
        wanted = [m for m in there if before.get(places[m["id"]][0]) != hashes[places[m["id"]][0]]]
        why = "in files that have changed"
    else:
        commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
        wanted, why = sample(there, commit, 20), f"by the hash of commit {commit[:12] or 'unknown'}"
    jobs = max(1, min(os.cpu_count(), len(wanted)))
    plants = [plant.Plant(ROOT, options.build, os.path.join(options.build, "mutants", f"w{n}")) for n in range(jobs)] \
        if wanted else []
    done, lost, left, spent = [], [], [], [0]

    def work(number, mutant):
        if spent[0] > CHECK_SECONDS:
            left.append(mutant["id"])
            return
        result = try_mutant(plants[number], mutant, cover, options, {})
        with lock:
            spent[0] += result.get("core", 0)
            (done if result["state"] == "killed" else lost).append(mutant["id"])
            print(mutant["id"], places[mutant["id"]][0], json.dumps(result)[:200], flush=True)

    workers(jobs, wanted, work)
    print(f"mutants: {len(wanted)} of {len(there)} {why}; {len(done)} killed as before, "
          f"{len(left)} left out, {len(killed) - len(there)} are in no file any more; {spent[0]:.0f} core-seconds")
    if lost:
        print(f"mutants: not killed, as they were before: {' '.join(lost)}")
        sys.exit(1)
    os.makedirs(os.path.dirname(state), exist_ok=True)
    write(state, {"files": hashes})


def command_run(options):
    recorded = read(LIST)
    mutants = {m["id"]: m for m in recorded["mutants"]}
    results = read(options.out)["results"] if options.out and os.path.exists(options.out) else {}
    waiting = []
    for m in chosen(recorded["mutants"], options):
        old = {} if options.again else (results.get(m["id"]) if options.out else m.get("result")) or {}
        if not old or old["state"] == "open" and not 0 < options.budget < old["core"]:
            waiting.append((m, old))
    places = [plant.Plant(ROOT, options.build, os.path.join(options.build, "mutants", f"w{n}"))
              for n in range(options.jobs)]  # fmt: skip
    lost = []

    def work(number, item):
        mutant, old = item
        result = try_mutant(places[number], mutant, read(COVER)["tests"], options, old)
        with lock:
            was = mutants[mutant["id"]].get("result", {}).get("state")
            if was == "killed" and result["state"] in ("survived", "open"):
                lost.append(mutant["id"])
            if options.out:
                results[mutant["id"]] = result
                write(options.out, {"results": results})
            else:
                mutants[mutant["id"]]["result"] = result
                write(LIST, recorded)
            print(mutant["id"], mutant["file"], json.dumps(result)[:200], flush=True)

    workers(options.jobs, waiting, work)
    if lost:
        print(f"mutants: {len(lost)} survive that were killed before: {' '.join(lost)}")
    sys.exit(1 if lost else 0)


def command_report(_):
    mutants = read(LIST)["mutants"]
    for what, letter in (("kernels", "k"), ("host code", "h")):
        states = {}
        for m in mutants:
            if m["id"][0] == letter:
                state = m.get("result", {}).get("state", "not run")
                states[state] = states.get(state, 0) + 1
        print(f"{what}: " + ", ".join(f"{n} {s}" for s, n in sorted(states.items())))
    for m in mutants:
        if m.get("result", {}).get("state") in ("survived", "not reached"):
            print(f"{m['id']} {m['result']['state']}: {m['file']}:{m['line']}: {m['before']}  =>  {m['after']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("draw")
    one.add_argument("--tree", required=True)
    one.add_argument("--commands", required=True)
    one = commands.add_parser("cover")
    one.add_argument("build")
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--again", action="store_true")
    one = commands.add_parser("run")
    one.add_argument("ids", nargs="*")
    one.add_argument("--sample", type=int)
    one.add_argument("--commit", default="")
    one.add_argument("--changed", nargs="+", help="kernel and host files that were edited")
    one.add_argument("--out")
    one.add_argument("--again", action="store_true")
    one.add_argument("--jobs", type=int, default=2)
    one.add_argument("--budget", type=float, default=0, help="core-seconds for each mutant (0: no limit)")
    one.add_argument("--gates", nargs="*", default=[], help="prefixes of further tests: oclgrind. vendor.")
    one.add_argument("--build", default=os.path.join(ROOT, "build-test"), help="whose tests are built")
    one = commands.add_parser("check")
    one.add_argument("build")
    one.set_defaults(budget=60, gates=[])
    commands.add_parser("report")
    options = parser.parse_args()
    globals()["command_" + options.command](options)


if __name__ == "__main__":
    main()
