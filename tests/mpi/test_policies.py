"""Policies on several ranks: the decisions of one, also after all ranks were killed and resumed."""
import json
import os
import random
import signal

from ranks import RankTest, get, records, run
from command import CLASSES, idx, images, put

HOW = ("--val", "0.3", "--val-every", "5", "--epochs", "40", "--lr", "0.3", "--schedule", "plateau:0.7:1",
       "--keep-best", "val_loss", "--patience", "25", "--checkpoint-every", "3", "--optimizer", "adamw", "--seed", "2",
       "--average", "ema:0.9")


class Policies(RankTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(3)  # many labels are wrong, so validation gets worse after a while
        labels = [rng.randrange(CLASSES) for _ in range(160)]
        shown = [l if rng.random() < 0.6 else rng.randrange(CLASSES) for l in labels]
        put(os.path.join(self.data, "train-images-idx3-ubyte"), idx((160, 6, 5), images(shown, 6, 5, rng)))
        put(os.path.join(self.data, "train-labels-idx1-ubyte"), idx((160,), labels))

    def validations(self, path):
        return [r["val_loss"] for r in map(json.loads, get(path).decode().splitlines()) if "val_loss" in r]

    def test_decisions(self):
        for zero in "1", "3", "0":
            with self.subTest(zero=zero):
                self.decide(zero)

    def decide(self, zero):
        straight, broken = self.path("straight" + zero), self.path("broken" + zero)
        args = lambda folder: (*HOW, "--zero", zero, "--checkpoint-dir", folder, "--metrics", folder + ".jsonl")
        out, _ = self.run_ranks(2, *args(straight))
        self.assertIn("the run ends: val_loss has not improved for 25 evaluations", out)
        self.assertIn("learning rate", out)
        steps = len(records(straight + ".jsonl")[0])
        for part in (0.3, 0.7):
            child = self.ranks(2, *args(broken), *(("--resume",) if part > 0.3 else ()))
            self.until(lambda: (s := self.saved(broken)) and int(s[-1][5:]) > part * steps, child)
            for number in range(2):
                if self.rank(number):
                    os.kill(self.rank(number).pid, signal.SIGKILL)
            child.communicate(timeout=120)
        self.run_ranks(2, *args(broken), "--resume")
        a, b = (os.path.join(folder, self.saved(folder)[-1]) for folder in (straight, broken))
        self.assertEqual(os.path.basename(a), os.path.basename(b))
        self.assert_same_bits(a, b)
        self.assert_same_bits(os.path.join(straight, "best"), os.path.join(broken, "best"))
        self.assertEqual(*(get(os.path.join(folder, "average.safetensors")) for folder in (a, b)))
        self.assertEqual(*(os.readlink(os.path.join(folder, "best")) for folder in (straight, broken)))
        self.assertEqual(self.validations(straight + ".jsonl"), self.validations(broken + ".jsonl"))


if __name__ == "__main__":
    run()
