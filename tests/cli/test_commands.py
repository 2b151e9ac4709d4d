"""The commands that use a run or a model: eval, plot, devices, plan."""
import json
import os
import re
import shutil
import struct

from command import CommandTest, TEST, cores, get, main, put, records, tree

CORES = cores()


class Eval(CommandTest):
    def test_agrees_with_training(self):
        run, path = self.path("run"), self.path("m.jsonl")
        self.train("--epochs", "2", "--checkpoint-dir", run, "--metrics", path, "--normalize",
                   "0.2,0.5")
        last = records(path)[1][-1]
        arguments = ("eval", "--model", "mlp", "--data", "idx:" + self.data, "--normalize",
                     "0.2,0.5", "--json", "--checkpoint")
        step = os.path.join(run, "step-00000010")
        for place in (run, step, os.path.join(step, "model.safetensors")):
            found = json.loads(self.run_command(*arguments, place).stdout)
            self.assertAlmostEqual(found["test_loss"], last["test_loss"], delta=1e-6)
            self.assertEqual(found["test_accuracy"], last["test_accuracy"])
            self.assertEqual(found["samples"], TEST)
        self.assertIn("test accuracy", self.run_command(*arguments[:-2], "--checkpoint", run).stdout)

    def test_init(self):
        """Training starts with the parameters of a file."""
        run, path = self.path("run"), self.path("m.jsonl")
        self.train("--epochs", "4", "--lr", "0.2", "--checkpoint-dir", run)
        model = os.path.join(run, "step-00000020", "model.safetensors")
        self.train("--epochs", "0", "--init", model, "--checkpoint-dir", self.path("same"))
        self.assertEqual(get(os.path.join(self.path("same"), "step-00000000", "model.safetensors")),
                         get(model))
        self.train("--steps", "1", "--init", model, "--metrics", path)
        first = records(path)[0][0]["loss"]
        self.train("--steps", "1", "--metrics", path)
        self.assertLess(first, records(path)[0][0]["loss"])


