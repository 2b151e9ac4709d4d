"""Checks the worked examples of CONTRIBUTING.md, which are the patches in tests/check/examples. In
a copy of the tree, each patch must apply and touch the files of the page's list. The page's lines
must be in the patch, and its commands must pass."""
import os
import re
import shutil
import subprocess
import sys

import source

PATCHES = "tests/check/examples"
COPIED = ("CMakeLists.txt", "LICENSE", ".clang-format", "clkernels", "cmake", "comm", "docs", "models", "runtime",
          "tests", "tools")
CHECKS = ("includes", "folders", "sizes", "manners")  # checks that need only the tree


def sections(text):
    """Returns {patch: section of the page}. A section names its patch."""
    found = {}
    for section in re.split(r"^(?=## )", text, flags=re.M):
        for name in re.findall(rf"{PATCHES}/([\w.]+\.patch)", section):
            found[name] = section
    return found


def listed(section):
    """Returns the files of the section's numbered list."""
    return {path for item in re.findall(r"^\d+\. (.*)$", section, re.M) for path in re.findall(r"^`([\w./]+)`", item)}


def commands(section):
    prose = re.sub(r"^```.*?^```$", "", section, flags=re.M | re.S)
    return [line[4:] for line in prose.split("\n") if line.startswith("    ")]


def touched(patch):
    return set(re.findall(r"^\+\+\+ b/(.*)$", patch, re.M))


def added(patch):
    return {line[1:].strip() for line in patch.split("\n") if line.startswith("+") and not line.startswith("+++")}


def check_page(name, section, patch):
    """Compares the page with the patch."""
    problems = []
    for path in sorted(listed(section) ^ touched(patch)):
        where = "the patch does not touch it" if path in listed(section) else "the page does not list it"
        problems.append(f"{name}: {path}: {where}")
    lines = added(patch)
    shown = [line.strip() for block in re.findall(r"^```c\n(.*?)^```$", section, re.M | re.S)
             for line in block.split("\n") if line.strip()]
    problems += [f"{name}: `{line}` of the page is not in the patch" for line in shown if line not in lines]
    if not shown or not commands(section):
        problems.append(f"{name}: its section shows no lines or no commands")
    return problems


def run(command, copy, env):
    """Runs a command. Returns an empty list, or its failure with the output."""
    result = subprocess.run(command, cwd=copy, env=env, shell=isinstance(command, str), stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True, errors="replace")
    if result.returncode == 0:
        return []
    return [f"`{command if isinstance(command, str) else ' '.join(command)}` ended with {result.returncode}:\n"
            f"{result.stdout[-4000:]}"]


def make_copy(root, copy):
    shutil.rmtree(copy, ignore_errors=True)
    os.makedirs(copy)
    for name in COPIED:
        place = os.path.join(root, name)
        if os.path.isdir(place):
            shutil.copytree(place, os.path.join(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(place, os.path.join(copy, name))


def main(root, build):
    if not shutil.which("patch"):
        print("examples: left out, there is no `patch`")
        return 77
    env = dict(os.environ, CMAKE_GENERATOR="Ninja" if shutil.which("ninja") else "Unix Makefiles",
               CTEST_OUTPUT_ON_FAILURE="1")
    if shutil.which("ccache"):
        env["CMAKE_C_COMPILER_LAUNCHER"] = "ccache"
    copy = os.path.join(build, "examples")
    make_copy(root, copy)
    page = sections(source.read(root, "CONTRIBUTING.md"))
    names = sorted(os.listdir(os.path.join(root, PATCHES)))
    problems = [f"CONTRIBUTING.md: no section names {name}" for name in names if name not in page]
    names = [name for name in page if name in names]  # in the page's order, because patches apply one after the other
    for name in names:
        patch = source.read(root, f"{PATCHES}/{name}")
        problems += check_page(name, page[name], patch)
        problems += run(["patch", "-p1", "--no-backup-if-mismatch", "-i", os.path.join(root, PATCHES, name)], copy, env)
    for check in CHECKS if not problems else ():
        problems += run([sys.executable, "-B", f"tests/check/{check}.py", "."], copy, env)
    for name in names if not problems else ():
        for command in commands(page[name]):
            problems += [f"{name}: {problem}" for problem in run(command, copy, env)]
    if not problems:
        shutil.rmtree(copy)
    return source.report("examples", problems, f"{len(names)} patches apply, build and pass")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
