#!/usr/bin/env python3
"""Compares the Debian packages with what is installed.

Usage: debian.py ROOT BUILD CMAKE

Each file that the build installs must be in exactly one package, each pattern of a package must match a file, and the
packages that the build needs must be among those that tools/setup.sh installs. dpkg-buildpackage would find the first
two mistakes too, but builds everything anew.
"""
import fnmatch
import re
import subprocess
import sys
import tempfile
from pathlib import Path

# Alternatives for other builders, and tools that only the packages use.
NOT_IN_SETUP = {"debhelper-compat", "dh-sequence-python3", "help2man"}


def installed_files(build, cmake):
    """Returns the paths below the prefix, as Debian's build would see them: usr/lib/ARCH/..."""
    with tempfile.TemporaryDirectory() as prefix:
        subprocess.run([cmake, "--install", build, "--prefix", prefix], check=True, stdout=subprocess.DEVNULL)
        paths = [str(p.relative_to(prefix)) for p in Path(prefix).rglob("*") if not p.is_dir()]
    # Debian's libraries are in a folder named for the architecture.
    return sorted(re.sub(r"^lib/(?!x86_64|aarch64|python3/)", "lib/arch/", p) for p in paths)


def package_patterns(root):
    """Returns {package: [pattern]} and {package: [excluded name]} of debian/*.install and debian/rules."""
    patterns = {p.stem: p.read_text().split() for p in (root / "debian").glob("*.install")}
    excluded = {}
    for package, rest in re.findall(r"dh_install --package=(\S+)(.*)", (root / "debian/rules").read_text()):
        excluded[package] = re.findall(r"--exclude=(\S+)", rest)
    return patterns, excluded


def matches(path, pattern):
    """Says whether a pattern names the file or a folder above it. `*` does not cross a slash."""
    parts, names = pattern.split("/"), ("usr/" + path).split("/")
    return len(parts) <= len(names) and all(fnmatch.fnmatchcase(n, p) for n, p in zip(names, parts))


def check_files(root, files):
    patterns, excluded = package_patterns(root)
    faults = []
    for path in files:
        owners = [package for package, wanted in patterns.items() if any(matches(path, w) for w in wanted)
                  and not any(e in path for e in excluded.get(package, []))]
        if len(owners) != 1:
            faults.append(f"{path} is in {' and '.join(owners) or 'no package'}: change debian/*.install")
    for package, wanted in patterns.items():
        faults += [f"debian/{package}.install: no installed file matches {w}" for w in wanted
                   if not any(matches(path, w) for path in files)]
    return faults


def check_dependencies(root):
    """Compares Build-Depends with the lists of tools/setup.sh."""
    control = (root / "debian/control").read_text()
    field = re.search(r"Build-Depends:(.*?)\n\S", control, re.S).group(1)
    wanted = {re.split(r"[\s(:|]", item.strip())[0] for item in field.split(",")}
    setup = (root / "tools/setup.sh").read_text()
    listed = set(" ".join(re.findall(r'PACKAGES_\w+="(.*?)"', setup, re.S)).split())
    build = set(re.search(r'PACKAGES_BUILD="(.*?)"', setup, re.S).group(1).split())
    faults = [f"Build-Depends has {p}, which no list of tools/setup.sh has" for p in sorted(wanted - listed - NOT_IN_SETUP)]
    return faults + [f"Build-Depends lacks {p} of PACKAGES_BUILD in tools/setup.sh"
                     for p in sorted(build - wanted - {"gcc", "libc6-dev"})]


def main():
    root, build, cmake = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    faults = check_files(root, installed_files(build, cmake)) + check_dependencies(root)
    for fault in faults:
        print(fault)
    return 1 if faults else 0


sys.exit(main())
