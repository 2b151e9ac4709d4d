"""16-bit gradients between ranks: all ranks skip the same steps, and a restart gives the same bits."""
import os

from ranks import RankTest, get, records, run

# Pixels of up to 1000 make gradients that overflow f16 at the first scale.
ARGS = ("--precision", "f16", "--optimizer", "adamw", "--normalize", "0,0.001", "--lr", "1e-7",
        "--split", "equal", "--check-every", "1")


class Precision(RankTest):
    # Two new runs are compared, so no test may measure kernels between them.
    def train_ranks(self, name, steps, *more):
        folder, metrics = self.path(name), self.path(name + ".jsonl")
        out, _ = self.run_ranks(2, "--steps", steps, "--checkpoint-dir", folder, "--metrics", metrics,
                                "--cache-dir", self.cache, *ARGS, *more)
        return out, records(metrics)[0], os.path.join(folder, sorted(os.listdir(folder))[-1])

    def test_skipped_steps(self):
        self.cache = self.cache_folder()
        out, want, straight = self.train_ranks("straight", 12)
        skipped = want[-1]["skipped"]
        self.assertTrue(2 < skipped < 11, skipped)
        self.assertIn(f"f16: {skipped} steps skipped", out)
        self.train_ranks("broken", 3)
        _, got, broken = self.train_ranks("broken", 12, "--resume")
        for name in ("loss", "loss_scale", "skipped"):
            self.assertEqual([r[name] for r in want], [r[name] for r in got])
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(get(os.path.join(straight, name)), get(os.path.join(broken, name)))


if __name__ == "__main__":
    run()
