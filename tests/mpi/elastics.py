"""Jobs under cltrain-launch --ranks, whose number of ranks changes."""
import json
import math
import os
import subprocess
import sys

from launches import LaunchTest
from ranks import COMMAND, LAUNCHER, MPIEXEC, get, write_data

SAMPLES = 1400

# Ranks of small tests are more than the node's cores.
SHARED = ("--oversubscribe",)


def all_records(path):
    """Returns the records of changes, of steps and of epochs."""
    lines = [json.loads(line) for line in get(path).decode().splitlines()]
    changes = [r for r in lines if "after_step" in r]
    return changes, [r for r in lines if "step" in r], [r for r in lines if r not in changes and "step" not in r]


class ElasticTest(LaunchTest):
    def setUp(self):
        super().setUp()
        write_data(self.data, train=SAMPLES) # few epochs print few lines: the launcher waits for who reads them

    def elastic(self, own, *args, mpiexec=MPIEXEC, program=COMMAND, launcher=LAUNCHER, **options):
        names = {k: options.pop(k) for k in ("batch", "devices", "model") if k in options}
        words = self.arguments(*SHARED, *args, **{"devices": "pocl@1", **names})
        return self.begin([sys.executable, "-B", launcher, "--program", program, "--mpiexec", mpiexec, "--heartbeat",
                           self.beats, *own, "--", *words], **options)

    def resize(self, number, code=0):
        """Asks the job for another number of ranks. Returns the launcher's line."""
        done = subprocess.run([sys.executable, "-B", LAUNCHER, "--resize", str(number), "--job", self.beats],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def on(self, ranks, child, step=0):
        """Waits until so many ranks train, and are beyond a step. Returns them."""
        def there():
            found = [self.rank(n) for n in range(ranks)]
            fit = all(r and r.ranks == ranks and r.step > step and r.process_state() for r in found)
            return found if fit and not os.path.exists(os.path.join(self.beats, f"rank-{ranks}")) else None
        return self.until(there, child)

    def assert_whole(self, steps, samples, epochs):
        """All steps are there once and in order, and each epoch has all samples."""
        self.assertEqual([r["step"] for r in steps], list(range(1, len(steps) + 1)))
        for epoch in range(1, epochs + 1):
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] == epoch), samples, epoch)
        self.assertEqual(steps[-1]["epoch"], epochs)

    def assert_rates(self, changes, steps, samples, lr, epochs, minimum=0.0, warmup=0):
        """The rates follow cosine by the position in the data, whatever the batches were."""
        first = changes[0]["batch"]
        per_epoch = math.ceil(samples / first)
        at = dict.fromkeys(range(1, epochs + 1), 0)
        batch = {c["after_step"]: c["batch"] for c in changes} # the last one counts
        factor = 1.0
        for r in steps:
            factor = batch.get(r["step"] - 1, factor * first) / first
            position = (r["epoch"] - 1) * per_epoch + at[r["epoch"]] // first
            at[r["epoch"]] += r["samples"]
            done = min(max(0.0, (position - warmup) / (epochs * per_epoch - warmup)), 1.0)
            rate = minimum + (lr - minimum) * (1 + math.cos(math.pi * done)) / 2
            if position < warmup:
                rate *= (position + 1) / warmup
            self.assertAlmostEqual(r["lr"], factor * rate, delta=1e-8 + 1e-6 * rate, msg=str(r))
