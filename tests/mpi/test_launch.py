"""cltrain-launch, and the heartbeat files that tell it where ranks are."""
import contextlib
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from types import SimpleNamespace

from ranks import COMMAND, ENDLESS, LAUNCHER, MPIEXEC, Rank, RankTest, get, records, run, two_cores

from cltrain_closed import Closed # ranks sets the path of these modules
from cltrain_job import Job
from cltrain_mpiexec import endings
from cltrain_ranks import ENDED, TRAINING, WAITING, Process

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "examples",
                      "train.sbatch")


class Launch(RankTest):
    def launch(self, count, own, *args, **names):
        words = [str(word) for word in self.arguments(*args, **names)]
        return self.begin([sys.executable, "-B", LAUNCHER, "-n", count, "--program", COMMAND, "--mpiexec",
                           MPIEXEC, "--heartbeat", self.beats, *own, "--", *words])

    def line(self, err):
        """Returns the launcher's only line."""
        lines = [x for x in err.splitlines() if x.startswith("cltrain-launch: ")]
        self.assertEqual(len(lines), 1, err)
        return lines[0]

    def assert_gone(self, *ranks):
        for rank in ranks: # a killed process may take a moment to end
            self.until(lambda: rank.process_state() in ("", "Z", "X"), seconds=20)

    def test_done(self):
        out, err = self.wait(self.launch(2, (), "--steps", "6"), 0)
        self.assertIn("done: 6 steps", out)
        self.assertEqual(err, "")
        for number in (0, 1):
            rank = self.rank(number)
            self.assertEqual((rank.rank, rank.ranks, rank.state, rank.step), (number, 2, ENDED, 6))

    def test_killed(self):
        for number in (0, 1):
            with self.subTest(rank=number):
                child = self.launch(2, (), *ENDLESS)
                both = [self.at_step(r, 10, child) for r in (number, 1 - number)]
                os.kill(both[0].pid, signal.SIGKILL)
                line = self.line(self.wait(child, 1, 30)[1])
                self.assertRegex(line, rf"rank {number} \(process {both[0].pid} on \S+\) (was killed by "
                                 r"signal 9|ended first), (in step|evaluating after step) \d+, bucket 0 \(\S+ and 3 "
                                 r"more\) (reduced last|not reduced yet)")
                self.assertIn(f"step {self.rank(number).step},", line)
                self.assert_gone(*both)

    def test_replicas(self):
        """Replicas of ranks are no ranks that are gone: the launcher looks for these for 10 s."""
        began = time.monotonic()
        child = self.launch(2, (), *ENDLESS, "--parallel", "local=2", "--sync-every", "4", "--oversubscribe",
                            "--checkpoint-dir", self.path("run"), devices="pocl@1")
        both = [self.at_step(r, 8, child) for r in (0, 1)]
        self.assertEqual([(r.rank, r.ranks) for r in both], [(0, 2), (1, 2)])
        self.until(lambda: time.monotonic() - began > 13, child)
        os.kill(both[1].pid, signal.SIGTERM)
        self.wait(child, 143)

    def test_who_waits_is_not_named(self):
        job, both = object.__new__(Job), [object.__new__(Rank) for _ in range(2)]
        for number, rank in enumerate(both):
            rank.rank, rank.pid, rank.host, rank.state = number, 100 + number, socket.gethostname(), TRAINING
            rank.step, rank.starts, rank.completes, rank.started = 7 - number, 0, 0, -1
        job.ranks, job.options, job.stopped, job.helpers = 2, SimpleNamespace(deadline=120), {}, []
        job.changed = {0: (5, 130), 1: (5, 130)}
        both[1].state = WAITING # after fewer steps, by time
        guilty, said = job.find_late(both)
        self.assertEqual(guilty, [both[0]])
        self.assertRegex(said, r"rank 0 \(process 100 on \S+\) made no progress for 120 s, in step 7")
        both[0].state = WAITING
        self.assertIsNone(job.find_late(both))

    def test_crashed(self):
        child = self.launch(2, (), *ENDLESS)
        rank = self.at_step(1, 10, child)
        with contextlib.suppress(ProcessLookupError):
            for _ in range(2): # LLVM's handler in OpenCL drivers takes the first
                os.kill(rank.pid, signal.SIGABRT)
                time.sleep(0.3)
        self.assertRegex(self.line(self.wait(child, 1, 30)[1]), rf"rank 1 \(process {rank.pid} on {rank.host}\) "
                         "(was killed by signal 6|ended first), ")

    def test_named_is_who_ended_first(self):
        """mpiexec names only rank 0, which it killed itself after rank 1 had ended."""
        job, both = object.__new__(Job), [object.__new__(Rank) for _ in range(2)]
        for number, rank in enumerate(both):
            rank.rank, rank.pid, rank.host, rank.state = number, 100 + number, "here", 2
            rank.step, rank.started = 7, -1
        job.ranks, job.killed = 2, {(None, 100): ("was killed by signal 15", 15)}
        job.seen = {r.pid: Process(r.rank, r.pid) for r in both}
        job.closed = Closed(self.beats)
        job.ended = [101, 100]
        self.assertEqual(job.find_killed(both), ("rank 1 (process 101 on here) ended first, in step 7; then rank 0 "
                                                 "(process 100 on here) was killed by signal 15, in step 7", True))
        job.ended = [100, 101]
        self.assertEqual(job.find_killed(both)[0], "rank 0 (process 100 on here) was killed by signal 15, in step 7")
        job.closed.close()

    def test_the_order_of_heartbeat_files_counts(self):
        """Rank 1 is gone first, but rank 0 gave up its file before: rank 1 was killed after it."""
        job, both = object.__new__(Job), [object.__new__(Rank) for _ in range(2)]
        for number, rank in enumerate(both):
            rank.rank, rank.pid, rank.host, rank.state = number, 100 + number, "here", 2
            rank.step, rank.started = 7, -1
        job.ranks, job.killed = 2, {(None, 100): ("was killed by signal 9", 9)}
        job.seen = {r.pid: Process(r.rank, r.pid) for r in both}
        job.ended = [101, 100]
        job.closed = Closed(self.beats)
        children = []
        for number in range(2):
            hold = ("import mmap, sys; f = open(sys.argv[1], 'w+b'); f.truncate(4096); m = mmap.mmap(f.fileno(), 4096); "
                    "f.close(); print(flush=True); sys.stdin.read()")
            child = subprocess.Popen([sys.executable, "-c", hold, os.path.join(self.beats, f"rank-{number}")],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            self.addCleanup(child.kill)
            child.stdout.readline()
            children.append(child)
        self.assertEqual(job.closed.order(), [])
        for child in children:
            child.kill()
            child.communicate()
        self.assertEqual(job.closed.order(), [0, 1])
        self.assertEqual(job.find_killed(both)[0], "rank 0 (process 100 on here) was killed by signal 9, in step 7")
        job.killed = {(None, 101): ("was killed by signal 9", 9)}
        self.assertIn("rank 0 (process 100 on here) ended first, in step 7; then rank 1", job.find_killed(both)[0])
        job.closed.close()

    def test_what_mpiexec_says(self):
        """Open MPI names ranks, MPICH processes. Codes of cltrain itself are no cause."""
        block = b"mpiexec %b\n\n  Process name: [[9,1],1]\n  Exit code:    %d\n"
        for text, said in ((b"mpiexec noticed that process rank 1 with PID 0 on node vm exited on signal 9 (Killed).",
                            (1, None, "was killed by signal 9", 9)),
                           (block % (b"detected that", 7), (1, None, "ended with code 7", 0)),
                           (block % (b"detected that", 143), None),
                           (b"mpiexec has exited due to process rank 1 with PID 0 on\nnode vm exiting improperly. There",
                            (1, None, "ended by itself", 0)),
                           (b"=   PID 77 RUNNING AT vm\n=   EXIT CODE: 9\n= CLEANING\nKilled (signal 9)",
                            (None, 77, "was killed by signal 9", 9))):
            with self.subTest(text=text):
                self.assertEqual(list(endings(text)), [said] if said else [])

    def test_stopped(self):
        """A stopped rank is found even if ranks have no deadline."""
        child = self.launch(2, ("--deadline", "2"), *ENDLESS, "--comm-timeout", "0")
        both = [self.at_step(r, 10, child) for r in (1, 0)]
        os.kill(both[0].pid, signal.SIGSTOP)
        line = self.line(self.wait(child, 1, 60)[1])
        self.assertIn(f"rank 1 (process {both[0].pid} on ", line)
        self.assertRegex(line, r"is stopped and made no progress for 2 s, (in|evaluating after) step \d+, ")
        self.assertNotRegex(line, r"rank 0 \(process \d+ on \S+\) made no")
        self.assert_gone(*both)

    def test_failure(self):
        """A failure that the ranks report themselves does not lead to a restart."""
        folder = self.path("run")
        child = self.launch(2, ("--restarts", "2"), "--steps", "50", "--lr", "1e30", "--checkpoint-dir",
                            folder)
        self.assertRegex(self.line(self.wait(child, 1)[1]),
                         r"rank 0 .* failed, .*step \d+: .* is not finite")

    def test_restart(self):
        """A killed job restarts by itself, and ends with the bits of a run without a break."""
        folder, whole, metrics = self.path("run"), self.path("whole"), self.path("metrics")
        options = ("--steps", "3000", "--checkpoint-every", "100", "--optimizer", "adam", "--split", "equal",
                   "--tune", "off")
        child = self.launch(2, ("--restarts", "1"), *options, "--checkpoint-dir", folder, "--metrics",
                            metrics)
        rank = self.at_step(1, 150, child)
        os.kill(rank.pid, signal.SIGKILL)
        out, err = self.wait(child, 0)
        self.assertLess(self.rank(1).step - self.rank(1).starts, 3000)
        self.assertGreater(self.rank(1).step - self.rank(1).starts, 0)
        self.assertIn("restarting from the newest intact checkpoint on 2 ranks (restart 1 of 1)", err)
        self.assertEqual(int(re.search(r"resumed after step (\d+)", out)[1]) % 100, 0)
        self.assertEqual([r["step"] for r in records(metrics)[0]], list(range(1, 3001)))
        self.run_ranks(2, *options, "--checkpoint-dir", whole)
        self.assert_same_bits(*(os.path.join(x, "step-00003000") for x in (folder, whole)))

    def test_fewer_ranks(self):
        """Restarts once with the same number of ranks, then with fewer, and not more often than allowed."""
        folder = self.path("run")
        child = self.launch(2, ("--restarts", "3", "--min-ranks", "1"), *ENDLESS, "--checkpoint-dir", folder,
                            "-q")
        known = 0
        for ranks in (2, 2, 1, 1):
            rank = self.at_step(0, 10, child, than=known)
            self.assertEqual(rank.ranks, ranks)
            known = rank.pid
            os.kill(known, signal.SIGKILL)
        err = self.wait(child, 1)[1]
        self.assertEqual(re.findall(r"restarting from the beginning on (\d) ranks? \(restart (\d) of 3\)",
                                    err), [("2", "1"), ("1", "2"), ("1", "3")])
        self.assertEqual(err.count("was killed by signal 9"), 4)

    def test_told_to_end(self):
        for name, code in (("SIGTERM", 143), ("SIGUSR1", 143), ("SIGINT", 130)):
            with self.subTest(signal=name):
                folder = self.path(name)
                child = self.launch(2, ("--restarts", "2"), *ENDLESS, "--checkpoint-dir", folder)
                self.at_step(1, 10, child)
                child.send_signal(getattr(signal, name))
                err = self.wait(child, code, 60)[1]
                step = int(re.search(rf"{name}: stopped after step (\d+); saved", err)[1])
                self.assertEqual(self.saved(folder), [f"step-{step:08}"])
        child = self.launch(2, (), "--steps", step + 1, "--checkpoint-dir", folder, "--resume")
        self.assertIn(f"resumed after step {step}", self.wait(child, 0)[0])

    def test_told_to_end_early(self):
        """A signal before the ranks can take one. They get it as soon as they can, sometimes a step or two
        later."""
        folder = self.path("run")
        child = self.launch(2, (), *ENDLESS, "--checkpoint-dir", folder)
        self.until(lambda: get(f"/proc/{child.pid}/task/{child.pid}/children"), child)
        self.assertIsNone(self.rank(0))
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143, 60)[1]
        stopped = re.search(r"SIGTERM: stopped after step (\d+); saved", err)
        if not stopped:
            self.assertRegex(err, "SIGTERM before the first step|told to end while rank")
        self.assertEqual(self.saved(folder), [f"step-{int(stopped[1]):08}"] if stopped else [])

    def test_told_to_end_twice(self):
        """`timeout` sends its signal twice within a moment. The run still saves."""
        folder = self.path("run")
        child = self.launch(2, (), *ENDLESS, "--checkpoint-dir", folder)
        self.at_step(0, 10, child)
        for _ in range(5):
            child.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        self.assertRegex(self.wait(child, 143, 60)[1], r"SIGTERM: stopped after step \d+; saved")

    def test_told_to_end_at_once(self):
        """The second signal ends the job at once."""
        child = self.launch(2, (), *ENDLESS)
        both = [self.at_step(r, 10, child) for r in (0, 1)]
        os.kill(both[0].pid, signal.SIGSTOP)
        child.send_signal(signal.SIGTERM)
        time.sleep(1)
        self.assertIsNone(child.poll())
        child.send_signal(signal.SIGTERM)
        self.line(self.wait(child, 143, 30)[1])
        self.assert_gone(*both)

    def test_usage(self):
        for own, args, says in ((("--restarts", "2"), (), "--checkpoint-dir"),
                                (("--min-ranks", "3"), (), "--min-ranks"),
                                (("--deadline", "0"), (), "--deadline"),
                                ((), ("--heartbeat", "x"), "--heartbeat"), (("--bad",), (), "--bad"),
                                (("--mpiexec", "no-such"), (), "mpiexec was not found"),
                                (("--program", "no-such"), (), "no-such is not a program")):
            with self.subTest(own=own, args=args):
                err = self.wait(self.launch(2, own, "--steps", "2", *args), 2)[1]
                self.assertIn(says, self.line(err))
        err = self.wait(self.launch(2, ("--restarts", "2"), "--steps", "0", "--checkpoint-dir", "x"), 2)[1]
        self.assertEqual(err, "cltrain, rank 0: --steps 0: must be a whole number of at least 1\n")

    def test_batch_script(self):
        """The example for Slurm, with simulated variables and programs. It saves before the time is up, asks
        to be queued again, and resumes."""
        bin_folder, asked = self.path("bin"), self.path("asked")
        os.mkdir(bin_folder)
        for name, text in (("cltrain-launch", f'exec {sys.executable} -B {LAUNCHER} --program {COMMAND} '
                            f'--mpiexec {MPIEXEC} --heartbeat {self.beats} "$@"'),
                           ("scontrol", f'echo "$@" >>{asked}')):
            path = os.path.join(bin_folder, name)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"#!/bin/sh\n{text}\n")
            os.chmod(path, 0o755)
        environment = {**os.environ, "SLURM_NTASKS": "2", "SLURM_JOB_ID": "71",
                       "PATH": bin_folder + ":" + os.environ["PATH"]}
        options = self.arguments()[1:]
        child = self.begin(["bash", SCRIPT, *options, *ENDLESS], env=environment, cwd=self.folder)
        self.at_step(0, 10, child)
        child.send_signal(signal.SIGUSR1)
        err = self.wait(child, 143, 60)[1]
        step = int(re.search(r"SIGUSR1: stopped after step (\d+); saved in run-71", err)[1])
        self.assertEqual(get(asked), b"requeue 71\n")
        out = self.wait(self.begin(["bash", SCRIPT, *options, "--steps", step + 2], env=environment,
                                   cwd=self.folder), 0)[0]
        self.assertIn(f"resumed after step {step}", out)
        self.assertEqual(get(asked), b"requeue 71\n")


