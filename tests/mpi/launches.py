"""Jobs under cltrain-launch. Their program may be a script that starts the command."""
import os
import shutil
import sys

from ranks import COMMAND, LAUNCHER, MPIEXEC, RankTest, find_processes

# No deadlines of the ranks, which would come first: these tests are about the launcher's deadline.
PATIENT = ("--comm-timeout", "0", "--setup-timeout", "0")

AGAIN = r"cltrain-launch: restarting from the (beginning|newest intact checkpoint) on 2 ranks \(restart 1 of 1\)"


class LaunchTest(RankTest):
    def program(self, *lines):
        """Makes a script that starts the command. $rank is the rank, with MPICH and Open MPI."""
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
        return find_processes(self.beats)

    def assert_gone(self):
        self.until(lambda: not self.processes(), seconds=120)

    def hanging(self, number):
        """Makes a program whose rank `number` hangs when it opens its data."""
        other = self.path("other")
        shutil.copytree(self.data, other)
        os.remove(os.path.join(other, "train-images-idx3-ubyte"))
        os.mkfifo(os.path.join(other, "train-images-idx3-ubyte"))
        return self.program(f'[ "$rank" = {number} ] || exec {COMMAND} "$@"',
                            'export CLT_TESTING_PIPES=1',
                            'for word; do shift; case $word in idx:*) word=idx:' + other + ';; esac',
                            'set -- "$@" "$word"; done', f'exec {COMMAND} "$@"')
