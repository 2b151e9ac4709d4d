"""Training on Oclgrind's device: races, overruns, uninitialised values and wrong API calls of whole steps."""
import os
import subprocess
import sys
import unittest

from command import COMMAND, CommandTest, write_data

OCLGRIND = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "oclgrind.sh")


class Oclgrind(CommandTest):
    def setUp(self):
        super().setUp()
        write_data(self.data, train=8, test=2, rows=8, columns=8)

    def check(self, *options, model="mlp:8", batch="8"):
        done = subprocess.run(
            [OCLGRIND, COMMAND, *self.arguments("--steps", "1", "--cache-dir", self.path("cache"), *options,
                                                model=model, batch=batch, devices="0")],
            capture_output=True, text=True, timeout=600,
            env={**os.environ, "CLT_OCLGRIND_STORES": os.environ["CLT_TEST_STORES"],
                 "OCLGRIND_BUILD_OPTIONS": "-cl-opt-disable"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("(Oclgrind Simulator)", done.stdout)
        self.assertIn("done: 1 steps", done.stdout)

    def test_step(self):
        self.check()

    def test_virtual_shards(self):
        self.check("--virtual-shards", "2")

    def test_adam(self):
        self.check("--optimizer", "adam", "--clip-norm", "1", "--accumulate", "2")

    def test_lstm(self):
        self.check(model="lstm:hidden=4", batch="2")

    def test_attention(self):
        self.check(model="vit-tiny:layers=1,heads=2,width=8,patch=4", batch="2")


if __name__ == "__main__":
    if not os.environ.get("CLT_TEST_STORES"):
        print("no Oclgrind, or a build with sanitizers: skipped")
        sys.exit(77)
    unittest.main()
