"""cltrain-launch: messages about ends that no rank reports, and which of them lead to a restart."""
import os
import re
import signal
import sys
import time

from launches import PATIENT, LaunchTest
from ranks import COMMAND, ENDLESS, launch, read, run

AGAIN = r"cltrain-launch: starts again from the (beginning|newest intact checkpoint) on 2 ranks \(restart 1 of 1\)"


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
                         r"first), before its heartbeat file was there(; then rank 0 \(process \d+ on \S+\) was "
                         rf"killed by signal 9)?\n{AGAIN}")

    def test_killed_at_once(self):
        """The launcher may not have seen the number of this rank."""
        out, err = self.wait(self.again(program=self.once("kill -KILL $$")), 0)
        self.assertIn("done: 6 steps", out)
        self.assertRegex(err, r"cltrain-launch: (rank \d|a rank) \(process \d+( on \S+)?\) (was killed by signal "
                         rf"9|ended first), before its heartbeat file was there.*\n{AGAIN}")

    def test_killed_before_the_first_step(self):
        """The rank has a heartbeat file. It is stopped as soon as the file exists, so it does not reach the
        first step."""
        child = self.again(program=COMMAND)
        rank = self.until(lambda: self.rank(1), child)
        os.kill(rank.pid, signal.SIGSTOP)
        step = self.rank(1).step
        os.kill(rank.pid, signal.SIGKILL)
        err = self.wait(child, 0)[1]
        self.assertRegex(err, rf"cltrain-launch: rank 1 \(process {rank.pid} on \S+\) was killed by signal 9, " +
                         (f"in step {step}, .*" if step else "before the first step") + f"\n{AGAIN}")

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
        """A rank ends before MPI_Init, with either exit code. mpiexec says nothing, and the other rank waits.
        """
        for line in ("exit 7", "sleep 3; exit 0"):
            with self.subTest(line=line):
                out, err = self.wait(self.again(program=self.once(line)), 0)
                self.assertIn("done: 6 steps", out)
                self.assertRegex(err, r"cltrain-launch: rank 1 (\(process \d+ on \S+\) has ended|has no process any "
                                 "more), before its heartbeat file was there, and others wait for it\n" + AGAIN)
                self.assertNotIn("rank 0 (", err)
                self.assert_gone()
                os.rmdir(self.path("once"))
                for name in self.saved(self.path("run")):
                    os.rename(self.path("run", name), self.path(line[:4] + name))


class Helper(LaunchTest):
    """mpiexec's own processes."""

    def began(self, own, *args):
        """Starts a job. Returns it with its ranks, mpiexec, and mpiexec's helper."""
        child = self.launch(2, own, *args)
        ranks = [self.at_step(r, 10, child) for r in (0, 1)]
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
            mpiexec = [int(p) for p in file.read().split() if read(f"/proc/{p}/comm").startswith(b"mpi")]
        helpers = launch.find_helpers(mpiexec[0], self.beats)[0] if mpiexec else []
        if not helpers:
            child.kill()
            self.skipTest("mpiexec is not Hydra's")
        return child, ranks, mpiexec[0], helpers[0]

    def test_helper_killed(self):
        """The ranks save and end, and the next attempt resumes. A rank that is stopped for a while remains
        without the helper. Otherwise ranks end so soon that mpiexec reports it."""
        for pause in (6, 0):
            with self.subTest(pause=pause):
                run = self.path(f"run{pause}")
                child, ranks, _, helper = self.began(("--restarts", "1"), "--steps", "20000", "--checkpoint-dir", run)
                if pause:
                    os.kill(ranks[1].pid, signal.SIGSTOP)
                os.kill(helper.pid, signal.SIGKILL)
                time.sleep(pause)
                if pause:
                    os.kill(ranks[1].pid, signal.SIGCONT)
                out, err = self.wait(child, 0, 240)
                name = re.escape(helper.name)
                if pause:
                    self.assertRegex(err, f"cltrain-launch: {name}, mpiexec's helper, has ended before the ranks: "
                                     "what they print is lost\n")
                found = re.search(f"cltrain-launch: {name}, mpiexec's helper, ended before the ranks; the job ended "
                                  f"after step (\\d+), without a failure of a rank\n{AGAIN}", err)
                self.assertTrue(found, err)
                self.assertLess(int(found[1]), 20000)
                self.assertIn(f"resumed after step {found[1]}\n", out)
                self.assertIn("done: 20000 steps", out)

    def test_helper_stopped(self):
        child, ranks, _, helper = self.began(("--deadline", "2"), *ENDLESS)
        os.kill(helper.pid, signal.SIGSTOP)
        line = self.line(self.wait(child, 1, 60)[1])
        self.assertEqual(line, f"cltrain-launch: {helper.name} is stopped and has not gone on for 2 s, and ranks "
                         "cannot end without it")
        self.assert_gone()
        self.until(lambda: not helper.here(), seconds=60)
        self.assertFalse(any(r.process_state() not in ("", "Z", "X") for r in ranks))

    def test_helper_stopped_and_launcher_killed(self):
        child, _, _, helper = self.began((), *ENDLESS)
        os.kill(helper.pid, signal.SIGSTOP)
        child.kill()
        child.wait()
        self.assert_gone()
        self.until(lambda: not helper.here(), seconds=60)

    def test_only_the_helper_is_left(self):
        """The guard looks late: mpiexec and the ranks have ended, and the stopped helper has not."""
        child, ranks, mpiexec, helper = self.began((), *ENDLESS)
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
            guard = next(int(p) for p in file.read().split() if int(p) != mpiexec)
        os.kill(guard, signal.SIGSTOP)
        os.kill(helper.pid, signal.SIGSTOP)
        child.kill()
        child.wait()
        for pid in (mpiexec, *(r.pid for r in ranks)):
            os.kill(pid, signal.SIGKILL)
        self.assert_gone()
        self.until(lambda: not launch.belongs(mpiexec, self.beats), seconds=60)
        self.assertTrue(helper.here())
        os.kill(guard, signal.SIGCONT)
        self.until(lambda: not helper.here(), seconds=60)

    def test_helper_stopped_and_mpiexec_gone(self):
        """mpiexec is gone before it can be asked for its helper."""
        child, _, mpiexec, helper = self.began((), *ENDLESS)
        os.kill(helper.pid, signal.SIGSTOP)
        child.send_signal(signal.SIGSTOP) # the launcher must not see that mpiexec has ended
        os.kill(mpiexec, signal.SIGKILL)
        self.until(lambda: not launch.belongs(mpiexec, self.beats), seconds=60)
        child.kill()
        child.wait()
        self.assert_gone()
        self.until(lambda: not helper.here(), seconds=60)

    def test_mpiexec_killed(self):
        child, ranks, mpiexec, _ = self.began(("--restarts", "1"), "--steps", "3000", "--checkpoint-dir",
                                              self.path("run"), "--checkpoint-every", "100")
        os.kill(mpiexec, signal.SIGKILL)
        err = self.wait(child, 0)[1]
        self.assertRegex(err, r"cltrain-launch: mpiexec was killed by signal 9; (rank [01] .* was (in|saving|"
                         rf"evaluating)|the job ended).*\n{AGAIN}")


if __name__ == "__main__":
    run()
