"""Asynchronous training: processes, their logs, and what happens when some of them end."""
import collections
import json
import math
import os
import random
import re
import signal
import subprocess
import time

import async_job
from async_job import BATCH, PATIENCE, SAMPLES, SECRET, JobTest, Log, command_has_hooks, read_events
from command import COMMAND, DEVICE, get


class AsyncTest(JobTest):
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
        steps = [r for r in records if "staleness" in r] # epochs have a step too
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
        """Every byte is counted that travels for a batch, to and from both holders: of the table the batch's rows, also in
        the first pull. The bits are those of synchronous training, also of an optimizer that changes rows which the batch
        does not read."""
        rng = random.Random(3)
        text = b"".join(rng.choice([b"one ", b"two ", b"three ", b"four, ", b"FIVE. "]) for _ in range(1500))
        with open(self.path("text"), "wb") as file:
            file.write(text)
        length, batch, steps, width, dense = 8, 4, 6, 128, 2 * 512 * (128 + 1) + 256 * (128 + 1)
        options = ["--model", "lstm", "--data", f"text:{self.path('text')}", "--seq-len", str(length), "--batch", str(batch),
                   "--devices", DEVICE, "--seed", "1", "--tune", "off", "--windows", "fixed", "--shuffle", "off",
                   "--precision", "f32", "--steps", str(steps)]
        saved, self.options = self.options, options
        for optimizer in (["sgd"], ["momentum", "--weight-decay", "0.01"], ["adamw", "--lr", "0.01"]):
            one, other = self.path(f"sync-{optimizer[0]}"), self.path(f"async-{optimizer[0]}")
            run = subprocess.run([COMMAND, "train", *options, "--optimizer", *optimizer, "--checkpoint-dir", one, "-q"],
                                 capture_output=True, text=True, timeout=PATIENCE, check=False)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.launch(1, "--async", "0", "--servers", "2", "--optimizer", *optimizer, "--checkpoint-dir", other)
            for name in ("model", "optimizer"):
                at = f"step-{steps:08d}/{name}.safetensors"
                self.assertEqual(get(os.path.join(one, at)), get(os.path.join(other, at)), optimizer)
            events = read_events(self.events)
            both = events + read_events(self.events + ".1")
            pushes = [e for e in events if e["event"] == "push"]
            self.assertEqual(len(pushes), steps)
            for push in pushes: # sample i has the bytes from length * i on
                begin = push["offset"] * length
                rows = len(set(text[begin:begin + push["count"] * length]))
                own = [e for e in both if e.get("sequence") == push["sequence"]]
                pulls = [e for e in own if e["event"] == "pull"]
                self.assertEqual([e["asked"] for e in pulls], [4 + 4 * rows] * 2)
                self.assertEqual(sum(e["bytes"] for e in pulls), 4 * (dense + rows * width))
                self.assertEqual(push["bytes"] + sum(e["bytes"] for e in own if e["event"] == "stage"),
                                 4 * (dense + rows * width) + 2 * (4 + 4 * rows))
            os.remove(self.events)
        self.options = saved

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

    def test_a_worker_that_is_replaced_learns_why(self):
        child, port = self.start_holder("--epochs", "400", "--async", "16")
        first = self.begin_work(1, port, "--epochs", "400", "--async", "16")
        self.wait_for("push", 5)
        second = self.begin_work(1, port, "--epochs", "400", "--async", "16")
        self.assertIn("refuses worker 1: another process has joined with its number, and has taken its place",
                      self.finish(first, 1))
        child.send_signal(signal.SIGTERM)
        self.finish(child, 143)
        self.finish(second)

    def test_scales_of_workers_are_not_reported_as_one(self):
        metrics = self.path("metrics")
        output = self.launch(1, "--steps", "3", "--async", "2", "--precision", "f16", "--metrics", metrics)
        self.assertNotIn("loss scale", output)
        steps = [r for r in read_events(metrics) if "staleness" in r]
        self.assertEqual(len(steps), 3)
        self.assertFalse({"loss_scale", "skipped"} & {name for r in steps for name in r})

    # --- wrong use ----------------------------------------------------------------------------------------

    def test_wrong_use_is_one_line(self):
        holder = ["--holder", "0", "--listen", "127.0.0.1:0"]
        cases = [(["--async", "-1", *holder], "--async -1: must be a whole number of at least 0"),
                 (["--async", "1", "--servers", "0", *holder], "--servers 0: must be a whole number of at least 1"),
                 (["--async", "1", "--servers", "65", *holder], "--servers 65: must be at most 64"),
                 (["--async", "1"], "cltrain-launch starts them all"),
                 (["--async", "1", "--holder", "1", "--listen", "a:0"], "the 1 holders of --servers"),
                 (["--async", "1", "--holder", "0"], "--holder 0 needs --listen ADDRESS:PORT"),
                 (["--async", "1", "--holder", "0", "--listen", ":99"], "--listen :99: give ADDRESS:PORT"),
                 (["--async", "1", "--holder", "0", "--listen", "a:65536"], "--listen a:65536: give ADDRESS:PORT"),
                 (["--async", "1", "--worker", "0"], "--worker 0 needs --join HOST:PORT"),
                 (["--async", "1", "--servers", "2", "--holder", "1", "--listen", "0.0.0.0:0", "--join", "a:1"],
                  "--holder 1 --listen 0.0.0.0:0: others cannot reach this address: add --reach HOST"),
                 (["--servers", "2"], "--servers needs --async"),
                 (["--events", "x"], "--events needs --async"),
                 (["--async", "1", "--parallel", "dp=2,tp=2", *holder], "--async and --parallel exclude each other"),
                 (["--async", "1", "--zero", "1", *holder], "--async and --zero exclude each other"),
                 (["--async", "1", "--val", "0.1", *holder], "--async and --val exclude each other: evaluations run beside"),
                 (["--async", "1", "--average", "ema:0.9", *holder], "--async and --average exclude each other"),
                 (["--async", "1", "--keep-best", "test_loss", *holder], "--async and --keep-best exclude each other"),
                 (["--async", "1", "--patience", "2", "--monitor", "test_loss", *holder], "--async and --patience exclude"),
                 (["--async", "1", "--schedule", "plateau:0.1:2", *holder], "--async and --schedule plateau exclude"),
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


if __name__ == "__main__":
    async_job.main()
