"""--parallel: runs on a mesh of devices, what plan prints about it, and what is refused."""
import json
import os

from command import CommandTest, get, main, put, records


class Parallel(CommandTest):
    def losses(self, name, *more, model="mlp:16", **names):
        metrics = self.path(name + ".jsonl")
        self.train("--steps", "6", "--split", "equal", "--seed", "3", "--metrics", metrics,
                   "--checkpoint-dir", self.path(name), "--checkpoint-every", "3", *more,
                   model=model, **names)
        return [r["loss"] for r in records(metrics)[0]]

    def near(self, have, want):
        self.assertEqual(len(have), len(want))
        for a, b in zip(have, want):
            self.assertAlmostEqual(a, b, delta=1e-5 * abs(b))

    def newest(self, name):
        folder = self.path(name)
        return os.path.join(folder, max(n for n in os.listdir(folder)
                                        if os.path.isdir(os.path.join(folder, n))))

    def test_meshes_agree(self):
        want = self.losses("one", devices="pocl@1")
        self.near(self.losses("tp", "--parallel", "tp=2", devices="pocl/2"), want)
        self.near(self.losses("both", "--parallel", "dp=2,tp=2", devices="pocl/2,pocl/2"), want)
        self.near(self.losses("dp", "--parallel", "dp=2", devices="pocl/2"), want)
        # A mesh of dp alone is no mesh, to the bit.
        self.losses("plain", devices="pocl/2")
        self.assertEqual(get(os.path.join(self.newest("dp"), "model.safetensors")),
                         get(os.path.join(self.newest("plain"), "model.safetensors")))

    def images(self, space, kernel=3, padding=0, **more):
        path = self.path("images.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**more, "inputs": [{"name": "image", "space": space}, {"name": "label"}],
                       "nodes": [{"name": "c", "op": "conv2d", "in": "image", "out": 4, "kernel": kernel,
                                  "padding": padding},
                                 {"op": "relu"}, {"op": "max_pool2d"}, {"op": "flatten"},
                                 {"name": "top", "op": "linear", "out": "classes"}],
                       "losses": [{"op": "cross_entropy", "in": ["top", "label"]}]}, file)
        return path

    def test_rows_of_images(self):
        model = self.images(2)
        want = self.losses("whole", model=model, devices="pocl@1")
        self.near(self.losses("rows", "--parallel", "space=2", model=model, devices="pocl/2"), want)
        done = self.run_command(*self.arguments("--steps", "1", "--parallel", "space=2", model=model,
                                                devices="pocl/2"))
        self.assert_message(done.stderr, "1 operator cannot be divided", "(reshape, axis space)")
        plan = ("plan", "--model", model, "--data", "idx:" + self.data, "--devices", "pocl/2",
                "--parallel", "space=2")
        text = self.run_command(*plan, "--explain").stdout
        self.assertRegex(text, r"space c\.space\.below: shift of f32\[Bx1x\dx\d+\]")
        self.assertRegex(text, r"space .*: reshape cannot be divided, so its operands are gathered")
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "space=2", devices="pocl/2",
                                        model=self.images(7)), code=1, says=("space", "dimension 7"))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "space=2", devices="pocl/2",
                                        model="resnet18:width=1,blocks=1"),
                        code=2, says=("axis space splits its images", "synchronised"))

    def test_stages(self):
        want = self.losses("alone", "--accumulate", "4", devices="pocl@1")
        stages = ("--accumulate", "4", "--parallel", "pp=2")
        self.near(self.losses("pp", *stages, devices="pocl/2"), want)
        # A run on stages goes on without them.
        metrics = self.path("staged.jsonl")
        usual = ("--split", "equal", "--seed", "3", "--metrics", metrics, "--checkpoint-dir",
                 self.path("staged"), "--resume")
        self.train("--steps", "3", *stages, *usual, model="mlp:16", devices="pocl/2")
        self.train("--steps", "6", "--accumulate", "4", *usual, model="mlp:16", devices="pocl@1")
        self.near([r["loss"] for r in records(metrics)[0]], want)
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "pp=2", devices="pocl/2"),
                        code=2, says=("micro-batches", "accumulate"))

    def test_stages_by_names(self):
        want = self.losses("alone", "--accumulate", "2", devices="pocl@1", model="mlp:16,8")
        stages = ("--accumulate", "2", "--parallel", "pp=2", "--stages")
        self.near(self.losses("named", *stages, "fc2.*", devices="pocl/2", model="mlp:16,8"), want)
        plan = ("plan", "--model", "mlp:16,8", "--data", "synthetic:1x6x5:4", "--devices", "pocl/2",
                "--batch", "16", *stages)
        for layer, width in (("fc2.*", 16), ("fc3", 8)):
            self.assertRegex(self.run_command(*plan, layer, "--explain").stdout,
                             r"pp \S+: send of f32\[Bx%d\], stage 0 to 1" % width)
        model = self.images(2, pp=["top"])
        want = self.losses("whole", "--accumulate", "2", model=model, devices="pocl@1")
        self.near(self.losses("file", *stages[:-1], model=model, devices="pocl/2"), want)
        for layer, says in (("fc9.*", 'no layer matches "fc9.*"'), ("fc1.*", "stage 0 of axis pp has no node"),
                            ("fc2.*|fc3", "must name 1 layer for pp=2, one for each stage but the first, not 2")):
            self.assert_bad(*plan, layer, code=2, says=("stage", says))
        self.assert_bad(*self.arguments("--steps", "1", "--stages", "fc2.*"), code=2,
                        says=("--stages fc2.*", "needs a pipeline"))

    def test_measured_stages(self):
        want = self.losses("apart", "--accumulate", "2", devices="pocl@1", model="mlp:16,8")
        stages = ("--accumulate", "2", "--parallel", "pp=2", "--stages", "measured")
        self.near(self.losses("timed", *stages, devices="pocl/2", model="mlp:16,8"), want)
        plan = ("plan", "--model", "mlp:16,8", "--data", "synthetic:1x6x5:4", "--devices", "pocl/2",
                "--batch", "16", *stages)
        text = self.run_command(*plan).stdout
        self.assertRegex(text, r"stage 0: reshape_0 to relu_\d, \d+ % of the time \(\S+ ms for a micro-batch\)\n"
                               r"stage 1: (fc2|logits) to \S+, \d+ % of the time .*\n"
                               r"the same stages by names: '(fc2|logits)'\n")
        self.assert_bad(*plan, "--memory", "100KB", code=1,
                        says=("with none of the 2 cuts of the graph", "2 stages of axis pp"))
        self.assert_bad("eval", "--checkpoint", self.newest("timed"), "--data", "idx:" + self.data,
                        "--devices", "pocl/2", "--parallel", "pp=2", "--stages", "measured", code=2,
                        says=("only train and plan measure",))

    def test_resume_on_another_mesh(self):
        want = self.losses("straight", devices="pocl@1")
        metrics = self.path("broken.jsonl")
        usual = ("--split", "equal", "--seed", "3", "--metrics", metrics, "--checkpoint-dir",
                 self.path("broken"), "--resume")
        self.train("--steps", "3", "--parallel", "tp=2", *usual, model="mlp:16", devices="pocl/2")
        self.train("--steps", "6", "--parallel", "dp=2", *usual, model="mlp:16", devices="pocl/2")
        self.near([r["loss"] for r in records(metrics)[0]], want)

    def test_in_flight(self):
        want = self.losses("apart", "--accumulate", "4", devices="pocl@1")
        self.assertEqual(self.losses("flight", "--accumulate", "4", "--in-flight", "4", devices="pocl@1"), want)
        self.assert_bad(*self.arguments("--steps", "1", "--accumulate", "2", "--in-flight", "3"), code=2,
                        says=("--in-flight 3", "at most the 2 micro-batches"))

    def test_zero_3(self):
        want = self.losses("one", devices="pocl@1")
        self.near(self.losses("two", "--zero", "3", devices="pocl/2"), want)
        self.near(self.losses("three", "--zero", "3", "--parallel", "dp=3",
                              devices="pocl@1,pocl@1,pocl@1"), want)
        # Resume with another zero.
        for first, second in (("3", "0"), ("1", "3")):
            metrics = self.path("zero%s.jsonl" % first)
            usual = ("--split", "equal", "--seed", "3", "--metrics", metrics, "--checkpoint-dir",
                     self.path("zero" + first), "--resume")
            self.train("--steps", "3", "--zero", first, *usual, model="mlp:16", devices="pocl/2")
            self.train("--steps", "6", "--zero", second, *usual, model="mlp:16", devices="pocl/2")
            self.near([r["loss"] for r in records(metrics)[0]], want)
        text = self.run_command("plan", "--model", "mlp:16", "--data", "synthetic:1x6x5:4",
                                "--devices", "pocl/2", "--batch", "16", "--zero", "3",
                                "--explain").stdout
        self.assertIn("all_gather", text)

    def test_offload(self):
        want = self.losses("one", devices="pocl@1")
        self.assertEqual(self.losses("owner", "--offload", "optimizer", devices="pocl@1,pocl@1"), want)
        self.assertEqual(self.losses("owners", "--offload", "optimizer:2",
                                     devices="pocl@1,pocl@1,pocl@1"), want)
        resumed = []
        for first, second in ((("--offload", "optimizer"), ()), ((), ("--offload", "optimizer"))):
            name = "resumed%d" % len(first)
            metrics = self.path(name + ".jsonl")
            usual = ("--split", "equal", "--seed", "3", "--metrics", metrics, "--checkpoint-dir",
                     self.path(name), "--resume", "--optimizer", "adamw", "--lr", "0.01")
            for steps, more in (("3", first), ("6", second)):
                self.train("--steps", steps, *more, *usual, model="mlp:16",
                           devices="pocl@1,pocl@1" if more else "pocl@1")
            resumed.append([r["loss"] for r in records(metrics)[0]])
        self.assertEqual(len(resumed[0]), 6)
        self.assertEqual(*resumed)
        text = self.run_command("plan", "--model", "mlp:16", "--data", "synthetic:1x6x5:4",
                                "--devices", "pocl/2", "--batch", "16", "--offload", "optimizer",
                                "--optimizer", "adamw").stdout
        self.assertRegex(text, r"Optimizer's state on device 0 \(.*, trains\): 0 bytes")
        self.assertRegex(text, r"Optimizer's state on device 1 \(.*, owner\): [1-9][0-9]* bytes")
        bad = ("--steps", "1", "--offload")
        self.assert_bad(*self.arguments(*bad, "optimizer", devices="pocl@1"), code=2,
                        says=("offload needs a CPU device",))
        self.assert_bad(*self.arguments(*bad, "gradients", devices="pocl/2"), code=2,
                        says=("--offload gradients", "must be optimizer"))
        self.assert_bad(*self.arguments(*bad, "optimizer", "--zero", "1", devices="pocl/2"), code=2,
                        says=("offload and zero 1",))

    def test_plan(self):
        plan = ("plan", "--model", "mlp:16", "--data", "synthetic:1x6x5:4", "--devices", "pocl/2",
                "--batch", "16", "--parallel")
        text = self.run_command(*plan, "tp=2", "--explain").stdout
        self.assertIn("words", text)
        self.assertIn("the planner does not know meshes", text)
        self.assert_bad(*plan, "tp=3", code=2, says=("tp=3", "is for 3 devices"))

    def test_refused(self):
        for mesh, says in (("tq=2", "there is no axis 'tq'"), ("tp=2,tp=1", "is given twice"),
                           ("tp=0", "must be tp=N"), ("dp=2,tp=2", "is for 4 devices"),
                           ("tp=2,", "ends with a comma")):
            self.assert_bad(*self.arguments("--steps", "1", "--parallel", mesh, devices="pocl/2"),
                            code=2, says=("mesh", says))
        for model, axis, what in ((self.images(2), "tp", "parameter"), ("mlp:16", "space", "input"),
                                  ("mlp:16", "time", "input")):
            self.assert_bad(*self.arguments("--steps", "1", "--parallel", axis + "=2", model=model,
                                            devices="pocl/2"),
                            code=2, says=("axis %s divides nothing" % axis, "splits no " + what))
        put(self.path("text"), bytes(range(64)) * 8)
        for model, length, mesh, says in (
                ("gpt2:layers=1,heads=3,width=12", "8", "tp=2", "3 heads cannot be divided over 2 places of tp"),
                ("gpt2:layers=1,heads=1,width=4", "10", "time=2", "needs a multiple of 4"),
                ("gpt2:layers=1,heads=1,width=4", "8", "tp=2", "1 heads cannot be divided over 2 places of tp")):
            for command, *more in (("plan",), ("train", "--steps", "1")):
                self.assert_bad(command, *more, "--model", model, "--data", "text:" + self.path("text"),
                                "--seq-len", length, "--batch", "4", "--devices", "pocl/2", "--parallel", mesh,
                                code=2, says=(says,))
        # plan refuses what train refuses.
        plan = ("plan", "--model", "mlp:16", "--data", "idx:" + self.data, "--devices", "pocl/2")
        for more, says in ((("--virtual-shards", "4", "--parallel", "tp=2"), "no other axis than dp"),
                           (("--wire", "bf16", "--parallel", "tp=2"), "axes tp and pp"),
                           (("--wire", "bf16", "--zero", "3"), "zero 3")):
            self.assert_bad(*plan, *more, code=2, says=(says,))
        # Each part must have the rows that its neighbour needs.
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "space=2", devices="pocl/2",
                                        model=self.images(2, kernel=9, padding=4)), code=2,
                        says=("needs 4 rows of its neighbours", "use fewer places"))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--zero", "1",
                                        devices="pocl/2"), code=2, says=("zero 1", "axis dp"))
        self.assert_bad(*self.arguments("--steps", "1", "--zero", "3", devices="pocl@1"), code=2,
                        says=("zero 3", "there is one"))
        self.assert_bad(*self.arguments("--steps", "1", "--zero", "3", "--parallel", "tp=2",
                                        devices="pocl/2"), code=2, says=("no other axis than dp",))
        self.assert_bad(*self.arguments("--steps", "1", "--zero", "2", devices="pocl/2"), code=2,
                        says=("0, 1 or 3",))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--rebalance",
                                        devices="pocl/2"), code=2, says=("rebalance",))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--split", "2,1",
                                        devices="pocl/2"), code=2, says=("equal weights",))


if __name__ == "__main__":
    main()
