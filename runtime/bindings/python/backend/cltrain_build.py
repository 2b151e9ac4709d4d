"""Builds the wheel of the Python package (PEP 517), with nothing but Python's own modules.

CMake builds the libraries, and the generated modules come with them. The wheel is for this machine: the
libraries of cltrain need those of the system (OpenCL's loader, jansson, ...), which stay outside.

Settings, as `pip install --config-settings KEY=VALUE`:

    build-dir    a folder to build in, which is kept; by default a temporary one
    cmake-args   more arguments of CMake's first call, separated by blanks
"""
import base64
import csv
import hashlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROOT = os.path.abspath(os.path.join(HERE, "..", "..", ".."))
LIBRARIES = ("cltrain", "cltrain-models", "cltrain-mpi")


def _settings(given):
    given = dict(given or {})
    known = {"build-dir": "", "cmake-args": ""}
    for name in given:
        if name not in known:
            raise SystemExit(f"cltrain: the build has no setting '{name}': it has {', '.join(known)}")
    return {**known, **given}


def _project():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as file:
        return re.search(r"project\(cltrain VERSION ([\d.]+)", file.read()).group(1)


def _metadata():
    """Returns the metadata of pyproject.toml, which Python before 3.11 has no parser for."""
    with open(os.path.join(HERE, "pyproject.toml"), encoding="utf-8") as file:
        text = file.read()
    requires = re.findall(r'"([^"]+)"', re.search(r"^dependencies = \[(.*)\]", text, re.M).group(1))
    rows = ["Metadata-Version: 2.1", "Name: cltrain", f"Version: {_project()}",
            "Summary: " + re.search(r'^description = "(.*)"', text, re.M).group(1),
            "License: MIT", "Requires-Python: " + re.search(r'^requires-python = "(.*)"', text, re.M).group(1)]
    return "\n".join(rows + [f"Requires-Dist: {row}" for row in requires]) + "\n"


def _python():
    """Returns a Python for CMake's scripts that has pycparser, which reads the headers, and its environment.

    pip hides the system's packages by PYTHONPATH: without it, Debian's Python has its own again.
    """
    system = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for python, environment in ((sys.executable, dict(os.environ)), ("/usr/bin/python3", system)):
        if os.path.exists(python) and subprocess.run([python, "-c", "import pycparser"], stderr=subprocess.DEVNULL,
                                                     env=environment).returncode == 0:
            return python, environment
    return None, None


def get_requires_for_build_wheel(config_settings=None):
    """pip fetches pycparser, unless the system has it."""
    return [] if _python()[0] else ["pycparser"]


def _run(command, environment):
    print("+ " + shlex.join(command), flush=True)
    result = subprocess.run(command, env=environment)
    if result.returncode:
        raise SystemExit(f"cltrain: {command[0]} failed; see the lines above for what is missing")


def _build(folder, settings):
    if not shutil.which("cmake"):
        raise SystemExit("cltrain: the build needs cmake (Debian: cmake, gcc and the packages of tools/setup.sh)")
    python, environment = _python()
    if python is None:
        raise SystemExit("cltrain: the build needs pycparser (Debian: python3-pycparser)")
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    _run(["cmake", "-S", ROOT, "-B", folder, *generator, "-DCMAKE_BUILD_TYPE=Release", "-DCLT_BUILD_TESTS=OFF",
          "-DCLT_BUILD_BINDINGS=ON", "-DCLT_BUILD_PYTHON=ON", f"-DCLT_PYTHON3={python}",
          # The libraries find each other in their folder, wherever the wheel is installed.
          "-DCMAKE_BUILD_RPATH_USE_ORIGIN=ON", *shlex.split(settings["cmake-args"])],
         environment)
    targets = ["cltrain", "cltrain-models", "cltrain_python"]
    with open(os.path.join(folder, "CMakeCache.txt"), encoding="utf-8") as file:
        if re.search(r"^MPI_C_LIBRARIES|^MPI_C_HEADER_DIR:PATH=/", file.read(), re.M):
            targets.append("cltrain-mpi")
    _run(["cmake", "--build", folder, "--parallel", str(len(os.sched_getaffinity(0))), "--target", *targets], environment)


def _library_files(folder):
    """Yields (name in the wheel, path). The loader looks for the name with the ABI's number."""
    with open(os.path.join(folder, "bindings", "python", "cltrain", "_api.py"), encoding="utf-8") as file:
        abi = re.search(r"^SOVERSION = '([^']+)'", file.read(), re.M).group(1)
    for library in LIBRARIES:
        path = os.path.join(folder, f"lib{library}.so.{abi}")
        if os.path.exists(path):
            yield os.path.basename(path), os.path.realpath(path)
        elif library != "cltrain-mpi":
            raise SystemExit(f"cltrain: CMake did not build {path}")


def _tag():
    return "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())


_WHEEL = "Wheel-Version: 1.0\nGenerator: cltrain\nRoot-Is-Purelib: false\nTag: {tag}\n"


class _Wheel:
    """A zip file with a list of what is in it (PEP 427)."""

    def __init__(self, path):
        self.file = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.rows = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name)  # of 1980, so that the same sources make the same wheel
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.file.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.rows.append((name, f"sha256={digest}", len(data)))

    def close(self, record):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.rows + [(record, "", "")])
        self.file.writestr(zipfile.ZipInfo(record), text.getvalue())
        self.file.close()


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    """Tells pip the dependencies before anything is built."""
    _settings(config_settings)
    name = f"cltrain-{_project()}.dist-info"
    os.makedirs(os.path.join(metadata_directory, name), exist_ok=True)
    for file, text in (("METADATA", _metadata()), ("WHEEL", _WHEEL.format(tag=_tag()))):
        with open(os.path.join(metadata_directory, name, file), "w", encoding="utf-8") as out:
            out.write(text)
    return name


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    settings = _settings(config_settings)
    temporary = None if settings["build-dir"] else tempfile.mkdtemp(prefix="cltrain-wheel-")
    folder = os.path.abspath(settings["build-dir"]) if settings["build-dir"] else temporary
    try:
        _build(folder, settings)
        name = f"cltrain-{_project()}-{_tag()}.whl"
        wheel = _Wheel(os.path.join(wheel_directory, name))
        package = os.path.join(folder, "bindings", "python", "cltrain")
        for module in sorted(os.listdir(package)):
            if module.endswith(".py"):
                with open(os.path.join(package, module), "rb") as file:
                    wheel.add("cltrain/" + module, file.read())
        for library, path in _library_files(folder):
            with open(path, "rb") as file:
                wheel.add("cltrain/lib/" + library, file.read(), 0o755)
        info = f"cltrain-{_project()}.dist-info/"
        with open(os.path.join(ROOT, "LICENSE"), "rb") as file:
            wheel.add(info + "LICENSE", file.read())
        wheel.add(info + "METADATA", _metadata().encode())
        wheel.add(info + "WHEEL", _WHEEL.format(tag=_tag()).encode())
        wheel.close(info + "RECORD")
        return name
    finally:
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)


def build_sdist(sdist_directory, config_settings=None):
    raise SystemExit("cltrain: there is no sdist, because the package is built from the whole source tree: "
                     "pip install ./runtime/bindings/python in a clone")


if __name__ == "__main__":  # CMake writes the metadata of the package that it installs
    prepare_metadata_for_build_wheel(sys.argv[1])
