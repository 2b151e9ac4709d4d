"""Asynchronous training: processes, their logs, and what happens when some of them end."""
import collections
import json
import math
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

import command
from command import COMMAND, DEVICE, get, write_data

LAUNCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools",
                      "cltrain-launch")
SECRET = "the secret of the test"
PATIENCE = 240
SAMPLES, BATCH = 2000, 16
BUILT = subprocess.run([COMMAND, "train", "--model", "mlp", "--data", "idx:/", "--async", "0"], capture_output=True,
                       text=True, check=False).stderr


def read_events(path):
    """Returns the events of a log. A process that was killed may leave an incomplete last line."""
    events = []
    for line in get(path).decode().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            pass
    return events


class Log:
    """Reads the events of holder 0 again, and computes versions and staleness without the program's own numbers."""

    def __init__(self, path):
        self.events = read_events(path)
        self.applied, self.verdicts, self.staleness = [], collections.Counter(), []
        version, pulled = 0, {}
        for e in self.events:
            name = e["event"]
            if name in ("begin", "resume"):
                version, pulled = e["version"], {}
                self.allowed, self.samples = e["staleness"], e["samples"]
                # After a checkpoint what was applied behind it is undone.
                self.applied = [a for a in self.applied if a[0] < version]
            elif name == "pull":
                pulled[e["who"], e["sequence"]] = version
                assert e["version"] == version, e
            elif name == "push":
                verdict = e["verdict"]
                self.verdicts[verdict] += 1
                assert e["version"] == version, e
                if verdict in ("applied", "discarded"):
                    # Other holders may have had an older version than holder 0 when they were asked.
                    own = version - pulled[e["who"], e["sequence"]]
                    stale = version - e["pulled"]
                    assert stale >= own and e["staleness"] == stale, e
                    assert (stale <= self.allowed) == (verdict == "applied"), e
                    self.staleness.append((stale, own))
                if verdict == "applied":
                    self.applied.append((version, e["epoch"], e["offset"], e["count"]))
                    version += 1
        self.version = version

    def check_once(self, test, epochs):
        """Each sample of each epoch was applied exactly once."""
        for epoch in range(epochs):
            times = [0] * self.samples
            for _, at, offset, count in self.applied:
                for i in range(offset, offset + count) if at == epoch else ():
                    times[i] += 1
            test.assertEqual(set(times), {1}, f"epoch {epoch}: {collections.Counter(times)}")
        test.assertEqual({a[1] for a in self.applied}, set(range(epochs)))


class AsyncTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cltrain-async-")
        cls.data = os.path.join(cls.folder, "data")
        write_data(cls.data, train=SAMPLES, test=100)
        cls.options = ["--model", "mlp", "--data", f"idx:{cls.data}", "--devices", DEVICE, "--batch", str(BATCH),
                       "--seed", "1", "--tune", "off"]

    def setUp(self):
        self.at = tempfile.mkdtemp(dir=self.folder)
        self.events = os.path.join(self.at, "events")

    def path(self, name):
        return os.path.join(self.at, name)

    def launch(self, workers, *arguments, own=(), variables=None, wait=True):
        words = [sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", COMMAND, *own, "--", "train",
                 *self.options, "--events", self.events, *arguments]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, "CLTRAIN_SECRET": SECRET, **(variables or {})})
        self.addCleanup(child.kill)
        if not wait:
            return child
        return self.finish(child)

    def finish(self, child, code=0):
        output, _ = child.communicate(timeout=PATIENCE)
        self.assertEqual(child.returncode, code, output)
        return output

    def wait_for(self, event, count):
        """Waits until holder 0 has written so many events of a name."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if os.path.exists(self.events) and get(self.events).count(f'"event":"{event}"'.encode()) >= count:
                return
            time.sleep(0.05)
        self.fail(f"no {count} events {event}")

    def process(self, kind, number):
        """Finds a process of the job by its command line."""
        for name in os.listdir("/proc"):
            try:
                words = get(f"/proc/{name}/cmdline").split(b"\0") if name.isdigit() else []
            except OSError:
                continue
            if f"--{kind}".encode() in words and self.events.encode() in words and words[0].endswith(b"cltrain") and \
                    words[words.index(f"--{kind}".encode()) + 1] == str(number).encode():
                return int(name)
        self.fail(f"no {kind} {number}")

    # --- numbers ------------------------------------------------------------------------------------------

    def test_one_worker_has_the_bits_of_synchronous_training(self):
        """Also with several holders, clipping, a schedule and a rest of an epoch that is smaller than a batch."""
        for optimizer in (["momentum", "--clip-norm", "0.5", "--schedule", "cosine,warmup:5"],
                          ["adamw", "--lr", "0.01", "--weight-decay", "0.1", "--param-group", "1d:decay=0"]):
            options = ["--epochs", "2", "--optimizer", *optimizer, "--batch", "48"]
            where = self.path(f"sync-{optimizer[0]}")
            saved = self.options
            self.options = [o for i, o in enumerate(saved) if o != "--batch" and saved[i - 1] != "--batch"]
            subprocess.run([COMMAND, "train", *self.options, *options, "--checkpoint-dir", where, "--quiet"],
                           check=True, timeout=PATIENCE)
            for holders in ("1", "3"):
                to = self.path(f"async-{optimizer[0]}-{holders}")
                self.launch(1, *options, "--async", "0", "--servers", holders, "--checkpoint-dir", to)
                for name in ("model", "optimizer"):
                    step = f"step-{2 * -(-SAMPLES // 48):08d}/{name}.safetensors"
                    self.assertEqual(get(os.path.join(where, step)), get(os.path.join(to, step)), (optimizer, holders))
                os.remove(self.events)
            self.options = saved

    def test_the_log_tells_staleness_and_each_sample_once(self):
        metrics = self.path("metrics")
        output = self.launch(4, "--epochs", "3", "--async", "1", "--servers", "2", "--metrics", metrics)
        log = Log(self.events)
        log.check_once(self, 3)
        self.assertGreater(log.verdicts["discarded"], 0)
        self.assertIn(f"{log.version} gradients applied, {log.verdicts['discarded']} discarded as too old", output)
        records = [json.loads(line) for line in get(metrics).splitlines()]
        steps = [r for r in records if "step" in r]
        self.assertEqual(len(steps), log.version)
        self.assertLessEqual(max(r["staleness"] for r in steps), 1)
        # Both holders applied the same gradients, in the same order.
        other = [(e["who"], e["sequence"], e["version"]) for e in read_events(self.events + ".1")
                 if e["event"] == "apply"]
        own = [(e["who"], e["sequence"], e["version"] + 1) for e in log.events
               if e["event"] == "push" and e["verdict"] == "applied"]
        self.assertEqual(other, own)
        # They hold equal ranges: the model has no states, so what was pulled is the range.
        sizes = [{e["bytes"] for e in read_events(path) if e["event"] == "pull"}
                 for path in (self.events, self.events + ".1")]
        self.assertEqual([len(s) for s in sizes], [1, 1])
        self.assertLessEqual(abs(sizes[0].pop() - sizes[1].pop()), 256)

    def test_nobody_waits_for_a_slow_worker(self):
        """While the slow worker computes one gradient, the others push many."""
        if not command_has_hooks():
            self.skipTest("built without CLT_TESTING")
        self.launch(2, "--epochs", "2", "--async", "8", variables={"CLT_TESTING_SLOW_WORKER": "1:40"})
        log = Log(self.events)
        log.check_once(self, 2)
        pushes = [e["worker"] for e in log.events if e["event"] == "push"]
        runs = [len(run) for run in "".join("s" if w else "f" for w in pushes).split("s")]
        self.assertGreater(max(runs), 8)
        self.assertGreater(pushes.count(0), pushes.count(1))

    def test_rows_of_embeddings_travel_alone(self):
        """The bits are those of synchronous training, and less than the table travels."""
        words = [f"w{i}" for i in range(2000)]
        rng = random.Random(3)
        with open(self.path("text"), "wb") as file:
            for _ in range(2000):
                file.write(rng.choice(words)[:3].encode() + b" ")
        saved = self.options
        # 256 bytes as tokens; a batch reads 4 * 8 of them, of few different values
        self.options = ["--model", "lstm", "--data", f"text:{self.path('text')}", "--seq-len", "8", "--batch", "4",
                        "--devices", DEVICE, "--seed", "1", "--tune", "off", "--windows", "fixed", "--precision", "f32"]
        run = subprocess.run([COMMAND, "train", *self.options, "--steps", "6", "--checkpoint-dir", self.path("a"), "-q"],
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.launch(1, "--steps", "6", "--async", "0", "--servers", "2", "--checkpoint-dir", self.path("b"))
        self.options = saved
        self.assertEqual(get(self.path("a/step-00000006/model.safetensors")),
                         get(self.path("b/step-00000006/model.safetensors")))
        pulls = [e["bytes"] for e in read_events(self.events) if e["event"] == "pull"]
        self.assertLess(max(pulls[1:]), pulls[0]) # the first pull brings everything

    # --- processes that end -------------------------------------------------------------------------------

    def test_a_killed_worker_comes_back(self):
        child = self.launch(3, "--epochs", "12", "--async", "16", "--servers", "2", wait=False)
        for killed in range(1, 3):
            self.wait_for("push", 150 * killed)
            os.kill(self.process("worker", killed), signal.SIGKILL)
        output = self.finish(child)
        self.assertIn("worker 1 was killed by SIGKILL; it is started again", output)
        log = Log(self.events)
        log.check_once(self, 12)
        joins = collections.Counter(e["worker"] for e in log.events if e["event"] == "join")
        self.assertEqual(joins[0], 1)
        self.assertIn(2, (joins[1], joins[2]))
        lost = [e for e in log.events if e["event"] == "lost" and e["reason"] != "bye"]
        self.assertTrue(lost)

    def test_a_killed_holder_ends_the_run_which_resumes(self):
        where = self.path("run")
        arguments = ["--epochs", "6", "--async", "4", "--servers", "2", "--checkpoint-dir", where,
                     "--checkpoint-every", "50"]
        child = self.launch(2, *arguments, wait=False)
        self.wait_for("push", 180)
        os.kill(self.process("holder", 1), signal.SIGKILL)
        output = self.finish(child, 1)
        found = re.search(r"holder 1 was killed by SIGKILL, and its part of the parameters is gone: --resume goes on "
                          r"from the last checkpoint, (\S+)", output)
        self.assertTrue(found, output)
        self.assertTrue(os.path.isfile(os.path.join(found[1], "model.safetensors")))
        output = self.launch(2, *arguments, "--resume")
        log = Log(self.events)
        self.assertIn("resume", [e["event"] for e in log.events])
        log.check_once(self, 6)
        self.assertEqual(log.version, 6 * SAMPLES // BATCH)
        # The checkpoint is an ordinary one.
        run = subprocess.run([COMMAND, "eval", "--model", "mlp", "--data", f"idx:{self.data}", "--devices", DEVICE,
                              "--checkpoint", where], capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_a_signal_saves_and_the_run_goes_on(self):
        where = self.path("run")
        metrics = self.path("metrics")
        arguments = ["--epochs", "8", "--async", "4", "--servers", "2", "--checkpoint-dir", where, "--metrics", metrics,
                     "--optimizer", "sgd", "--lr", "0.1", "--schedule", "cosine"]
        # A slow worker has an early batch when the run stops.
        child = self.launch(2, *arguments, variables={"CLT_TESTING_SLOW_WORKER": "1:300"}, wait=False)
        self.wait_for("join", 2)
        self.wait_for("push", 100)
        child.send_signal(signal.SIGTERM)
        output = self.finish(child, 143)
        self.assertIn("--resume goes on", output)
        # The step that is named, the last one that is reported and that of the checkpoint are one.
        step = int(re.search(r"stopped after step (\d+)", output)[1])
        self.assertEqual([name for name in os.listdir(where) if name.startswith("step-")], [f"step-{step:08d}"])
        self.assertEqual(max(r["step"] for r in read_events(metrics) if "step" in r), step)
        self.launch(2, *arguments, "--resume")
        log = Log(self.events)
        log.check_once(self, 8)
        # The schedule ends where that of the whole run ends, and the other holder's log goes on.
        total = 8 * SAMPLES // BATCH
        for record in read_events(metrics):
            if "lr" in record:
                rate = 0.05 * (1 + math.cos(math.pi * (record["step"] - 1) / total))
                self.assertAlmostEqual(record["lr"], rate, places=6)
        versions = [e["version"] for e in read_events(self.events + ".1") if e["event"] == "apply"]
        self.assertEqual(versions, list(range(1, total + 1)))

    def test_a_pause_of_holder_0_drops_nobody(self):
        child, port = self.start_holder("--epochs", "12", "--async", "4")
        workers = [self.begin_work(k, port, "--epochs", "12", "--async", "4") for k in range(3)]
        self.wait_for("join", 3)
        self.wait_for("push", 50)
        child.send_signal(signal.SIGSTOP)
        time.sleep(13) # a process is gone after 10 s of silence
        child.send_signal(signal.SIGCONT)
        for worker in workers:
            self.finish(worker)
        output = self.finish(child)
        log = Log(self.events)
        log.check_once(self, 12)
        self.assertEqual([e["reason"] for e in log.events if e["event"] == "lost"], ["bye"] * 3, output)

    def test_a_stuck_worker_does_not_hang_the_run(self):
        """It lives, but computes for ever. Others get its batches."""
        if not command_has_hooks():
            self.skipTest("built without CLT_TESTING")
        child, port = self.start_holder("--epochs", "2", "--async", "16", "--setup-timeout", "2")
        self.begin_work(1, port, "--epochs", "2", "--async", "16", variables={"CLT_TESTING_SLOW_WORKER": "1:1e9"})
        self.wait_for("deal", 2) # it asks for a second batch before it computes
        other = self.begin_work(0, port, "--epochs", "2", "--async", "16")
        self.finish(other)
        self.finish(child)
        log = Log(self.events)
        log.check_once(self, 2)
        self.assertEqual([(e["worker"], e["returned"]) for e in log.events
                          if e["event"] == "lost" and e["reason"] == "stuck"], [(1, 2)])

    def test_a_worker_whose_gradients_have_no_form_is_dropped(self):
        if not command_has_hooks():
            self.skipTest("built without CLT_TESTING")
        child, port = self.start_holder("--epochs", "2", "--async", "16")
        bad = self.begin_work(1, port, "--epochs", "2", "--async", "16", variables={"CLT_TESTING_MALFORMED_WORKER": "1"})
        self.assertIn("refuses worker 1: its gradient has not the form", self.finish(bad, 1))
        self.finish(self.begin_work(0, port, "--epochs", "2", "--async", "16"))
        self.finish(child)
        log = Log(self.events)
        log.check_once(self, 2)
        self.assertEqual([(e["worker"], e["returned"]) for e in log.events
                          if e["event"] == "lost" and e["reason"] == "malformed gradient"], [(1, 2)])

    def test_names_of_holders_may_be_long(self):
        """Together they are longer than the header of a message."""
        self.launch(1, "--steps", "3", "--async", "0", "--servers", "5", own=["--reach", "0" * 200 + "177.0.0.1"])
        self.assertEqual(Log(self.events).version, 3)

    # --- strangers ----------------------------------------------------------------------------------------

    def start_holder(self, *arguments):
        """Starts holder 0 by hand. Returns the process and its address."""
        child = subprocess.Popen([COMMAND, "train", *self.options, "--events", self.events, "--holder", "0", "--listen",
                                  "127.0.0.1:0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env={**os.environ, "CLTRAIN_SECRET": SECRET})
        self.addCleanup(child.kill)
        for line in child.stdout:
            if found := re.match(r"holder 0 listens on port (\d+)", line):
                return child, int(found[1])
        self.fail("holder 0 does not listen")
        return None

    def begin_work(self, number, port, *arguments, variables=None):
        worker = subprocess.Popen([COMMAND, "train", *self.options, "--worker", str(number), "--join",
                                   f"127.0.0.1:{port}", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "CLTRAIN_SECRET": SECRET, **(variables or {})})
        self.addCleanup(worker.kill)
        return worker

    def work(self, number, port, *arguments, secret=SECRET):
        return subprocess.run([COMMAND, "train", *self.options, "--worker", str(number), "--join", f"127.0.0.1:{port}",
                               *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "CLTRAIN_SECRET": secret})

    def test_strangers_do_no_harm(self):
        child, port = self.start_holder("--epochs", "2", "--async", "4")
        rng = random.Random(5)
        half_open = []
        for i in range(200):
            link = socket.create_connection(("127.0.0.1", port))
            if i % 2:
                link.sendall(rng.randbytes(rng.randrange(1, 4000)))
            half_open.append(link)
        wrong = self.work(7, port, "--epochs", "2", "--async", "4", "--setup-timeout", "3", secret="another secret here")
        self.assertEqual(wrong.returncode, 1)
        self.assertRegex(wrong.stderr, r"^cltrain: worker 7: holder 0 at 127.0.0.1:\d+ does not answer within 3 s: .*"
                                       r"another secret\n$")
        other = self.work(6, port, "--epochs", "2", "--async", "4", "--shuffle", "off")
        self.assertEqual(other.returncode, 1)
        self.assertRegex(other.stderr, r"^cltrain: holder 0 at 127.0.0.1:\d+ refuses worker 6: it has another model, .*\n$")
        other = self.work(5, port, "--epochs", "2", "--async", "4", "--precision", "bf16")
        self.assertRegex(other.stderr, r"^cltrain: holder 0 at 127.0.0.1:\d+ refuses worker 5: it has another model, .*\n$")
        right = self.work(0, port, "--epochs", "2", "--async", "4")
        self.assertEqual(right.returncode, 0, right.stderr)
        output = child.communicate(timeout=PATIENCE)[0]
        self.assertEqual(child.returncode, 0, output)
        log = Log(self.events)
        log.check_once(self, 2)
        self.assertEqual({e["worker"] for e in log.events if e["event"] == "join"}, {0})
        for link in half_open:
            link.close()

    def test_a_loss_of_another_weight_is_another_model(self):
        saved = self.options
        self.options = ["two-branch:weight=1" if o == "mlp" else o for o in saved]
        child, port = self.start_holder("--steps", "2", "--async", "4")
        self.options = ["two-branch:weight=2" if o == "mlp" else o for o in saved]
        other = self.work(0, port, "--steps", "2", "--async", "4")
        self.options = ["two-branch:weight=1" if o == "mlp" else o for o in saved]
        right = self.work(0, port, "--steps", "2", "--async", "4")
        self.options = saved
        self.assertIn("refuses worker 0: it has another model", other.stderr)
        self.assertEqual(right.returncode, 0, right.stderr)
        self.finish(child)

    # --- the launcher -------------------------------------------------------------------------------------

    def pretend(self, script, workers, *own, wait=True):
        """Launches a script in place of the command. It has a role, a number, and a file to remember in."""
        program = self.path("program")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport os, signal, sys, time\n"
                       "role = 'holder' if '--holder' in sys.argv else 'worker'\n"
                       "number = int(sys.argv[sys.argv.index('--' + role) + 1])\n"
                       f"memory = {self.path('memory')!r}\n" + textwrap.dedent(script))
        os.chmod(program, 0o755)
        child = subprocess.Popen([sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", program, *own, "--",
                                  "train", "--async", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.kill)
        return self.finish(child) if wait else child

    def test_a_worker_that_came_back_and_ended_well_is_not_lost(self):
        """Holder 0 still saves when the last worker has ended."""
        output = self.pretend("""
            if role == 'holder':
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
                print('holder 0 listens on port 1', flush=True)
                while not os.path.exists(memory + '.done'):
                    time.sleep(0.05)
                time.sleep(1)
            elif not os.path.exists(memory):
                open(memory, 'w').close()
                sys.exit(1)
            else:
                open(memory + '.done', 'w').close()
            """, 1)
        self.assertIn("it is started again", output)
        self.assertNotIn("no worker is left", output)

    def test_without_workers_the_run_ends_unless_other_hosts_have_some(self):
        script = """
            if role == 'holder':
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
                print('holder 0 listens on port 1', flush=True)
                time.sleep(3)
            else:
                sys.exit(1)
            """
        child = self.pretend(script, 1, "--restarts", "0", wait=False)
        self.assertIn("no worker is left: the run is saved and ends", self.finish(child, 143))
        output = self.pretend(script, 1, "--restarts", "0", "--listen", "0.0.0.0:0", "--reach", "here")
        self.assertIn("the run goes on with workers of other hosts", output)

    def test_a_second_signal_ends_a_job_whose_holder_sets_up(self):
        child = self.pretend("""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(memory, 'w').close()
            time.sleep(100)
            """, 1, wait=False)
        while not os.path.exists(self.path("memory")):
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        time.sleep(1) # signals that come at once count as one
        child.send_signal(signal.SIGTERM)
        self.assertIn("a second signal ended the job at once", self.finish(child, 143))

    # --- wrong use ----------------------------------------------------------------------------------------

    def test_wrong_use_is_one_line(self):
        holder = ["--holder", "0", "--listen", "127.0.0.1:0"]
        cases = [(["--async", "-1", *holder], "--async -1: must be a whole number of at least 0"),
                 (["--async", "1", "--servers", "0", *holder], "--servers 0: must be a whole number of at least 1"),
                 (["--async", "1", "--servers", "65", *holder], "--servers 65: must be at most 64"),
                 (["--async", "1"], "cltrain-launch starts them all"),
                 (["--async", "1", "--holder", "1", "--listen", "a:0"], "the 1 holders of --servers"),
                 (["--async", "1", "--holder", "0"], "--holder 0 needs --listen ADDRESS:PORT"),
                 (["--async", "1", "--worker", "0"], "--worker 0 needs --join HOST:PORT"),
                 (["--async", "1", "--servers", "2", "--holder", "1", "--listen", "0.0.0.0:0", "--join", "a:1"],
                  "--holder 1 --listen 0.0.0.0:0: others cannot reach this address: add --reach HOST"),
                 (["--servers", "2"], "--servers needs --async"),
                 (["--events", "x"], "--events needs --async"),
                 (["--async", "1", "--parallel", "dp=2,tp=2", *holder], "--async and --parallel exclude each other"),
                 (["--async", "1", "--zero", "1", *holder], "--async and --zero exclude each other"),
                 (["--async", "1", "--offload", "optimizer", *holder], "--async and --offload exclude each other"),
                 (["--async", "1", "--rebalance", *holder], "--async and --rebalance exclude each other")]
        for words, text in cases:
            run = subprocess.run([COMMAND, "train", *self.options, *words], capture_output=True, text=True,
                                 timeout=PATIENCE, check=False, env={**os.environ, "CLTRAIN_SECRET": SECRET})
            self.assertEqual(run.returncode, 2, (words, run.stderr))
            self.assertIn(text, run.stderr)
            self.assertEqual(run.stderr.count("\n"), 1, run.stderr)
        for secret in (None, "short"):
            environment = {k: v for k, v in os.environ.items() if k != "CLTRAIN_SECRET"}
            environment.update({"CLTRAIN_SECRET": secret} if secret else {})
            run = subprocess.run([COMMAND, "train", *self.options, "--async", "1", *holder], capture_output=True,
                                 text=True, timeout=PATIENCE, check=False, env=environment)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn("CLTRAIN_SECRET must have the job's secret, of 16 characters or more", run.stderr)


def command_has_hooks():
    """Whether the library was built with the hooks of the tests."""
    return os.environ.get("CLT_TEST_HOOKS") == "1"


if __name__ == "__main__":
    if "built without ZeroMQ" in BUILT:
        sys.exit(77)
    command.main()
