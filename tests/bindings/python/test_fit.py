"""fit: arrays, data sets, functions, iterables; reports, callbacks, how runs end."""
import math
import os
import threading

import numpy as np

import cltrain as clt
import support


def data(n=100):
    return support.numbers(n, 3), support.numbers(n, 1, seed=1)


class Fit(support.Case):
    def trainer(self, **options):
        return clt.Trainer(support.line(), devices=support.DEVICES, **{"batch": 16, "lr": 0.1, **options})

    def test_numbers(self):
        """An epoch in order gives the losses and parameters of NumPy."""
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        x, y = data()
        losses = []
        for _ in range(2):
            for i in range(0, 100, 16):
                losses.append((len(x[i:i + 16]), reference.step(x[i:i + 16], y[i:i + 16])))
        history = trainer.fit((x, y), (x[:30], y[:30]), epochs=2, shuffle=False)
        self.assert_close(trainer.store["fc.weight"], reference.w)
        means = [sum(n * loss for n, loss in part) / 100 for part in (losses[:7], losses[7:])]
        self.assert_close(history["loss"], means)
        self.assertEqual(history["epoch"], [1, 2])
        self.assertEqual(history["step"], [7, 14])
        self.assert_close(history["test_loss"][-1], np.mean((x[:30] @ reference.w.T + reference.b - y[:30])**2))
        self.assertEqual([round(lr, 6) for lr in history["lr"]], [0.1, 0.1])

    def test_again(self):
        """A second call trains as many epochs again."""
        x, y = data()
        for form in ((x, y), [(x[:16], y[:16])] * 7):
            trainer = self.trainer()
            float(trainer.step(x[:16], y[:16]))
            for k in range(3):
                history = trainer.fit(form, (x, y), epochs=2)
                self.assertEqual(trainer.steps, 1 + 14 * (k + 1))
                self.assertEqual(history["epoch"], [1, 2])
        trainer.fit((x, y), epochs=1, drop_last=True)
        self.assertEqual(trainer.steps, 43 + 6)

    def test_every_form(self):
        """Tuples, dicts, data sets, functions and iterables of the same batches give the same bits."""
        x, y = data()

        def fill(numbers, arrays):
            arrays["x"][:], arrays["y"][:] = x[numbers], y[numbers]

        def batches():
            for i in range(0, 100, 16):
                yield {"x": x[i:i + 16], "y": y[i:i + 16]}

        forms = [(x, y), {"y": y, "x": x}, {"x": x.astype(np.float64), "y": y.tolist()}, clt.Dataset.arrays(x=x, y=y),
                 clt.Dataset.callback(100, {"x": ("f32", (3,)), "y": ("f32", (1,))}, fill), batches, list(batches()),
                 [(b["x"], b["y"]) for b in batches()]]
        weights, histories = [], []
        for form in forms:
            trainer = self.trainer()
            options = {} if callable(form) or isinstance(form, list) else {"shuffle": False}
            histories.append(trainer.fit(form, (x, y), epochs=3, **options))
            weights.append(trainer.store["fc.weight"].tolist())
        for found in weights[1:]:
            self.assertEqual(found, weights[0])
        for found in histories[1:]:
            self.assertEqual(sorted(found), sorted(histories[0]))
            self.assert_close(found["loss"], histories[0]["loss"])
            self.assert_close(found["test_loss"], histories[0]["test_loss"])
            self.assertEqual(found["step"], histories[0]["step"])

    def test_spec(self):
        path = os.path.join(self.folder, "data.npz")
        x, y = data()
        np.savez(path, x=x, y=y)
        trainer = self.trainer()
        history = trainer.fit(f"npz:{path}", f"npz:{path}", epochs=1)
        self.assertEqual(history["step"], [math.ceil(90 / 16)])
        self.assertIn("loss", trainer.evaluate(f"npz:{path}"))
        with self.assertRaises(LookupError):
            trainer.fit("npz:" + path + "x")

    def test_images(self):
        """Bytes are divided by 255."""
        x = np.arange(48, dtype=np.uint8).reshape(16, 3) * 5
        y = data()[1][:16]
        one, two = self.trainer(), self.trainer()
        one.fit((x, y), epochs=1, shuffle=False)
        two.fit((x.astype(np.float32) / 255, y), epochs=1, shuffle=False)
        self.assert_close(one.store["fc.weight"], two.store["fc.weight"])

    def test_callbacks(self):
        events = []

        class Watch(clt.Callback):
            def on_begin(self, trainer):
                events.append("begin")

            def on_step(self, trainer, progress):
                events.append((progress.step, progress.samples))

            def on_epoch(self, trainer, progress):
                events.append(("epoch", progress.epoch, progress.metrics["test_loss"] > 0))
                events.append(trainer.store["fc.weight"].shape)

            def on_checkpoint(self, trainer):
                events.append("checkpoint")

            def on_end(self, trainer):
                events.append("end")

        x, y = data(32)
        wanted = ["begin", (1, 16), (2, 16), ("epoch", 1, True), (1, 3), "checkpoint", "end"]
        self.trainer().fit((x, y), (x, y), epochs=1, callbacks=[Watch()], checkpoint_dir=os.path.join(self.folder, "a"))
        self.assertEqual(events, wanted)
        events.clear()
        self.trainer().fit([(x[:16], y[:16]), (x[16:], y[16:])], (x, y), epochs=1, callbacks=[Watch()],
                           checkpoint_dir=os.path.join(self.folder, "b"))
        self.assertEqual(events, wanted)

    def test_hooks(self):
        """Callbacks set the rate of a step, and its gradients."""
        x, y = data(64)

        class Hooks(clt.Callback):
            def on_step_begin(self, trainer, progress):
                trainer.set_lr(0.1 * progress.step)

            def on_gradients(self, trainer, progress):
                trainer.set_gradient("fc.weight", 2 * trainer.gradient("fc.weight"))

        trainer = self.trainer()
        reference = support.Line(trainer.store, 0)
        trainer.fit((x, y), epochs=1, shuffle=False, callbacks=[Hooks()])
        for k in range(4):
            reference.lr = 0.1 * (k + 1)
            before = reference.w
            reference.step(x[16 * k:16 * k + 16], y[16 * k:16 * k + 16])
            reference.w = before - 2 * reference.lr * reference.gradient
        self.assert_close(trainer.store["fc.weight"], reference.w)
        self.assert_close(trainer.store["fc.bias"], reference.b)

        class Broken(clt.Callback):
            def on_gradients(self, trainer, progress):
                raise ValueError("no gradient")

        with self.assertRaisesRegex(ValueError, "no gradient"):
            trainer.fit((x, y), epochs=1, callbacks=[Broken()])
        with self.assertRaises(clt.UnsupportedError):
            trainer.fit([(x, y)], callbacks=[Broken()])

    def test_stop(self):
        x, y = data()
        for form in ((x, y), [(x[:16], y[:16])] * 7):
            trainer = self.trainer()
            trainer.fit(form, epochs=1000, callbacks=[lambda p: trainer.stop() if p.epoch == 3 else None])
            self.assertTrue(21 <= trainer.steps <= 22)
        trainer = self.trainer()  # from another thread
        threading.Timer(0.3, trainer.stop).start()
        trainer.fit((x, y), epochs=10**9)
        self.assertIsNone(trainer._run)

    def test_exceptions(self):
        x, y = data()

        def fail(progress):
            raise RuntimeError(f"epoch {progress.epoch} is bad")

        class FailStep(clt.Callback):
            def on_step(self, trainer, progress):
                raise KeyError(progress.step)

        for form in ((x, y), [(x[:16], y[:16])] * 7):
            trainer = self.trainer()
            with self.assertRaisesRegex(RuntimeError, "epoch 1 is bad"):
                trainer.fit(form, epochs=50, callbacks=[fail])
            self.assertTrue(7 <= trainer.steps <= 8)
            with self.assertRaises(KeyError):
                trainer.fit(form, epochs=50, callbacks=[FailStep()], checkpoint_dir=os.path.join(self.folder, str(id(form))))
            self.assertTrue(os.listdir(os.path.join(self.folder, str(id(form)))))
            float(trainer.step(x[:16], y[:16]))  # it goes on

        def broken():
            yield x[:16], y[:16]
            raise OSError("the file is gone")

        trainer = self.trainer()
        with self.assertRaisesRegex(OSError, "gone"):
            trainer.fit(broken, epochs=2)
        self.assertEqual(trainer.steps, 1)

        def fill(numbers, arrays):
            raise ZeroDivisionError("in the function")

        def fill_by_trainer(numbers, arrays):  # would wait for fit, which waits for it
            trainer.store["fc.weight"]

        fields = {"x": ("f32", (3,)), "y": ("f32", (1,))}
        for function, error, words in ((fill, ZeroDivisionError, "in the function"),
                                       (fill_by_trainer, clt.StateError, "during fit")):
            with self.assertRaisesRegex(error, words):
                trainer.fit(clt.Dataset.callback(50, fields, function))

    def test_refused(self):
        trainer = self.trainer()
        x, y = data()
        cases = [
            (lambda: trainer.fit((x, y), epoch=2), "'epochs'"), (lambda: trainer.fit((x, y[:9])), "same number of samples"),
            (lambda: trainer.fit({"x": x}), "y"), (lambda: trainer.fit((x, y, y)), "3 arrays"),
            (lambda: trainer.fit(5), "int"), (lambda: trainer.fit([5]), "a batch is int"),
            (lambda: trainer.fit([], epochs=1), "no batch"), (lambda: trainer.fit((x, y), [(x, y)]), "test is list"),
            (lambda: trainer.fit([(x[:4], y[:4])], shuffle=True), "shuffle"),
            (lambda: trainer.fit((x, y), batch=999), "999"), (lambda: trainer.fit({}), "at least one field"),
            (lambda: trainer.fit({"x": x > 0, "y": y}), "bool"), (lambda: trainer.evaluate([1, 2]), "list"),
            (lambda: trainer.fit({"x": x[:, :2], "y": y}), "x"), (lambda: trainer.fit((x, y), keep=-1), "keep -1"),
            (lambda: trainer.fit((x, y), checkpoint_every=-2), "checkpoint_every -2"),
            (lambda: trainer.fit((x, y), resume=True), "resume needs checkpoint_dir"),
            (lambda: trainer.fit((x, y), resume_from="a", checkpoint_dir="b"), "resume_from needs resume=True"),
        ]
        for call, words in cases:
            with self.assertRaises(clt.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        nested = []

        def inside(progress):
            for call in (lambda: trainer.step(x[:4], y[:4]), lambda: trainer.fit((x, y))):
                try:
                    call()
                except clt.StateError as error:
                    nested.append(str(error))

        trainer.fit((x, y), epochs=1, callbacks=[inside])
        self.assertEqual(len(nested), 2)

    def test_calls_in_callbacks(self):
        """Callbacks that would take the ground from under fit are refused, and the run goes on to the bits of another."""
        x, y = data(32)
        batches = [(x[:16], y[:16]), (x[16:], y[16:])]
        folder = os.path.join(self.folder, "saved")
        self.trainer().save(folder)
        calls = {
            "close": lambda t: t.close(), "close the store": lambda t: t.store.close(),
            "close the devices": lambda t: t.store.devices.close(), "restore": lambda t: t.restore(folder),
            "set steps": lambda t: setattr(t, "steps", 3), "step": lambda t: t.step(x[:16], y[:16]),
            "apply": lambda t: t.apply(), "reduce": lambda t: t.reduce(), "reduced": lambda t: t.reduced(),
            "backward": lambda t: t.backward(), "recover": lambda t: t.recover(), "finish": lambda t: t.finish(),
            "draw": lambda t: t.step_reservoir(), "set a reservoir": lambda t: t.set_reservoir(None),
        }
        names = ("on_begin", "on_step_begin", "on_gradients", "on_step", "on_epoch", "on_validation", "on_checkpoint", "on_end")
        done = []

        def attempt(self, trainer, *_):
            for name, call in calls.items():
                with test.assertRaises(clt.StateError, msg=name) as caught:
                    call(trainer)
                test.assertRegex(str(caught.exception), "fit is running|in use")
                test.assertNotIn("\n", str(caught.exception))
            done.append(1)

        test = self
        for place in names:
            callback = type("Closes", (clt.Callback,), {place: attempt})()
            for form in ((x, y), clt.Dataset.arrays(x=x, y=y), batches):
                listed = form is batches
                if listed and place in ("on_step_begin", "on_gradients", "on_validation"):
                    continue
                with self.subTest(place=place, form=type(form).__name__):
                    more = {} if listed else {"validation": (x, y), "validate_every": 1, "shuffle": False}
                    one, two = self.trainer(), self.trainer()
                    done.clear()
                    options = {"epochs": 2, "checkpoint_dir": os.path.join(self.folder, f"{place}-{type(form).__name__}")}
                    one.fit(form, callbacks=[callback], **options, **more)
                    self.assertTrue(done)
                    two.fit(form, epochs=2, **more)
                    self.assertEqual(one.steps, 4)
                    self.assert_same(one.store["fc.weight"], two.store["fc.weight"])
                    store, devices = one.store, one.store.devices
                    devices.close()  # afterwards it is allowed
                    self.assertTrue(one.closed and store.closed and devices.closed)

    def test_close_in_another_thread(self):
        """It waits for the end of the run."""
        trainer = self.trainer()
        closed = []

        def close():
            trainer.stop()
            trainer.store.close()
            closed.append(trainer.closed)

        thread = threading.Thread(target=close)
        trainer.fit(data(), epochs=10**9, callbacks=[lambda p: thread.start() if p.epoch == 1 else None])
        thread.join()
        self.assertEqual(closed, [True])

    def test_resume(self):
        x, y = data()
        whole = self.trainer(optimizer="adam")
        whole.fit((x, y), epochs=4)
        folder = os.path.join(self.folder, "run")
        first = self.trainer(optimizer="adam")
        first.fit((x, y), epochs=2, checkpoint_dir=folder)
        second = self.trainer(optimizer="adam", seed=7)
        second.fit((x, y), epochs=4, checkpoint_dir=folder, resume=True)
        self.assert_same(second.store["fc.weight"], whole.store["fc.weight"])

    def test_iterator_that_ends(self):
        x, y = data()
        trainer = self.trainer()
        history = trainer.fit(iter([(x[:16], y[:16])] * 3), epochs=5)
        self.assertEqual((trainer.steps, history["epoch"]), (3, [1]))

        def forever():
            while True:
                yield x[:16], y[:16]

        history = trainer.fit(forever(), steps=10)
        self.assertEqual(trainer.steps, 10)
        self.assertEqual(history["step"], [10])

    def test_steps_within_epoch(self):
        """A run that `steps` ends in the middle of an epoch reports and evaluates that part, for data sets as for iterables."""
        x, y = data()
        batches = [(x[i:i + 16], y[i:i + 16]) for i in range(0, 100, 16)]
        for steps, epochs, ends in ((3, [1], [3]), (9, [1, 2], [7, 9]), (7, [1], [7])):
            reports, histories = [], []
            for form in ((x, y), batches):
                trainer = self.trainer()
                reference = support.Line(trainer.store, 0.1)
                losses = [(len(bx), reference.step(bx, by)) for bx, by in (batches + batches)[:steps]]
                options = {} if form is batches else {"shuffle": False, "validation": (x[:20], y[:20])}
                history = trainer.fit(form, (x[:30], y[:30]), steps=steps, callbacks=[reports.append], **options)
                self.assertEqual((trainer.steps, history["epoch"], history["step"]), (steps, epochs, ends))
                last = losses[7:] or losses
                self.assert_close(history["loss"][-1], sum(n * loss for n, loss in last) / sum(n for n, _ in last))
                error = x @ reference.w.T + reference.b - y
                self.assert_close(history["test_loss"][-1], np.mean(error[:30]**2))
                if form is not batches:
                    self.assert_close(history["val_loss"][-1], np.mean(error[:20]**2))
                histories.append(history)
                self.assertEqual([round(lr, 6) for lr in history["lr"]], [0.1] * len(ends))
                self.assertEqual(reports[-1].samples, sum(n for n, _ in last))
            self.assert_close(histories[0]["loss"], histories[1]["loss"])

    def test_averages_within_epoch(self):
        x, y = data()
        trainer = self.trainer(average="ema:0.75")
        history = trainer.fit((x, y), (x, y), steps=3)
        with trainer.averages():
            self.assert_close(history["average_test_loss"], [trainer.evaluate((x, y))["loss"]])
        self.assert_close(history["test_loss"], [trainer.evaluate((x, y))["loss"]])

    def test_stop_within_epoch(self):
        """A run that was stopped has no evaluation that nobody asked for."""
        class Stop(clt.Callback):
            def on_step(self, trainer, progress):
                trainer.stop()

        history = self.trainer().fit(data(), data(30), epochs=3, callbacks=[Stop()])
        self.assertEqual(history, {})

    def test_teacher(self):
        """Functions of a data set on several threads may use another trainer."""
        x, y = data(200)
        teacher, trainer = self.trainer(), self.trainer()
        wanted = teacher.predict(x)

        def fill(numbers, arrays):
            teacher.evaluate((x[:50], y[:50]))
            arrays["x"][:], arrays["y"][:] = x[numbers], teacher.predict(x[numbers])

        made = clt.Dataset.callback(200, {"x": ("f32", (3,)), "y": ("f32", (1,))}, fill, serial=False)
        trainer.fit(made, epochs=2, shuffle=False)
        other = self.trainer()
        other.fit((x, wanted), epochs=2, shuffle=False)
        self.assert_close(trainer.store["fc.weight"], other.store["fc.weight"])

    def test_not_written(self):
        """What a function does not write is NaN, so the run ends instead of training on it."""
        def fill(numbers, arrays):
            arrays["x"][:] = 1

        with self.assertRaises(clt.NonfiniteError):
            self.trainer().fit(clt.Dataset.callback(32, {"x": ("f32", (3,)), "y": ("f32", (1,))}, fill))

    def test_labels(self):
        """A label out of range ends the run before its step; with `classes` its sample is named."""
        from cltrain import layers as L
        net = clt.Sequential(L.linear(3), input=(3,), loss="cross_entropy")
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=8)
        x, y = data(9)[0], np.array([0, 1, 2, 0, 3, 1, 2, 0, 1])
        before = trainer.store["0.weight"]
        with self.assertRaises(clt.NonfiniteError):
            trainer.fit((x, y), shuffle=False)
        with self.assertRaisesRegex(clt.FormatError, "field 'y': label 3 of sample 4 is out of range: 0 to 2"):
            trainer.fit(clt.Dataset.arrays(x=x, y=y, classes={"y": 3}), shuffle=False)
        self.assert_same(trainer.store["0.weight"], before)

    def test_empty_batch(self):
        """A batch of no samples is a step: momentum moves the weights as NumPy's."""
        x, y = data(16)
        trainer = self.trainer(optimizer="momentum", momentum=0.5)
        before = trainer.store["fc.weight"]
        float(trainer.step(x, y))
        after = trainer.store["fc.weight"]
        self.assertEqual(float(trainer.step(x[:0], y[:0])), 0)
        self.assertEqual(trainer.steps, 2)
        self.assert_close(trainer.store["fc.weight"], after + 0.5 * (after - before))

    def test_progress(self):
        import io
        from cltrain.history import Line, Progress
        stream = io.StringIO()
        line = Line(stream)
        line.step(Progress(dict(step=3, samples=16, step_seconds=0.5, total_steps=10, seconds=1.5, loss=0.25)))
        line.epoch(Progress(dict(epoch=1, loss=0.125), {"test_loss": 0.5}))
        self.assertIn("step 3/10  loss 0.2500  32 samples/s", stream.getvalue())
        self.assertTrue(stream.getvalue().rstrip().endswith("epoch 1: loss 0.1250, test_loss 0.5000"))
        stream.close()
        line.step(Progress(dict(step=3, samples=16, step_seconds=0.5, total_steps=10, seconds=1.5, loss=0.25)))


class Datasets(support.Case):
    def test_fields(self):
        d = clt.Dataset.arrays(x=np.zeros((5, 2, 3)), y=np.arange(5), classes={"y": 7})
        self.assertEqual(len(d), 5)
        self.assertEqual(d.fields, {"x": ("f32", (2, 3), 0), "y": ("i32", (), 7)})
        self.assert_same(d.array("y"), np.arange(5))
        with self.assertRaises(clt.Error):
            clt.Dataset.arrays(y=np.array([2**40]))
        with self.assertRaises(clt.NotFoundError):
            clt.Dataset.arrays(x=np.zeros(3), classes={"z": 2})

    def test_memory(self):
        """The data set keeps arrays alive that it reads in place, and copies what it is asked to copy."""
        x = np.arange(1000, dtype=np.float32)
        d, copied = clt.Dataset.arrays(x=x), clt.Dataset.arrays(x=x, copy=True)
        x[:] = -1
        self.assert_same(copied.array("x"), np.arange(1000))
        del x
        self.assert_same(d.array("x"), np.full(1000, -1))


if __name__ == "__main__":
    support.main()
