"""--parallel local=N over ranks: the bits do not depend on which rank has a replica."""
import os
import signal
import time

from launches import PATIENT, LaunchTest
from ranks import COMMAND, ENDLESS, RankTest, records, run

# ranks sets the path of these modules.
from cltrain_ranks import WAITING
from command import tensors

USUAL = ("--optimizer", "adamw", "--outer", "nesterov", "--sync-every", "4", "--batch", "20", "--seed", "3")


class Local(RankTest):
    def fit(self, name, ranks, steps, *more, devices, local="local=4", node_ranks=None, code=0):
        folder = self.path(name)
        words = ("--steps", steps, "--checkpoint-dir", folder, "--metrics", self.path(name + ".jsonl"),
                 "--parallel", local, *USUAL, *more)
        environment = {} if node_ranks is None else {"CLT_TESTING_NODE_RANKS": str(node_ranks)}
        os.environ.update(environment)
        try:
            out = self.run_ranks(ranks, *words, "--oversubscribe", model="mlp:16", devices=devices, code=code)
        finally:
            for variable in environment:
                del os.environ[variable]
        last = os.path.join(folder, self.saved(folder)[-1])
        return last, out

    def test_same_bits(self):
        want, _ = self.fit("one", 1, 16, devices="pocl@1,pocl@1,pocl@1,pocl@1")
        self.assert_same_bits(self.fit("two", 2, 16, devices="pocl@1,pocl@1")[0], want)
        self.assert_same_bits(self.fit("four", 4, 16, devices="pocl@1")[0], want)
        self.assert_same_bits(self.fit("nodes", 2, 16, devices="pocl@1,pocl@1", node_ranks=1)[0], want)
        # A run that is broken off goes on to the same bits, on other ranks.
        self.fit("broken", 2, 8, devices="pocl@1,pocl@1")
        self.assert_same_bits(self.fit("broken", 4, 16, "--resume", devices="pocl@1")[0], want)
        # Another number of replicas than the checkpoint has.
        _, (_, said) = self.fit("broken", 2, 20, "--resume", devices="pocl@1", local="local=2")
        self.assertIn("is of 4 replicas, this run has 2", said)
        self.assertEqual(said.count("inner states of all replicas begin anew"), 1)

    def test_wire(self):
        """With 16 bits, a run that is broken off goes on to the same bits on the same ranks, of one node or two."""
        for name, node_ranks, senders in (
                ("one", None, {"replica0", "replica1", "replica2", "replica3", "rank0", "rank1", "sum0"}),
                ("two", 1, {"replica0", "replica1", "replica2", "replica3", "node0", "node1", "sum0", "sum1"})):
            usual = {"devices": "pocl@1,pocl@1", "node_ranks": node_ranks}
            want, _ = self.fit(name, 2, 16, "--wire", "bf16", **usual)
            self.fit(name + "broken", 2, 8, "--wire", "bf16", **usual)
            last, (_, said) = self.fit(name + "broken", 2, 16, "--wire", "bf16", "--resume", **usual)
            self.assert_same_bits(last, want)
            self.assertNotIn("rounded away", said)
            names = tensors(os.path.join(last, "optimizer.safetensors"))
            self.assertEqual({n.split(".wire.")[1] for n in names if ".wire." in n}, senders)
        _, (_, said) = self.fit("twobroken", 4, 20, "--wire", "bf16", "--resume", devices="pocl@1")
        self.assertEqual(said.count("is added to what replica 0 sends next"), 1)
        _, (_, said) = self.fit("onebroken", 2, 20, "--resume", devices="pocl@1,pocl@1", code=1)
        self.assertIn("has residuals of wire bf16, this run has wire f32", said)
        self.assertEqual(len(said.splitlines()), 2, said) # one a rank

    def test_by_time(self):
        # USUAL has --sync-every, so these words replace it.
        metrics = self.path("time.jsonl")
        self.run_ranks(2, "--epochs", "3", "--metrics", metrics, "--parallel", "local=4", "--sync-every",
                       "0.02s", "--batch", "16", "--oversubscribe", model="mlp:16", devices="pocl@1,pocl@1")
        steps, epochs = records(metrics)
        for epoch in (1, 2, 3):
            self.assertEqual(sum(r["samples"] for r in steps if r["epoch"] == epoch), 70)
        self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])

    def test_a_signal_stops_all_at_a_synchronisation(self):
        folder = self.path("run")
        child = self.ranks(2, *ENDLESS, "--parallel", "local=2", *USUAL, "--checkpoint-dir", folder,
                           "--oversubscribe", model="mlp:16", devices="pocl@1")
        os.kill(self.at_step(1, 6, child).pid, signal.SIGTERM)
        self.wait(child, 143)
        self.assertEqual(int(self.saved(folder)[-1][5:]) % 4, 0)

    def test_refused(self):
        def bad(ranks, *more, devices, says):
            _, said = self.run_ranks(ranks, "--steps", "1", *USUAL, *more, "--oversubscribe", code=2,
                                     model="mlp:16", devices=devices)
            for word in says:
                self.assertIn(word, said)
            self.assertEqual(len(said.splitlines()), 1, said)
        bad(2, "--parallel", "local=1,dp=2", devices="pocl@1", says=("a replica has 2 devices", "of one rank"))
        bad(2, "--parallel", "local=3", devices="pocl@1", says=("3 replicas",))


class Launched(LaunchTest):
    def test_waiting(self):
        """Rank 0 waits for rank 1, whose steps are slow, and its heartbeat file says so."""
        slow = self.program('[ "$rank" = 0 ] || export CLT_TESTING_SLOW==300@3', f'exec {COMMAND} "$@"')
        child = self.launch(2, (), "--steps", "24", "--parallel", "local=2", "--sync-every", "24", "--seed", "3",
                            "--oversubscribe", *PATIENT, program=slow)
        said = ""
        while child.poll() is None:
            rank = self.rank(0)
            said = rank.where() if rank and rank.state == WAITING else said
            time.sleep(0.02)
        out, err = self.wait(child, 0)
        self.assertIn("done: 24 steps", out, err)
        self.assertEqual(said, "waiting for the replicas of other ranks after step 24")


if __name__ == "__main__":
    run()
