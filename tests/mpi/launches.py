"""Jobs under cltrain-launch whose program may be a script before the command."""
import os
import shutil
import sys

from ranks import COMMAND, LAUNCHER, MPIEXEC, RankTest, launch

# Ranks' own deadlines, which come first where others wait, are not what is tested here.
PATIENT = ("--comm-timeout", "0", "--setup-timeout", "0")


class LaunchTest(RankTest):
    def program(self, *lines):
        """The command behind a script: $PMI_RANK is the rank, also where MPI is not MPICH."""
        path = self.path("program")
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(["#!/bin/sh", "rank=${PMI_RANK:-$OMPI_COMM_WORLD_RANK}", *lines, ""]))
        os.chmod(path, 0o755)
        return path

    def launch(self, count, own, *args, program=COMMAND, prefix=(), beats=True, **options):
        folder = ("--heartbeat", self.beats) if beats else ()
        return self.begin([*prefix, sys.executable, "-B", LAUNCHER, "-n", count, "--program", program,
                           "--mpiexec", MPIEXEC, *folder, *own, "--", *self.arguments(*args)], **options)

    def line(self, err):
        lines = [x for x in err.splitlines() if x.startswith("cltrain-launch: ")]
        self.assertEqual(len(lines), 1, err)
        return lines[0]

    def processes(self):
        return launch.find_processes(self.beats)

    def assert_gone(self):
        self.until(lambda: not self.processes(), seconds=120)

    def hanging(self, number):
        """A program whose rank of this number never ends opening its data."""
        other = self.path("other")
        shutil.copytree(self.data, other)
        os.remove(os.path.join(other, "train-images-idx3-ubyte"))
        os.mkfifo(os.path.join(other, "train-images-idx3-ubyte"))
        return self.program(f'[ "$rank" = {number} ] || exec {COMMAND} "$@"',
                            'export CLT_TESTING_PIPES=1',
                            'for word; do shift; case $word in idx:*) word=idx:' + other + ';; esac',
                            'set -- "$@" "$word"; done', f'exec {COMMAND} "$@"')
