"""Adapters on several ranks and in pipelines: the numbers of one device."""
import json
import math
import os
import random

from ranks import COMMAND, MPIEXEC, RankTest, get, records, run
from command import put, tensors

STEPS = 6


class Lora(RankTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(2)
        self.text = self.path("text.txt")
        put(self.text, " ".join(rng.choice(("one", "two", "three", "four.\n")) for _ in range(600)).encode())

    def fit(self, name, ranks, *more, devices="pocl@1", steps=STEPS, lr="0.5"):
        """Returns the losses of a run, its parameters, and the files of its last checkpoint."""
        folder, metrics = self.path(name), self.path(name + ".jsonl")
        self.run_ranks(ranks, "--data", "text:" + self.text, "--seq-len", "16", "--lora", "h.*.attn.c_attn:4:8", "--lora",
                       "h.*.mlp.c_fc:2", "--optimizer", "momentum", "--lr", lr, "--seed", "3", "--steps", steps,
                       "--checkpoint-dir", folder, "--metrics", metrics, "--oversubscribe", *more,
                       model="gpt2:layers=2,heads=2,width=32", batch=8, devices=devices)
        last = os.path.join(folder, max(n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n))))
        files = [os.path.join(last, name + ".safetensors") for name in ("model", "optimizer")]
        return [r["loss"] for r in records(metrics)[0]], tensors(files[0]), [get(path) for path in files]

    def assert_same(self, have, want):
        """Files are equal. One process adds losses in f64, ranks add them in f32."""
        self.assertEqual(have[2], want[2])
        for a, b in zip(have[0], want[0], strict=True):
            self.assertAlmostEqual(a, b, delta=1e-5)

    def assert_close(self, have, want, first):
        """Losses agree within 1e-5, what the adapters have learned within 1e-4, and all else is as it began."""
        for a, b in zip(have[0], want[0], strict=True):
            self.assertLessEqual(abs(a - b), 1e-5 * b)
        self.assertEqual(have[1].keys(), want[1].keys())
        for name, values in want[1].items():
            if ".lora_" not in name:
                self.assertEqual(have[1][name], values, name)
                continue
            learned = math.dist(values, first[1][name])
            self.assertGreater(learned, 0)
            self.assertLessEqual(math.dist(have[1][name], values), 1e-4 * learned, name)

    def test_as_one_device(self):
        first = self.fit("first", 1, lr="1e-30", steps=1)
        want = self.fit("want", 1)
        self.assertLess(want[0][-1], want[0][0])
        # One process, then two ranks.
        for mesh, more in (("dp=2", ()), ("dp=2", ("--zero", "1")), ("dp=2", ("--zero", "3")), ("tp=2", ()),
                           ("pp=2", ("--accumulate", "2")), ("pp=2", ("--accumulate", "4", "--in-flight", "4"))):
            with self.subTest(mesh=mesh, more=more):
                name = mesh + "".join(more)
                more = ("--parallel", mesh, *more)
                one = self.fit(name + "-one", 1, *more, devices="pocl/2")
                self.assert_close(one, want, first)
                self.assert_same(self.fit(name + "-two", 2, *more), one)

    def test_resumed(self):
        """A pipeline of two ranks that was broken off goes on as a pipeline of one, with the same bits."""
        more = ("--parallel", "pp=2", "--accumulate", "2")
        want = self.fit("want", 2, *more)
        self.fit("broken", 2, *more, steps=3)
        self.assert_same(self.fit("broken", 1, *more, "--resume", devices="pocl/2"), want)

    def test_uses(self):
        """eval of a pipeline's checkpoint, and the merged model, on one rank and on two."""
        self.fit("run", 2, "--parallel", "pp=2", "--accumulate", "2")
        merged = self.path("merged.safetensors")
        self.run_command("export", "--checkpoint", self.path("run"), "--merge-lora", "-o", merged, "--devices", "pocl")
        usual = ("--data", "text:" + self.text, "--json", "--oversubscribe")
        plain = ("--model", "gpt2:layers=2,heads=2,width=32", "--seq-len", "16")
        losses = []
        for ranks, words in ((1, ("--checkpoint", self.path("run"), "--devices", "pocl@1")),
                             (2, ("--checkpoint", self.path("run"), "--devices", "pocl@1", "--parallel", "pp=2")),
                             (2, ("--checkpoint", self.path("run"), "--devices", "pocl@1", "--parallel", "dp=2")),
                             (1, ("--checkpoint", merged, *plain, "--devices", "pocl@1")),
                             (2, ("--checkpoint", merged, *plain, "--devices", "pocl@1", "--parallel", "pp=2"))):
            out, _ = self.wait(self.begin([MPIEXEC, "-n", ranks, COMMAND, "eval", *words, *usual]), 0)
            losses.append(json.loads(out)["test_loss"])
        for loss in losses:
            self.assertAlmostEqual(loss, losses[0], delta=1e-5)


if __name__ == "__main__":
    run()
