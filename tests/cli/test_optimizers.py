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

    def test_refused(self):
        for more, says in ((("--optimizer", "adam", "--alpha", "0.9"), ("--alpha 0.9", "rmsprop", "not adam")),
                           (("--optimizer", "lion", "--momentum", "0.9"), ("momentum, nesterov and rmsprop", "not lion")),
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
