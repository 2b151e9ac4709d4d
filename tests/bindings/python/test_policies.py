"""fit: validation sets and what follows from them, averages, weights of samples, adapters."""
import os

import numpy as np

import cltrain as clt
import support


def data(n=100):
    return support.numbers(n, 3), support.numbers(n, 1, seed=1)


class Policies(support.Case):
    def trainer(self, **options):
        return clt.Trainer(support.line(), devices=support.DEVICES, **{"batch": 16, "lr": 0.1, **options})

    def test_validation(self):
        """A part of the samples, chosen by the seed, is apart; its loss is NumPy's."""
        x, y = data(200)
        rest, part = clt.Dataset.arrays(x=x, y=y).split(0.2, seed=3)
        self.assertEqual((len(rest), len(part)), (160, 40))
        vx, vy = part.array("x"), part.array("y")
        whole = {tuple(row) for row in x.tolist()}
        self.assertEqual({tuple(r) for r in vx.tolist()} | {tuple(r) for r in rest.array("x").tolist()}, whole)
        histories = []
        for train, validation in (((x, y), 0.2), (rest, part), (rest, (vx, vy))):
            trainer = self.trainer()
            histories.append(trainer.fit(train, (x, y), validation=validation, epochs=3, seed=3))
            error = vx @ trainer.store["fc.weight"].T + trainer.store["fc.bias"] - vy
            self.assert_close(histories[-1]["val_loss"][-1], np.mean(error.astype(np.float64)**2))
            self.assertEqual(histories[-1]["step"], [10, 20, 30])
        for found in histories[1:]:
            for name in ("loss", "val_loss", "test_loss"):
                self.assertEqual(found[name], histories[0][name])

    def test_patience(self):
        x, y = data(64)
        trainer = self.trainer(lr=0)  # never better
        history = trainer.fit((x, y), validation=(x, y), epochs=50, patience=3)
        self.assertEqual(len(history["epoch"]), 4)
        self.assertIn("val_loss", history.decisions[-1][1])
        history = self.trainer(lr=0).fit((x, y), epochs=50, patience=2, monitor="loss")
        self.assertEqual(len(history["epoch"]), 3)

    def test_best(self):
        x, y = data(64)
        folder = os.path.join(self.folder, "run")
        trainer = self.trainer(lr=0.5)
        history = trainer.fit((x, y), validation=(x, y), epochs=6, keep_best="val_loss", keep=1, checkpoint_dir=folder)
        best = self.trainer()
        best.restore(os.path.join(folder, "best"))
        self.assert_close(best.evaluate((x, y))["loss"], min(history["val_loss"]))
        store = clt.Store(support.line(), support.DEVICES)
        report = store.load(os.path.join(folder, "best"), skip="fc.bias")
        self.assertIn("fc.bias", report)
        self.assert_same(store["fc.weight"], best.store["fc.weight"])

    def test_average(self):
        """Averages of the weights are NumPy's, and reports have their loss."""
        x, y = data(64)
        trainer = self.trainer(average="ema:0.75")
        weights = []

        class Collect(clt.Callback):
            def on_step_begin(self, trainer, progress):
                weights.append(trainer.store["fc.weight"].astype(np.float64))

        history = trainer.fit((x, y), validation=(x, y), epochs=2, callbacks=[Collect()])
        plain = trainer.store["fc.weight"]
        weights = weights[1:] + [plain.astype(np.float64)]
        mean = weights[0]
        for w in weights[1:]:
            mean = 0.75 * mean + 0.25 * w
        self.assertEqual(trainer.averaged, 8)
        with trainer.averages() as store:
            self.assert_close(store["fc.weight"], mean)
            self.assert_close(trainer.evaluate((x, y))["loss"], history["average_val_loss"][-1])
            with self.assertRaises(clt.StateError):
                float(trainer.step(x[:16], y[:16]))
            with trainer.averages():  # a function that is called here may have a block of its own
                self.assert_close(store["fc.weight"], mean)
            self.assert_close(store["fc.weight"], mean)
        self.assert_same(trainer.store["fc.weight"], plain)
        with self.assertRaises(clt.StateError):
            self.trainer().averaged
        with self.assertRaises(clt.InvalidArgumentError):
            self.trainer(average="ema:2")

    def test_sample_weights(self):
        """Samples of weight 0 are never drawn."""
        x, y = data(64)
        weights = np.zeros(64)
        weights[5] = 2.5
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        trainer.fit(clt.Dataset.arrays(x=x, y=y).set_sample_weights(weights), epochs=1)
        for _ in range(4):
            reference.step(x[[5] * 16], y[[5] * 16])
        self.assert_close(trainer.store["fc.weight"], reference.w)
        with self.assertRaisesRegex(clt.InvalidArgumentError, "each of the 64"):
            clt.Dataset.arrays(x=x, y=y).set_sample_weights(weights[1:])

    def test_lora(self):
        """Adapters alone are trained; the merged weight is W + alpha / rank * B A."""
        x, y = data(64)
        net = support.line(outputs=2)
        self.assertEqual(net.lora("fc", rank=1, alpha=3), 1)
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=16, lr=0.1)
        before = trainer.store["fc.weight"]
        trainer.fit((x, np.hstack([y, y])), epochs=2)
        self.assert_same(trainer.store["fc.weight"], before)
        a, b = trainer.store["fc.lora_A.weight"], trainer.store["fc.lora_B.weight"]
        self.assertGreater(np.abs(b).max(), 0)
        merged, adapters = os.path.join(self.folder, "merged.safetensors"), os.path.join(self.folder, "adapters")
        net.save_merged(trainer.store, merged)
        plain = clt.Store(support.line(outputs=2), support.DEVICES)
        plain.load(merged)
        self.assert_close(plain["fc.weight"], before + 3 * b @ a)
        net.save_adapters(trainer.store, adapters)
        trainer.store["fc.lora_B.weight"] = 0
        net.load_adapters(trainer.store, adapters)
        self.assert_same(trainer.store["fc.lora_B.weight"], b)
        outputs = trainer.predict(x)
        net.merge_adapters(trainer.store)
        self.assert_close(trainer.store["fc.weight"], before + 3 * b @ a)
        self.assertEqual(np.abs(trainer.store["fc.lora_B.weight"]).max(), 0)
        np.testing.assert_allclose(trainer.predict(x), outputs, atol=1e-5 * np.abs(outputs).max())

    def test_plateau(self):
        x, y = data(64)
        for plateau in ("plateau:0.5:0:2e-7", {"factor": 0.5, "patience": 0, "minimum": 2e-7}):
            trainer = self.trainer(lr=1e-6)  # so slow that no evaluation is better than the first one
            history = trainer.fit((x, y), validation=(x, y), epochs=6, plateau=plateau)
            np.testing.assert_allclose(history["lr"], [1e-6, 1e-6, 5e-7, 2.5e-7, 2e-7, 2e-7])
            self.assertEqual(len(history.decisions), 3)

    def test_validate_every(self):
        x, y = data(64)
        seen = []

        class Watch(clt.Callback):
            def on_validation(self, trainer, progress):
                seen.append((progress.step, progress.metrics["val_loss"] > 0))

        self.trainer().fit((x, y), validation=(x, y), epochs=2, validate_every=3, callbacks=[Watch()])
        self.assertEqual([step for step, positive in seen if positive][:2], [3, 6])

    def test_keep_refused(self):
        """A policy that keeps a state before an evaluation learns that nothing is kept."""
        class Early(clt.Policy):
            def begin(self, run, state):
                run.keep("mine")

        with self.assertRaisesRegex(clt.StateError, "evaluated"):
            self.trainer().fit(data(64), policies=[Early()], checkpoint_dir=os.path.join(self.folder, "run"))

    def test_close_in_averages(self):
        trainer = self.trainer(average="ema:0.75")
        float(trainer.step(*data(16)))
        with trainer.averages():
            trainer.close()
        self.assertTrue(trainer.closed)

    def test_history_of_validations(self):
        """The history has each evaluation of the validation set, and the last one in each epoch."""
        x, y = data(64)
        losses = []

        class Read(clt.Callback):
            def on_validation(self, trainer, progress):
                error = x @ trainer.store["fc.weight"].T + trainer.store["fc.bias"] - y
                losses.append(np.mean(error**2))

        class Stop(clt.Policy):
            def evaluated(self, run, metrics):
                validated.append("val_loss" in metrics)
                if metrics.step == 10:
                    run.stop("step 10")

        def fit(**options):
            return self.trainer().fit((x, y), validation=(x, y), **options)

        history = fit(epochs=3, validate_every=3, callbacks=[Read()])
        self.assertEqual([row["step"] for row in history.validations], [3, 6, 9, 12])
        self.assertEqual([row["epoch"] for row in history.validations], [1, 2, 3, 3])
        self.assert_close([row["val_loss"] for row in history.validations[:3]], losses)
        self.assertEqual(history["val_loss"], [history.validations[k]["val_loss"] for k in (0, 1, 3)])
        self.assertTrue(np.isnan(fit(epochs=2, validate_every=5)["val_loss"][0]))
        validated = []
        history = fit(epochs=9, validate_every=5, policies=[Stop()])
        self.assertEqual(validated, [False, True, False, True])
        self.assertEqual((history["step"], [row["step"] for row in history.validations]), ([4, 8, 10], [5, 10]))
        self.assertEqual(history["val_loss"][1:], [row["val_loss"] for row in history.validations])

    def test_own(self):
        """A policy of the program's own decides, and its state is in the checkpoints: a run that was interrupted decides
        what an uninterrupted one does."""
        x, y = data(64)
        folder = os.path.join(self.folder, "run")

        class Lower(clt.Policy):
            """Halves the rate at every second evaluation, keeps the state at the third, and ends the run at the fifth."""
            name = "lower"

            def __init__(self):
                self.seen, self.losses, self.states, self.run, self.lr = 0, [], [], None, 0.1

            def begin(self, run, state):
                self.states.append(state)
                if state is not None:
                    self.seen, self.losses = state["seen"], state["losses"]
                    self.lr = state["lr"]
                    run.set_lr(self.lr)

            def evaluated(self, run, metrics):
                self.run = run
                self.seen += 1
                self.losses.append(metrics["val_loss"])
                if self.seen % 2 == 0:
                    run.set_lr(run.lr / 2, "two evaluations")
                if self.seen == 3:
                    run.keep("the third")
                if self.seen == 5:
                    run.stop("there were five")
                self.lr = run.lr
                self.at = metrics.step, metrics.epoch, sorted(metrics)

            def save(self):
                return {"seen": self.seen, "losses": self.losses, "lr": self.lr}

        whole = Lower()
        trainer = self.trainer()
        history = trainer.fit((x, y), validation=(x, y), epochs=9, policies=[whole])
        self.assertEqual(len(history["epoch"]), 5)
        self.assertEqual(whole.losses, history["val_loss"])
        self.assertEqual(whole.states, [None])
        self.assertEqual(whole.at, (20, 5, ["loss", "val_loss"]))
        np.testing.assert_allclose(history["lr"], [0.1, 0.1, 0.05, 0.05, 0.025], rtol=1e-6)
        texts = [text for _, text in history.decisions]
        self.assertEqual([step for step, _ in history.decisions], [8, 12, 16, 20])
        self.assertIn("two evaluations", texts[0])
        self.assertEqual(texts[1], "the third")
        self.assertIn("there were five", texts[3])
        with self.assertRaisesRegex(clt.StateError, "during the calls"):
            whole.run.stop("too late")

        class Stop(clt.Callback):
            def on_epoch(self, trainer, progress):
                if progress.epoch == 3:
                    trainer.stop()

        first, second = Lower(), Lower()
        options = {"validation": (x, y), "epochs": 9, "checkpoint_dir": folder}
        self.trainer().fit((x, y), policies=[first], callbacks=[Stop()], **options)
        other = self.trainer()
        other.fit((x, y), policies=[second], resume=True, **options)
        self.assertEqual(second.states[0]["seen"], 3)
        self.assertEqual(second.losses, whole.losses)
        self.assert_same(other.store["fc.weight"], trainer.store["fc.weight"])
        best = self.trainer()
        best.restore(os.path.join(folder, "best"))
        self.assertEqual(best.evaluate((x, y))["loss"], whole.losses[2])

    def test_own_fails(self):
        """Exceptions of policies come out of fit, and the trainer goes on."""
        x, y = data(64)
        trainer = self.trainer()

        class Bad(clt.Policy):
            def __init__(self, where, result=None):
                self.where, self.result = where, result

            def begin(self, run, state):
                if self.where == "begin":
                    raise KeyError("in begin")

            def evaluated(self, run, metrics):
                if self.where == "evaluated":
                    raise KeyError("in evaluated")
                if self.where == "stop":
                    run.stop(3)
                if self.where == "lr":
                    run.set_lr(-1, "wrong")

            def save(self):
                if self.where == "save":
                    raise KeyError("in save")
                return self.result

        folder = os.path.join(self.folder, "run")
        for policy, kind, words in ((Bad("begin"), KeyError, "in begin"), (Bad("evaluated"), KeyError, "in evaluated"),
                                    (Bad("save"), KeyError, "in save"), (Bad("save", object()), KeyError, "in save"),
                                    (Bad("json", object()), TypeError, "JSON"), (Bad("nan", float("nan")), ValueError, "JSON"),
                                    (Bad("stop"), clt.InvalidArgumentError, "why is 3"),
                                    (Bad("lr"), clt.InvalidArgumentError, "-1")):
            with self.assertRaisesRegex(kind, words):
                trainer.fit((x, y), epochs=1, policies=[policy], checkpoint_dir=folder)
        for policies, words in ((3, "policies is 3"), ([Bad], "policies has <class"), ([len], "clt.Policy"),
                                ([Bad(""), Bad("")], "the name Bad")):
            with self.assertRaisesRegex(clt.InvalidArgumentError, words):
                trainer.fit((x, y), epochs=1, policies=policies)
        with self.assertRaisesRegex(clt.UnsupportedError, "policies"):
            trainer.fit([(x[:16], y[:16])], epochs=1, policies=[Bad("")])
        self.assertGreater(float(trainer.step(x[:16], y[:16])), 0)

    def test_defaults_written_out(self):
        """None is what the signature has, and numbers of NumPy are numbers."""
        x, y = data(64)
        names = ("validation", "keep_best", "patience", "monitor", "plateau", "min_delta", "callbacks")
        histories = [self.trainer().fit((x, y), epochs=2, **options) for options in ({}, dict.fromkeys(names))]
        histories.append(self.trainer().fit([(x, y)][0], epochs=2, test=None, resume=None))
        self.assertEqual(histories[0]["loss"], histories[1]["loss"])
        self.assertEqual(histories[0]["loss"], histories[2]["loss"])
        self.trainer(batch=64).fit([(x, y)], epochs=1, **dict.fromkeys(names))
        losses = [self.trainer().fit((x, y), validation=type_(0.25), epochs=2)["val_loss"]
                  for type_ in (float, np.float32, np.float64, np.float16)]
        self.assertEqual(losses, [losses[0]] * 4)

    def test_refused(self):
        x, y = data(64)
        trainer = self.trainer()
        cases = [
            (lambda: trainer.fit((x, y), keep_best="val_loss", validation=0.1), "checkpoint_dir"),
            (lambda: trainer.fit((x, y), patience=2, monitor="val_los", validation=0.1), "val_los"),
            (lambda: trainer.fit((x, y), patience=0, validation=0.1), "0"),
            (lambda: trainer.fit((x, y), validation=1.5), "1.5"), (lambda: trainer.fit((x, y), validation=[3]), "list"),
            (lambda: trainer.fit((x, y), plateau="plateau:2"), "plateau"),
            (lambda: trainer.fit((x, y), plateau={"factro": 2}), "factor"),
            (lambda: trainer.fit((x, y), monitor="loss"), "patience"),
            (lambda: trainer.fit((x, y), keep_best="min:val_foo", validation=0.1, checkpoint_dir=self.folder), "val_foo"),
            (lambda: trainer.fit((x, y), patience=3), "val_ needs a validation set"),
            (lambda: trainer.fit([(x[:16], y[:16])], patience=3), "iterable"),
            (lambda: trainer.fit((x, y), patiense=3), "'patience'"),
            (lambda: trainer.fit((x, y), patience="a", validation=0.1), "patience is 'a': it must be an integer"),
            (lambda: trainer.fit((x, y), patience=2, min_delta="a", validation=0.1), "min_delta is 'a'"),
            (lambda: trainer.fit((x, y), patience=2, monitor="val_x", validation=0.1), "write min:val_x or max:val_x"),
            (lambda: trainer.fit((x, y), plateau=3, validation=0.1), "plateau is 3: give"),
            (lambda: trainer.fit((x, y), patience=2, monitor=3, validation=0.1), "metric is 3"),
            (lambda: trainer.fit((x, y), callbacks=print), "give a list of callbacks"),
            (lambda: trainer.fit((x, y), callbacks=[clt.Callback]), "Callback()"),
            (lambda: trainer.fit((x, y), callbacks=[3]), "callbacks has 3"),
            (lambda: trainer.fit((x, y), validation=True), "bool"),
        ]
        for call, words in cases:
            with self.assertRaises(clt.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


if __name__ == "__main__":
    support.main()
