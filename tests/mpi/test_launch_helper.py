"""cltrain-launch: mpiexec or its helper is killed or stopped. Open MPI has no helper on mpiexec's node: mpiexec itself
starts the ranks there."""
import os
import re
import signal
import time

from launches import AGAIN, LaunchTest
from ranks import ENDLESS, OPEN_MPI, manager, read, run

from cltrain_ranks import belongs, find_helpers # ranks sets its path


class Helper(LaunchTest):
    def began(self, own, *args):
        """Starts a job. Returns it with its ranks, mpiexec, and the process that started the ranks."""
        child = self.launch(2, own, *args)
        ranks = [self.at_step(r, 10, child) for r in (0, 1)]
        with open(f"/proc/{child.pid}/task/{child.pid}/children", encoding="ascii") as file:
            children = [int(p) for p in file.read().split()]
        python = read(f"/proc/{child.pid}/comm") # the launcher's guard is a copy of the launcher
        mpiexec = next(p for p in children if read(f"/proc/{p}/comm") != python)
        helpers = find_helpers(mpiexec, self.beats)[0]
        self.assertEqual(len(helpers), 0 if OPEN_MPI else 1)
        return child, ranks, mpiexec, helpers[0] if helpers else manager(ranks[0].pid)

    def needs_helper(self):
        if OPEN_MPI:
            self.skipTest("Open MPI's mpiexec has no helper on its node that could end alone")

    def test_helper_killed(self):
        """The ranks save and end, and the next attempt resumes. A rank that is stopped for a while remains
        without the helper. Otherwise ranks end so soon that mpiexec reports it."""
        self.needs_helper()
        for pause in (6, 0):
            with self.subTest(pause=pause):
                run = self.path(f"run{pause}")
                child, ranks, _, helper = self.began(("--restarts", "1"), "--steps", "8000", "--checkpoint-dir", run)
                if pause:
                    os.kill(ranks[1].pid, signal.SIGSTOP)
                os.kill(helper.pid, signal.SIGKILL)
                time.sleep(pause)
                if pause:
                    os.kill(ranks[1].pid, signal.SIGCONT)
                out, err = self.wait(child, 0, 240)
                name = re.escape(helper.name)
                if pause:
                    self.assertRegex(err, f"cltrain-launch: {name}, mpiexec's helper, ended before the ranks: "
                                     "their output is lost\n")
                found = re.search(f"cltrain-launch: {name}, mpiexec's helper, ended before the ranks; the job ended "
                                  f"after step (\\d+), and no rank reported a failure\n{AGAIN}", err)
                self.assertTrue(found, err)
                self.assertLess(int(found[1]), 8000)
                self.assertIn(f"resumed after step {found[1]}\n", out)
                self.assertIn("done: 8000 steps", out)

    def test_helper_stopped(self):
        child, ranks, _, helper = self.began(("--deadline", "2"), *ENDLESS)
        os.kill(helper.pid, signal.SIGSTOP)
        line = self.line(self.wait(child, 1, 60)[1])
        self.assertEqual(line, f"cltrain-launch: {helper.name} is stopped and made no progress for 2 s, and ranks "
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
        self.needs_helper()
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
        self.until(lambda: not belongs(mpiexec, self.beats), seconds=60)
        self.assertTrue(helper.here())
        os.kill(guard, signal.SIGCONT)
        self.until(lambda: not helper.here(), seconds=60)

    def test_helper_stopped_and_mpiexec_gone(self):
        """mpiexec is gone before it can be asked for its helper."""
        self.needs_helper()
        child, _, mpiexec, helper = self.began((), *ENDLESS)
        os.kill(helper.pid, signal.SIGSTOP)
        child.send_signal(signal.SIGSTOP) # the launcher must not see that mpiexec has ended
        os.kill(mpiexec, signal.SIGKILL)
        self.until(lambda: not belongs(mpiexec, self.beats), seconds=60)
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
