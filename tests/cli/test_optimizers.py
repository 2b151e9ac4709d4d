"""The optimizers with options of their own: what they keep, resumed runs, division among devices, 16 bits, refusals."""
import os
import re

from command import CommandTest, get, main, records, tensors

# Options, names of the tensors that are kept for each parameter, and a rate that suits.
KINDS = {"rmsprop": (("--alpha", "0.9"), ("square_avg",), "0.003"),
         "rmsprop with momentum": (("--momentum", "0.9"), ("square_avg", "momentum_buffer"), "0.001"),
         "centered rmsprop": (("--centered", "--eps", "1e-3"), ("square_avg", "grad_avg"), "0.003"),
         "centered rmsprop with momentum": (("--centered", "--momentum", "0.5", "--eps", "1e-2"),
                                            ("square_avg", "grad_avg", "momentum_buffer"), "0.003"),
         "adagrad": (("--lr-decay", "0.01", "--initial-accumulator", "0.1"), ("sum",), "0.05"),
         "lion": (("--betas", "0.95,0.98", "--weight-decay", "0.1"), ("exp_avg",), "0.001")}

# muon keeps one tensor of matrices that it updates: all but the last layer's.
MUON = ("--optimizer", "muon", "--lr", "0.02", "--adamw-lr", "0.003", "--weight-decay", "0.01", "--model", "mlp:24,24")


def words(kind):
    optimizer = next(word for word in ("rmsprop", "adagrad", "lion") if word in kind)
    more, _, lr = KINDS[kind]
    return ("--optimizer", optimizer, "--lr", lr, *more)


