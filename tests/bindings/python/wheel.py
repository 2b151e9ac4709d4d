"""Installs the package as users do, `pip install ./runtime/bindings/python`, in a virtual environment without
network, and runs tests against it."""
import os
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))


def run(*command, **options):
    print("+", *command, flush=True)
    return subprocess.run(command, check=True, **options)


def main(root):
    with tempfile.TemporaryDirectory(prefix="cltrain-wheel-") as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        venv = os.path.join(folder, "venv")
        # NumPy is the system's. Nothing is fetched.
        run(sys.executable, "-m", "venv", "--system-site-packages", venv)
        python = os.path.join(venv, "bin", "python")
        source = os.path.join(root, "runtime", "bindings", "python")
        before = set(os.listdir(source))
        run(python, "-m", "pip", "wheel", "--no-index", "--no-deps", "-w", folder, source, env=environment)
        wheels = [name for name in os.listdir(folder) if name.endswith(".whl")]
        assert len(wheels) == 1 and "-py3-none-linux_" in wheels[0], wheels
        names = zipfile.ZipFile(os.path.join(folder, wheels[0])).namelist()
        assert any(name.startswith("cltrain/lib/libcltrain.so.") for name in names), names
        assert any(name.startswith("cltrain/lib/libcltrain-models.so.") for name in names), names
        assert set(os.listdir(source)) == before, "the build left files in the source tree"
        run(python, "-m", "pip", "install", "--no-index", os.path.join(folder, wheels[0]), env=environment)
        where = run(python, "-c", "import cltrain; print(cltrain.__file__)", env=environment, cwd=folder,
                    capture_output=True, text=True).stdout
        assert where.startswith(venv), where
        for test in ("test_arrays.py", "test_train.py", "test_fit.py", "test_metrics.py"):
            run(python, "-B", os.path.join(HERE, test), env=environment, cwd=folder)
        run(python, "-m", "pip", "uninstall", "-y", "cltrain", env=environment)


if __name__ == "__main__":
    main(sys.argv[1])
