#!/usr/bin/env python3
"""Finds kernels that PoCL compiled with a local array as one variable for all work-groups.

usage: pocl_locals.py SOURCES...    looks at kernels in PoCL's cache that are newer than all SOURCES
       pocl_locals.py --selftest CC

PoCL 3.1 gives each work-group its own copy only of arrays that the kernel itself names. If a
function is always called with the same array and is not inlined, the compiler makes the function
name the array. The array then stays a static variable, KERNEL.ARRAY, and work-groups of several
threads overwrite each other's data, in one launch of a thousand. core/gpu/tree.clh has the remedy.
"""
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

SYMTAB, OBJECT = 2, 1


def sections(data):
    """Yields (type, offset, size, link) of each section of a 64-bit little-endian ELF file."""
    start, = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    for i in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from("<IIQQQQI", data, start + i * size)
        yield kind, offset, length, link


def variables(data):
    """Yields the names of the file's static variables."""
    if data[:6] != b"\x7fELF\2\1":
        return
    found = list(sections(data))
    for kind, offset, length, link in found:
        for at in range(offset, offset + length if kind == SYMTAB else offset, 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if info & 15 == OBJECT and section:
                begin = found[link][1] + name
                yield data[begin:data.index(b"\0", begin)].decode()


def shared(path):
    """Returns the kernel's local arrays that are static variables. PoCL names the file after the
    kernel."""
    kernel = re.escape(path.stem) + r"\."
    return [name for name in variables(path.read_bytes()) if re.match(kernel, name)]


def cache():
    if os.environ.get("POCL_CACHE_DIR"):
        return pathlib.Path(os.environ["POCL_CACHE_DIR"])
    return pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "pocl" / "kcache"


def selftest(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "x.c")
        source.write_text('static float s[4] __asm__("sum.s");\n'
                          "float *sum(int i) { s[i] = 1; return s; }\n")
        for name, want in ("sum", ["sum.s"]), ("sum_all", []):
            library = pathlib.Path(folder, name + ".so")
            subprocess.run([compiler, "-shared", "-fPIC", "-O0", "-o", library, source], check=True)
            if shared(library) != want:
                sys.exit(f"{name}.so: found {shared(library)}, not {want}")


def main():
    if sys.argv[1] == "--selftest":
        return selftest(sys.argv[2])
    newest = max(os.stat(path).st_mtime for path in sys.argv[1:])
    looked, bad = 0, 0
    for path in cache().rglob("*.so"):
        if path.stat().st_mtime < newest:
            continue
        looked += 1
        for name in shared(path):
            bad += 1
            print(f"{name}: all work-groups share this local array ({path.parent.parent.parent.name}); "
                  "inline the functions that get it, as core/gpu/tree.clh does")
    print(f"{looked} compiled kernels, {bad} shared arrays")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
