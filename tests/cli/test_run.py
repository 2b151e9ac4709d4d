"""What a run prints and writes, and the commands that work on it: eval, plot, plan, bench."""
import json
import math
import os
import re
import pty
import shutil
import struct
import subprocess

from command import (COMMAND, TEST, TRAIN, CommandTest, cores, get, main, put, records, tree,
                     write_data)

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
        # The samples are easy: it learns them.
        self.assertLess(steps[-1]["loss"], 0.8 * steps[0]["loss"])
        self.assertGreater(epochs[-1]["test_accuracy"], 0.9)

    def test_repeatable(self):
        """The same seed gives the same losses; another seed, or order, does not."""
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
        """Each changes what is learned, and none breaks it."""
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
        """Micro-batches and a cache folder change nothing but rounding."""
        losses = []
        for more in ((), ("--accumulate", "4"), ("--cache-dir", self.path("cache"))):
            path = self.path("m.jsonl")
            self.train("--steps", "6", "--tune", "off", "--metrics", path, *more)
            losses.append([r["loss"] for r in records(path)[0]])
        for other in losses[1:]:
            for a, b in zip(losses[0], other):
                self.assertAlmostEqual(a, b, delta=1e-5 * abs(a))

    def test_small_batches(self):
        """Fewer samples than devices, and a batch of more than there are."""
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
        write_data(self.data, train=4000)
        master, slave = pty.openpty()
        arguments = self.arguments("--steps", "1500", batch=1)
        child = subprocess.Popen([COMMAND, *map(str, arguments)], stdout=slave,
                                 stderr=subprocess.DEVNULL)
        os.close(slave)
        text = b""
        while True:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            text += part
        os.close(master)
        self.assertEqual(child.wait(timeout=60), 0)
        self.assertRegex(text.decode(), r"\repoch 1  step \d+/1500  loss .* samples/s  .* left")


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
        """A file's parameters are where training starts."""
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
        # A run that was killed left half a line.
        put(self.path("cut.jsonl"), get(self.files[0]) + b'{"step":1')
        self.run_command("plot", self.path("cut.jsonl"), "-o", self.path("cut.png"))
        # A model without an accuracy has one picture, of the loss; so has a run without tests.
        steps = b"".join(b'{"step":%d,"epoch":1,"loss":%d}\n' % (i, 9 - i) for i in (1, 2, 3))
        for name, more in (("mse", b'{"epoch":1,"test_loss":0.5,"test_mse":0.5}\n'),
                           ("diverged", b'{"step":4,"epoch":1,"loss":null}\n'
                            b'{"epoch":1,"test_loss":null,"test_accuracy":null}\n')):
            put(self.path(name + ".jsonl"), steps + more)
            self.assertEqual(self.run_command("plot", self.path(name + ".jsonl"), "-o", picture).stderr, "")
            self.assertEqual(struct.unpack(">II", get(picture)[16:24]), (600, 600))

    def script(self, *lines):
        """What gnuplot is told for a metrics file."""
        put(self.path("m.jsonl"), "".join(json.dumps(line) + "\n" for line in lines).encode())
        put(self.path("data", "gnuplot"), b"#!/bin/sh\ncat >\"$TO\"\n")
        os.chmod(self.path("data", "gnuplot"), 0o755)
        environment = dict(os.environ, PATH=self.path("data") + ":" + os.environ["PATH"], TO=self.path("script"))
        self.run_command("plot", self.path("m.jsonl"), "-o", self.path("no.png"), code=1, env=environment)
        text = get(self.path("script")).decode()
        data = {name: [tuple(map(float, line.split())) for line in points.splitlines()]
                for name, points in re.findall(r"\$data_0_(\d) << END\n(.*?)END\n", text, re.DOTALL)}
        return data, dict(re.findall(r"\$data_0_(\d) with .*?lc rgb \"(#\w+)\"", text))

    def test_partial_last_batch(self):
        """It does not spike: it is drawn as one with the step before, and counts by its samples in the epoch's mean."""
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
        self.assertEqual(colours["2"], colours["3"])

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