class Beats(RankTest):
    def test_layout(self):
        """The bytes of the file, at the header's offsets, for a process with two devices."""
        self.wait(self.begin(self.words("--steps", "6", devices="pocl/2")), 0)
        data = get(os.path.join(self.beats, "rank-0"))
        self.assertEqual(data[:8], b"cltbeat\0")
        self.assertEqual(struct.unpack_from("=4i", data, 8), (1, 6, 0, 1)) # version, state, rank, ranks
        beats, at, step, starts, completes = struct.unpack_from("=5q", data, 32)
        self.assertGreater(beats, step + starts + completes)
        self.assertLess(abs(at - time.monotonic_ns()), 10**11)
        self.assertEqual((step, starts, completes), (6, 6, 6))
        self.assertEqual(struct.unpack_from("=4i", data, 72), (0, 0, 0, 1)) # buckets, status, labels
        self.assertEqual(data[88:344].rstrip(b"\0").decode(), os.uname().nodename)
        self.assertEqual(data[344:600], bytes(256))
        self.assertRegex(data[600:].rstrip(b"\0").decode(), r"^bucket 0 \(\S+ and 3 more\)$")
        self.assertEqual(len(data), 856)

    def test_cannot_write(self):
        """A missing folder is a failure before training."""
        shutil.rmtree(self.beats)
        done = subprocess.run(self.words("--steps", "6"), capture_output=True, text=True, timeout=120,
                              preexec_fn=two_cores, check=False)
        os.mkdir(self.beats)
        self.assertEqual(done.returncode, 1)
        self.assert_message(done.stderr, "cannot make the heartbeat file", "rank-0")


if __name__ == "__main__":
    run()
