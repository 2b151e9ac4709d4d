"""train --tensorboard: the files have the numbers of --metrics, also of a run that was killed and resumed. TensorBoard's
own reader reads them too if CLT_TEST_TENSORBOARD names a folder with its packages (tools/test fetches them)."""
import json
import os
import signal
import struct
import subprocess
import sys
import time

from command import CommandTest, main, records
from event_reader import events

READER = """
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
read = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
read.Reload()
print(json.dumps({tag: {e.step: e.value for e in read.Scalars(tag)} for tag in read.Tags()["scalars"]}))
"""


def rounded(value):
    """The nearest f32."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


class TensorBoard(CommandTest):
    def setUp(self):
        super().setUp()
        self.board, self.lines = self.path("board"), self.path("m.jsonl")

    def by_tensorboard(self):
        folder = os.environ.get("CLT_TEST_TENSORBOARD")
        if not folder or not os.path.isdir(folder):
            self.skipTest("TensorBoard's packages are not there")
        done = subprocess.run([sys.executable, "-c", READER, self.board], capture_output=True, text=True, timeout=240,
                              env={**os.environ, "PYTHONPATH": folder})
        self.assertEqual(done.returncode, 0, done.stderr)
        return {tag: {int(s): v for s, v in curve.items()} for tag, curve in json.loads(done.stdout).items()}

    def expected(self):
        """What --metrics says, in f32."""
        curves, last = {}, 0
        steps, epochs = records(self.lines)
        with open(self.lines, encoding="utf-8") as file:
            for record in map(json.loads, file):
                last = record.get("step", last)
                for name, value in record.items():
                    if isinstance(value, (int, float)) and name != "step":
                        curves.setdefault(name, {})[last] = rounded(value)
        self.assertTrue(steps and epochs)
        return curves

    def assert_same(self, read):
        expected = self.expected()
        self.assertEqual(read.keys(), expected.keys())
        for tag, curve in expected.items():
            self.assertEqual(read[tag].keys(), curve.keys(), tag)
            for step, value in curve.items():
                # Lines have 9 digits, so they may round to a neighbour in f32.
                self.assertAlmostEqual(read[tag][step], value, delta=2e-7 * abs(value) + 1e-30, msg=f"{tag} {step}")

    def interrupted(self):
        """A run that is killed between checkpoints and then resumed."""
        args = ("--tensorboard", self.board, "--metrics", self.lines, "--checkpoint-dir", self.path("run"))
        child = self.start("--epochs", "100000", *args, "--checkpoint-every", "3", "--quiet")
        end = time.monotonic() + 240
        while not (os.path.exists(self.lines) and len(records(self.lines)[0]) > 20):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=60)
        done = sum(len(part) for part in records(self.lines))
        self.train("--epochs", str(done // 5 + 3), *args, "--resume", "--quiet")

    def test_numbers(self):
        self.train("--epochs", "2", "--tensorboard", self.board, "--metrics", self.lines)
        scalars, starts = events(self.board)
        self.assertEqual(starts, [1])
        self.assertIn("test_accuracy", scalars)
        self.assert_same(scalars)

    def test_numbers_in_tensorboard(self):
        self.train("--epochs", "2", "--tensorboard", self.board, "--metrics", self.lines)
        self.assert_same(self.by_tensorboard())

    def test_killed_and_resumed(self):
        self.interrupted()
        scalars, starts = events(self.board)
        self.assertEqual(len(starts), 2)
        self.assert_same(scalars)

    def test_killed_and_resumed_in_tensorboard(self):
        self.interrupted()
        self.assert_same(self.by_tensorboard())

    def test_without_metrics(self):
        self.train("--steps", "3", "--tensorboard", self.board)
        self.assertEqual(sorted(events(self.board)[0]["loss"]), [1, 2, 3])

    def test_folder_that_cannot_be_made(self):
        done = self.train("--steps", "3", "--tensorboard", self.path("none", "board"), code=1)
        self.assert_message(done.stderr, "--tensorboard", "cannot make the folder", "No such file or directory")


main()