class Others(CommandTest):
    def test_devices(self):
        found = json.loads(self.run_command("devices", "--json").stdout)
        table = self.run_command("devices").stdout
        for i, device in enumerate(found["devices"]):
            self.assertEqual(device["index"], i)
            self.assertIn(device["name"], table)
            self.assertGreater(device["memory_bytes"], 0)
            self.assertTrue(device["usable"] or device["skip"])

    def test_plan(self):
        before = tree(self.folder)
        done = self.run_command("plan", "--model", "lenet", "--batch", "32")
        for part in ("Training", "Evaluation", "conv2.weight", "Memory"):
            self.assertIn(part, done.stdout)
        # Reasons come between the lines of the plan.
        explained = self.run_command("plan", "--model", "lenet", "--batch", "32", "--explain")
        lines = [set(run.stdout.split("Prediction")[0].splitlines()) for run in (done, explained)]
        self.assertLessEqual(*lines)
        self.assertRegex(done.stdout, r"batch 32 on 1 device: 32; predicted [\d.]+ ms a step")
        done = self.run_command("plan", "--model", "mlp", "--data", "idx:" + self.data, "--epochs",
                                "2", "--batch", "16")
        self.assertIn("10 steps", done.stdout)
        self.assertEqual(tree(self.folder), before)

    def test_plan_between_ranks(self):
        """More ranks do more samples a second, and none of them more than one alone."""
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
        """The largest batch that fits does not depend on the one asked for."""
        def largest(text):
            return int(re.search(r"argest batch that fits(?::| is) about (\d+)", text)[1])

        found = largest(self.run_command("plan", "--model", "lenet").stdout)
        self.assertGreater(found, 256)
        refused = self.run_command("plan", "--model", "lenet", "--batch", 10 ** 9, code=1).stderr
        self.assert_message(refused, "1000000000")
        self.assertLess(abs(largest(refused) / found - 1), 0.1)
        refused = self.train("--epochs", "1", batch=2 * 10 ** 9, code=1).stderr
        self.assert_message(refused, "argest batch that fits")

    def test_bench(self):
        arguments = ("bench", "train", "--model", "mlp", "--data", "idx:" + self.data, "--batch",
                     "16", "--steps", "4", "--blocks", "3", "--warmup", "2", "--devices", "pocl")
        found = json.loads(self.run_command(*arguments, "--json").stdout)
        rate, step = found["samples_per_s"], found["step_seconds"]
        self.assertTrue(0 < rate["min"] <= rate["median"] <= rate["max"])
        self.assertTrue(0 < step["min"] <= step["median"] <= step["max"])
        self.assertEqual((found["blocks"], found["steps_per_block"]), (3, 4))
        self.assertEqual(len(found["devices"]), 1)
        # Forward and the weights' gradients, at least.
        self.assertGreater(found["flops_per_sample"], 2 * 2 * 30 * 4)
        self.assertAlmostEqual(found["flops_per_s"], found["flops_per_sample"] * rate["median"],
                               delta=1e-3 * found["flops_per_s"])
        self.assertAlmostEqual(found["of_limit"], found["flops_per_s"] / found["limit_flops_per_s"],
                               delta=1e-3 * found["of_limit"])
        table = self.run_command(*arguments).stdout
        self.assertIn("samples/s", table)
        self.assertRegex(table, r"compute +[\d.]+ GFLOP/s, [\d.]+ MFLOP a sample.*of the [\d.]+ "
                                r"GFLOP/s of 1 device\n")
        done = self.run_command(*arguments, "--variant", "conv2d=portable,linear=gemm_gpu")
        self.assertRegex(done.stderr, r"declined gemm_gpu: asked for, but \w")
        self.assertIn("conv2d=portable: asked for, but no node of the plan is conv2d\n", done.stderr)

    def test_bench_by_node(self):
        done = self.run_command("bench", "train", "--model", "mlp", "--data", "idx:" + self.data,
                                "--batch", "16", "--steps", "4", "--warmup", "2", "--devices",
                                "pocl", "--by-node")
        for part in ("of limit", "linear_weight_grad", "sgd", "upload"):
            self.assertIn(part, done.stdout)
        self.assertRegex(done.stdout, r"pocl.*limits of this device: [\d.]+ GFLOP/s in registers, "
                                      r"[\d.]+ GB/s copying")
        # An update has no figure of arithmetic, and one of memory.
        self.assertRegex(done.stdout, r"\nsgd .*% +- +[\d.]+ +[\d.]+\n")
        found = json.loads(self.run_command("bench", "train", "--model", "mlp", "--data",
                                            "idx:" + self.data, "--batch", "16", "--steps", "4",
                                            "--devices", "pocl", "--by-node", "--json").stdout)
        self.assertIn("linear_weight_grad", {n["operator"] for n in found["nodes"]})
        self.assertIn("pocl", found["device"])
        self.assertGreaterEqual(found["step_seconds"], max(n["seconds"] for n in found["nodes"]))
        for node in found["nodes"]:
            self.assertNotEqual(0, node["flops_per_s"])
            if node["node"] in ("sgd", "square_sum", "step_word"):
                self.assertIsNone(node["flops_per_s"])
                self.assertGreater(node["bytes_per_s"], 0)
                self.assertGreater(node["of_limit"], 0)
        times = [n["seconds"] for n in found["nodes"]]
        self.assertEqual(times, sorted(times, reverse=True))

    def assert_rows(self, found, names):
        """The report's rows: of those names, and consistent with each other."""
        self.assertGreater(found["limit_flops_per_s"], 1e8)
        self.assertGreater(found["limit_copy_bytes_per_s"], 1e8)
        self.assertEqual([row["name"] for row in found["rows"]], names)
        for row in found["rows"]:
            self.assertTrue(0 < row["min_seconds"] <= row["median_seconds"] <= row["max_seconds"])
            # One block: its share is that of the limit measured beside it.
            share = row["flops_per_s" if row["bound"] == "flops" else "bytes_per_s"] / row["limit_per_s"]
            self.assertAlmostEqual(row["of_limit"], share, delta=1e-4 * share)
            self.assertGreater(row["limit_per_s"], 1e6)

    def test_bench_kernels(self):
        found = json.loads(self.run_command("bench", "gemm", 48, 32, 40, "--blocks", "1", "--json",
                                            "--devices", "pocl").stdout)
        self.assert_rows(found, [f"gemm 48x32x40 {trans}" for trans in ("NN", "NT", "TN")])
        for row in found["rows"]:
            self.assertAlmostEqual(row["flops_per_s"] * row["median_seconds"], 2 * 48 * 32 * 40,
                                   delta=10)
        found = json.loads(self.run_command("bench", "gemm", 48, 32, 40, "--blocks", "1", "--json",
                                            "--trans", "TT", "--variant", "matmul=portable",
                                            "--devices", "pocl").stdout)
        self.assert_rows(found, ["gemm 48x32x40 TT"])
        self.assertEqual(found["rows"][0]["variant"], "portable")
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--trans", "NN", "--variant",
                                "matmul=gemm_gpu", "--devices", "pocl")
        self.assertRegex(done.stderr, r"declined gemm_gpu: asked for, but \w")
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--variant",
                                "matmul=gemm_gpu", "--devices", "pocl")
        self.assertEqual(done.stderr.count("asked for, but"), 1)
        done = self.run_command("bench", "conv", "2x3x9x9", "4x3x3", "--dilation", 2, "--blocks", "1", "--variant",
                                "conv2d=portable,linear=portable", "--devices", "pocl")
        self.assertEqual(done.stderr, "cltrain: linear=portable: asked for, but no node of the plan is linear\n")
        # Of several graphs, those that lack the operator say nothing.
        done = self.run_command("bench", "op", "relu", "max_rows", "--blocks", "1", "--variant",
                                "max=portable,linear=portable", "--devices", "pocl")
        self.assertEqual(done.stderr,
                         "cltrain: linear=portable: asked for, but no node of the plan is linear\n")
        self.assertRegex(done.stdout, r"max_rows: max +portable ")
        done = self.assert_bad("bench", "gemm", 10 ** 6, 10 ** 6, 1, "--devices", "pocl", code=1,
                               says=("MiB",))
        self.assertEqual(done.stdout, "")
        self.assertNotIn("gemm_gpu", done.stdout)
        found = json.loads(self.run_command("bench", "conv", "4x3x9x9", "5x3x3", "--padding", "1",
                                            "--blocks", "1", "--json", "--devices",
                                            "pocl").stdout)
        convolutions = [row for row in found["rows"] if row["name"] != "layout"]
        self.assertEqual(sorted(row["name"] for row in convolutions),
                         ["conv2d", "conv2d_data_grad", "conv2d_weight_grad"])
        forward = next(row for row in convolutions if row["name"] == "conv2d")
        self.assertAlmostEqual(forward["flops_per_s"] * forward["median_seconds"],
                               2 * 4 * 5 * 81 * 27, delta=10)

    def test_bench_compare(self):
        """OpenBLAS beside our product; or, in a build without it, what to install."""
        arguments = ("bench", "gemm", 96, 64, 80, "--blocks", "1", "--json", "--compare", "--devices",
                     "pocl")
        if not int(os.environ["CLT_TEST_OPENBLAS"]):
            self.assert_message(self.run_command(*arguments, code=1).stderr, "libopenblas-dev")
            return
        found = json.loads(self.run_command(*arguments).stdout)
        self.assert_rows(found, [f"gemm 96x64x80 {trans}" for trans in ("NN", "NT", "TN")])
        self.assertRegex(found["other"], r"^OpenBLAS \d.* for \w")
        for row in found["rows"]:
            self.assertGreater(row["other_flops_per_s"], 1e7)
            self.assertAlmostEqual(row["ratio"], row["flops_per_s"] / row["other_flops_per_s"],
                                   delta=1e-3 * row["ratio"])
        table = self.run_command(*(a for a in arguments if a != "--json"), "--trans", "TT").stdout
        self.assertRegex(table, r"(?s)OpenBLAS.*ratio\n.*96x64x80 TT")
        self.assert_bad("bench", "gemm", 10 ** 7, 10 ** 7, 1, "--compare", "--devices", "pocl",
                        code=1, says=("--compare", "MiB"))

    def test_bench_scaling(self):
        if CORES < 2:
            self.skipTest("one core")
        found = json.loads(self.run_command("bench", "scaling", "gemm", "softmax", "--blocks", "1",
                                            "--json", "--devices", "pocl/2").stdout)
        self.assertEqual(len(found["devices"]), 2)
        self.assert_bad("tune", "--model", "mlp", "--devices", "pocl/2", "--export",
                        self.path("two.json"), code=2, says=("--export", "one device"))
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--devices", "pocl/2")
        self.assert_message(done.stderr, "of 2 devices the first is measured")
        names = [row["name"] for row in found["rows"]]
        for name in ("limit: registers", "gemm: matmul", "softmax: softmax_grad"):
            self.assertIn(name, names)
        for row in found["rows"]:
            self.assertGreater(row["alone"], 0)
            self.assertAlmostEqual(row["ratio"], row["together"] / row["alone"],
                                   delta=1e-3 * row["ratio"])

    def test_bench_allreduce(self):
        if CORES < 2:
            self.skipTest("one core")
        for options, way in (((), "in the host's memory"), (("--staged",), "in chunks"),
                             (("--peer", "--share-context"), "copies within their context")):
            found = json.loads(self.run_command("bench", "allreduce", 4096, "100KB", "--blocks", "2",
                                                "--json", "--devices", "pocl/2", *options).stdout)
            self.assertEqual(len(found["devices"]), 2)
            self.assertEqual([row["bytes"] for row in found["rows"]], [4096, 102400])
            for row in found["rows"]:
                # Each device's result of each call: two blocks and one to warm up.
                self.assertEqual(row["verified"], 2 * (2 * 24 + 1))
                self.assertLessEqual(row["min_seconds"], row["median_seconds"])
                self.assertGreater(row["limit_seconds"], 0)
                self.assertGreater(row["of_limit"], 0)
                self.assertGreater(row["latency_seconds"], 0)
                self.assertIn(way, row["way"])
        table = self.run_command("bench", "allreduce", "1MB", "--blocks", "1", "--devices",
                                 "pocl/2").stdout
        self.assertIn("1 MB", table)
        self.assertIn("of limit", table)

    def test_tune(self):
        """Fills the record of the cache folder, once; train uses it."""
        cache = self.path("cache")
        arguments = ("tune", "--model", "lenet", "--batch", "16", "--devices", "pocl", "--budget",
                     "2", "--cache-dir", cache)
        done = self.run_command(*arguments)
        self.assertRegex(done.stderr, r"measured \d+ of \d+ classes")
        self.assertEqual(len(os.listdir(os.path.join(cache, "tuning"))), 1)
        explained = self.run_command("plan", "--model", "lenet", "--batch", "16", "--explain",
                                     "--devices", "pocl", "--cache-dir", cache).stdout
        self.assertIn("measured best: lanes", explained)
        # A choice other than the plain one was measured faster.
        exported = self.path("record.json")
        records = json.loads(self.run_command(*arguments, "--json", "--export", exported).stdout)
        record, = records.values()
        self.assertEqual(record, json.loads(get(exported)))
        self.assertEqual(record["compute_units"], CORES)
        self.assertTrue(record["entries"])
        for entry in record["entries"]:
            self.assertGreater(entry["seconds"], 0)
            if entry["seconds"] != entry["plain_seconds"]:
                self.assertLess(entry["seconds"], 0.97 * entry["plain_seconds"])
        # What cannot be kept is not measured, and the file stays as it was.
        self.assert_bad("tune", "--model", "softmax", "--devices", "pocl", "--budget", "600", "--cache-dir",
                        exported, "--export", exported, code=1, says=("tuning record", exported))
        self.assertEqual(record, json.loads(get(exported)))
        self.assertEqual([name for name in os.listdir(self.folder) if ".new-" in name], [])

    def test_measuring_goes_on(self):
        """What the time did not suffice for is said."""
        done = self.train("--steps", "1", "--tune", "0.001", "--cache-dir", self.path("unmeasured"))
        self.assertIn("measuring kernels for new shapes (", done.stdout)
        left = re.search(r"kernels of (\d+) of (\d+) new classes of shapes are left", done.stdout)
        self.assertTrue(0 < int(left[1]) <= int(left[2]))

    def test_cold_start(self):
        """Few kernels are compiled before the first step of LeNet, where none is measured."""
        found = json.loads(self.run_command(
            "bench", "train", "--model", "lenet", "--data", "synthetic", "--batch", "16", "--steps",
            "1", "--warmup", "1", "--blocks", "1", "--tune", "off", "--devices", "pocl",
            "--json").stdout)
        self.assertTrue(0 < found["programs"] <= found["kernels"] < 60)
        self.assertGreater(found["kernels"], 15)
        self.assertRegex(self.train("--steps", "1").stdout, r"\d+ kernels of \d+ programs")

    def test_profile(self):
        """Every kernel of every step, by node and device, in the order of time."""
        path = self.path("trace.json")
        for devices in ("pocl", "pocl/2")[:CORES]:
            with self.subTest(devices=devices):
                self.train("--steps", "3", "--profile", path, "--quiet", "--split", "equal",
                           devices=devices)
                trace = json.loads(get(path))["traceEvents"]
                names = [e for e in trace if e["ph"] == "M"]
                events = [e for e in trace if e["ph"] == "X"]
                count = int(devices[5:] or 1)
                # Several devices also have a row of reductions each.
                self.assertEqual(len(names), count if count == 1 else 2 * count)
                for tid in range(count, len(names)):
                    own = [e for e in events if e["tid"] == tid]
                    self.assertEqual([e["args"]["step"] for e in own], [1, 2, 3])
                    for e in own:
                        self.assertEqual(e["cat"], "reduction")
                        self.assertRegex(e["name"], r"bucket 0 \(fc2.bias and 3 more\)")
                        self.assertGreater(e["dur"], 0)
                for tid in range(count):
                    own = [e for e in events if e["tid"] == tid]
                    self.assertEqual({e["args"]["step"] for e in own}, {1, 2, 3})
                    for step in (1, 2, 3):
                        kernels = [e["args"]["kernel"] for e in own if e["args"]["step"] == step]
                        self.assertIn("sgd", kernels)
                        self.assertTrue(all(e["args"]["GB/s"] > 0 for e in own
                                            if e["args"]["kernel"] in ("sgd", "square_sum")
                                            and e["dur"] > 0))
                        self.assertTrue([e for e in own if e["cat"] == "backward"
                                         and e["args"]["operator"] == "linear_weight_grad"])
                    for before, after in zip(own, own[1:]):
                        self.assertLessEqual(before["ts"], after["ts"])
                        self.assertGreaterEqual(after["dur"], 0)


if __name__ == "__main__":
    main()
