"""Plants a change of one file for the tests of a build, without a change of the build.

The changed file is compiled into its own folder. A test program that links the static library is
linked again with the changed object before the library. Other programs find shared libraries with
the object through LD_LIBRARY_PATH.
"""
import copy
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess

import suite


class Broken(Exception):
    """Raised if the change does not compile."""


def embedded(folder, changed, text):
    """Returns the file that clkernels/embed.cmake writes, with the text of one file changed."""
    parts, rows = ['#include "device/program/kernel_source.h"\n'], []
    for i, path in enumerate(sorted(p for p in folder.rglob("*") if p.suffix in (".cl", ".clh"))):
        source = text if path == changed else path.read_text(encoding="utf-8")
        for char, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", '\\n"\n"')):
            source = source.replace(char, escaped)
        parts.append(f'static const char source_{i}[] = "{source}";\n')
        rows.append(f'{{"{path.relative_to(folder)}", source_{i}}},\n')
    return "".join(parts) + "const clt_kernel_source clt_kernel_sources[] = {\n" + "".join(rows) + "{0, 0},\n};\n"


class Plant:
    """Plants one change at a time. Its programs have their own cache of compiled kernels, so that a
    change cannot harm the user's."""

    def __init__(self, root, build, folder):
        self.root, self.build, self.folder = root, os.path.abspath(build), os.path.abspath(folder)
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            rows = [r for r in json.load(file) if "cltrain_objects.dir" in r["command"] or "cltrain-mpi.dir" in r["command"]]
        self.rows = {r["file"]: r for r in rows}
        self.known = suite.known_targets(self.build)
        self.libraries = [t for t in self.known if re.fullmatch(r"libcltrain(-mpi)?\.so\.[\d.]+\.[\d.]+\.\d+", t)]
        self.links, self.old, self.new, self.made = {}, None, None, {}
        self.tests = suite.load(self.build)
        os.makedirs(self.folder, exist_ok=True)
        private(os.path.dirname(self.folder))

    def put(self, path, text):
        """Compiles the file as if it had this text; raises Broken. Host files must belong to the
        library."""
        source = os.path.join(self.folder, os.path.basename(path) + ".c")
        row = self.rows[os.path.join(self.root, path) if path.endswith(".c") else
                        os.path.join(self.build, "embedded_kernels.c")]
        if not path.endswith(".c"):
            text = embedded(pathlib.Path(self.root, "clkernels"), pathlib.Path(self.root, path), text)
        with open(source, "w", encoding="utf-8") as file:
            file.write(text)
        words = shlex.split(row["command"])
        self.old = words[words.index("-o") + 1]
        self.new, self.made = source + ".o", {}
        words[words.index("-o") + 1] = self.new
        words[words.index("-c") + 1:] = [source, "-w", "-Wno-error", "-I", os.path.dirname(row["file"])]
        done = subprocess.run(words, cwd=row["directory"], capture_output=True, text=True)
        if done.returncode:
            raise Broken(done.stderr)

    def link(self, target):
        """Links the target with the change. Returns its path, or None if the object is not linked
        into it."""
        if target not in self.links:
            lines = subprocess.run(["ninja", "-C", self.build, "-t", "commands", target], check=True,
                                   capture_output=True, text=True).stdout.splitlines()  # fmt: skip
            self.links[target] = [w for w in shlex.split(lines[-1]) if w not in (":", "&&")]
        words = list(self.links[target])
        if self.old in words:
            words[words.index(self.old)] = self.new
        elif "libcltrain_static.a" in words:
            words.insert(words.index("libcltrain_static.a"), self.new)
        else:
            return None
        out = os.path.join(self.folder, os.path.basename(target))
        words[words.index("-o") + 1] = out
        subprocess.run(words, cwd=self.build, check=True, capture_output=True)
        return out

    def changed(self, target):
        if target not in self.made:
            self.made[target] = self.link(target)
        return self.made[target]

    def run(self, name, limit):
        """Runs the test with the change. Returns the result of suite.run."""
        test = copy.copy(self.tests[name])
        environment = private(os.path.dirname(self.folder))
        targets = suite.targets(self.build, test, self.known)
        for target in targets:
            out = self.changed(target)
            at = os.path.join(self.build, target)
            test.command = [out if out and word == at else word for word in test.command]
        if targets and not any(self.made[t] for t in targets):
            for library in self.libraries:
                out = self.changed(library)
                if out:
                    link = re.sub(r"(\.so\.\d+).*", r"\1", out)
                    pathlib.Path(link).unlink(missing_ok=True)
                    os.symlink(os.path.basename(out), link)
            paths = [self.folder, test.environment.get("LD_LIBRARY_PATH") or os.environ.get("LD_LIBRARY_PATH")]
            environment["LD_LIBRARY_PATH"] = ":".join(p for p in paths if p)
        if any(os.path.basename(word).startswith("test_") and word.endswith(".py") for word in test.command):
            test.command = [*test.command, "--failfast"]  # ends with the first function that fails
        return suite.run(test, environment, limit, to_the_end=bool(test.wanted))


def private(folder):
    """Returns an environment whose cache of compiled kernels begins as a copy of the user's, and in
    which no plan is settled."""
    cache = os.path.join(folder, "kernels")
    if not os.path.exists(cache):
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        os.makedirs(os.path.join(cache, "pocl"))
        for at, to in ((os.path.join(home, "cltrain", "programs"), "cltrain/programs"),
                       (os.environ.get("POCL_CACHE_DIR") or os.path.join(home, "pocl", "kcache"), "pocl")):  # fmt: skip
            try:
                shutil.copytree(at, os.path.join(cache, to), dirs_exist_ok=True)
            except (FileNotFoundError, shutil.Error):  # no cache, or files that others removed meanwhile
                pass
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return {"XDG_CACHE_HOME": cache, "POCL_CACHE_DIR": os.path.join(cache, "pocl"), "CLT_TEST_SETTLED": "",
            "CLT_GOLDENS": os.path.join(root, "tests/goldens")}  # fmt: skip
