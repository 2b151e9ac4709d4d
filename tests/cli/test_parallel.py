"""--parallel: runs on a mesh of devices, what plan prints about it, and what is refused."""
import os

from command import CommandTest, get, main, records


class Parallel(CommandTest):
    def losses(self, name, *more, **names):
        metrics = self.path(name + ".jsonl")
        self.train("--steps", "6", "--split", "equal", "--seed", "3", "--metrics", metrics,
                   "--checkpoint-dir", self.path(name), "--checkpoint-every", "3", *more,
                   model="mlp:16", **names)
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
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--zero", "1",
                                        devices="pocl/2"), code=2, says=("zero 1", "axis dp"))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--rebalance",
                                        devices="pocl/2"), code=2, says=("rebalance",))
        self.assert_bad(*self.arguments("--steps", "1", "--parallel", "tp=2", "--split", "2,1",
                                        devices="pocl/2"), code=2, says=("equal weights",))


if __name__ == "__main__":
    main()