class Plot(CommandTest):
    def setUp(self):
        super().setUp()
        if not shutil.which("gnuplot"):
            self.skipTest("gnuplot was not found")
        self.train("--epochs", "3", "--metrics", self.path("a \"b\".jsonl"))
        self.train("--steps", "7", "--metrics", self.path("short.jsonl"), model="softmax")
        self.files = (self.path("a \"b\".jsonl"), self.path("short.jsonl"))

    def test_picture(self):
        picture = self.path("out.png")
        self.assertEqual(self.run_command("plot", *self.files, "-o", picture).stderr, "")
        data = get(picture)
        self.assertEqual(data[:8], b"\x89PNG\r\n\x1a\n")
        width, height = struct.unpack(">II", data[16:24])
        self.assertEqual((width, height), (1200, 600))
        one = self.path("one.png")
        self.run_command("plot", self.files[0], "-o", one)
        self.assertNotEqual(get(one), data)
        # A killed run may leave half a line.
        put(self.path("cut.jsonl"), get(self.files[0]) + b'{"step":1')
        self.run_command("plot", self.path("cut.jsonl"), "-o", self.path("cut.png"))
        # The picture has only the loss if the model has no accuracy, or the run has no tests.
        steps = b"".join(b'{"step":%d,"epoch":1,"loss":%d}\n' % (i, 9 - i) for i in (1, 2, 3))
        for name, more in (("mse", b'{"epoch":1,"test_loss":0.5,"test_mse":0.5}\n'),
                           ("diverged", b'{"step":4,"epoch":1,"loss":null}\n'
                            b'{"epoch":1,"test_loss":null,"test_accuracy":null}\n')):
            put(self.path(name + ".jsonl"), steps + more)
            self.assertEqual(self.run_command("plot", self.path(name + ".jsonl"), "-o", picture).stderr, "")
            self.assertEqual(struct.unpack(">II", get(picture)[16:24]), (600, 600))

    def script(self, *lines):
        """Returns the script that gnuplot gets for a metrics file."""
        put(self.path("m.jsonl"), "".join(json.dumps(line) + "\n" for line in lines).encode())
        put(self.path("data", "gnuplot"), b"#!/bin/sh\ncat >\"$TO\"\n")
        os.chmod(self.path("data", "gnuplot"), 0o755)
        environment = dict(os.environ, PATH=self.path("data") + ":" + os.environ["PATH"], TO=self.path("script"))
        self.run_command("plot", self.path("m.jsonl"), "-o", self.path("no.png"), code=1, env=environment)
        text = get(self.path("script")).decode()
        data = {name: [tuple(map(float, line.split())) for line in points.splitlines() if line]
                for name, points in re.findall(r"\$data_0_(\d) << END\n(.*?)END\n", text, re.DOTALL)}
        return data, dict(re.findall(r"\$data_0_(\d) with .*?lc rgb \"(#\w+)\"", text))

    def test_asynchronous_run(self):
        """Epochs overlap, and end in any order. A result stands at its step: the longest epoch has four."""
        lines = [{"step": i + 1, "epoch": e, "loss": 10 - i, "samples": 4, "staleness": 0}
                 for i, e in enumerate((1, 1, 2, 1, 2, 2, 2, 1))]
        lines.insert(7, {"epoch": 2, "step": 7, "test_loss": 3, "test_accuracy": 0.5})
        lines.append({"epoch": 1, "step": 8, "test_loss": 2, "test_accuracy": 0.75})
        data, _ = self.script(*lines)
        self.assertEqual(data["0"], [((i + 1) / 4, 10 - i) for i in range(8)])
        self.assertEqual(data["1"], [(1, 8.5), (2, 4.5)])
        self.assertEqual(data["2"], [(1.75, 3), (2, 2)])
        self.assertEqual(data["6"], [(1.75, 0.5), (2, 0.75)])

    def test_partial_last_batch(self):
        """A partial last batch makes no spike: it is drawn as one point with the step before. The mean of the
        epoch weights it by its samples."""
        lines = []
        for epoch in (1, 2):
            for step in range(4):
                lines.append({"step": len(lines) + 1, "epoch": epoch, "loss": 9.0 if step == 3 else 1.0,
                              "samples": 1 if step == 3 else 31})
            lines.append({"epoch": epoch, "test_loss": 2, "test_accuracy": 0.5})
        data, colours = self.script(*lines)
        joined = (31 + 9) / 32
        self.assertEqual([y for _, y in data["0"]], [1, 1, joined] * 2)
        self.assertEqual([x for x, _ in data["0"]], [0.25, 0.5, 1, 1.25, 1.5, 2])
        for (x, y), epoch in zip(data["1"], (1, 2)):
            self.assertEqual(x, epoch)
            self.assertAlmostEqual(y, (3 * 31 + 9) / 94, places=6)
        self.assertEqual(data["2"], [(1, 2), (2, 2)])
        # Steps, their means and tests have three colours.
        self.assertEqual(len({colours[part] for part in "012"}), 3)
        self.assertEqual(colours["2"], colours["6"])

    def test_averages_and_best(self):
        """Curves of averages, and a ring around the first of the best validations."""
        lines = []
        for epoch, (loss, accuracy) in enumerate(((3, 0.5), (1, 0.25), (1, 0.75), (2, 0.75)), 1):
            lines.append({"step": epoch, "epoch": epoch, "loss": 1.0, "samples": 4})
            found = {"test_loss": 5, "test_accuracy": 0.1, "val_loss": loss, "val_accuracy": accuracy}
            if epoch > 1:  # averages begin later
                found |= {"average_" + name: value * 2 for name, value in list(found.items())}
            lines.append({"epoch": epoch, **found})
        data, colours = self.script(*lines)
        self.assertEqual(data["5"], [(2, 2), (3, 2), (4, 4)])
        self.assertEqual(data["9"], [(2, 0.5), (3, 1.5), (4, 1.5)])
        self.assertEqual(data["4"], [(2, 10), (3, 10), (4, 10)])
        self.assertEqual(data["8"], [(2, 0.2), (3, 0.2), (4, 0.2)])
        text = get(self.path("script")).decode()
        best = {part: tuple(map(float, point.split()))
                for part, point in re.findall(r"\$best_0_(\d) << END\n(.*?)\nEND\n", text)}
        self.assertEqual(best, {"3": (2, 1), "7": (3, 0.75), "5": (2, 2), "9": (3, 1.5)})
        self.assertEqual(len(re.findall(r"\$best_0_\d with points", text)), 4)
        self.assertEqual(colours["3"], colours["5"])
        if shutil.which("gnuplot"):
            self.assertEqual(self.run_command("plot", self.path("m.jsonl"), "-o", self.path("a.png")).stderr, "")

    def test_failures(self):
        picture = self.path("out.png")
        put(picture, b"old")
        put(self.path("gaps"), b'{"step":1,"epoch":1,"loss":null}\n')
        self.assert_bad("plot", self.path("gaps"), "-o", picture, code=1, says=("gaps", "nothing to draw"))
        put(self.path("text"), b"hello\n")
        put(self.path("other"), b'{"a": 1}\n')
        put(self.path("empty"), b"")
        for arguments, says in (((self.path("none"), "-o", picture), "none"),
                                ((self.path("text"), "-o", picture), "line 1"),
                                ((self.path("other"), "-o", picture), "line 1"),
                                ((self.path("empty"), "-o", picture), "no record"),
                                ((self.files[0], "-o", self.path("x", "y.png")), "y.png")):
            self.assert_bad("plot", *arguments, code=1, says=(says,))
        environment = dict(os.environ, PATH=self.path("data"))
        self.assert_bad("plot", self.files[0], "-o", picture, code=1, env=environment,
                        says=("gnuplot-nox",))
        put(self.path("data", "gnuplot"), b"#!/bin/sh\necho 'no such terminal' >&2\nexit 1\n")
        os.chmod(self.path("data", "gnuplot"), 0o755)
        self.assert_bad("plot", self.files[0], "-o", picture, code=1, env=environment,
                        says=("no such terminal",))
        self.assertEqual(get(picture), b"old")


