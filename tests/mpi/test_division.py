"""How the command divides a node's cores and a batch among ranks: measured, set by options, changed while
training, and after a resume."""
import json
import os
import re

from ranks import COMMAND, MPIEXEC, TRAIN, CommandTest, RankTest, records, run


class Division(RankTest):
    arguments = CommandTest.arguments

    def splits(self, metrics):
        """Returns the divisions, by their first step."""
        return {r["step"]: (r["split"], r["quantum"]) for r in records(metrics)[0] if "split" in r}

    def slow(self, text):
        """Makes a device slow in the next run."""
        os.environ["CLT_TESTING_SLOW"] = text
        self.addCleanup(os.environ.pop, "CLT_TESTING_SLOW", None)

    def steps(self, folder, number):
        return os.path.join(folder, f"step-{number:08}")

    def test_measured(self):
        """The division is printed once, with the predicted step time."""
        out, err = self.run_ranks(2, "--steps", "4", batch=64)
        self.assertEqual(err, "")
        self.assertEqual(out.count("measuring steps on 2 devices of 2 ranks"), 1)
        for number in (0, 1):
            self.assertEqual(len(re.findall(rf"(?m)^rank {number}, .* samples/s", out)), 1, out)
        found = re.findall(r"batch 64 on 2 devices: (\d+) \+ (\d+) .*; predicted [\d.]+ ms a step", out)
        self.assertEqual([int(a) + int(b) for a, b in found], [64], out)
        self.assertIn("done: 4 steps", out)

    def test_cores(self):
        """A CPU device has as many compute units as its process has cores."""
        def one_core():
            os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
        for prepare, units in ((one_core, 1), (None, len(os.sched_getaffinity(0)))):
            found = json.loads(self.run_command("devices", "--json", preexec_fn=prepare).stdout)
            self.assertEqual([row["compute_units"] for row in found["devices"] if row["suffix"] == "pocl"],
                             [units])
        for options, units in (((), 1), (("--oversubscribe",), 2)):
            out = self.wait(self.begin([MPIEXEC, "-n", 2, COMMAND, "bench", "allreduce", "4KB", "1MB", "32MB",
                                        "--devices", "pocl", "--compare", "--blocks", "1", "--json", *options]), 0)[0]
            found = json.loads(out)
            self.assertEqual(found["compute_units"], [units])
            for row in found["rows"]:
                # Each rank has one device, and one block of calls is measured.
                for peer in (row["mpi"], row["mapped_mpi"]):
                    ratio = peer["median_seconds"] / row["median_seconds"]
                    self.assertAlmostEqual(peer["ratio"], ratio, delta=1e-4 * ratio)
                    self.assertGreater(peer["median_seconds"], 0)
                self.assertNotIn("limit", row)
                self.assertNotIn("floor", row)

    def test_given(self):
        """Uneven parts give the losses of equal parts. A rank may have no samples. Runs repeat."""
        losses = {}
        for split in ("equal", "3,1", "0,1", "3,1 again"):
            metrics = self.path(split)
            out = self.run_ranks(2, "--steps", "9", "--split", split.split()[0], "--metrics", metrics,
                                 "--checkpoint-dir", self.path("run" + split), batch=64)[0]
            self.assertNotIn("measuring steps", out)
            losses[split] = [r["loss"] for r in records(metrics)[0]]
        self.assertEqual(self.splits(self.path("3,1")), {1: ([3, 1], 1)})
        for split, found in losses.items():
            for have, want in zip(found, losses["equal"], strict=True):
                self.assertAlmostEqual(have, want, delta=1e-5 * want, msg=split)
        self.assert_same_bits(*(self.steps(self.path(x), 9) for x in ("run3,1", "run3,1 again")))
        err = self.run_ranks(2, "--steps", "1", "--split", "1,2,1", code=2)[1]
        self.assertEqual(err, "cltrain, rank 0: --split 1,2,1: 3 weights for 2 devices\n")
        words = self.words("--steps", "1")
        err = self.wait(self.each(words, [*words, "--split", "equal"]), 2)[1]
        self.assertIn("rank 1 has another option --split", err)

    def test_resumed(self):
        """With the same number of ranks, a run resumes with its division and the same bits. With another
        number it measures."""
        straight, broken = self.path("straight"), self.path("broken")
        options = ("--optimizer", "momentum", "--checkpoint-dir")
        self.run_ranks(2, "--steps", "9", "--split", "3,1", *options, straight, batch=64)
        self.run_ranks(2, "--steps", "5", "--split", "3,1", *options, broken, batch=64)
        out = self.run_ranks(2, "--steps", "9", *options, broken, "--resume", batch=64)[0]
        self.assertNotIn("measuring steps", out)
        self.assert_same_bits(self.steps(straight, 9), self.steps(broken, 9))
        out = self.wait(self.begin(self.words("--steps", "11", *options, broken, "--resume", batch=64,
                                              devices="pocl/2")), 0)[0]
        self.assertIn("the checkpoint's division of batches is of 2 ranks, and this run has 1: ", out)
        self.assertIn("measuring steps on 2 devices\n", out)

    def test_drop_last(self):
        """All ranks drop the partial last batch of an epoch. A resumed run repeats the run that was not
        stopped."""
        straight, broken = self.path("straight"), self.path("broken")
        options = "--drop-last", "--split", "3,1", "--checkpoint-dir"
        for folder, lengths in ((straight, (("--epochs", "2"),)), (broken, (("--steps", "6"), ("--epochs", "2")))):
            for length in lengths:
                self.run_ranks(2, *length, *options, folder, "--metrics", folder + ".jsonl", "--resume", batch=16)
        each = TRAIN // 16
        self.assertNotEqual(TRAIN % 16, 0)
        steps, epochs = records(straight + ".jsonl")
        self.assertEqual([(r["epoch"], r["samples"]) for r in steps], [(e, 16) for e in (1, 2) for _ in range(each)])
        self.assertEqual([r["epoch"] for r in epochs], [1, 2])
        self.assert_same_bits(self.steps(straight, 2 * each), self.steps(broken, 2 * each))

    def test_rebalance(self):
        """A rank becomes slow, so its share falls. Replaying the metrics gives the same bits, and a resumed
        run has the checkpoint's division."""
        metrics, again = self.path("metrics"), self.path("again")
        options = ("--steps", "120", "--model", "mlp:256", "--tune", "off", "--checkpoint-dir")
        self.slow("rank1:=8@20")
        out = self.run_ranks(2, *options, self.path("first"), "--rebalance", "--split", "equal", "--metrics",
                             metrics, batch=64)[0]
        del os.environ["CLT_TESTING_SLOW"]
        splits = self.splits(metrics)
        self.assertGreater(len(splits), 1)
        self.assertEqual(min(splits), 1)
        weights = splits[max(splits)][0]
        self.assertGreater(weights[0], 1.5 * weights[1])
        self.assertIn(f"step {max(splits)}: the batch is divided ", out)
        self.run_ranks(2, *options, self.path("second"), "--replay", metrics, "--metrics", again, batch=64)
        self.assertEqual(self.splits(again), splits)
        self.assert_same_bits(*(self.steps(self.path(x), 120) for x in ("first", "second")))
        err = self.wait(self.begin(self.words(*options, self.path("x"), "--replay", metrics)), 2)[1]
        self.assertIn("the run had 2 devices, not 1", err)

    def test_predicted(self):
        """Rank 0 prints the prediction of a step among the ranks."""
        words = [MPIEXEC, "-n", "2", self.words()[0], "bench", "train", "--model", "mlp:16", "--data",
                 "synthetic", "--devices", "pocl", "--batch", "64", "--tune", "off", "--blocks", "1",
                 "--steps", "5", "--predict"]
        out = self.wait(self.begin(words), 0)[0]
        self.assertEqual(len(re.findall(r"(?m)^predicted  [\d.]+ ms, [\d.]+ of the step$", out)), 1, out)
        words = [w for w in words if w not in ("--predict", "--blocks", "1")]
        out = self.wait(self.begin(words + ["--by-node"]), 0)[0]
        self.assertEqual(out.count("Device 0, by node"), 1, out)


if __name__ == "__main__":
    run()
