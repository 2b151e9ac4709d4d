"""Measurements of a run: tuning, cold starts, profiles."""
import json
import os
import re

from command import CommandTest, cores, get, main

CORES = cores()


class Measuring(CommandTest):
    def test_tune(self):
        """Fills the record in the cache folder once. Training uses this record."""
        cache = self.cache_folder()
        arguments = ("tune", "--model", "lenet", "--batch", "16", "--devices", "pocl", "--budget",
                     "2", "--cache-dir", cache)
        done = self.run_command(*arguments)
        self.assertRegex(done.stderr, r"measured \d+ of \d+ classes")
        self.assertEqual(len(os.listdir(os.path.join(cache, "tuning"))), 1)
        explained = self.run_command("plan", "--model", "lenet", "--batch", "16", "--explain",
                                     "--devices", "pocl", "--cache-dir", cache).stdout
        self.assertIn("measured best: batch_blocked", explained)
        # A variant other than the default was measured to be faster.
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
        # Nothing is measured if the record cannot be saved, and the file does not change.
        self.assert_bad("tune", "--model", "softmax", "--devices", "pocl", "--budget", "600", "--cache-dir",
                        exported, "--export", exported, code=1, says=("tuning record", exported))
        self.assertEqual(record, json.loads(get(exported)))
        self.assertEqual([name for name in os.listdir(self.folder) if ".new-" in name], [])

    def test_measuring_goes_on(self):
        """Tells how many shapes were not measured in the time."""
        done = self.train("--steps", "1", "--tune", "0.001", "--cache-dir", self.cache_folder())
        self.assertIn("measuring kernels for new shapes (", done.stdout)
        left = re.search(r"kernels of (\d+) of (\d+) new classes of shapes are left", done.stdout)
        self.assertTrue(0 < int(left[1]) <= int(left[2]))

    def test_cold_start(self):
        """Few kernels are compiled before the first step of LeNet if none is measured."""
        found = json.loads(self.run_command(
            "bench", "train", "--model", "lenet", "--data", "synthetic", "--batch", "16", "--steps",
            "1", "--warmup", "1", "--blocks", "1", "--tune", "off", "--devices", "pocl",
            "--json").stdout)
        self.assertTrue(0 < found["programs"] <= found["kernels"] < 60)
        self.assertGreater(found["kernels"], 15)
        self.assertRegex(self.train("--steps", "1").stdout, r"\d+ kernels of \d+ programs")

    def test_profile(self):
        """The profile has every kernel of every step, by node and device, in the order of time."""
        path = self.path("trace.json")
        for devices in ("pocl", "pocl/2")[:CORES]:
            with self.subTest(devices=devices):
                self.train("--steps", "3", "--profile", path, "--quiet", "--split", "equal",
                           devices=devices)
                trace = json.loads(get(path))["traceEvents"]
                names = [e for e in trace if e["ph"] == "M"]
                events = [e for e in trace if e["ph"] == "X"]
                count = int(devices[5:] or 1)
                # With several devices, each also has a row of reductions.
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