class Plan(CommandTest):
    def test_devices(self):
        found = json.loads(self.run_command("devices", "--json").stdout)
        table = self.run_command("devices").stdout
        for i, device in enumerate(found["devices"]):
            self.assertEqual(device["index"], i)
            self.assertIn(device["name"], table)
            self.assertGreater(device["memory_bytes"], 0)
            self.assertTrue(device["usable"] or device["skip"])
        latin = os.environ.get("CLT_TEST_LATIN")
        if not latin:
            return
        # JSON is UTF-8. Of a driver's text that is not, the other characters stay.
        preload = ":".join(filter(None, (latin, os.environ.get("LD_PRELOAD"))))
        done = self.run_command("devices", "--json", env=dict(os.environ, LD_PRELOAD=preload))
        for device in json.loads(done.stdout)["devices"]:
            self.assertEqual(device["driver"], "Caf\\xe9 1.5")

    def test_plan(self):
        before = tree(self.folder)
        done = self.run_command("plan", "--model", "lenet", "--batch", "32")
        for part in ("Training", "Evaluation", "conv2.weight", "Memory"):
            self.assertIn(part, done.stdout)
        # --explain adds lines between those of the plan.
        explained = self.run_command("plan", "--model", "lenet", "--batch", "32", "--explain")
        lines = [set(run.stdout.split("Prediction")[0].splitlines()) for run in (done, explained)]
        self.assertLessEqual(*lines)
        program = explained.stdout.split("Program of a step on device 0\n")[1].split("\n\n")[0]
        self.assertEqual([line.split()[0] for line in program.splitlines()][:4],
                         ["wait", "feed", "run", "fetch"])
        self.assertNotIn("start", program)
        several = self.run_command("plan", "--model", "lenet", "--batch", "32", "--explain",
                                   "--devices", "pocl/2").stdout if CORES > 1 else ""
        if several:
            program = several.split("Program of a step on device 0\n")[1].split("\n\n")[0]
            for part in ("start gradient 0", "complete gradient 0", "status", "update"):
                self.assertRegex(program, r"\n +" + part)
        self.assertRegex(done.stdout, r"batch 32 on 1 device: 32; predicted [\d.]+ ms a step")
        done = self.run_command("plan", "--model", "mlp", "--data", "idx:" + self.data, "--epochs",
                                "2", "--batch", "16")
        self.assertIn("10 steps", done.stdout)
        self.assertEqual(tree(self.folder), before)

    def test_plan_between_ranks(self):
        """More ranks train more samples a second, but fewer for each rank."""
        done = self.run_command("plan", "--model", "mlp", "--devices", "pocl", "--simulate",
                                "1,8,64,4096", "--link", "10Gbit/s,20us")
        rows = re.findall(r"^ +(\d+) +([\d.]+) ms +[\d.]+ ms +[\d.]+ ms +(\d+) +([\d.]+) +(-|\d+ MB)  ?"
                          r"(\w*)$", done.stdout, re.MULTILINE)
        self.assertEqual([int(row[0]) for row in rows], [1, 8, 64, 4096])
        self.assertEqual([row[5] != "" for row in rows], [False, True, True, True])
        self.assertEqual([row[4] for row in rows], ["-", *["32 MB"] * 3])
        for before, after in zip(rows, rows[1:]):
            self.assertLessEqual(float(before[1]), float(after[1]))
            self.assertGreater(int(after[2]), int(before[2]))
            self.assertGreaterEqual(float(before[3]), float(after[3]))

    def test_plan_of_too_much(self):
        """The largest batch that fits does not depend on --batch."""
        def largest(text):
            return int(re.search(r"argest batch that fits(?::| is) about (\d+)", text)[1])

        found = largest(self.run_command("plan", "--model", "lenet").stdout)
        self.assertGreater(found, 256)
        refused = self.run_command("plan", "--model", "lenet", "--batch", 10 ** 9, code=1).stderr
        self.assert_message(refused, "1000000000")
        self.assertLess(abs(largest(refused) / found - 1), 0.1)
        refused = self.train("--epochs", "1", batch=2 * 10 ** 9, code=1).stderr
        self.assert_message(refused, "argest batch that fits")


if __name__ == "__main__":
    main()
