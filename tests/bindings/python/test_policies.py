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
            (lambda: trainer.fit([(x[:16], y[:16])], patience=3), "iterable"),
            (lambda: trainer.fit((x, y), patiense=3), "'patience'"),
            (lambda: trainer.fit((x, y), patience="a", validation=0.1), "patience is 'a': it must be an integer"),
            (lambda: trainer.fit((x, y), patience=2, min_delta="a", validation=0.1), "min_delta is 'a'"),
            (lambda: trainer.fit((x, y), patience=2, monitor="val_x", validation=0.1), "write min:val_x or max:val_x"),
            (lambda: trainer.fit((x, y), plateau=3, validation=0.1), "plateau is 3: give"),
            (lambda: trainer.fit((x, y), patience=2, monitor=3, validation=0.1), "metric 3"),
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
