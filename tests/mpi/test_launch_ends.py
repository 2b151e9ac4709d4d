"""cltrain-launch: ranks that never begin, ends of the launcher itself, and damaged checkpoints."""
import os
import re
import shutil
import signal
import sys
import time

from launches import PATIENT, LaunchTest
from ranks import COMMAND, ENDLESS, Rank, get, read, run

from cltrain_ranks import SETUP, belongs # ranks sets its path


class Unready(LaunchTest):
    def test_stopped_before_its_file(self):
        """Also if it is the only rank, so no other rank could report it."""
        for ranks, number in ((1, 0), (2, 1)):
            with self.subTest(ranks=ranks, number=number):
                program = self.program(f'[ "$rank" = {number} ] && kill -STOP $$', f'exec {COMMAND} "$@"')
                child = self.launch(ranks, ("--deadline", "2"), *ENDLESS, *PATIENT, program=program)
                line = self.line(self.wait(child, 1, 60)[1])
                self.assertRegex(line, rf": rank {number} \(process \d+ on \S+\) is stopped and made no progress "
                                 "for 2 s, before it wrote its heartbeat file$")
                self.assert_gone()

    def test_stopped_before_the_first_step(self):
        """The rank has a heartbeat file, and kernels are being compiled."""
        child = self.launch(2, ("--deadline", "2"), *ENDLESS, *PATIENT)
        rank = self.until(lambda: self.rank(1), child)
        os.kill(rank.pid, signal.SIGSTOP)
        state = self.rank(1).state
        line = self.line(self.wait(child, 1, 60)[1])
        self.assertIn(f"rank 1 (process {rank.pid} on {rank.host}) is stopped and made no progress for 2 s, " +
                      ("before the first step" if state == SETUP else "in step"), line)
        self.assert_gone()

    def test_hanging(self):
        for ranks, number in ((1, 0), (2, 1)):
            with self.subTest(ranks=ranks, number=number):
                program = self.hanging(number)
                child = self.launch(ranks, ("--setup-deadline", "8"), *ENDLESS, *PATIENT, program=program)
                line = self.line(self.wait(child, 1, 60)[1])
                self.assertRegex(line, rf": rank {number} \(process \d+ on \S+\) did not reach its first step "
                                 r"in 8 s, and used no processor time for \d+ s$")
                self.assert_gone()
                shutil.rmtree(self.path("other"))

    def test_restart(self):
        """A rank that stood still may run in the next attempt."""
        program = self.program(f'mkdir {self.path("once")} 2>/dev/null && kill -STOP $$', f'exec {COMMAND} "$@"')
        out, err = self.wait(self.launch(1, ("--deadline", "1", "--restarts", "1"), "--steps", "3",
                                         "--checkpoint-dir", self.path("run"), program=program), 0)
        self.assertIn("restarting from the beginning on 1 rank (restart 1 of 1)", err)
        self.assertIn("done: 3 steps", out)


class Ends(LaunchTest):
    def test_hang_up(self):
        """A closed terminal sends SIGHUP twice, from the shell and from the system."""
        folder = self.path("run")
        child = self.launch(2, ("--restarts", "1"), *ENDLESS, "--checkpoint-dir", folder)
        self.at_step(1, 10, child)
        child.send_signal(signal.SIGHUP)
        child.send_signal(signal.SIGHUP)
        err = self.wait(child, 143, 60)[1]
        step = int(re.search(r"SIGTERM: stopped after step (\d+); saved", err)[1])
        self.assertEqual(self.saved(folder), [f"step-{step:08}"])
        self.assert_gone()

    def test_nobody_reads(self):
        """The outputs are closed with the terminal, and the run is still saved."""
        folder = self.path("run")
        child = self.launch(2, (), *ENDLESS, "--checkpoint-dir", folder)
        self.at_step(1, 10, child)
        child.stdout.close()
        child.stderr.close()
        child.send_signal(signal.SIGHUP)
        self.assertEqual(child.wait(60), 143)
        self.assertEqual(len(self.saved(folder)), 1)

    def test_nohup(self):
        child = self.launch(1, (), *ENDLESS, prefix=("nohup",))
        step = self.at_step(0, 10, child).step
        child.send_signal(signal.SIGHUP)
        self.at_step(0, step + 100, child)
        child.send_signal(signal.SIGINT)
        self.wait(child, 130, 60)

    def test_told_to_end(self):
        """A rank without a heartbeat file gets the signal after a while, and is killed if it ignores this."""
        deaf = "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]; time.sleep(1000)"
        for number, program in ((signal.SIGTERM, self.program(f"exec {sys.executable} -c '{deaf}' \"$@\"")),
                                (signal.SIGHUP, None)):
            with self.subTest(signal=number.name, deaf=bool(program)):
                child = self.launch(1, (), *ENDLESS, *PATIENT, program=program or self.hanging(0))
                process = list(self.until(self.processes, child).values())[0]
                self.until(lambda p=process: not read(f"/proc/{p.pid}/cmdline").startswith(b"/bin/sh"))
                time.sleep(2)
                self.assertIsNone(self.rank(0))
                child.send_signal(number)
                err = self.wait(child, 143, 60)[1]
                if program:
                    self.assertIn("ended by SIGTERM before the first step", self.line(err))
                self.assert_gone()
                shutil.rmtree(self.path("other"), ignore_errors=True)

    def test_killed(self):
        """SIGKILL leaves nothing behind: no rank, even if it is stopped, no mpiexec, no folder."""
        for stop in (False, True):
            with self.subTest(stop=stop):
                folder = self.path("tmp")
                os.mkdir(folder)
                child = self.launch(2, (), *ENDLESS, beats=False, env={**os.environ, "TMPDIR": folder})
                names = self.until(lambda: [n for n in os.listdir(folder) if n.startswith("cltrain-launch-")], child)
                beats = os.path.join(folder, names[0])

                def ready():
                    data = [read(os.path.join(beats, f"rank-{r}")) for r in (0, 1)]
                    found = [Rank(d) for d in data if len(d) > 600 and d[0]]
                    return found if len(found) == 2 and all(r.step > 10 for r in found) else None

                ranks = self.until(ready, child)
                mpiexec = [p for p in os.listdir("/proc") if p.isdigit() and belongs(p, beats)]
                self.assertGreaterEqual(len(mpiexec), 3)
                if stop:
                    os.kill(ranks[1].pid, signal.SIGSTOP)
                child.kill()
                child.wait()
                self.until(lambda: not any(belongs(p, beats) for p in mpiexec), seconds=120)
                # Open MPI's mpiexec leaves a folder of its own behind if it is killed.
                self.until(lambda: not [n for n in os.listdir(folder) if not n.startswith("ompi.")], seconds=120)
                shutil.rmtree(folder)


