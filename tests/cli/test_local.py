"""--parallel local=N: replicas that are synchronised every so many steps or seconds."""
import json
import math
import os
import shutil
import signal
import subprocess
import time

from command import COMMAND, CommandTest, get, main, records, tensors

DP = ("--split", "equal")
TWO = ("--parallel", "local=2")


class Local(CommandTest):
    def fit(self, name, *more, model="mlp:16", devices="pocl/2", **names):
        """Trains, and returns the records of steps and of epochs."""
        metrics = self.path(name + ".jsonl")
        self.last = self.train("--seed", "3", "--metrics", metrics, "--checkpoint-dir", self.path(name),
                               *more, model=model, devices=devices, **names)
        return records(metrics)

    def newest(self, name, file="model"):
        folder = self.path(name)
        step = max(n for n in os.listdir(folder) if n.startswith("step-"))
        return os.path.join(folder, step, file + ".safetensors")

    def near(self, a, b, delta=1e-5):
        a, b = tensors(self.newest(a)), tensors(self.newest(b))
        self.assertEqual(set(a), set(b))
        for name, values in a.items():
            for x, y in zip(values, b[name]):
                self.assertAlmostEqual(x, y, delta=delta, msg=name)

    def same(self, a, b):
        for file in ("model", "optimizer"):
            self.assertEqual(get(self.newest(a, file)), get(self.newest(b, file)), file)

    def test_averages_of_every_step_are_dp(self):
        # 70 samples in batches of 23: the last batch has one sample, which replica 0 gets.
        steps, _ = self.fit("dp", "--epochs", "2", *DP, "--batch", "23", devices="pocl/2,pocl/2")
        synced, epochs = self.fit("local", "--epochs", "2", "--parallel", "local=4", "--sync-every", "1",
                                  "--batch", "23", devices="pocl/2,pocl/2")
        self.near("dp", "local")
        self.assertEqual(len(steps), len(synced))
        for a, b in zip(steps, synced):
            self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-5)
            self.assertEqual(a["samples"], b["samples"])
        self.assertEqual([r["samples"] for r in synced], [23, 23, 23, 1] * 2)
        self.assertEqual(synced[3]["replica_samples"], [1, 0, 0, 0])
        self.assertEqual(synced[3]["replica_steps"], [1, 0, 0, 0])
        self.assertIsNone(synced[3]["replica_losses"][1])
        # Replicas of two devices, and statistics of batch norm, which are averaged too.
        self.fit("pairs", "--epochs", "2", "--parallel", "local=2,dp=2", "--sync-every", "1",
                 "--batch", "23", devices="pocl/2,pocl/2")
        self.near("dp", "pairs")
        norm = "resnet18:width=1,blocks=1"
        self.fit("norm_dp", "--steps", "3", *DP, "--batch", "20", model=norm)
        self.fit("norm", "--steps", "3", *TWO, "--sync-every", "1", "--batch", "20", model=norm)
        self.near("norm_dp", "norm", 1e-4)
        self.assertEqual(len(epochs), 2)

    def test_records_of_synchronisations(self):
        steps, epochs = self.fit("local", "--steps", "11", *TWO, "--sync-every", "4", "--batch", "20",
                                 "--outer", "nesterov:lr=0.5,momentum=0.8", "--checkpoint-every", "epoch")
        # 70 samples are 4 steps an epoch; the last period is shorter.
        self.assertEqual([r["step"] for r in steps], [4, 8, 11])
        self.assertEqual([r["sync"] for r in steps], [1, 2, 3])
        self.assertEqual([r["sync_steps"] for r in steps], [4, 4, 3])
        self.assertEqual([r["samples"] for r in steps], [70, 70, 60])
        self.assertEqual([r["replica_samples"] for r in steps], [[35, 35], [35, 35], [30, 30]])
        for r in steps:
            mean = sum(n * x for n, x in zip(r["replica_samples"], r["replica_losses"])) / r["samples"]
            self.assertAlmostEqual(mean, r["loss"], places=6)
            self.assertEqual(r["sync_bytes"], steps[0]["sync_bytes"])
        self.assertEqual([r["epoch"] for r in epochs], [1, 2])
        self.assertIn("2 replicas, synchronised every 4 steps (nesterov, lr 0.5, momentum 0.8)",
                      self.last.stdout)
        self.assertIn(f"3 synchronisations, {3 * steps[0]['sync_bytes']} bytes", self.last.stdout)
        # One replica exchanges nothing.
        self.fit("alone", "--steps", "6", "--parallel", "local=1", "--sync-every", "4", devices="pocl")
        self.assertIn("2 synchronisations, 0 bytes", self.last.stdout)
        self.fit("once", "--steps", "1", *TWO, "--sync-every", "1", "--batch", "20")
        self.assertIn(f"\n1 synchronisation, {steps[0]['sync_bytes']} bytes\n", self.last.stdout)
        # An epoch that ends between synchronisations is reported, and saved, at the next one.
        steps, epochs = self.fit("late", "--steps", "12", *TWO, "--sync-every", "6", "--batch", "20",
                                 "--checkpoint-every", "5")
        self.assertEqual([r["step"] for r in steps], [6, 12])
        self.assertEqual([r["epoch"] for r in epochs], [1, 3])
        self.assertEqual(sorted(n for n in os.listdir(self.path("late")) if n.startswith("step-")),
                         ["step-00000006", "step-00000012"])

    def test_resume(self):
        for precision in ("f32", "f16"):
            usual = (*TWO, "--sync-every", "4", "--outer", "nesterov", "--optimizer", "adamw", "--batch",
                     "20", "--precision", precision)
            self.fit("whole" + precision, "--steps", "16", *usual)
            self.fit("part" + precision, "--steps", "8", *usual)
            steps, _ = self.fit("part" + precision, "--steps", "16", "--resume", *usual)
            self.same("whole" + precision, "part" + precision)
            self.assertEqual([r["step"] for r in steps], [4, 8, 12, 16])
        # Another number of replicas: outer state, and inner states that begin anew.
        usual = ("--outer", "nesterov", "--optimizer", "adamw", "--batch", "20", "--sync-every", "4")
        more, _ = self.fit("wholef32", "--steps", "20", "--resume", "--parallel", "local=4", *usual,
                           devices="pocl/2,pocl/2")
        self.assertIn("is of 2 replicas, this run has 4: it goes on with the parameters and the outer "
                      "optimizer's state; the inner states of all replicas begin anew",
                      " ".join(self.last.stderr.split()))
        self.assertEqual([r["step"] for r in more], [4, 8, 12, 16, 20])
        # Those resume to the bit as well.
        self.fit("wholef32", "--steps", "24", "--resume", "--parallel", "local=4", *usual,
                 devices="pocl/2,pocl/2")
        # Without replicas, and back.
        self.fit("wholef32", "--steps", "26", "--resume", "--optimizer", "adamw", "--batch", "20",
                 devices="pocl@1")
        self.assertIn("goes on without them", self.last.stderr)
        self.fit("wholef32", "--steps", "30", "--resume", *TWO, *usual)
        self.assertIn("is of a run without replicas", self.last.stderr)

    def test_fresh_inner_states(self):
        """AdamW counts its updates from the begin of its state: a run of one step on another number
        of replicas is a first step from these parameters."""
        usual = ("--optimizer", "adamw", "--batch", "20", "--sync-every", "1", "--shuffle", "off")
        self.fit("four", "--steps", "4", "--parallel", "local=4", *usual, devices="pocl/2,pocl/2")
        begin = self.newest("four")
        self.fit("new", "--steps", "1", *TWO, *usual, "--init", begin)
        self.fit("four", "--steps", "5", "--resume", *TWO, *usual)
        # Step 5 is the first of an epoch, so both read the same samples.
        self.assertEqual(get(self.newest("new")), get(self.newest("four")))

    def test_frozen_parameters(self):
        """Replicas get the frozen parameters of the checkpoint, which differ from those of the seed."""
        self.train("--steps", "1", "--seed", "9", "--checkpoint-dir", self.path("other"), model="mlp:16")
        usual = (*TWO, "--sync-every", "4", "--batch", "20", "--freeze", "fc1*")
        begin = ("--init", self.newest("other"))
        self.fit("whole", "--steps", "8", *usual, *begin)
        self.fit("part", "--steps", "4", *usual, *begin)
        self.fit("part", "--steps", "8", "--resume", *usual)
        self.same("whole", "part")

    def test_begin_of_the_inner_state_is_kept(self):
        """A run without replicas goes on with inner states that began in the middle of the run: Adam counts its
        updates from there. Step 8 is computed again from the states that both checkpoints have."""
        usual = ("--optimizer", "adam", "--lr", "0.01", "--batch", "20", "--shuffle", "off", "--checkpoint-every", "1",
                 "--keep", "0")
        self.fit("run", "--steps", "4", *TWO, "--sync-every", "1", *usual)
        self.fit("run", "--steps", "6", "--resume", "--parallel", "local=1", "--sync-every", "1", *usual,
                 devices="pocl@1")
        self.fit("run", "--steps", "7", "--resume", *usual, devices="pocl@1")
        self.fit("run", "--steps", "8", "--resume", *usual, devices="pocl@1")
        for step in (7, 8):
            old, new = (tensors(os.path.join(self.path("run"), f"step-{n:08}", "model.safetensors"))
                        for n in (step - 1, step))
            slots = tensors(os.path.join(self.path("run"), f"step-{step:08}", "optimizer.safetensors"))
            updates, moved = step - 4, 0
            for name, values in new.items():
                for a, b, m, v in zip(old[name], values, slots[name + ".exp_avg"], slots[name + ".exp_avg_sq"]):
                    change = 0.01 * m / (1 - 0.9 ** updates) / (math.sqrt(v / (1 - 0.999 ** updates)) + 1e-8)
                    self.assertAlmostEqual(a - b, change, delta=1e-6, msg=name)
                    moved += abs(change) > 1e-3
            self.assertGreater(moved, 100)

    def residual(self, name):
        """Returns the residuals of all senders in a checkpoint, added up."""
        sums, senders = {}, set()
        for key, values in tensors(self.newest(name, "optimizer")).items():
            parameter, found, sender = key.partition(".wire.")
            if found:
                senders.add(sender)
                sums[parameter] = [a + b for a, b in zip(sums.get(parameter, [0.0] * len(values)), values)]
        return sums, sorted(senders)

    def test_wire(self):
        usual = ("--sync-every", "4", "--outer", "nesterov", "--batch", "20")
        full, _ = self.fit("f32", "--steps", "8", *TWO, *usual)
        for wire in ("bf16", "f16"):
            words = (*TWO, *usual, "--wire", wire)
            steps, _ = self.fit("whole" + wire, "--steps", "16", *words)
            self.fit("part" + wire, "--steps", "8", *words)
            self.fit("part" + wire, "--steps", "16", "--resume", *words)
            self.same("whole" + wire, "part" + wire)
            self.assertEqual({2 * r["sync_bytes"] for r in steps}, {r["sync_bytes"] for r in full})
            self.assertIn(f"bytes each time, parameters in {wire}", self.last.stdout)
        before, senders = self.residual("partbf16")
        self.assertEqual(senders, ["replica0", "replica1", "sum0"])
        self.assertGreater(sum(abs(x) for values in before.values() for x in values), 0)
        # Other types do not go on with these residuals.
        for more, own in (((), "f32"), (("--wire", "f16"), "f16")):
            self.assert_bad(*self.arguments("--steps", "20", "--checkpoint-dir", self.path("partbf16"), "--resume", *TWO,
                                            *usual, *more, model="mlp:16", devices="pocl/2"), code=1,
                            says=("has residuals of wire bf16", f"this run has wire {own}: go on with wire bf16"))
        # On another number of replicas nothing of them is lost: this run ends before it synchronises.
        self.fit("partbf16", "--steps", "16", "--resume", "--parallel", "local=4", *usual, "--wire", "bf16",
                 devices="pocl/2,pocl/2")
        self.assertIn("is added to what replica 0 sends next", " ".join(self.last.stderr.split()))
        after, _ = self.residual("partbf16")
        for name, values in after.items():
            for a, b in zip(values, before[name]):
                self.assertAlmostEqual(a, b, delta=1e-9, msg=name)
        # A run in f32 goes on in 16 bits, with residuals of zeros. One replica sends nothing.
        self.fit("f32", "--steps", "12", "--resume", *TWO, *usual, "--wire", "bf16")
        self.fit("f32", "--steps", "14", "--resume", "--parallel", "local=1", *usual, "--wire", "bf16", devices="pocl@1")
        # Gradients leave other residuals.
        self.fit("dp", "--steps", "4", "--batch", "20", "--wire", "bf16", *DP)
        self.assert_bad(*self.arguments("--steps", "8", "--checkpoint-dir", self.path("dp"), "--resume", *TWO, *usual,
                                        "--wire", "bf16", model="mlp:16", devices="pocl/2"), code=1,
                        says=("has residuals of gradients (wire bf16), and replicas exchange parameters",))

    def test_time_and_steps_in_turns(self):
        usual = (*TWO, "--batch", "8")
        steps, _ = self.fit("turns", "--epochs", "2", *usual, "--sync-every", "0.02s")
        by_time = steps[-1]["step"]
        self.fit("turns", "--steps", by_time + 6, "--resume", *usual, "--sync-every", "2")
        steps, _ = self.fit("turns", "--steps", by_time + 9, "--resume", *usual, "--sync-every", "0.02s")
        steps = [r["step"] for r in steps]
        self.assertEqual(steps, sorted(steps))
        self.assertIn(by_time + 6, steps)
        self.assertEqual(steps[-1], by_time + 9)

    def test_steps_by_time(self):
        steps, _ = self.fit("few", "--steps", "13", *TWO, "--batch", "8", "--sync-every", "0.05s")
        self.assertEqual(steps[-1]["step"], 13)
        self.assertEqual(sum(sum(r["replica_steps"]) for r in steps), 26)

    def test_batches_that_replicas_do_not_share_equally(self):
        # Each of four replicas takes 2 samples for a batch of 5, so a step has 8, and an epoch of 70 has 35 batches. In
        # so short a time a replica makes one step.
        usual = ("--parallel", "local=4", "--sync-every", "0.000001s", "--batch", "5", "--schedule", "cosine",
                 "--checkpoint-every", "5", "--keep", "100")
        four = "pocl@1,pocl@1,pocl@1,pocl@1"
        steps, _ = self.fit("five", "--epochs", "3", *usual, devices=four)
        self.assertIn(", 26 steps of 8 on", self.last.stdout)
        self.assertIn("\na step has 8 samples instead of 5 (--batch): 2 of each replica\n", self.last.stdout)
        self.assertIn("\ndone: 26 steps;", self.last.stdout)
        self.assertEqual((steps[-1]["step"], sum(sum(r["replica_steps"]) for r in steps)), (26, 3 * 35))
        self.assertLess(steps[-1]["lr"], 0.02 * steps[0]["lr"])
        # A run that goes on in the middle of an epoch ends at the same step.
        for name in os.listdir(self.path("five")):
            if name.startswith("step-") and int(name[5:]) > 14:
                shutil.rmtree(os.path.join(self.path("five"), name))
        steps, _ = self.fit("five", "--epochs", "3", "--resume", *usual, devices=four)
        self.assertIn(", 26 steps of 8 on", self.last.stdout)
        self.assertEqual(steps[-1]["step"], 26)
        # --steps counts such steps.
        steps, _ = self.fit("steps", "--steps", "7", *usual, devices=four)
        self.assertEqual((steps[-1]["step"], sum(sum(r["replica_steps"]) for r in steps)), (7, 28))

    def test_by_time(self):
        steps, epochs = self.fit("time", "--epochs", "3", *TWO, "--sync-every", "0.02s", "--batch", "8")
        for epoch in (1, 2, 3):
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] == epoch), 70)
        self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])
        # Stopped by a signal in an epoch, it resumes with what is left of the epoch. The hook makes steps long, in
        # builds that have it.
        metrics, folder = self.path("stopped.jsonl"), self.path("stopped")
        usual = ("--seed", "3", "--metrics", metrics, "--checkpoint-dir", folder, *TWO, "--sync-every",
                 "0.3s", "--batch", "4")
        slow = {**os.environ, "CLT_TESTING_SLOW": "=400"}
        # The hook would also prolong the first step, in which a long run compiles merged launches.
        run = subprocess.Popen([COMMAND, *self.arguments("--epochs", "100000", "--merge-launches", "off", *usual,
                                                         model="mlp:16", devices="pocl/2")],
                               env=slow, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not os.path.exists(metrics) or not get(metrics).count(b"\n"):
            self.assertIsNone(run.poll(), "ended before it was stopped")
            time.sleep(0.02)
        run.send_signal(signal.SIGTERM)
        _, stderr = run.communicate(timeout=120)
        self.assertEqual(run.returncode, 143, stderr)
        self.assertIn(b"--resume goes on", stderr)
        with open(os.path.join(folder, max(n for n in os.listdir(folder) if n.startswith("step-")), "state.json"),
                  encoding="utf-8") as file:
            if "left" not in json.load(file)["sections"]["local"]:
                self.skipTest("the steps of this build end an epoch before the signal comes")
        last = records(metrics)[0][-1]["epoch"] + 1
        self.train("--epochs", last, "--resume", *usual, model="mlp:16", devices="pocl/2")
        steps, epochs = records(metrics)
        for epoch in range(1, last + 1):
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] == epoch), 70, epoch)
        self.assertEqual([r["epoch"] for r in epochs], list(range(1, last + 1)))

    def test_as_many_as_there_are(self):
        usual = ("--steps", "4", "--sync-every", "2", "--batch", "20")
        self.fit("three", *usual, "--parallel", "local=*", devices="pocl@1,pocl@1,pocl@1")
        self.assertIn("3 replicas, synchronised every 2 steps", self.last.stdout)
        self.fit("pairs", *usual, "--parallel", "local=*,dp=2", devices="pocl/2,pocl/2")
        self.assertIn("2 replicas, synchronised every 2 steps", self.last.stdout)
        self.fit("two", *usual, "--parallel", "local=2,dp=2", devices="pocl/2,pocl/2")
        self.same("pairs", "two")

    def test_scaled(self):
        """Batch and rate follow the replicas, and the schedule the samples: by steps exactly, by time nearly."""
        usual = ("--global-batch", "scaled", "--batch", "10", "--lr", "0.1", "--schedule", "cosine", "--epochs", "4")
        for name, every in (("steps", "2"), ("time", "0.02s")):
            words = (*usual, "--sync-every", every, "--checkpoint-every", "epoch", "--keep", "0")
            self.fit(name, *words, *TWO)
            # From the end of epoch 2 on with four replicas, in batches of 20.
            folder = self.path(name)
            saved = sorted(n for n in os.listdir(folder) if n.startswith("step-"))
            for later in saved[2:]:
                shutil.rmtree(os.path.join(folder, later))
            os.remove(self.path(name + ".jsonl"))
            self.fit(name, *words, "--resume", "--parallel", "local=4", devices="pocl/2,pocl/2")
            with open(self.path(name + ".jsonl"), encoding="utf-8") as file:
                lines = [json.loads(line) for line in file]
            change = next(r for r in lines if "after_step" in r)
            self.assertEqual((change["batch"], change["devices"]), (20, 4))
            self.assertAlmostEqual(change["lr"], 0.2)
            steps = [r for r in lines if "step" in r and "sync" in r]
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] > 2) % 70, 0)
            rates = [r["lr"] for r in steps]
            self.assertEqual(rates, sorted(rates, reverse=True))
            self.assertLessEqual(rates[0], 0.1 + 1e-6) # half of the cosine is over: 0.2 (1 + cos) / 2
            if every == "2":
                # 70 samples are 7 steps of 10, or 4 of 20, whose third and fourth begin at samples 40 and 60.
                self.assertAlmostEqual(rates[0], 0.1 * (1 + math.cos(math.pi * 16 / 28)), places=6)
                self.assertAlmostEqual(rates[1], 0.1 * (1 + math.cos(math.pi * 20 / 28)), places=6)

    def trace(self, name, *more, **names):
        """Trains, and returns the trace of --profile."""
        path = self.path(name + ".json")
        self.fit(name, "--steps", "4", "--batch", "20", "--profile", path, *more, **names)
        with open(path, encoding="utf-8") as file:
            return json.load(file)["traceEvents"]

    def test_profile(self):
        """Commands of all replicas, each on the row of its device, and the reductions of synchronisations."""
        norm = "resnet18:width=1,blocks=1" # has means of states
        names = {e["name"] for e in self.trace("profiled_dp", *DP, model=norm) if e.get("cat") == "reduction"}
        self.assertEqual(len([name for name in names if name.startswith("means of states (")]), 1)
        trace = self.trace("profiled", *TWO, "--sync-every", "2", model=norm)
        self.assertEqual([e["args"]["name"].partition(": ")[2] for e in trace if e["ph"] == "M"], ["", "", *["reductions"] * 2])
        for device in (0, 1):
            syncs = [e for e in trace if e["ph"] == "X" and e["tid"] == 2 + device]
            self.assertEqual(sorted((e["name"], e["args"]["step"]) for e in syncs),
                             sorted((name, step) for name in names for step in (2, 4)))
            self.assertEqual({(e["cat"], e["args"]["kernel"]) for e in syncs}, {("reduction", "synchronisation")})
            for e in syncs:
                begins = [f["ts"] for f in trace if f.get("tid") == device and f["ph"] == "X" and
                          f["args"]["step"] > e["args"]["step"] and f["args"]["kernel"] == "sgd"]
                ends = [f["ts"] + f["dur"] for f in trace if f.get("tid") == device and f["ph"] == "X" and
                        f["args"]["step"] <= e["args"]["step"] and f["args"]["kernel"] == "sgd"]
                self.assertLessEqual(max(ends), e["ts"])
                self.assertLessEqual(e["ts"] + e["dur"], min(begins, default=math.inf))
        for device in (0, 1):
            own = [e for e in trace if e["ph"] == "X" and e["tid"] == device]
            for step in (1, 2, 3, 4):
                kernels = [e["args"]["kernel"] for e in own if e["args"]["step"] == step]
                self.assertIn("sgd", kernels, (device, step))

    def test_refused(self):
        def bad(*more, says, code=2, devices="pocl/2"):
            self.assert_bad(*self.arguments("--steps", "1", *more, devices=devices), code=code, says=says)
        every = ("--sync-every", "8")
        bad(*TWO, says=("--parallel local=2", "--sync-every"))
        bad("--parallel", "local", *every, says=("local", "--parallel local=4 --sync-every 8"))
        for wrong in ("-8", "0", "1.5", "-2s", "8m"):
            bad(*TWO, "--sync-every=" + wrong, says=("--sync-every " + wrong, "above 0"))
        bad(*TWO, *every, "--outer", "adam", says=("--outer adam", "nesterov"))
        bad("--outer", "nesterov", says=("--outer", "local=N"))
        bad(*every, says=("--sync-every", "local=N"))
        for axis in ("tp", "pp", "space", "time"):
            bad("--parallel", f"local=2,{axis}=1", *every, says=("local", f"not {axis}"))
        for more in (("--zero", "1"), ("--zero", "3"), ("--offload", "optimizer"), ("--rebalance",),
                     ("--split", "2,1"), ("--virtual-shards", "2"), ("--windows", "continued"), ("--val", "0.1"),
                     ("--average", "ema:0.9"), ("--keep-best", "test_loss"), ("--patience", "2"),
                     ("--schedule", "plateau:0.5:2")):
            bad(*TWO, *every, *more, says=(more[0], "is not built beside local"))
        bad("--parallel", "dp=1,local=2", *every, says=("first axis",))
        bad("--parallel", "local=3", *every, says=("3 replicas", "2 devices"))
        bad("--parallel", "local=*,dp=*", *every, says=("local=*,dp=*", "give one of them a number"))
        bad("--parallel", "local=*,dp=3", *every, says=("local=*,dp=3", "2 devices"))
        bad(*TWO, "--sync-every", "1s", "--drop-last", says=("--drop-last",))
        self.assert_bad("plan", "--model", "mlp:16", "--data", "idx:" + self.data, "--devices", "pocl/2",
                        *TWO, code=2, says=("plan describes one replica",))


if __name__ == "__main__":
    main()
