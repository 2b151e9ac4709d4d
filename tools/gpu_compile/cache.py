"""Keeps figures of kernels that were compiled before, under a hash of everything that they depend
on."""
import hashlib
import json
import os
import pathlib
import re
import tempfile

from assembly import Inner
from mix import Mix
from targets import Figures

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.M)
KEPT = 20000  # files; the oldest are removed first


def folder():
    home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(home) / "cltrain" / "gpu-compile"


def texts(root, file, seen):
    """Collects the source and its includes, without comments, which change no figure. Sources in
    clkernels/ include by their path from there."""
    path = root / "clkernels" / file
    if file in seen or not path.is_file():
        return
    text = path.read_text()
    seen[file] = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    for name in INCLUDE.findall(text):
        texts(root, name, seen)


def libraries(program):
    """Returns the compilers' libraries below the same usr/ as the program, because the programs
    themselves are small."""
    root = next((p for p in program.parents if p.name == "usr"), None)
    names = ("libLLVM-1*", "libclang-cpp*", "libigc*", "libigdfcl*", "libopencl-clang*")
    return [path for name in names for path in root.glob(f"lib/*-linux-gnu/{name}.so*")] if root else []


def made(kind, members):
    """Returns an object of this class with these members."""
    thing = kind.__new__(kind)
    thing.__dict__.update(members)
    return thing


class Cache:
    """The cache of one run. Another version of a compiler has another size or name."""

    def __init__(self, compilers, root):
        self.folder, self.root = folder(), pathlib.Path(root)
        self.hits = self.misses = 0
        amd = compilers.amd and os.path.join(compilers.amd, "opencl.bc")
        programs = [compilers.clang, compilers.libclc, compilers.ptxas, compilers.ocloc, amd]
        # The folders are left out, because each build has its own compilers.
        paths = [pathlib.Path(p) for p in programs if p]
        paths += [path for p in paths for path in libraries(p)]
        self.basis = sorted({(p.name, p.stat().st_size) for p in paths if p.is_file()})
        self.basis += [(HERE / name).read_text() for name in ("targets.py", "assembly.py", "mix.py", "cache.py")]

    def path(self, target, file, options, sizes):
        seen = {}
        texts(self.root, file, seen)
        key = json.dumps([self.basis, target, file, options, sorted(sizes.items()), sorted(seen.items())])
        return self.folder / (hashlib.sha256(key.encode()).hexdigest() + ".json")

    def load(self, path):
        """Returns {kernel: figures}, or None."""
        try:
            stored = json.loads(path.read_text())
        except (OSError, ValueError):
            self.misses += 1
            return None
        self.hits += 1
        found = {}
        for kernel, values in stored.items():
            found[kernel] = figures = Figures()
            inner = values.pop("inner")
            figures.__dict__.update(values)
            if inner is not None:
                for name in ("kernel", "loop", "reading"):
                    inner[name] = inner[name] and made(Mix, inner[name])
                figures.inner = made(Inner, inner)
        return found

    def store(self, path, figures):
        """Writes all figures or none, because several runs may write at once."""
        values = {}
        for kernel, f in figures.items():
            values[kernel] = dict(vars(f))
            values[kernel].pop("said", None)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self.folder, delete=False) as file:
                json.dump(values, file, default=vars)
            os.replace(file.name, path)
        except OSError:
            pass  # the next run compiles again

    def trim(self):
        """Removes the oldest files if there are too many."""
        files = sorted(self.folder.glob("*.json"), key=lambda p: p.stat().st_mtime) if self.misses else []
        for path in files[: max(0, len(files) - KEPT)]:
            path.unlink(missing_ok=True)
