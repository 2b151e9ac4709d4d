"""--parallel over ranks: a mesh of ranks trains as one process with the same mesh."""
import os

from ranks import RankTest, get, records, run


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

    def test_other_meshes(self):
        words = [self.words("--steps", "2", "--oversubscribe", "--parallel", mesh, devices="pocl@1") for mesh in
                 ("tp=2", "dp=2")]
        _, err = self.wait(self.each(*words), 1)
        self.assertIn("rank 0 has the mesh 'tp=2' (--parallel), rank 1 the mesh 'dp=2'", err)


if __name__ == "__main__":
    run()
