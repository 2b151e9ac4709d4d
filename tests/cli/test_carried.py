"""Text in windows that continue, with carried states of lstm: on several devices, in micro-batches, and in a
resumed run."""
import json
import os
import shutil

from command import DEVICE, CommandTest, cores, get, main, put, records, tensors

BATCH, STEPS, LENGTH = 8, 400, 4


def bruijn(letters):
    """Returns a text in which every pair of letters occurs once. Two letters determine the next letter, one
    letter does not."""
    seen, text = set(), [0, 0]
    while True:
        fresh = [c for c in reversed(range(letters)) if (text[-1], c) not in seen]
        if not fresh:
            return "".join(chr(ord("a") + c) for c in text[2:])
        seen.add((text[-1], fresh[0]))
        text.append(fresh[0])


TEXT = bruijn(5) * 100
NAMES = [f"carried.{kind}.{level}" for level in range(2) for kind in "hc"]


class Carried(CommandTest):
    def text(self, *args, devices=DEVICE, steps=STEPS, batch=BATCH, model="lstm:hidden=16,layers=2", code=0,
             lr="0.02"):
        put(self.path("text.txt"), TEXT.encode())
        split = () if "--split" in args else ("--split", "equal")
        return self.run_command(
            "train", "--model", model, "--data", "text:" + self.path("text.txt"), "--seq-len", LENGTH, "--batch", batch,
            "--steps", steps, "--optimizer", "adam", "--lr", lr, "--tune", "off", *split, "--devices",
            devices, *args, code=code)

    def losses(self, name, *args, **options):
        file = self.path(name + ".jsonl")
        self.text("--metrics", file, *args, **options)
        return [r["loss"] for r in records(file)[0]]

    def assert_near(self, have, want, most, what):
        self.assertEqual(len(have), len(want))
        for i, (a, b) in enumerate(zip(have, want)):
            self.assertLess(abs(a - b), most * (1 + abs(b)), f"{what}, number {i}")

    def saved(self, run):
        return tensors(os.path.join(run, sorted(os.listdir(run))[-1], "model.safetensors"))

    def test_learns_what_was_before(self):
        """Without carried states, a window's first letter is a guess: one of five letters."""
        model = "lstm:hidden=32"
        carried = self.losses("carried", "--windows", "continued", "--checkpoint-dir", self.path("run"), model=model)
        fixed = self.losses("fixed", "--windows", "fixed", model=model)
        self.assertLess(sum(carried[-40:]) / 40, 0.15)
        self.assertGreater(sum(fixed[-40:]) / 40, 0.35)
        use = "--checkpoint", self.path("run"), "--devices", DEVICE
        made = self.run_command("sample", *use, "--greedy", "--prompt", TEXT[:12], "--tokens", "28", "--quiet").stdout
        self.assertEqual(made, TEXT[:40] + "\n")
        # The same parameters on separate windows.
        done = self.run_command("eval", *use, "--model", model, "--data", "text:" + self.path("text.txt"), "--seq-len",
                                LENGTH, "--json")
        self.assertGreater(json.loads(done.stdout)["test_loss"], 0.35)

    def test_devices(self):
        """Two devices, uneven shares, micro-batches and stages give the losses and states of one device."""
        if cores() < 2:
            self.skipTest("one core")
        runs = {"one": ("pocl@1",), "two": ("pocl/2",), "uneven": ("pocl/2", "--split", "1,3"),
                "micro": ("pocl@1", "--accumulate", "3"), "both": ("pocl/2", "--accumulate", "2"),
                "stages": ("pocl/2", "--accumulate", "2", "--parallel", "pp=2"),
                "layers": ("pocl/2", "--accumulate", "2", "--parallel", "pp=2", "--stages", "*_l1")}
        losses, states = {}, {}
        for name, (devices, *more) in runs.items():
            losses[name] = self.losses(name, "--windows", "continued", "--checkpoint-dir", self.path(name), *more,
                                       devices=devices, steps=30)
            states[name] = self.saved(self.path(name))
        for name in runs:
            self.assert_near(losses[name], losses["one"], 1e-4, name)
            for state in NAMES:
                self.assertEqual(len(states[name][state]), BATCH * 16)
                self.assertTrue(any(states[name][state]))
                self.assert_near(states[name][state], states["one"][state], 1e-3, f"{name}, {state}")

    def test_resume(self):
        """The run resumes in the middle of an epoch, on another number of devices."""
        if cores() < 2:
            self.skipTest("one core")
        want = self.losses("straight", "--windows", "continued", "--checkpoint-dir", self.path("straight"), steps=24,
                           devices="pocl@1")
        for before, after in (("pocl@1", "pocl@1"), ("pocl/2", "pocl@1"), ("pocl@1", "pocl/2")):
            run = self.path("broken")
            shutil.rmtree(run, ignore_errors=True)
            options = "--windows", "continued", "--checkpoint-dir", run
            first = self.losses("first", *options, steps=11, devices=before)
            second = self.losses("second", *options, "--resume", steps=24, devices=after)
            self.assert_near(first + second, want, 1e-4, f"{before}, {after}")
            if before == after:
                self.assertEqual(first + second, want)
                for name, numbers in self.saved(self.path("straight")).items():
                    self.assertEqual(numbers, self.saved(run)[name], name)

    def test_validation(self):
        """Validation begins without states: the loss is that of separate windows."""
        put(self.path("val.txt"), TEXT[:201].encode())
        val = "--val", "text:" + self.path("val.txt")
        run, first, again = self.path("run"), self.path("first.jsonl"), self.path("again.jsonl")
        self.text("--windows", "continued", *val, "--checkpoint-dir", run, "--val-every", "10", "--metrics", first,
                  steps=30)
        seen = [r for r in map(json.loads, get(first).splitlines()) if "val_loss" in r]
        self.assertEqual([r["step"] for r in seen], [10, 20, 30])
        last = os.path.join(run, sorted(os.listdir(run))[-1], "model.safetensors")
        self.text("--windows", "fixed", *val, "--init", last, "--val-every", "1", "--metrics", again, steps=1, lr="0")
        want = [r["val_loss"] for r in map(json.loads, get(again).splitlines()) if "val_loss" in r]
        self.assertAlmostEqual(seen[-1]["val_loss"], want[0], 5)
        done = self.text("--windows", "continued", "--val", "0.1", steps=1, code=2)
        self.assert_message(done.stderr, "windows continued", "validate on other files")

    def test_refused(self):
        options = "--windows", "continued"
        done = self.text(*options, "--shuffle", "on", steps=1, code=2)
        self.assert_message(done.stderr, "--shuffle on")
        done = self.text(*options, steps=1, batch=5000, code=1)
        self.assert_message(done.stderr, "fewer than a batch of 5000")
        self.text(*options, "--checkpoint-dir", self.path("run"), steps=2)
        # With another batch, neither the states nor the order of the text fit.
        done = self.text(*options, "--checkpoint-dir", self.path("run"), "--resume", steps=4, batch=4, code=1)
        self.assert_message(done.stderr, "carried.")
        # Other models accept the order, and have no states.
        self.text(*options, steps=2, model="gpt2:layers=1,heads=2,width=32")


if __name__ == "__main__":
    main()
