"""--virtual-shards: model files, losses and metrics have the same bytes on any number of devices, ranks and nodes."""
import hashlib
import json
import os

from ranks import COMMAND, MPIEXEC, RankTest, get, records, run, write_data

STEPS = 30

# LeNet with batch norm and dropout.
NORMALISED = {
    "inputs": [{"name": "image"}, {"name": "label"}],
    "nodes": [{"name": "conv1", "op": "conv2d", "out": 20, "kernel": 3}, {"name": "norm1", "op": "batch_norm"},
              {"op": "relu"}, {"op": "avg_pool2d", "kernel": 2},
              {"name": "conv2", "op": "conv2d", "out": 50, "kernel": 5}, {"name": "norm2", "op": "batch_norm"},
              {"op": "relu"}, {"op": "avg_pool2d", "kernel": 2}, {"op": "flatten"},
              {"name": "fc1", "op": "linear", "out": 128}, {"op": "relu"}, {"op": "dropout", "p": 0.4},
              {"name": "fc2", "op": "linear", "out": "classes"}],
    "outputs": {"logits": "fc2"},
    "losses": [{"op": "cross_entropy", "in": ["fc2", "label"]}],
    "metrics": [{"name": "accuracy", "op": "correct", "in": ["fc2", "label"]}]}

# Ranks, devices of a rank, and ranks of a node (0: all).
PLACES = [(1, "pocl", 0), (1, "pocl/2", 0), (1, "pocl/2,pocl/2", 0), (2, "pocl@1", 0), (2, "pocl/2", 0),
          (2, "pocl@1", 1), (4, "pocl@1", 2), (2, "pocl/2", 1)]


