"""--precision: 16-bit gradients, loss scaling and skipped steps, in metrics, checkpoints and plans."""
import json
import os
import re

from command import CommandTest, cores, get, main, records

# Pixels of up to 1000 make gradients that overflow f16 at the first scale.
LARGE = ("--normalize", "0,0.001", "--lr", "1e-7")


class Precision(CommandTest):
    def losses(self, *args, **options):
        path = self.path("m.jsonl")
        done = self.train("--tune", "off", "--metrics", path, *args, **options)
        return records(path)[0], done.stdout

    def last(self, run):
        return os.path.join(run, sorted(os.listdir(run))[-1])

    def test_close_to_f32(self):
        """Values and gradients have 8 or 11 bits, so the losses of a few steps stay close."""
        want, _ = self.losses("--steps", "8", "--lr", "0.2")
        for precision, near in (("bf16", 2**-8), ("f16", 2**-11)):
            for more, options in (((), {}), (("--accumulate", "3"), {}),
                                  (("--split", "equal"), {"devices": "pocl/2"})):
                if options and cores() < 2:
                    continue
                with self.subTest(precision=precision, more=more):
                    steps, out = self.losses("--steps", "8", "--lr", "0.2", "--precision",
                                             precision, *more, **options)
                    for a, b in zip(want, steps):
                        self.assertLess(abs(a["loss"] - b["loss"]), 4 * near * (1 + a["loss"]))
                    self.assertNotEqual([a["loss"] for a in want], [b["loss"] for b in steps])
                    self.assertEqual("f16: 0 steps skipped" in out, precision == "f16")
                    self.assertEqual("skipped" in steps[0], precision == "f16")

    def test_skipped_steps(self):
        for devices in ("pocl", "pocl/2"):
            if devices != "pocl" and cores() < 2:
                continue
            more = ("--split", "equal") if devices != "pocl" else ()
            steps, out = self.losses("--steps", "14", "--precision", "f16", *LARGE, *more,
                                     devices=devices)
            scales = [r["loss_scale"] for r in steps]
            skipped = steps[-1]["skipped"]
            self.assertEqual(scales[0], 65536)
            self.assertTrue(2 < skipped < 12, skipped)
            for r in steps: # all skips are at the beginning, and each halved the scale
                self.assertEqual(r["skipped"], min(r["step"], skipped))
                self.assertEqual(r["loss_scale"], 65536 / 2**min(r["step"] - 1, skipped))
            self.assertIn(f"f16: {skipped} steps skipped", out)
            self.assertIn(f"loss scale {scales[-1]:g} at the end", out)

    def test_resume(self):
        """Resumes between skipped steps with the same bits."""
        straight, broken = self.path("straight"), self.path("broken")
        args = ("--precision", "f16", "--optimizer", "adamw", *LARGE)
        want, _ = self.losses("--steps", "12", "--checkpoint-dir", straight, *args)
        self.losses("--steps", "3", "--checkpoint-dir", broken, *args)
        state = json.loads(get(os.path.join(self.last(broken), "state.json")))
        self.assertIn('"scale": 8192', json.dumps(state))
        self.assertIn('"skipped": 3', json.dumps(state))
        got, _ = self.losses("--steps", "12", "--checkpoint-dir", broken, "--resume", *args)
        for name in ("loss", "loss_scale", "skipped"):
            self.assertEqual([r[name] for r in want], [r[name] for r in got])
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(get(os.path.join(self.last(straight), name)),
                             get(os.path.join(self.last(broken), name)))

    def test_another_precision(self):
        """A run may resume in another precision, with a warning."""
        run = self.path("run")
        self.train("--steps", "3", "--checkpoint-dir", run)
        done = self.train("--steps", "6", "--checkpoint-dir", run, "--resume", "--precision",
                          "bf16")
        self.assertRegex(done.stderr, "step-0*3 was written by a run in f32, .* in bf16")
        done = self.train("--steps", "9", "--checkpoint-dir", run, "--resume", "--precision",
                          "bf16")
        self.assertNotIn("written by a run", done.stderr)

    def test_no_scale_helps(self):
        done = self.train("--steps", "60", "--precision", "f16", "--normalize", "0,1e-30", code=1)
        self.assert_message(done.stderr, "is not finite", "2^-14", "bf16")

    def test_plan(self):
        """Gradients take half the bytes."""
        args = ("plan", "--model", "mlp", "--data", "idx:" + self.data, "--batch", "16")
        text = self.run_command(*args, "--precision", "bf16").stdout
        sizes = [float(x) for x in re.search(
            r"parameters and gradients ([\d.]+) KiB \(gradients in bf16: ([\d.]+) KiB\)",
            text).groups()]
        whole = float(re.search(r"parameters and gradients ([\d.]+) KiB\n",
                                self.run_command(*args).stdout).group(1))
        self.assertAlmostEqual(sizes[0], 0.75 * whole, delta=0.2)
        self.assertAlmostEqual(sizes[1], 0.25 * whole, delta=0.2)


main()
