"""Replicas whose number follows the ranks: --parallel local=* under cltrain-launch --ranks."""
import os
import signal

from elastics import SAMPLES, ElasticTest, all_records
from launches import PATIENT
from ranks import run

TO_THE_END = 900 # seconds that a run of many short steps may take on a busy machine


class Replicas(ElasticTest):
    def assert_goes_on(self, said, before, after):
        self.assertRegex(" ".join(said.split()), f"is of {before} replicas, this run has {after}: it goes on with the "
                         "parameters and the outer optimizer's state; the inner states of all replicas begin anew")

    def test_by_steps(self):
        """Replicas follow the ranks: one is added, one is killed."""
        metrics, epochs, every = self.path("m.jsonl"), 500, 8
        child = self.elastic(("--ranks", "1:3", "-n", "2"), "--epochs", epochs, "-q", "--parallel", "local=*",
                             "--sync-every", every, "--outer", "nesterov", "--optimizer", "adam", "--checkpoint-every",
                             "200", "--checkpoint-dir", self.path("run"), "--metrics", metrics, *PATIENT, batch=16)
        self.on(2, child, 300)
        self.resize(3)
        os.kill(self.on(3, child, max(r.step for r in self.on(3, child)) + 300)[2].pid, signal.SIGKILL)
        err = self.wait(child, 0, TO_THE_END)[1]
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c["batch"], c.get("cause")) for c in changes],
                         [(2, 16, None), (3, 16, "asked"), (2, 16, "lost")])
        self.assert_goes_on(err, 2, 3)
        self.assert_goes_on(err, 3, 2)
        # Each synchronisation has the steps behind the one before, and all samples are there once an epoch.
        at = 0
        for r in steps:
            self.assertEqual(r["step"] - r["sync_steps"], at)
            at = r["step"]
        self.assertEqual(at, epochs * 88) # 1400 samples in batches of 16
        self.assertEqual(sum(r["samples"] for r in steps), SAMPLES * epochs)
        ranks = {c["after_step"]: c["ranks"] for c in changes}
        now = 0
        for r in steps:
            now = ranks.get(r["step"] - r["sync_steps"], now)
            self.assertEqual(len(r["replica_samples"]), now, r)
        self.assertEqual((changes[1]["steps_lost"], changes[1]["after_step"] % every), (0, 0))
        self.assertLess(changes[2]["steps_lost"], 200 + 2 * every + 2)

    def test_by_time(self):
        """What is left of an epoch is dealt to another number of replicas, with batches and rates that follow it."""
        metrics, epochs = self.path("m.jsonl"), 200
        child = self.elastic(("--ranks", "1:3", "-n", "2", "--global-batch", "scaled"), "--epochs", epochs, "-q",
                             "--parallel", "local=*", "--sync-every", "0.05s", "--checkpoint-dir", self.path("run"),
                             "--metrics", metrics, "--lr", "0.01", "--schedule", "cosine", batch=8)
        self.on(2, child, 300)
        self.resize(3)
        err = self.wait(child, 0, TO_THE_END)[1]
        changes, steps, _ = all_records(metrics)
        self.assertEqual([(c["ranks"], c["batch"]) for c in changes], [(2, 8), (3, 12)])
        # The ranks save at a synchronisation, up to which all samples are in the checkpoint.
        self.assertEqual((changes[1]["cause"], changes[1]["steps_lost"]), ("asked", 0))
        self.assert_goes_on(err, 2, 3)
        for epoch in range(1, epochs + 1):
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] == epoch), SAMPLES, epoch)


if __name__ == "__main__":
    run()