class Optimizers(CommandTest):
    def last(self, run, name):
        return os.path.join(run, sorted(os.listdir(run))[-1], name)

    def fit(self, run, *more, steps="6", devices="pocl"):
        run = self.path(run)
        self.train("--steps", steps, "--checkpoint-dir", run, *more, devices=devices)
        return run

    def assert_same(self, one, two):
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(get(self.last(one, name)), get(self.last(two, name)), name)

    def test_each(self):
        for kind, (_, kept, _) in KINDS.items():
            with self.subTest(kind=kind):
                name = kind.replace(" ", "-")
                metrics = self.path(name + ".jsonl")
                whole = self.fit(name, *words(kind), "--metrics", metrics, steps="30")
                losses = [r["loss"] for r in records(metrics)[0]]
                self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))
                found = tensors(self.last(whole, "optimizer.safetensors"))
                parameters = tensors(self.last(whole, "model.safetensors"))
                self.assertEqual(set(found), {f"{p}.{k}" for p in parameters for k in kept})
                # A run that was interrupted gives the bits of one that was not, and so does zero 1.
                broken = self.fit(name + "-broken", *words(kind), steps="10")
                self.fit(name + "-broken", *words(kind), "--resume", steps="30")
                self.assert_same(whole, broken)
                half = (*words(kind), "--split", "equal")
                two = self.fit(name + "-two", *half, devices="pocl/2")
                self.assert_same(two, self.fit(name + "-zero", *half, "--zero", "1", devices="pocl/2"))

    def test_muon(self):
        metrics = self.path("muon.jsonl")
        whole = self.fit("muon", *MUON, "--metrics", metrics, steps="30")
        losses = [r["loss"] for r in records(metrics)[0]]
        self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))
        parameters = tensors(self.last(whole, "model.safetensors"))
        matrices = [p for p in sorted(parameters) if p.endswith(".weight")][:-1]
        self.assertEqual(len(matrices), 2)
        kept = {f"{p}.exp_avg" for p in parameters} | {f"{p}.exp_avg_sq" for p in parameters if p not in matrices}
        self.assertEqual(set(tensors(self.last(whole, "optimizer.safetensors"))), kept)
        broken = self.fit("muon-broken", *MUON, steps="10")
        self.fit("muon-broken", *MUON, "--resume", steps="30")
        self.assert_same(whole, broken)
        # All matrices but those that match a pattern, also the last layer's.
        chosen = self.fit("muon-chosen", *MUON, "--muon-adamw", matrices[0], "--muon-scale", "match_rms_adamw")
        found = tensors(self.last(chosen, "optimizer.safetensors"))
        self.assertEqual({p for p in parameters if f"{p}.exp_avg_sq" in found},
                         {p for p in parameters if not p.endswith(".weight")} | {matrices[0]})
        self.assert_bad(*self.arguments(*MUON, "--muon-adamw", matrices[0], "--checkpoint-dir", whole, "--resume", "--steps", "31"),
                        code=1, says=("exp_avg_sq",))

    def test_muon_on_several_devices(self):
        """Replicas compute the same bits, whatever number of devices adds up the shards of a batch."""
        shards = (*MUON, "--virtual-shards", "4", "--check-every", "1")
        one = self.fit("muon-one", *shards)
        self.assert_same(one, self.fit("muon-two", *shards, devices="pocl/2"))
        half = (*MUON, "--check-every", "1", "--split", "equal")
        plain = self.fit("muon-plain", *half, devices="pocl/2", steps="30")
        self.fit("muon-again", *half, devices="pocl/2", steps="10")
        self.fit("muon-again", *half, "--resume", devices="pocl/2", steps="30")
        self.assert_same(plain, self.path("muon-again"))
        # Each stage of a pipeline updates its own matrices.
        stages = self.fit("muon-stages", *MUON, "--parallel", "pp=2", "--accumulate", "2", devices="pocl/2")
        whole = self.fit("muon-whole", *MUON, "--accumulate", "2")
        have, want = (tensors(self.last(run, "model.safetensors")) for run in (stages, whole))
        for name, values in want.items():
            for a, b in zip(have[name], values):
                self.assertAlmostEqual(a, b, delta=1e-4)

    def test_muon_16_bits(self):
        for precision in ("bf16", "f16"):
            metrics = self.path(precision + ".jsonl")
            self.train("--steps", "40", *MUON, "--precision", precision, "--metrics", metrics)
            losses = [r["loss"] for r in records(metrics)[0]]
            self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))

    def test_muon_refused(self):
        for more, says, devices in ((("--zero", "1"), ("whole matrices", "zero 1"), "pocl/2"),
                                    (("--zero", "3"), ("whole matrices", "zero 3"), "pocl/2"),
                                    (("--parallel", "tp=2"), ("whole matrices", "axis tp"), "pocl/2"),
                                    (("--muon-adamw", "nothing*"), ("muon_adamw 'nothing*'", "no parameter"), "pocl")):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments(*MUON, *more, "--steps", "1", devices=devices), code=2, says=says)
        for more, says in ((("--optimizer", "adam", "--adamw-lr", "1"), ("--adamw-lr 1", "muon, not adam")),
                           (("--optimizer", "lion", "--muon-scale", "original"), ("--muon-scale", "not lion")),
                           (("--optimizer", "muon", "--muon-scale", "bad"), ("--muon-scale bad", "match_rms_adamw"))):
            self.assert_bad(*self.arguments(*more), code=2, says=says)

    def test_initial_accumulator(self):
        """The sums of squares begin with it: also on the shards of several devices, and in new trainers."""
        for devices, more in (("pocl", ()), ("pocl/2", ("--zero", "1"))):
            run = self.fit("begin" + devices[5:], "--optimizer", "adagrad", "--initial-accumulator", "0.25", *more,
                           steps="1", devices=devices)
            for values in tensors(self.last(run, "optimizer.safetensors")).values():
                self.assertGreaterEqual(min(values), 0.25)
                self.assertLess(min(values), 0.3)

    def test_16_bits(self):
        for kind in KINDS:
            for precision in ("bf16", "f16"):
                with self.subTest(kind=kind, precision=precision):
                    metrics = self.path("m.jsonl")
                    self.train("--steps", "30", *words(kind), "--precision", precision, "--metrics", metrics)
                    losses = [r["loss"] for r in records(metrics)[0]]
                    self.assertLess(sum(losses[-5:]), 0.8 * sum(losses[:5]))

    def test_memory(self):
        """The plan counts the tensors that a choice of options keeps."""
        def kept(*more):
            text = self.run_command("plan", "--model", "mlp", "--data", "synthetic:1x128x128", "--batch", "16", "--devices",
                                    "pocl", *more).stdout
            return float(re.search(r"gradients and optimizer ([\d.]+)", text).group(1))
        plain = kept("--optimizer", "sgd") / 2
        self.assertGreater(plain, 8)
        for kind, (_, names, _) in KINDS.items():
            self.assertAlmostEqual(kept(*words(kind)), (2 + len(names)) * plain, delta=0.3)
        # Room for two tensors of each parameter.
        self.assertAlmostEqual(kept("--optimizer", "muon"), 4 * plain, delta=0.3)

    def test_refused(self):
        for more, says in ((("--optimizer", "adam", "--alpha", "0.9"), ("--alpha 0.9", "rmsprop", "not adam")),
                           (("--optimizer", "lion", "--momentum", "0.9"), ("momentum, nesterov, rmsprop and muon", "not lion")),
                           (("--optimizer", "rmsprop", "--alpha", "1"), ("--alpha 1", "below 1")),
                           (("--optimizer", "lion", "--betas", "0.9"), ("--betas 0.9", "0.9,0.999")),
                           (("--optimizer", "lion", "--betas", "0.9,1"), ("--betas",)),
                           (("--optimizer", "sgd", "--betas", "0.9,0.99"), ("--betas", "not sgd")),
                           (("--optimizer", "adagrad", "--centered"), ("--centered", "not adagrad")),
                           (("--optimizer", "rmsprop", "--lr-decay", "1"), ("--lr-decay 1", "adagrad")),
                           (("--optimizer", "adagrad", "--eps", "0"), ("--eps 0", "above 0"))):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments(*more), code=2, says=says)
        run = self.fit("plain", "--optimizer", "rmsprop", steps="1")
        self.assert_bad(*self.arguments("--optimizer", "rmsprop", "--momentum", "0.5", "--checkpoint-dir", run, "--resume"),
                        code=1, says=("was written with optimizer rmsprop,", "rmsprop with momentum"))


main()
