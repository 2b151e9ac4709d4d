"""Validation sets, the best checkpoint, patience, plateaus: decisions, files, and runs that are killed and resumed."""
import json
import math
import os
import random
import shutil
import signal
import time

from command import CLASSES, CommandTest, cores, get, idx, images, main, put, records, write_data


class Plateau:
    """ReduceLROnPlateau, from its description in PyTorch's documentation."""
    def __init__(self, rate, factor, patience, least=0.0):
        self.rate, self.factor, self.patience, self.least = rate, factor, patience, least
        self.best, self.bad = math.inf, 0

    def step(self, value):
        if value < self.best * (1 - 1e-4):
            self.best, self.bad = value, 0
        else:
            self.bad += 1
        if self.bad > self.patience:
            self.bad = 0
            new = max(self.rate * self.factor, self.least)
            if self.rate - new > 1e-8:
                self.rate = new


def validations(path):
    """Returns the records that have val_loss, of steps or of epochs, in order."""
    return [r for r in map(json.loads, get(path).decode().splitlines()) if "val_loss" in r]


def section(folder, name):
    with open(os.path.join(folder, "state.json"), encoding="utf-8") as file:
        found = json.load(file)["sections"][name]
    return json.loads(found) if isinstance(found, str) else found


class Policies(CommandTest):
    def setUp(self):
        super().setUp()
        self.noisy()

    def noisy(self):
        """Labels of which many are wrong: validation gets worse after a while."""
        rng = random.Random(3)
        labels = [rng.randrange(CLASSES) for _ in range(160)]
        shown = [l if rng.random() < 0.6 else rng.randrange(CLASSES) for l in labels]
        put(os.path.join(self.data, "train-images-idx3-ubyte"), idx((160, 6, 5), images(shown, 6, 5, rng)))
        put(os.path.join(self.data, "train-labels-idx1-ubyte"), idx((160,), labels))

    def last(self, run):
        return os.path.join(run, max(n for n in os.listdir(run) if n.startswith("step-")))

    def test_validation_set(self):
        """A fraction is the same in each run and after a resume; the numbers are those of eval on these samples."""
        path = self.path("m.jsonl")
        done = self.train("--val", "0.2", "--epochs", "2", "--metrics", path, "--checkpoint-dir", self.path("run"))
        self.assertIn("128 samples of 4 classes, 32 for validation", done.stdout)
        self.assertRegex(done.stdout, r"val loss \d\.\d+  val accuracy \d\.\d+  test loss")
        first = validations(path)
        self.assertEqual([r["epoch"] for r in first], [1, 2])
        for r in first:
            self.assertEqual(r["val_accuracy"] * 32, round(r["val_accuracy"] * 32))
        again = self.path("again.jsonl")
        self.train("--val", "0.2", "--epochs", "2", "--metrics", again)
        self.assertEqual([r["val_loss"] for r in first], [r["val_loss"] for r in validations(again)])
        other = self.path("other.jsonl")
        self.train("--val", "0.2", "--epochs", "1", "--metrics", other, "--seed", "4")
        self.assertNotEqual(first[0]["val_loss"], validations(other)[0]["val_loss"])

        # The seed of a resumed run is the checkpoint's, also for the draw.
        seeded = self.path("seeded.jsonl"), self.path("broken.jsonl")
        self.train("--val", "0.2", "--epochs", "3", "--metrics", seeded[0], "--seed", "4")
        for more in (("--epochs", "2", "--seed", "4"), ("--epochs", "3", "--resume")):
            self.train("--val", "0.2", *more, "--metrics", seeded[1], "--checkpoint-dir", self.path("seeded"))
        self.assertEqual(*([r["val_loss"] for r in validations(p)] for p in seeded))
        # Another fraction is another run.
        done = self.train("--val", "0.3", "--epochs", "3", "--resume", "--checkpoint-dir", self.path("seeded"), code=1)
        self.assertIn("128 samples", done.stderr)

        # Other files: the test samples of another folder, on which eval gives the same numbers.
        held = self.path("held")
        write_data(held, test=30)
        files = self.path("files.jsonl")
        self.train("--val", "idx:" + held, "--epochs", "1", "--metrics", files, "--checkpoint-dir", self.path("files"))
        done = json.loads(self.run_command("eval", "--data", "idx:" + held, "--checkpoint", self.path("files"),
                                           "--devices", "pocl", "--json").stdout)
        self.assertAlmostEqual(validations(files)[0]["val_loss"], done["test_loss"], 6)
        self.assertAlmostEqual(validations(files)[0]["val_accuracy"], done["test_accuracy"], 6)

    def test_plateau_and_patience(self):
        path = self.path("m.jsonl")
        done = self.train("--val", "0.3", "--val-every", "3", "--epochs", "60", "--lr", "0.4", "--metrics", path,
                          "--schedule", "plateau:0.5:1:0.01", "--patience", "9")
        reference = Plateau(0.4, 0.5, 1, 0.01)
        best, bad = math.inf, 0
        lines = [json.loads(line) for line in get(path).decode().splitlines()]
        rates, seen = set(), 0
        for r in lines:
            if "lr" in r:
                self.assertEqual(r["lr"], float(f"{reference.rate:.9g}"), r)
                rates.add(r["lr"])
            elif "val_loss" in r:
                seen += 1
                self.assertEqual(r["step"] if "step" in r else 7 * r["epoch"], 3 * seen)
                reference.step(r["val_loss"])
                best, bad = (r["val_loss"], 0) if r["val_loss"] < best else (best, bad + 1)
        self.assertGreater(len(rates), 2)
        self.assertEqual(bad, 9)  # and so it ended
        self.assertIn(f"step {3 * seen}: the run ends: val_loss has not improved for 9 evaluations", done.stdout)
        self.assertIn(f"done: {3 * seen} steps", done.stdout)
        self.assertIn(": learning rate 0.2: val_loss has not improved for 2 evaluations", done.stdout)
        self.run_command("plot", path, "-o", self.path("m.png"))

    def test_keep_best(self):
        for metric, better in (("val_loss", min), ("val_accuracy", max), ("test_accuracy", max), ("loss", min)):
            run, path = self.path(metric), self.path(metric + ".jsonl")
            self.train("--val", "0.3", "--epochs", "14", "--lr", "0.4", "--metrics", path, "--checkpoint-dir", run,
                       "--keep-best", metric, "--keep", "2", "--checkpoint-every", "epoch")
            epochs = records(path)[1]
            target = os.readlink(os.path.join(run, "best"))
            if metric != "loss":
                values = [r[metric] for r in epochs]
                self.assertEqual(target, f"step-{7 * (1 + values.index(better(values))):08d}")
            kept = sorted(n for n in os.listdir(run) if n.startswith("step-"))
            self.assertEqual(kept, sorted({target, "step-00000091", "step-00000098"}))
            done = json.loads(self.run_command("eval", "--data", "idx:" + self.data, "--checkpoint",
                                               os.path.join(run, "best"), "--devices", "pocl", "--json").stdout)
            self.assertAlmostEqual(done["test_loss"], epochs[int(target[5:]) // 7 - 1]["test_loss"], 6)

    HOW = ("--val", "0.3", "--val-every", "5", "--epochs", "40", "--lr", "0.3", "--schedule", "plateau:0.7:1",
           "--keep-best", "average_val_loss", "--patience", "25", "--checkpoint-every", "3", "--keep", "2",
           "--optimizer", "adamw", "--seed", "2", "--average", "ema:0.9", "--monitor", "val_loss")

    def assert_same_run(self, straight, broken, devices):
        for name in ("model.safetensors", "optimizer.safetensors", "average.safetensors"):
            for folder in (self.last, lambda run: os.path.join(run, "best")):
                self.assertEqual(get(os.path.join(folder(straight), name)), get(os.path.join(folder(broken), name)),
                                 (name, devices))
        self.assertEqual(os.path.basename(self.last(straight)), os.path.basename(self.last(broken)))
        self.assertEqual(os.readlink(os.path.join(straight, "best")), os.readlink(os.path.join(broken, "best")))
        self.assertEqual(section(self.last(straight), "policies"), section(self.last(broken), "policies"))
        a, b = ([(r.get("step"), r["val_loss"], r["val_accuracy"], r["average_val_loss"]) for r in validations(run + ".jsonl")]
                for run in (straight, broken))
        self.assertEqual(a, b)

    def test_killed_and_resumed(self):
        """Killed at several moments, and resumed each time: the same decisions, to the bit."""
        for devices in ("pocl", "pocl/2") if cores() > 1 else ("pocl",):
            straight, broken = self.path("straight"), self.path("broken")
            for folder in (straight, broken):
                shutil.rmtree(folder, ignore_errors=True)
            how = *self.HOW, "--split", "equal"
            done = self.train(*how, "--checkpoint-dir", straight, "--metrics", straight + ".jsonl", devices=devices)
            self.assertIn("the run ends", done.stdout)
            self.assertIn("learning rate", done.stdout)
            steps = len(records(straight + ".jsonl")[0])
            kills = 0
            for part in (0.15, 0.4, 0.6, 0.9):
                child = self.start(*how, "--checkpoint-dir", broken, "--metrics", broken + ".jsonl", "--resume",
                                   devices=devices)
                until = time.monotonic() + 120
                while child.poll() is None and time.monotonic() < until:
                    names = [n for n in os.listdir(broken) if n.startswith("step-")] if os.path.isdir(broken) else []
                    if names and int(max(names)[5:]) >= part * steps:
                        child.send_signal(signal.SIGKILL)
                        break
                    time.sleep(0.002)
                kills += child.wait(60) == -signal.SIGKILL
            self.train(*how, "--checkpoint-dir", broken, "--metrics", broken + ".jsonl", "--resume", devices=devices)
            self.assertGreater(kills, 1)
            self.assert_same_run(straight, broken, devices)
            done = self.train(*how, "--checkpoint-dir", broken, "--resume", devices=devices)  # has ended early
            self.assertIn("nothing to do", done.stdout)

    def test_averages(self):
        """eval --averaged gives the numbers of training; PyTorch's file alone does too."""
        run, path = self.path("run"), self.path("m.jsonl")
        done = self.train("--val", "0.3", "--epochs", "3", "--lr", "0.4", "--average", "swa:8:2", "--metrics", path,
                          "--checkpoint-dir", run, "--keep-best", "average_test_accuracy")
        self.assertRegex(done.stdout, r"averages:  val loss \d\.\d+  val accuracy \d\.\d+  test loss")
        epochs = records(path)[1]
        self.assertNotIn("average_val_loss", epochs[0])  # averages begin after step 8
        self.assertNotEqual(epochs[2]["average_test_loss"], epochs[2]["test_loss"])
        how = "eval", "--data", "idx:" + self.data, "--devices", "pocl", "--json"
        average = os.path.join(self.last(run), "average.safetensors")
        for arguments, name in ((("--checkpoint", run), "test"), (("--checkpoint", run, "--averaged"), "average_test"),
                                (("--checkpoint", average, "--model", "mlp"), "average_test")):
            got = json.loads(self.run_command(*how, *arguments).stdout)
            self.assertAlmostEqual(got["test_loss"], epochs[2][name + "_loss"], 6, arguments)
            self.assertAlmostEqual(got["test_accuracy"], epochs[2][name + "_accuracy"], 6, arguments)
        done = self.run_command(*how, "--checkpoint", average, "--model", "mlp", "--averaged", code=2)
        self.assert_message(done.stderr, "is a file, not a checkpoint")
        self.train("--epochs", "1", "--checkpoint-dir", self.path("plain"))
        done = self.run_command(*how, "--checkpoint", self.path("plain"), "--averaged", code=2)
        self.assert_message(done.stderr, "has no averages of weights")
        # A resume with other averages says so.
        done = self.train("--val", "0.3", "--epochs", "4", "--checkpoint-dir", run, "--resume", "--average", "ema:0.5")
        self.assertIn("they begin anew", done.stderr)
        for says, arguments in (("neither ema:DECAY", ("--average", "ema:2")),
                                ("average_val_loss needs --average", ("--patience", "2", "--monitor",
                                                                      "average_val_loss", "--val", "0.1")),
                                ("--average is not built beside local", ("--average", "ema:0.9", "--parallel",
                                                                         "local=1", "--sync-every", "4"))):
            self.assert_message(self.train(*arguments, code=2).stderr, says)

    def test_averages_of_parts(self):
        """On meshes each device averages its part; files have whole tensors."""
        if cores() < 2:
            self.skipTest("one core")
        text = self.path("text.txt")
        put(text, bytes(random.Random(1).choices(b"abcdef ", k=4000)))
        for mesh in (("--parallel", "tp=2"), ("--zero", "3"), ("--parallel", "pp=2", "--accumulate", "2")):
            run, path = self.path("run" + mesh[1]), self.path(mesh[1] + ".jsonl")
            self.train("--model", "gpt2:nano", "--data", "text:" + text, "--seq-len", "16", "--epochs", "1", "--batch",
                       "8", "--windows", "fixed", "--average", "ema:0.8", "--optimizer", "adamw", "--metrics", path,
                       "--checkpoint-dir", run, *mesh, devices="pocl/2")
            done = json.loads(self.run_command("eval", "--data", "text:" + text, "--seq-len", "16", "--checkpoint", run,
                                               "--devices", "pocl", "--averaged", "--json").stdout)
            self.assertAlmostEqual(done["test_loss"], records(path)[1][0]["average_test_loss"], 4, mesh)
            done = self.run_command("sample", "--checkpoint", run, "--averaged", "--devices", "pocl", "--tokens", "4",
                                    "--prompt", "ab", "--greedy")
            self.assertTrue(done.stdout.startswith("ab"))

    def test_lost_device(self):
        """A device fails in a step, and in an evaluation: the other one goes on, with all decisions and averages."""
        if cores() < 2 or os.environ.get("CLT_TEST_HOOKS") == "0":
            self.skipTest("one core, or a build without hooks")
        for step in (10, 14):
            run, path = self.path(f"run{step}"), self.path(f"m{step}.jsonl")
            done = self.train("--val", "0.3", "--epochs", "4", "--lr", "0.2", "--average", "ema:0.8", "--metrics", path,
                              "--checkpoint-dir", run, "--keep-best", "average_val_loss", "--split", "equal",
                              "--patience", "9", devices="pocl/2", env={**os.environ, "CLT_TESTING_LOSE": f"#1={step}"})
            self.assertIn("has failed, training goes on", done.stderr)
            self.assertIn("done: 28 steps", done.stdout)
            self.assertEqual(section(self.last(run), "average")["steps"], 28)
            epochs = records(path)[1]
            self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3, 4])
            values = [r["average_val_loss"] for r in epochs]
            best = 7 * (1 + values.index(min(values)))
            self.assertEqual(os.readlink(os.path.join(run, "best")), f"step-{best:08d}")
            state = section(self.last(run), "policies")["policies"]
            self.assertAlmostEqual(state["keep-best"]["best"], min(values), 7)
            got = json.loads(self.run_command("eval", "--data", "idx:" + self.data, "--devices", "pocl", "--json",
                                              "--checkpoint", run, "--averaged").stdout)
            self.assertAlmostEqual(got["test_loss"], epochs[3]["average_test_loss"], 5)

    def test_stopped_run_stays_stopped(self):
        run = self.path("run")
        how = "--val", "0.3", "--lr", "0", "--patience", "2", "--checkpoint-dir", run
        done = self.train(*how, "--epochs", "9")
        self.assertIn("done: 21 steps", done.stdout)
        done = self.train(*how, "--epochs", "9", "--resume")
        self.assertIn("step 21: the run ends: val_loss has not improved for 2 evaluations", done.stdout)
        self.assertIn("nothing to do", done.stdout)
        done = self.train("--val", "0.3", "--lr", "0", "--patience", "3", "--checkpoint-dir", run, "--epochs", "9",
                          "--resume")  # more patience: goes on
        self.assertIn("done: 28 steps", done.stdout)
        done = self.train("--val", "0.3", "--patience", "3", "--checkpoint-dir", run, "--epochs", "9", "--resume",
                          "--monitor", "val_accuracy")
        self.assertIn("policy patience watched val_loss before and watches val_accuracy now", done.stderr)
        self.assertIn("done: ", done.stdout)

    def test_other_plateau(self):
        """A resume with another factor or minimum goes on from the rate of the checkpoint."""
        first = self.path("first")
        how = "--val", "0.3", "--lr", "0.4"
        self.train(*how, "--epochs", "20", "--val-every", "2", "--schedule", "plateau:0.5:0:0.01", "--checkpoint-dir",
                   first)
        saved = section(self.last(first), "policies")["policies"]["plateau"]
        self.assertGreater(saved["reductions"], 1)
        rate = max(0.4 * 0.5**saved["reductions"], 0.01)
        for schedule, want in (("plateau:0.9:999:0.01", rate), ("plateau:0.1:999:0.01", rate), ("plateau:0.5:999", rate),
                               ("plateau:0.5:999:0.3", rate), ("plateau:0.5:999:0.01", rate), ("constant", 0.4)):
            run, path = self.path("run"), self.path("m.jsonl")
            shutil.rmtree(run, ignore_errors=True)
            put(path, b"")
            shutil.copytree(first, run, symlinks=True)
            for epochs in ("21", "22"):  # and once more: what earlier plateaus did stays
                done = self.train(*how, "--epochs", epochs, "--val-every", "2", "--schedule", schedule,
                                  "--checkpoint-dir", run, "--resume", "--metrics", path)
                says = {"constant": "does not have: it is dropped, and the learning rate is the one before",
                        "plateau:0.5:999:0.01": ""}.get(schedule, f"the rate stays at {want:g}")
                if epochs == "21" and says:
                    self.assertIn(says, done.stderr)
                else:
                    self.assertNotIn("policy", done.stderr)
                rates = {r["lr"] for r in map(json.loads, get(path).splitlines()) if "lr" in r}
                self.assertEqual(rates, {float(f"{want:.9g}")}, schedule)
        # Each later reduction multiplies the rate that was reached.
        path = self.path("more.jsonl")
        self.train(*how, "--epochs", "24", "--val-every", "2", "--schedule", "plateau:0.9:0", "--checkpoint-dir", first,
                   "--resume", "--metrics", path)
        rates = sorted({r["lr"] for r in map(json.loads, get(path).splitlines()) if "lr" in r}, reverse=True)
        self.assertGreater(len(rates), 2)
        for n, have in enumerate(rates):
            self.assertAlmostEqual(have, rate * 0.9**n, 8)

    def test_no_best(self):
        """The end of a run says if no checkpoint was the best one."""
        run = self.path("run")
        how = "--val", "0.3", "--average", "swa:1000", "--keep-best", "average_val_loss", "--checkpoint-dir", run
        done = self.train(*how, "--epochs", "2")
        self.assert_message(done.stderr, "policy keep-best", "average_val_loss", "no best checkpoint")
        self.assertFalse(os.path.lexists(os.path.join(run, "best")))
        done = self.train("--val", "0.3", "--keep-best", "val_loss", "--checkpoint-dir", self.path("other"), "--epochs",
                          "1")
        self.assertNotIn("keep-best", done.stderr)

    def test_refusals(self):
        run = self.path("run")
        for says, arguments in (
                ("--patience: val_loss needs --val", ("--patience", "3")),
                ("--schedule plateau: val_loss needs --val", ("--schedule", "plateau:0.5:3")),
                ("--keep-best: val_accuracy needs --val", ("--keep-best", "val_accuracy", "--checkpoint-dir", run)),
                ("--keep-best needs --checkpoint-dir", ("--keep-best", "val_loss", "--val", "0.1")),
                ("--val-every 3: needs --val", ("--val-every", "3")),
                ("--val-every x: must be", ("--val-every", "x", "--val", "0.1")),
                ("--min-delta 1: is for --patience", ("--min-delta", "1", "--val", "0.1")),
                ("--monitor loss: is for", ("--monitor", "loss", "--val", "0.1")),
                ("between 0 and 1", ("--val", "1.5",)),
                ("between 0 and 1", ("--val", "0",)),
                ("those are the data of --data", ("--val", "idx:" + self.data)),
                ("those are the data of --data", ("--val", "idx:" + self.data + "/.")),
                ("did you mean val_accuracy?", ("--patience", "3", "--monitor", "val_acuracy", "--val", "0.1")),
                ("none of its 160 samples for training", ("--val", "0.9999")),
                ("plateau:FACTOR:PATIENCE", ("--schedule", "plateau:2:3", "--val", "0.1")),
                ("has no field 'mark'", ("--val", "mark")),
                ("--val is not built beside local", ("--val", "0.1", "--parallel", "local=1", "--sync-every", "4"))):
            with self.subTest(says):
                done = self.train(*arguments, code=2)
                self.assert_message(done.stderr, says)
        # Windows of text that move would cover tokens of validation.
        text = self.path("text.txt")
        put(text, bytes(random.Random(1).choices(b"abcdef ", k=4000)))
        how = ("--model", "gpt2:nano", "--data", "text:" + text, "--seq-len", "16", "--steps", "2", "--batch", "4")
        done = self.train(*how, "--val", "0.1", code=2)
        self.assert_message(done.stderr, "windows shifted", "fixed windows")
        done = self.train(*how, "--val", "0.1", "--windows", "fixed", "--val-every", "2")
        self.assertIn("val loss", done.stdout)
        other = self.path("other.txt")
        put(other, bytes(random.Random(2).choices(b"abcdef ", k=1000)))
        done = self.train(*how, "--val", "text:" + other, "--val-every", "1")
        self.assertIn("62 for validation", done.stdout)


if __name__ == "__main__":
    main()
