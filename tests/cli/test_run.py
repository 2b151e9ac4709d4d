"""The output and the files of a run."""
import math
import os
import pty
import re
import subprocess

from command import COMMAND, CommandTest, TRAIN, cores, main, put, records, write_data

CORES = cores()
STEP = {"step", "epoch", "loss", "samples", "samples_per_s", "lr"}
EPOCH = {"epoch", "test_loss", "test_accuracy", "seconds", "wait"}


class Metrics(CommandTest):
    def test_schema(self):
        path = self.path("m.jsonl")
        put(path, b"an older run's\n")
        self.train("--epochs", "3", "--lr", "0.2", "--schedule", "step:5:0.5", "--metrics", path)
        steps, epochs = records(path)
        self.assertEqual([r["step"] for r in steps], list(range(1, 16)))
        self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])
        for r in steps:
            self.assertEqual(set(r), STEP)
            self.assertTrue(math.isfinite(r["loss"]) and r["samples_per_s"] > 0)
            self.assertEqual(r["epoch"], (r["step"] - 1) // 5 + 1)
            self.assertAlmostEqual(r["lr"], 0.2 * 0.5 ** ((r["step"] - 1) // 5), places=12)
        self.assertEqual([r["samples"] for r in steps[:5]], [16, 16, 16, 16, TRAIN - 64])
        for r in epochs:
            self.assertEqual(set(r), EPOCH)
            self.assertTrue(0 <= r["test_accuracy"] <= 1 and r["test_loss"] > 0)
            self.assertTrue(0 <= r["wait"] <= 1)
        self.assertTrue(0 < epochs[0]["seconds"] < epochs[1]["seconds"] < epochs[2]["seconds"])
        # The samples are easy, so the model learns them.
        self.assertLess(steps[-1]["loss"], 0.8 * steps[0]["loss"])
        self.assertGreater(epochs[-1]["test_accuracy"], 0.9)

    def test_repeatable(self):
        """The same seed gives the same losses. Another seed or order gives others."""
        losses = {}
        for name, more in {"a": (), "b": (), "seed": ("--seed", "7"),
                           "order": ("--shuffle", "off")}.items():
            path = self.path(name)
            self.train("--steps", "6", "--tune", "off", "--metrics", path, *more)
            losses[name] = [r["loss"] for r in records(path)[0]]
        self.assertEqual(losses["a"], losses["b"])
        self.assertNotEqual(losses["a"], losses["seed"])
        self.assertNotEqual(losses["a"], losses["order"])

    def test_not_finite_is_null(self):
        path = self.path("m.jsonl")
        self.train("--steps", "4", "--lr", "1e38", "--no-guard", "--metrics", path)
        losses = [r["loss"] for r in records(path)[0]]
        self.assertEqual(len(losses), 4)
        self.assertIsNone(losses[-1])

    def test_options_reach_the_run(self):
        """Each option changes the result, and none breaks the run."""
        seen = set()
        for more in ((), ("--optimizer", "momentum"), ("--optimizer", "nesterov"),
                     ("--optimizer", "adamw"), ("--weight-decay", "0.1"), ("--clip-norm", "0.01"),
                     ("--normalize", "0.3,0.3"), ("--schedule", "cosine:0.001,warmup:3"),
                     ("--optimizer", "momentum", "--momentum", "0.5"), ("--batch", "9")):
            path = self.path("m.jsonl")
            self.train("--steps", "6", "--tune", "off", "--metrics", path, *more)
            losses = tuple(r["loss"] for r in records(path)[0])
            self.assertTrue(all(map(math.isfinite, losses)))
            self.assertNotIn(losses, seen)
            seen.add(losses)

    def test_same_numbers(self):
        """Micro-batches and a cache folder change only the rounding."""
        losses = []
        for more in ((), ("--accumulate", "4"), ("--cache-dir", self.path("cache"))):
            path = self.path("m.jsonl")
            self.train("--steps", "6", "--metrics", path, *more, model="softmax")
            losses.append([r["loss"] for r in records(path)[0]])
        for other in losses[1:]:
            for a, b in zip(losses[0], other):
                self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))

    def test_small_batches(self):
        """A batch with fewer samples than devices, and one with more than the data have."""
        self.train("--steps", "3", "--tune", "off", batch=1, devices="pocl@1,pocl@1,pocl@1")
        self.train("--steps", "3", "--tune", "off", batch=1000)

    def test_split(self):
        if CORES < 2:
            self.skipTest("one core")
        done = self.train("--steps", "3", "--tune", "off", devices="pocl/2")
        self.assertRegex(done.stdout, r"batch 16 on 2 devices: \d+ \+ \d+ (equally|by speed); "
                                      r"predicted [\d.]+ ms a step")
        done = self.train("--steps", "3", "--tune", "off", "--split", "equal", devices="pocl/2")
        self.assertNotIn("predicted", done.stdout)
        done = self.train("--steps", "3", "--split", "1,2,1", devices="pocl/2", code=2)
        self.assert_message(done.stderr, "3 weights for 2 devices")


class Progress(CommandTest):
    def test_plain_lines(self):
        done = self.train("--epochs", "2")
        lines = done.stdout.splitlines()
        self.assertEqual(done.stderr, "")
        self.assertIn("10 steps of 16 on pocl", lines[0])
        epochs = [line for line in lines if line.startswith("epoch")]
        self.assertEqual(len(epochs), 2)
        for epoch in (1, 2):
            self.assertRegex(epochs[epoch - 1],
                             rf"^epoch {epoch}  step {5 * epoch}  loss .* test accuracy (0|1)\.\d+")
        self.assertNotIn("\r", done.stdout)

    def test_quiet(self):
        done = self.train("--epochs", "2", "--quiet")
        self.assertEqual(done.stdout + done.stderr, "")

    def test_terminal(self):
        # A line is written every 100 ms, and a fast machine takes thousands of steps in that time:
        # the run would take minutes and is ended once the line has been seen.
        write_data(self.data, train=4000)
        master, slave = pty.openpty()
        arguments = self.arguments("--steps", "10000000", batch=1)
        child = subprocess.Popen([COMMAND, *map(str, arguments)], stdout=slave,
                                 stderr=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        line = re.compile(rb"\repoch \d+  step \d+/10000000  loss .* samples/s  .* left")
        while not line.search(text):
            try:
                part = os.read(master, 4096)
            except OSError:
                part = b""
            if not part:
                break
            text += part
        child.kill()
        child.wait(timeout=60)
        os.close(master)
        self.assertRegex(text, line)


if __name__ == "__main__":
    main()
