"""--parallel over ranks: a mesh of ranks trains as one process with the same mesh."""
import json
import os

from ranks import COMMAND, MPIEXEC, RankTest, get, records, run


class Parallel(RankTest):
    def train_ranks(self, name, ranks, steps, *more, devices="pocl@1"):
        folder, metrics = self.path(name), self.path(name + ".jsonl")
        self.run_ranks(ranks, "--steps", steps, "--seed", "3", "--checkpoint-dir", folder, "--metrics",
                       metrics, "--oversubscribe", *more, model="mlp:16", devices=devices)
        last = max(n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n)))
        return ([r["loss"] for r in records(metrics)[0]],
                get(os.path.join(folder, last, "model.safetensors")),
                get(os.path.join(folder, last, "optimizer.safetensors")))

    def assert_same(self, have, want):
        """Files are equal. One process adds losses in f64, ranks add them in f32."""
        self.assertEqual(have[1:], want[1:])
        for a, b in zip(have[0], want[0], strict=True):
            self.assertAlmostEqual(a, b, delta=1e-6)

    def test_same_bits(self):
        usual = ("--parallel", "dp=2,tp=2", "--optimizer", "adam", "--clip-norm", "0.5")
        want = self.train_ranks("one", 1, 6, *usual, devices="pocl/2,pocl/2")
        self.assert_same(self.train_ranks("two", 2, 6, *usual, devices="pocl/2"), want)
        self.assert_same(self.train_ranks("four", 4, 6, *usual), want)
        # A run that is broken off goes on to the same bits.
        self.train_ranks("broken", 4, 3, *usual)
        self.assert_same(self.train_ranks("broken", 4, 6, *usual, "--resume"), want)

    def test_pipelines(self):
        """Stages on ranks of their own, each divided over tp too, and resumed on other ranks."""
        usual = ("--accumulate", "2", "--optimizer", "adam")
        want = self.train_ranks("one", 1, 6, "--parallel", "pp=2", *usual, devices="pocl/2")
        self.assert_same(self.train_ranks("two", 2, 6, "--parallel", "pp=2", *usual), want)
        both = self.train_ranks("both", 1, 6, "--parallel", "tp=2,pp=2", *usual, devices="pocl/2,pocl/2")
        self.assert_same(self.train_ranks("four", 4, 6, "--parallel", "tp=2,pp=2", *usual), both)
        self.train_ranks("broken", 1, 3, "--parallel", "pp=2", *usual, devices="pocl/2")
        self.assert_same(self.train_ranks("broken", 2, 6, "--parallel", "pp=2", *usual, "--resume"), want)

    def test_offload(self):
        """Each rank has an owner of its own."""
        usual = ("--split", "equal", "--optimizer", "adamw", "--clip-norm", "0.5")
        want = self.train_ranks("whole", 2, 6, *usual, devices="pocl@1")
        owned = ("--offload", "optimizer", *usual)
        self.assert_same(self.train_ranks("owned", 2, 6, *owned, devices="pocl@1,pocl@1"), want)
        self.train_ranks("half", 2, 3, *usual, devices="pocl@1")
        self.assert_same(self.train_ranks("half", 2, 6, *owned, "--resume", devices="pocl@1,pocl@1"), want)

    def test_eval(self):
        usual = ("--steps", "4", "--checkpoint-dir", self.path("run"))
        self.run_ranks(1, *usual, model="mlp:16", devices="pocl@1")
        loss = {}
        for mesh, ranks, devices in (("dp=1", 1, "pocl@1"), ("tp=2", 1, "pocl/2"), ("tp=2", 2, "pocl@1"),
                                     ("dp=2,tp=2", 2, "pocl/2")):
            words = [MPIEXEC, "-n", ranks, COMMAND, "eval", "--checkpoint", self.path("run"), "--data",
                     "idx:" + self.data, "--devices", devices, "--parallel", mesh, "--json", "--oversubscribe"]
            out, _ = self.wait(self.begin(words), 0)
            loss[mesh, ranks] = json.loads(out)["test_loss"]
        for key, value in loss.items():
            self.assertAlmostEqual(value, loss["dp=1", 1], delta=1e-6, msg=key)

    def test_other_meshes(self):
        words = [self.words("--steps", "2", "--oversubscribe", "--parallel", mesh, devices="pocl@1") for mesh in
                 ("tp=2", "dp=2")]
        _, err = self.wait(self.each(*words), 2)
        self.assertIn("rank 0 has the mesh 'tp=2' (--parallel), rank 1 the mesh 'dp=2'", err)


if __name__ == "__main__":
    run()
