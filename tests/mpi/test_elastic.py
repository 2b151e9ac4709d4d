"""A job that grows and shrinks: its user asks, ranks are lost, too few remain."""
import json
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

from elastics import SAMPLES, ElasticTest, all_records
from launches import PATIENT
from ranks import COMMAND, ENDLESS, LAUNCHER, MPIEXEC, get, put, run

LONG = ("--steps", "100000000", "--checkpoint-every", "200", "-q")
TO_THE_END = 900 # seconds that a run of many short steps may take on a busy machine


class Asked(ElasticTest):
    def test_scaled(self):
        """Grows and shrinks within epochs. Batch and rate follow the devices, and the schedule the samples."""
        metrics, epochs = self.path("m.jsonl"), 450
        child = self.elastic(("--ranks", "1:4", "-n", "2", "--global-batch", "scaled"), "--epochs", epochs, "--lr",
                             "0.01", "--schedule", "cosine:0.002,warmup:500", "--checkpoint-dir", self.path("run"),
                             "--metrics", metrics, "--checkpoint-every", "1000", batch=10)
        step = max(r.step for r in self.on(2, child, 100))
        self.assertIn("goes on with 3 ranks after its next checkpoint", self.resize("+1"))
        step = max(r.step for r in self.on(3, child, step + 50))
        self.resize(1)
        step = self.on(1, child, step + 50)[0].step
        self.resize(4)
        self.on(4, child, step + 50)
        out, err = self.wait(child, 0, TO_THE_END)
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c["devices"], c["batch"]) for c in changes],
                         [(2, 2, 10), (3, 3, 15), (1, 1, 5), (4, 4, 20)])
        for c in changes:
            self.assertAlmostEqual(c["lr"], 0.01 * c["batch"] / 10)
        for before, c in zip(changes, changes[1:]):
            self.assertEqual((c["ranks_before"], c["cause"], c["steps_lost"]), (before["ranks"], "asked", 0))
            self.assertTrue(0 < c["seconds_without_training"] < 120)
            said = (f"{c['ranks']} rank{'s' * (c['ranks'] > 1)} with {c['devices']} device{'s' * (c['devices'] > 1)} "
                    f"instead of {before['ranks']} rank{'s' * (before['ranks'] > 1)} after step {c['after_step']}: "
                    f"batch {c['batch']}, rate {c['lr']:g} (--global-batch scaled); ")
            self.assertRegex(out, re.escape(said) + r"\d+\.\d s without training, 0 steps lost\n")
        self.assert_whole(steps, SAMPLES, epochs)
        self.assert_rates(changes, steps, SAMPLES, 0.01, epochs, 0.002, 500)
        self.assertEqual(len(re.findall("^cltrain-launch: going on with ", err, re.MULTILINE)), 3)

    def test_scaled_steps(self):
        """--steps counts steps of the first batch: the run ends at the same place in the data."""
        metrics, steps = self.path("m.jsonl"), 60000
        child = self.elastic(("--ranks", "1:2", "-n", "1", "--global-batch", "scaled"), "--steps", steps,
                             "--checkpoint-dir", self.path("run"), "--metrics", metrics, batch=7)
        self.on(1, child, 100)
        self.resize(2)
        self.wait(child, 0, TO_THE_END)
        changes, done, _ = all_records(metrics)
        self.assertEqual([c["batch"] for c in changes], [7, 14])
        self.assertLess(len(done), steps)
        self.assertEqual([r["step"] for r in done], list(range(1, len(done) + 1)))
        # 1400 samples are 200 steps of 7, so all batches are whole
        used = sum(r["samples"] for r in done)
        self.assertTrue(0 <= used - 7 * steps < 14, used)
        state = json.loads(get(self.path("run", self.saved(self.path("run"))[-1], "state.json")))
        self.assertEqual(state["step"], len(done))

    def test_fixed(self):
        """The batch stays, and so does the number of steps."""
        metrics = self.path("m.jsonl")
        child = self.elastic(("--ranks", "1:2", "-n", "1"), "--epochs", "800", "-q", "--schedule", "step:20000:0.5",
                             "--checkpoint-dir", self.path("run"), "--metrics", metrics, batch=16)
        self.on(1, child, 100)
        self.resize(2)
        self.wait(child, 0, TO_THE_END)
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c["batch"], c["lr"], c["global_batch"]) for c in changes],
                         [(1, 16, 0.1, "fixed"), (2, 16, 0.1, "fixed")])
        self.assertEqual(len(steps), 800 * 88)
        self.assert_whole(steps, SAMPLES, 800)
        for r in steps:
            self.assertAlmostEqual(r["lr"], 0.1 * 0.5 ** ((r["step"] - 1) // 20000), delta=1e-9)

    def test_refused(self):
        """Requests that cannot be, and connections that are no requests, change nothing."""
        child = self.elastic(("--ranks", "2:3", "-n", "2"), *LONG, "--checkpoint-dir", self.path("run"))
        before = self.on(2, child, 10)
        for asked, says in ((4, "runs on 2 to 3 ranks (--ranks), not on 4; nothing changes"), (1, "not on 1"),
                            ("+2", "not on 4"), ("-1", "not on 1"), ("x", "must be N, +K or -K")):
            self.assertIn(says, self.resize(asked, 2))
        self.assertIn("has 2 ranks already", self.resize(2))
        path = os.path.join(self.beats, "control")
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o600)
        held = []
        for data in (b"", b"\n", b"GET / HTTP/1.1\r\n\r\n", b"\0" * 9000, b'{"resize": ', b'{"resize": [[1]]}\n',
                     b"[" * 4000 + b"\n", b'{"resize": null}\n', b'{"resize": "1e9"}\n', b"\xff\xfe\n"):
            other = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            other.settimeout(30)
            other.connect(path)
            other.sendall(data)
            held.append(other) # some are half open
            if data.endswith(b"\n"):
                self.assertEqual(json.loads(other.recv(4096))["code"], 2)
        time.sleep(1)
        # Another launcher may not have this folder, and leaves the files there alone.
        self.until(lambda: os.path.exists(os.path.join(self.beats, "job.json")), child)
        other = subprocess.run([sys.executable, "-B", LAUNCHER, "--program", COMMAND, "--mpiexec", MPIEXEC, "--heartbeat",
                                self.beats, "--ranks", "1:2", "--", *map(str, self.arguments(
                                    "--checkpoint-dir", self.path("other")))], capture_output=True, text=True,
                               timeout=60, check=False)
        self.assertEqual(other.returncode, 1)
        self.assertIn("another cltrain-launch uses this folder", other.stderr)
        self.assertTrue(os.path.exists(os.path.join(self.beats, "job.json")))
        self.assertEqual([r.pid for r in before], [r.pid for r in self.on(2, child, before[0].step)])
        self.assertIn("goes on with 3 ranks", self.resize("+1"))
        self.on(3, child)
        for other in held:
            other.close()
        child.send_signal(signal.SIGTERM)
        self.wait(child, 143)
        self.assertFalse(os.path.exists(path))
        self.assertIn("no cltrain-launch --ranks MIN:MAX runs with this folder", self.resize(2, 2))

    def test_elsewhere(self):
        """No rank is on the launcher's node, which is simulated: mpiexec passes the wish on."""
        tools = self.path("tools")
        shutil.copytree(os.path.join(os.path.dirname(LAUNCHER), "launch"), os.path.join(tools, "launch"))
        shutil.copy(LAUNCHER, tools)
        path = os.path.join(tools, "launch", "cltrain_ranks.py")
        text = get(path).decode()
        near = "return self.host == socket.gethostname()"
        self.assertEqual(text.count(near), 1)
        put(path, text.replace(near, "return False").encode())
        metrics = self.path("m.jsonl")
        child = self.elastic(("--ranks", "1:2", "-n", "2"), "--epochs", "800", "-q", "--checkpoint-dir", self.path("run"),
                             "--metrics", metrics, launcher=os.path.join(tools, os.path.basename(LAUNCHER)))
        self.on(2, child, 50)
        self.resize(1)
        self.wait(child, 0, TO_THE_END)
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c.get("cause"), c.get("steps_lost")) for c in changes],
                         [(2, None, None), (1, "asked", 0)])
        self.assert_whole(steps, SAMPLES, 800)

    def test_cannot_run(self):
        """Ranks for which the node has too few cores: the job goes back to the number before."""
        child = self.elastic(("--ranks", "1:9", "-n", "1"), *LONG, "--checkpoint-dir", self.path("run"),
                             program=self.program('for word; do shift; [ "$word" = --oversubscribe ] || set -- "$@" '
                                                  '"$word"; done', f'exec {COMMAND} "$@"'))
        pid = self.on(1, child, 10)[0].pid
        self.resize(9)
        self.until(lambda: (self.rank(0) or self).__dict__.get("pid", pid) != pid and self.rank(0).step > 10, child)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        self.assertIn("cltrain-launch: the job cannot run on 9 ranks: back to 1\n", err)

    def test_mesh(self):
        """A mesh has numbers of ranks that it cannot have."""
        child = self.elastic(("--ranks", "2:5", "-n", "2"), *LONG, "--parallel", "dp=*,tp=2", "--checkpoint-dir",
                             self.path("run"), model="mlp:16")
        self.on(2, child, 10)
        self.assertIn("3 ranks would have 3 devices, and the mesh dp=*,tp=2 needs a multiple of 2; nothing changes",
                      self.resize(3, 2))
        self.resize(4)
        ranks = self.on(4, child, 10)
        os.kill(ranks[3].pid, signal.SIGKILL) # 3 remain, of which the mesh can have 2
        self.on(2, child, 10)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        self.assertIn("restarting from the newest intact checkpoint on 2 ranks instead of 4\n", err)