class Damaged(LaunchTest):
    def wreck(self, folder):
        """Makes a program that damages the newest checkpoint as soon as a certain file exists."""
        return self.program(f'ask={self.path("ask")}',
                            f'if [ "$rank" = 0 ] && rm "$ask" 2>/dev/null; then for last in {folder}/step-*; do :; done',
                            f': >"$last/model.safetensors"; echo "$last" >{self.path("wrecked")}; fi',
                            f'exec {COMMAND} "$@"')

    def kill(self, child, rank, step, than=0):
        found = self.at_step(rank, step, child, than)
        os.kill(found.pid, signal.SIGKILL)
        return found.pid

    def wrecked(self):
        return int(get(self.path("wrecked")).decode().strip()[-8:])

    def test_same_bits(self):
        """A restart resumes from the previous checkpoint, with the bits of a run without a break."""
        folder, whole = self.path("run"), self.path("whole")
        options = ("--steps", "3000", "--checkpoint-every", "100", "--optimizer", "adam", "--split", "equal",
                   "--tune", "off")
        with open(self.path("ask"), "w", encoding="ascii"):
            pass
        program = self.wreck(folder)
        os.rename(self.path("ask"), self.path("later"))
        child = self.launch(2, ("--restarts", "1"), *options, "--checkpoint-dir", folder, program=program)
        self.at_step(1, 250, child)
        os.rename(self.path("later"), self.path("ask"))
        self.kill(child, 1, 250)
        out, err = self.wait(child, 0)
        self.assertIn("restarting from the newest intact checkpoint on 2 ranks", err)
        self.assertIn(f"resumed after step {self.wrecked() - 100}", out)
        self.assertRegex(err, rf"warning: checkpoint \S+step-{self.wrecked():08} is damaged: ")
        self.run_ranks(2, *options, "--checkpoint-dir", whole)
        self.assert_same_bits(*(os.path.join(x, "step-00003000") for x in (folder, whole)))

    def test_fewer_ranks(self):
        folder = self.path("run")
        program = self.wreck(folder)
        child = self.launch(2, ("--restarts", "3", "--min-ranks", "1"), "--steps", "10000000", "--checkpoint-every",
                            "4000", "--checkpoint-dir", folder, "-q", program=program)
        # Two checkpoints are saved, then two attempts fail, then the newest checkpoint is damaged before the
        # fourth.
        self.until(lambda: len(self.saved(folder)) > 1, child)
        first = self.kill(child, 0, 0)
        newest = self.saved(folder)[-1]
        second = self.kill(child, 0, 0, than=first)
        third = self.at_step(0, 0, child, than=second).pid
        with open(self.path("ask"), "w", encoding="ascii"):
            pass
        os.kill(third, signal.SIGKILL)
        rank = self.at_step(0, 0, child, than=third)
        self.assertEqual(rank.ranks, 1)
        self.assertEqual(f"step-{self.wrecked():08}", newest)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143, 60)[1]
        self.assertIn("restarting from the newest intact checkpoint on 1 rank (restart 3 of 3)", err)
        self.assertRegex(err, rf"warning: checkpoint \S+{newest} is damaged: ")


if __name__ == "__main__":
    run()
