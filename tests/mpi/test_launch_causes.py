"""cltrain-launch: messages about ends that no rank reports, and which of them lead to a restart."""
import os
import re
import signal
import sys
import time

from launches import AGAIN, PATIENT, LaunchTest
from ranks import COMMAND, OPEN_MPI, run


class SetUp(LaunchTest):
    def once(self, *lines):
        """Makes a program whose rank 1 runs these lines in the first attempt."""
        return self.program(f'if [ "$rank" = 1 ] && mkdir {self.path("once")} 2>/dev/null; then', *lines, "fi",
                            f'exec {COMMAND} "$@"')

    def again(self, *own, program):
        return self.launch(2, ("--restarts", "1", *own), "--steps", "6", *PATIENT, "--checkpoint-dir",
                           self.path("run"), program=program)

    def test_killed_before_its_file(self):
        child = self.again(program=self.once(f"exec {sys.executable} -c 'import time; time.sleep(1000)' \"$@\""))
        found = self.until(lambda: [p for p in self.processes().values() if p.rank == 1], child)[0]
        time.sleep(3) # the launcher needs time to see the process
        os.kill(found.pid, signal.SIGKILL)
        out, err = self.wait(child, 0)
        self.assertIn("done: 6 steps", out)
        # Hydra sometimes reports another rank, which it killed itself after this one.
        self.assertRegex(err, rf"cltrain-launch: rank 1 \(process {found.pid} on \S+\) (was killed by signal 9|ended "
                         r"first), before it wrote its heartbeat file(; then rank 0 \(process \d+ on \S+\) was "
                         rf"killed by signal 9)?\n{AGAIN}")

    def test_killed_at_once(self):
        """The launcher may not have seen the number of this rank."""
        out, err = self.wait(self.again(program=self.once("kill -KILL $$")), 0)
        self.assertIn("done: 6 steps", out)
        self.assertRegex(err, r"cltrain-launch: (rank \d|a rank)( \(process \d+( on \S+)?\))? (was killed by signal "
                         rf"9|ended first), before it wrote its heartbeat file.*\n{AGAIN}")

    def test_killed_before_the_first_step(self):
        """The rank has a heartbeat file. It is stopped as soon as the file exists, so it does not reach the
        first step."""
        child = self.again(program=COMMAND)
        rank = self.until(lambda: self.rank(1), child)
        os.kill(rank.pid, signal.SIGSTOP)
        step = self.rank(1).step
        os.kill(rank.pid, signal.SIGKILL)
        err = self.wait(child, 0)[1]
        # Hydra sometimes reports another rank, which it killed itself after this one.
        self.assertRegex(err, rf"cltrain-launch: rank 1 \(process {rank.pid} on \S+\) (was killed by signal 9|ended "
                         "first), " + (f"in step {step}, .*" if step else "before the first step") +
                         rf"(; then rank 0 \(process \d+ on \S+\) was killed by signal 9.*)?\n{AGAIN}")

    def test_told_to_end(self):
        """A rank that is told to end before it can take the signal is not restarted."""
        child = self.again(program=self.once("kill -TERM $$"))
        self.assertRegex(self.line(self.wait(child, 1)[1]), "was killed by signal 15")

    def test_own_failure(self):
        """A rank reports data that cannot be read itself."""
        with open(os.path.join(self.data, "train-images-idx3-ubyte"), "wb") as file:
            file.write(b"abc")
        err = self.wait(self.again(program=COMMAND), 1)[1]
        self.assertEqual(self.line(err), "cltrain-launch: the job of 2 ranks failed before its first step")
        self.assertIn("train-images-idx3-ubyte", err)

    def test_ended_by_itself(self):
        """A rank ends before MPI_Init, with either exit code. MPICH's mpiexec says nothing, and the other rank waits.
        Open MPI's mpiexec ends the job, except if the code is 0 and the other rank has not called MPI_Init yet."""
        waits = "ended before it wrote its heartbeat file, and other ranks wait for it"
        early = ", before it wrote its heartbeat file"
        for line, says in (("exit 7", f"ended with code 7{early}" if OPEN_MPI else waits),
                           ("sleep 3; exit 0", f"(ended by itself{early}|{waits})" if OPEN_MPI else waits),
                           ("exit 0", f"(ended by itself{early}|{waits})" if OPEN_MPI else waits)):
            with self.subTest(line=line):
                out, err = self.wait(self.again(program=self.once(line)), 0)
                self.assertIn("done: 6 steps", out)
                self.assertRegex(err, rf"cltrain-launch: rank 1 (\(process \d+ on \S+\) )?{says}\n{AGAIN}")
                self.assertNotIn("rank 0 (", err)
                self.assert_gone()
                os.rmdir(self.path("once"))
                for name in self.saved(self.path("run")):
                    os.rename(self.path("run", name), self.path(line + name))


if __name__ == "__main__":
    run()