class Lost(ElasticTest):
    def test_lost(self):
        """A killed rank, then a stopped one, leave the job. Their user brings them back."""
        metrics, every = self.path("m.jsonl"), 200
        child = self.elastic(("--ranks", "1:3", "-n", "3", "--deadline", "2"), "--epochs", "800", "-q", "--checkpoint-every",
                             every, "--checkpoint-dir", self.path("run"), "--metrics", metrics, *PATIENT)
        os.kill(self.on(3, child, 300)[1].pid, signal.SIGKILL)
        rank = self.on(2, child, 300)[0]
        os.kill(rank.pid, signal.SIGSTOP)
        self.on(1, child, 300)
        self.resize(2)
        err = self.wait(child, 0, TO_THE_END)[1]
        self.assertRegex(err, r"rank \d .* (was killed by signal 9|ended first)")
        self.assertRegex(err, r"rank 0 .* is stopped and made no progress for 2 s")
        self.assertEqual(len(re.findall("restarting from the newest intact checkpoint on . ranks? instead of", err)), 2)
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c.get("cause")) for c in changes],
                         [(3, None), (2, "lost"), (1, "lost"), (2, "asked")])
        self.assert_whole(steps, SAMPLES, 800)
        for c in changes[1:3]:
            self.assertEqual(c["after_step"] % every, 0)
            self.assertLess(c["steps_lost"], every + 2)
        self.assertEqual(changes[3]["steps_lost"], 0)

    def test_too_few(self):
        """With fewer than MIN the job waits, then ends and names the checkpoint."""
        child = self.elastic(("--ranks", "2:3", "-n", "2", "--wait", "3"), *LONG, "--checkpoint-dir", self.path("run"))
        os.kill(self.on(2, child, 250)[1].pid, signal.SIGKILL)
        err = self.wait(child, 1)[1]
        last = self.path("run", self.saved(self.path("run"))[-1])
        self.assertRegex(err, r"(?m)^cltrain-launch: 1 rank remains, and --ranks needs 2: waiting up to 3 s for "
                         rf"cltrain-launch --resize N --job {self.beats}\n"
                         rf"cltrain-launch: resume from the last checkpoint, {last} \(--resume\)\n\Z")

    def test_brought_back(self):
        """With fewer than MIN the job waits, and goes on if its user brings enough. A signal ends the wait."""
        child = self.elastic(("--ranks", "2:3", "-n", "2"), *LONG, "--checkpoint-dir", self.path("run"))
        first = self.on(2, child, 250)
        os.kill(first[1].pid, signal.SIGKILL)
        self.until(lambda: not self.processes(), child)
        self.resize("+1")
        second = self.until(lambda: (r := self.rank(1)) and r.pid != first[1].pid and r.step > 250 and r, child)
        os.kill(second.pid, signal.SIGKILL)
        self.until(lambda: not self.processes(), child)
        time.sleep(1)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        self.assertIn("restarting from the newest intact checkpoint on 2 ranks\n", err)
        self.assertIn("cltrain-launch: ended by SIGTERM while no ranks ran\n", err)

    def test_in_vain(self):
        """Failures in a row without a new checkpoint end the job."""
        child = self.elastic(("--ranks", "1:3", "-n", "3", "--restarts", "1"), *ENDLESS, "-q", "--checkpoint-dir",
                             self.path("run"))
        os.kill(self.on(3, child, 10)[1].pid, signal.SIGKILL)
        os.kill(self.on(2, child, 10)[1].pid, signal.SIGKILL)
        err = self.wait(child, 1)[1]
        self.assertIn("restarting from the beginning on 2 ranks instead of 3\n", err)
        self.assertTrue(err.endswith("cltrain-launch: 2 failures in a row without a new checkpoint (--restarts 1)\n"
                                     "cltrain-launch: there is no checkpoint to resume from\n"), err)


if __name__ == "__main__":
    run()