class VirtualShards(RankTest):
    def setUp(self):
        super().setUp()
        # An epoch ends with a batch of 43 samples.
        write_data(self.data, train=300, test=50, rows=28, columns=28)
        self.model = self.path("normalised.json")
        with open(self.model, "w", encoding="utf-8") as file:
            json.dump(NORMALISED, file)

    def train_at(self, place, name, *more, steps=STEPS, code=0):
        ranks, devices, ranks_a_node = place
        folder, metrics = self.path(name), self.path(name + ".jsonl")
        words = self.words("--steps", steps, "--seed", "3", "--checkpoint-dir", folder, "--metrics", metrics,
                           "--oversubscribe", "--clip-norm", "0.5", "--augment", "crop,flip", *more,
                           model=self.model, batch=257, devices=devices)
        environment = dict(os.environ, CLT_TESTING_NODE_RANKS=str(ranks_a_node)) if ranks_a_node else None
        out, err = self.wait(self.begin([MPIEXEC, "-n", ranks, *words], env=environment), code, seconds=600)
        if code:
            return err
        last = os.path.join(folder, self.saved(folder)[-1])
        found = [hashlib.sha256(get(os.path.join(last, f))).hexdigest()
                 for f in ("model.safetensors", "optimizer.safetensors")]
        step, epoch = records(metrics)
        found += [[r["loss"] for r in step], [(r["test_loss"], r["test_accuracy"]) for r in epoch]]
        return found, out, err

    def compare(self, places, *more):
        want = self.train_at(places[0], "first", *more)[0]
        self.assertEqual(len(want[2]), STEPS)
        self.assertEqual(len(want[3]), STEPS // 2) # epochs
        for number, place in enumerate(places[1:]):
            self.assertEqual(self.train_at(place, f"place{number}", *more)[0], want, place)
        return want

    def test_f32(self):
        shards = self.compare(PLACES, "--virtual-shards", "4", "--optimizer", "momentum", "--lr", "0.02")
        # Without virtual shards the sums have another order.
        plain = self.train_at(PLACES[1], "plain", "--optimizer", "momentum", "--lr", "0.02")[0]
        self.assertNotEqual(plain[0], shards[0])

    def test_zero(self):
        """Each device updates a share of the parameters, with the bits of devices that update all of them."""
        usual = ("--virtual-shards", "4", "--optimizer", "adam")
        want = self.train_at(PLACES[0], "alone", *usual, steps=5)[0]
        for number in (2, 4, 6):
            have = self.train_at(PLACES[number], f"zero{number}", *usual, "--zero", "1", steps=5)[0]
            self.assertEqual(have, want, PLACES[number])

    def test_chosen(self):
        """--parallel auto chooses how the ranks update, and the bits stay."""
        usual = ("--virtual-shards", "4", "--optimizer", "adam")
        want = self.train_at(PLACES[0], "alone", *usual, steps=5)[0]
        have, out, _ = self.train_at(PLACES[3], "chosen", *usual, "--parallel", "auto", steps=5)
        self.assertRegex(out, r"(?m)^trains on dp=2: --parallel dp=2( --zero 1)? does the same$")
        self.assertEqual(have, want)

    def test_bf16(self):
        self.compare(PLACES, "--virtual-shards", "8", "--precision", "bf16", "--optimizer", "adam")

    def test_muon(self):
        """Each rank makes whole matrices orthogonal, with the bits of one device."""
        for precision in ("f32", "f16"):
            usual = ("--virtual-shards", "4", "--optimizer", "muon", "--precision", precision)
            want = self.train_at(PLACES[0], "alone" + precision, *usual, steps=5)[0]
            for number in (3, 4, 5):
                have = self.train_at(PLACES[number], f"muon{number}{precision}", *usual, steps=5)[0]
                self.assertEqual(have, want, PLACES[number])

    def test_words(self):
        """A shared embedding, and products over more rows than a kernel adds in one pass, are summed whole too."""
        text = self.path("words.txt")
        with open(text, "w", encoding="utf-8") as file:
            file.write(" ".join(f"{n} is {n * n % 97} mod 97." for n in range(4000)))
        found = {}
        for devices in ("pocl", "pocl/2", "pocl/2,pocl/2"):
            folder = self.path("words" + str(len(found)))
            self.wait(self.begin([COMMAND, "train", "--model", "gpt2:nano", "--data", "text:" + text, "--seq-len", "64",
                                  "--batch", "29", "--steps", "3", "--virtual-shards", "4", "--devices", devices,
                                  "--checkpoint-dir", folder]), 0, seconds=600)
            last = os.path.join(folder, self.saved(folder)[-1])
            found[devices] = hashlib.sha256(get(os.path.join(last, "model.safetensors"))).hexdigest()
        self.assertEqual(len(set(found.values())), 1, found)

    def test_resume(self):
        """A run goes on elsewhere with the bits of the run that was not broken off."""
        usual = ("--virtual-shards", "4", "--optimizer", "adam")
        want = self.train_at(PLACES[0], "whole", *usual, steps=6)[0]
        self.train_at(PLACES[1], "broken", *usual, steps=3)
        self.train_at(PLACES[4], "broken", *usual, "--resume", steps=5)
        have, _, err = self.train_at(PLACES[2], "broken", *usual, "--resume", steps=6)
        self.assertEqual(have[:2], want[:2])
        self.assertNotIn("virtual shards", err)
        _, _, err = self.train_at(PLACES[0], "broken", "--virtual-shards", "8", "--optimizer", "adam", "--resume",
                                  steps=7)
        self.assertIn("was written with 4 virtual shards, and this run has 8", err)
        # Evaluation has one value too.
        tested = {}
        for ranks, devices, _ in (PLACES[0], PLACES[1], PLACES[4]):
            words = [MPIEXEC, "-n", ranks, COMMAND, "eval", "--checkpoint", self.path("whole"), "--data",
                     "idx:" + self.data, "--devices", devices, "--virtual-shards", "4", "--json", "--oversubscribe"]
            out, _ = self.wait(self.begin(words), 0)
            tested[ranks, devices] = json.loads(out)["test_loss"]
        self.assertEqual(len(set(tested.values())), 1, tested)

    def test_refused(self):
        for shards, code in ((3, 2), (0, 2), (-4, 2), (6, 2), (1 << 17, 2)):
            done = self.train("--virtual-shards", shards, code=code)
            self.assert_message(done.stderr, "--virtual-shards")
        self.assert_message(self.train("--virtual-shards", "1", devices="pocl/2", code=2).stderr,
                            "1 virtual shard", "2 devices")
        for name, value in (("--accumulate", "2"), ("--zero", "3"), ("--offload", "optimizer"), ("--tune", "5"),
                            ("--split", "2,1")):
            done = self.train("--virtual-shards", "4", name, value, devices="pocl/2", code=2)
            self.assert_message(done.stderr, "--virtual-shards", name)
        done = self.train("--virtual-shards", "4", "--parallel", "tp=2", devices="pocl/2", code=2)
        self.assert_message(done.stderr, "virtual shards", "dp")


if __name__ == "__main__":
    run()
