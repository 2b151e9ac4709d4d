"""--init of runs, --init-skip and --freeze: a model gets a new head, and only the head is trained."""
import os
import shutil
import unittest

from command import CommandTest, get, main, put, tensors, write_data, idx

HEAD = ("fc2.weight", "fc2.bias")


class Heads(CommandTest):
    def setUp(self):
        super().setUp()
        self.old = self.path("old")
        self.train("--steps", "3", "--checkpoint-dir", self.old)
        # The new task has seven classes: label 6 appears in its data.
        self.four = self.data
        self.data = self.path("seven")
        write_data(self.data)
        for name, count in (("train-labels-idx1-ubyte", 70), ("t10k-labels-idx1-ubyte", 20)):
            put(os.path.join(self.data, name), idx((count,), [i % 7 for i in range(count)]))

    def model(self, run, name="model.safetensors"):
        return tensors(os.path.join(run, sorted(os.listdir(run))[-1], name))

    def new_head(self, *more, devices="pocl", steps="0", init=None, command=None):
        run = self.path("new")
        shutil.rmtree(run, ignore_errors=True)
        words = ("--init", init or self.old, "--init-skip", "fc2.*", "--checkpoint-dir", run, "--seed", "5",
                 *(("--epochs", "0") if steps == "0" else ("--steps", steps)), *more)
        done = self.train(*words, devices=devices)
        return self.model(run), done.stdout

    def test_new_head(self):
        old = self.model(self.old)
        fresh = self.path("fresh")
        self.train("--epochs", "0", "--seed", "5", "--checkpoint-dir", fresh)
        step = os.path.join(self.old, os.listdir(self.old)[0])
        for init in (self.old, step, os.path.join(step, "model.safetensors")):
            new, text = self.new_head(init=init)
            self.assertEqual(len(new["fc2.bias"]), 7)
            for name, values in new.items():
                self.assertEqual(values, (self.model(fresh) if name in HEAD else old)[name], name)
            self.assertIn("4 of 6 tensors loaded" if len(new) == 6 else f"{len(new) - 2} of {len(new)} tensors", text)
            self.assertIn("skipped: fc2.weight", text)

    def test_only_the_head_learns(self):
        for devices, more in (("pocl", ()), ("pocl/2", ("--zero", "1")), ("pocl/2", ("--zero", "3"))):
            with self.subTest(devices=devices, more=more):
                old, fresh = self.model(self.old), self.new_head()[0]
                new, _ = self.new_head("--freeze", "!fc2.*", "--optimizer", "adam", *more, devices=devices, steps="4")
                for name, values in new.items():
                    self.assertEqual(values == (fresh if name in HEAD else old)[name], name not in HEAD, name)
                moments = self.model(self.path("new"), "optimizer.safetensors")
                self.assertEqual({name.rsplit(".", 1)[0] for name in moments}, set(HEAD))

    @unittest.skipUnless(shutil.which("mpiexec"), "mpiexec was not found")
    def test_ranks(self):
        """Two ranks start from what one rank starts from."""
        import subprocess
        from command import COMMAND
        alone, _ = self.new_head()
        run = self.path("ranks")
        words = self.arguments("--init", self.old, "--init-skip", "fc2.*", "--seed", "5", "--epochs", "0",
                               "--checkpoint-dir", run, devices="pocl")
        done = subprocess.run(["mpiexec", "-n", "2", COMMAND, *map(str, words)], capture_output=True, text=True, timeout=200)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("skipped: fc2.weight"), 1)
        self.assertEqual(self.model(run), alone)

    def test_refused(self):
        for words, code, says in (
                (("--init", self.old), 1, ("fc2.weight", "[4, ", "[7, ", "'fc2.*'", "--init-skip")),
                (("--init", self.old, "--init-skip", "fc2.weight"), 1, ("fc2.bias", "'fc2.*'")),
                (("--init", self.old, "--init-skip", "head.*"), 1, ("head.*", "no tensor")),
                (("--init-skip", "fc2.*"), 2, ("--init",)),
                (("--init", self.path("nowhere"), "--init-skip", "fc2.*"), 1, ("nowhere",))):
            with self.subTest(words=words):
                self.assert_bad(*self.arguments(*words), code=code, says=says)
        # A tensor of the file that the model lacks must be named, or be skipped.
        self.data = self.four
        deep = self.path("deep")
        self.train("--epochs", "0", "--checkpoint-dir", deep, model="mlp")
        self.assert_bad(*self.arguments("--init", deep, model="softmax"), code=1, says=("--init-skip",))
        done = self.train("--init", deep, "--init-skip", "*", "--epochs", "0", model="softmax")
        self.assertIn("left out: fc2.weight", done.stdout)

    def test_resume_needs_no_start(self):
        """A checkpoint that is found counts, and --init does not."""
        new, _ = self.new_head(steps="2")
        run = self.path("new")
        shutil.rmtree(self.old)
        done = self.train("--steps", "2", "--checkpoint-dir", run, "--resume", "--seed", "5")
        self.assertIn("nothing to do", done.stdout)
        self.assertEqual(self.model(run), new)


main()
