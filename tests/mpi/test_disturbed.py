"""Short runs of disturb.py, on made-up images. A part of the labels is wrong, so that seeds differ in accuracy."""
import os
import random

from elastics import SAMPLES, ElasticTest
from ranks import COMMAND, LAUNCHER, MPIEXEC, get, put, run

import disturb

EPOCHS, EVERY = 250, 300


class Disturbed(ElasticTest):
    def mistake_labels(self):
        rng = random.Random(5)
        for prefix in ("train", "t10k"):
            path = os.path.join(self.data, f"{prefix}-labels-idx1-ubyte")
            data = get(path)
            put(path, data[:8] + bytes(rng.randrange(4) if rng.random() < 0.2 else label for label in data[8:]))

    def test_disturbed(self):
        self.mistake_labels()
        programs = COMMAND, MPIEXEC, LAUNCHER
        words = ["--model", "mlp", "--data", "idx:" + self.data, "--devices", "pocl@1", "--batch", "16", "--lr", "0.01",
                 "--epochs", str(EPOCHS), "--tune", "off", "--split", "equal"]
        usual = disturb.undisturbed(programs, words, range(1, 4))
        for number, how in enumerate(("fixed", "scaled")):
            seed = random.randrange(1 << 31)
            with self.subTest(global_batch=how, seed_of_disturbances=seed):
                job = disturb.Run(programs, [*words, "--seed", "1", "--global-batch", how], random.Random(seed), 3, EVERY,
                                  pause=(0.3, 1.5), deadline=3, limit=200)
                self.addCleanup(job.clean)
                said = f"{job.done}: "
                self.assertEqual(job.go(), 0, said + job.said())
                said = f"{job.done}: {job.said()}"
                self.assertGreater(len(job.done), 0, said)
                self.assertEqual(job.problems(SAMPLES, EPOCHS), [], said)
                self.assertGreater(job.accuracy(), min(usual) - 2 * (max(usual) - min(usual)) - 0.05, said)
                steps = job.records()[1]
                if number == 0:
                    self.assertEqual({r["samples"] for r in steps}, {16, SAMPLES % 16})

    def test_virtual_shards(self):
        """With virtual shards, disturbances change no bit of the losses, the model and the optimizer."""
        programs, epochs = (COMMAND, MPIEXEC, LAUNCHER), 90
        words = ["--model", "mlp", "--data", "idx:" + self.data, "--devices", "pocl@1", "--batch", "16", "--lr", "0.01",
                 "--optimizer", "momentum", "--epochs", str(epochs), "--virtual-shards", "4", "--seed", "1"]
        bits = []
        disturb.undisturbed(programs, words[:-2], (1,), bits)
        seed = random.randrange(1 << 31)
        job = disturb.Run(programs, [*words, "--global-batch", "fixed"], random.Random(seed), 3, EVERY, pause=(0.3, 1.5),
                          deadline=3, limit=400)
        self.addCleanup(job.clean)
        code = job.go()
        said = f"seed of the disturbances {seed}: {job.done}: {job.said()}"
        self.assertEqual(code, 0, said)
        self.assertGreater(len(job.done), 0, said)
        self.assertEqual(job.problems(SAMPLES, epochs), [], said)
        self.assertEqual(len(bits[0][1]), epochs * 88)
        self.assertEqual(job.bits(), bits[0], said)


if __name__ == "__main__":
    run()
