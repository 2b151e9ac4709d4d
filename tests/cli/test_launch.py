"""Which command cltrain-launch starts. Scripts stand for the command and for mpiexec."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

from async_job import LAUNCH
from command import put


class LaunchTest(unittest.TestCase):
    def setUp(self):
        self.folder = os.path.realpath(tempfile.mkdtemp(prefix="cltrain-launch-"))
        self.addCleanup(shutil.rmtree, self.folder)
        tools = os.path.dirname(LAUNCH)
        self.launch = self.path("clone/tools/cltrain-launch")
        shutil.copytree(os.path.join(tools, "launch"), self.path("clone/tools/launch"),
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(LAUNCH, self.launch)
        os.mkdir(self.path("clone/tools/cltrain")) # as in a clone: the sources of the command
        put(self.path("clone/CMakeLists.txt"), b"")
        self.write("mpiexec", 'echo "$@"')

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        put(self.path(name), f"#!/bin/sh\n{text}\n".encode())
        os.chmod(self.path(name), 0o755)

    def run_launcher(self, own, rest=(), launch=None):
        """Runs it with the folder `bin` before the usual path, in which there is no cltrain."""
        usual = [p for p in os.environ["PATH"].split(os.pathsep) if not os.path.exists(os.path.join(p, "cltrain"))]
        return subprocess.run([sys.executable, "-B", launch or self.launch, "-n", "1", *own, "--", "train", *rest],
                              capture_output=True, text=True, check=False, timeout=240,
                              env={**os.environ, "PATH": os.pathsep.join([self.path("bin"), *usual])})

    def both(self, launch=None, own=()):
        """Launches a job of ranks and an asynchronous one. Returns both programs, or both errors."""
        ranks = self.run_launcher(["--mpiexec", self.path("mpiexec"), *own], launch=launch)
        job = self.run_launcher(own, ["--async", "0"], launch)
        if ranks.returncode == 2:
            self.assertEqual(job.returncode, 2, job.stderr)
            return [run.stderr.splitlines()[-1] for run in (ranks, job)]
        return [ranks.stdout.split()[1], job.stdout.split()[1]]

    def test_places(self):
        """Later places are used only if earlier ones have no command."""
        places = [f"clone/{build}/bin" for build in ("build", "build-quickstart", "build-test")]
        listed = ", ".join(self.path(place) for place in ("clone/tools", *places))
        says = f"cltrain-launch: the command cltrain is neither in {listed} nor on the path: build it, or name it " \
               "with --program (see --help)"
        self.assertEqual(self.both(), [says] * 2)
        for place in ("bin", *reversed(places)):
            command = f"{place}/cltrain"
            self.write(command, f"echo found {self.path(command)}; exit 7")
            self.assertEqual(self.both(), [self.path(command)] * 2)
        # A name on the path that leads into the clone.
        os.symlink(self.launch, self.path("bin/cltrain-launch"))
        self.assertEqual(self.both(self.path("bin/cltrain-launch")), [self.path("clone/build/bin/cltrain")] * 2)
        self.assertEqual(self.both(own=("--program", self.path("bin/cltrain"))), [self.path("bin/cltrain")] * 2)
        missing = self.path("missing")
        self.assertEqual(self.both(own=("--program", missing)),
                         [f"cltrain-launch: {missing} is not a program: name one with --program (see --help)"] * 2)

    def test_beside(self):
        """Installed beside the command, the launcher does not look for build folders."""
        shutil.copytree(self.path("clone/tools/launch"), self.path("installed/launch"))
        shutil.copy(self.launch, self.path("installed/cltrain-launch"))
        self.write("build/bin/cltrain", "exit 7")
        own = self.path("installed/cltrain-launch")
        says = f"the command cltrain is neither in {self.path('installed')} nor on the path"
        for line in self.both(own):
            self.assertIn(says, line)
        self.write("bin/cltrain", f"echo found {self.path('bin/cltrain')}; exit 7")
        self.assertEqual(self.both(own), [self.path("bin/cltrain")] * 2)
        self.write("installed/cltrain", f"echo found {self.path('installed/cltrain')}; exit 7")
        self.assertEqual(self.both(own), [self.path("installed/cltrain")] * 2)


if __name__ == "__main__":
    unittest.main()
