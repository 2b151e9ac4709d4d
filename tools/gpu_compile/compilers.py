"""Finds the offline compilers: installed ones, and those fetched into a folder of their own."""
import glob
import os
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

# Packages of Debian 12, with the libraries of clang and ocloc. They are unpacked, not installed:
# ocloc's package would add an OpenCL platform without a device to the system.
PACKAGES = ["clang-16", "libllvm16", "libclang-cpp16", "libclang-common-16-dev", "rocm-device-libs", "libclc-16",
            "libclc-16-dev", "intel-opencl-icd", "libigdgmm12", "libigc1", "libigdfcl1", "libopencl-clang14",
            "libllvmspirvlib14", "libllvm14", "libclang-cpp14", "libz3-4", "libedit2", "libxml2"]  # fmt: skip
WHEEL = "nvidia-cuda-nvcc==13.5.37"  # tests/gpu/table has the figures of this version


def say(text):
    print(f"gpu-compile: {text}", file=sys.stderr)


def run(command, cwd=None):
    """Runs a command. Returns None if it succeeded, otherwise its last message."""
    try:
        result = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if result.returncode == 0 else (result.stderr.strip().splitlines() or ["failed"])[-1]


def installed(package):
    return run(["dpkg-query", "-W", package]) is None


def fetch_debian(folder):
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    say("fetching Debian's clang-16, rocm-device-libs, libclc-16 and intel-opencl-icd")
    # apt may run as root without its user's rights to the folder. It then warns and continues.
    problem = run(["apt-get", "-q", "download", *(p for p in PACKAGES if not installed(p))], part)
    for package in sorted(part.glob("*.deb")):
        problem = problem or run(["dpkg", "-x", str(package), str(part)])
        package.unlink()
    return problem or part.rename(folder) and None


def fetch_wheel(folder):
    part = folder.with_suffix(".part")
    shutil.rmtree(part, ignore_errors=True)
    say(f"fetching PyPI's {WHEEL} for ptxas")
    problem = run([sys.executable, "-m", "pip", "--disable-pip-version-check", "--timeout", "15", "--retries", "1",
                   "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(part), WHEEL])  # fmt: skip
    for wheel in part.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith("/bin/ptxas"):
                    os.chmod(archive.extract(name, part), 0o755)
        wheel.unlink()
    return problem or part.rename(folder) and None


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, get in (("debian", fetch_debian), ("nvidia", fetch_wheel)):
        if not (folder / name).is_dir():
            problem = get(folder / name)
            if problem:
                say(f"{name}: {problem}")


def first(*patterns):
    for pattern in patterns:
        for path in sorted(glob.glob(str(pattern))):
            return path
    return None


class Compilers:
    """Paths of the compilers; None if one is missing."""

    def __init__(self, folder):
        own = pathlib.Path(folder).resolve() / "debian"
        roots = [pathlib.Path("/"), own]
        self.clang = first(*(r / "usr/lib/llvm-16/bin/clang" for r in roots))
        bitcode = first(*(r / "usr/lib/*/amdgcn/bitcode/opencl.bc" for r in roots))
        self.amd = bitcode and os.path.dirname(bitcode)
        self.libclc = first(*(r / "usr/lib/clc/nvptx64--nvidiacl.bc" for r in roots))
        # The fetched one goes first, because the tables are of its version.
        self.ptxas = first(own.parent / "nvidia/nvidia/*/bin/ptxas") or shutil.which("ptxas")
        self.ocloc = shutil.which("ocloc") or first(own / "usr/bin/ocloc")
        libraries = [str(own / "usr/lib/llvm-16/lib"), *glob.glob(str(own / "usr/lib/*-linux-gnu"))]
        libraries += [p for p in [os.environ.get("LD_LIBRARY_PATH")] if p]
        self.environment = dict(os.environ, LD_LIBRARY_PATH=":".join(libraries))

    def missing(self, vendor):
        """Returns the missing tools that the vendor's kernels need, or None."""
        needs = {"amd": {"clang-16": self.clang, "rocm-device-libs": self.amd},
                 "nvidia": {"clang-16": self.clang, "libclc-16": self.libclc, "ptxas": self.ptxas},
                 "intel": {"ocloc": self.ocloc}}[vendor]  # fmt: skip
        return ", ".join(name for name, path in needs.items() if not path) or None

    def version(self, vendor):
        """Returns the names and versions of the compilers that a vendor's figures come from."""
        programs = [self.clang, self.ptxas] if vendor == "nvidia" else [self.clang]
        found = []
        for program in programs:
            said = subprocess.run([program, "--version"], capture_output=True, text=True, env=self.environment).stdout
            match = re.search(r"clang version ([\d.]+)|, V([\d.]+)", said)
            found.append(f"{os.path.basename(program)} {(match.group(1) or match.group(2)) if match else 'unknown'}")
        return ", ".join(found)
