"""Trainers and stores: the same numbers as NumPy in doubles, memory of steps, gradients, checkpoints."""
import gc
import os

import numpy as np

import cltrain as clt
import support


class Steps(support.Case):
    def trainer(self, **options):
        return clt.Trainer(support.line(), devices=support.DEVICES, **{"batch": 16, "lr": 0.1, **options})

    def test_losses(self):
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        x, y = support.numbers(200, 3), support.numbers(200, 1, seed=1)
        for i in range(0, 200, 16):  # the last batch is smaller
            self.assert_close(float(trainer.step(x=x[i:i + 16], y=y[i:i + 16])), reference.step(x[i:i + 16], y[i:i + 16]))
        self.assert_close(trainer.store["fc.weight"], reference.w)
        self.assertEqual(trainer.steps, 13)

    def test_arrays_may_change(self):
        """The host writes its arrays anew as soon as a step is enqueued."""
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        x, y = np.empty((16, 3), np.float32), np.empty((16, 1), np.float32)
        steps, wanted = [], []
        for i in range(30):
            x[:], y[:] = support.numbers(16, 3, seed=i), support.numbers(16, 1, seed=100 + i)
            wanted.append(reference.step(x, y))
            steps.append(trainer.step(x, y))
            x[:], y[:] = np.nan, np.nan
        self.assert_close([float(step) for step in steps], wanted)

    def test_late_reads(self):
        """A Step that is kept has its result, although the library knows the last two only."""
        trainer = self.trainer()
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        first = trainer.step(x, y)
        for _ in range(10):
            trainer.step(x, y)
        self.assertGreater(first.norm, 0)
        self.assertEqual((first.number, first.samples, first.finite), (0, 16, 1))
        self.assertIn("loss", repr(first))
        self.assertEqual(f"{first:.3f}", f"{first.loss:.3f}")

    def test_types(self):
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        wide = np.zeros((16, 6))
        wide[:, ::2] = x
        forms = [(x, y), (x.astype(np.float64), y.astype(np.float64)), (np.asfortranarray(x), y[::-1][::-1]),
                 (wide[:, ::2], y), (x.tolist(), y.tolist()), (x.astype(">f4"), y), (x[:, ::-1][:, ::-1], y)]
        for copy in (True, False):
            losses = []
            for form in forms:
                trainer = self.trainer()
                losses.append([float(trainer.step(*form, copy=copy)) for _ in range(3)])
            for found in losses[1:]:
                self.assertEqual(found, losses[0])

    def test_labels(self):
        x, y = support.numbers(16, 4), np.arange(16) % 3
        losses = set()
        for dtype in (np.int32, np.int64, np.uint8, np.int8, np.uint16, np.uint32):
            trainer = clt.Trainer(support.mlp(), devices=support.DEVICES, batch=16)
            losses.add(float(trainer.step(x, y.astype(dtype))))
        self.assertEqual(len(losses), 1)
        with self.assertRaises(clt.Error) as caught:
            trainer.step(x, np.full(16, 2**40))
        self.assertIn("32 bits", str(caught.exception))

    def test_refused(self):
        trainer = self.trainer()
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        cases = [
            (lambda: trainer.step(x=x, z=y), "'z'"), (lambda: trainer.step(x=x[:8], y=y), "x has 8"),
            (lambda: trainer.step(x=x), "y"), (lambda: trainer.step(x=support.numbers(16, 4), y=y), "x"),
            (lambda: trainer.step(x=(x > 0), y=y), "bool"), (lambda: trainer.step(x=x.astype(np.complex64), y=y), "complex64"),
            (lambda: trainer.step(x=(255 * x).astype(np.uint8), y=y), "255"), (lambda: trainer.step(x, y, y), "3 arrays"),
            (lambda: trainer.step(x=support.numbers(32, 3), y=support.numbers(32, 1)), "32"),
            (lambda: self.trainer(leraning_rate=1), "leraning_rate"), (lambda: self.trainer(optimizer="adm"), "'adam'"),
            (lambda: self.trainer(weight_deacy=1), "'weight_decay'"), (lambda: self.trainer(batch="big"), "integer"),
            (lambda: self.trainer(batch=2**70), "must lie in"), (lambda: self.trainer(schedule="cosine"), "schedule_steps"),
            (lambda: self.trainer(schedule="sine"), "sine"), (lambda: self.trainer(batch=-1), "batch"),
        ]
        for call, words in cases:
            with self.assertRaises(clt.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        reference = support.Line(trainer.store, 0.1)
        self.assert_close(float(trainer.step(x, y)), reference.step(x, y))  # nothing is lost

    def test_options(self):
        """Options reach the library: weights decay, gradients are clipped, the rate follows the schedule."""
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        trainer = self.trainer(clip_norm=0.01, lr=1, schedule="step:2:0.1")
        before = trainer.store["fc.weight"]
        step = trainer.step(x, y)
        self.assertGreater(step.norm, 0.01)
        moved = np.sqrt(np.sum((trainer.store["fc.weight"] - before)**2))
        self.assertLessEqual(moved, 0.0101)
        self.assertEqual([round(trainer.step(x, y).lr, 6) for _ in range(4)], [1, 0.1, 0.1, 0.01])
        trainer.set_lr(5)
        self.assertEqual(round(trainer.step(x, y).lr, 6), 0.05)

    def test_nonfinite(self):
        trainer = self.trainer()
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        good = trainer.store["fc.weight"]
        bad = trainer.step(np.full((16, 3), np.nan), y)
        with self.assertRaises(clt.NonfiniteError):
            for _ in range(3):
                float(trainer.step(x, y))
        del bad
        self.assert_same(trainer.store["fc.weight"], good)

    def test_parts(self):
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        trainer.forward(x, y)
        trainer.backward()
        wanted = reference.step(x, y)
        self.assert_close(trainer.gradient("fc.weight"), reference.gradient)
        trainer.reduce()
        step = trainer.apply()
        self.assert_close(float(step), wanted)
        self.assert_close(trainer.store["fc.weight"], reference.w)
        before = trainer.store["fc.weight"]
        trainer.forward(x, y)
        trainer.backward()
        trainer.set_gradient("fc.weight", np.ones((1, 3)))
        trainer.set_gradient("fc.bias", [0.0])
        trainer.reduced()
        trainer.apply()
        self.assert_close(trainer.store["fc.weight"], before - 0.1)

    def test_output_gradient(self):
        """A loss of the program's own: its gradient comes from outside."""
        g = clt.Graph()
        x = g.input("x", (3,))
        y = g.output(g.linear(x, 1, name="fc"), "y")
        g.output_gradient(y, "dy")
        trainer = clt.Trainer(g, devices=support.DEVICES, batch=16)
        data, dy = support.numbers(16, 3), support.numbers(16, 1, seed=2)
        trainer.forward(x=data)
        trainer.backward(dy=dy)
        self.assert_close(trainer.gradient("fc.weight"), dy.T @ data)
        trainer.reduce()
        trainer.apply()

    def test_input_gradient(self):
        """The gradient of an input is that of NumPy; without losses it is a vector-Jacobian product."""
        net = support.line()
        net.input_gradient("x")
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=16, lr=0.1)
        x, y = support.numbers(10, 3), support.numbers(10, 1)
        w, b = (trainer.store[name].astype(np.float64) for name in ("fc.weight", "fc.bias"))
        trainer.forward(x, y)
        trainer.backward()
        self.assert_close(trainer.input_gradient("x"), 2 * (x @ w.T + b - y) @ w / 10)
        trainer.reduce()
        trainer.apply()
        g = clt.Graph()
        g.output_gradient(g.output(g.linear(g.input("x", (3,)), 2, name="fc"), "y"), "v")
        g.input_gradient("x")
        trainer = clt.Trainer(g, devices="pocl/2", batch=16)
        for seed in range(3):
            v = support.numbers(10, 2, seed=seed)
            if seed < 2:
                trainer.forward(x=x)
            trainer.backward(v=v)
            self.assert_close(trainer.input_gradient("x"), v @ trainer.store["fc.weight"])
        with self.assertRaises(clt.NotFoundError):
            net.input_gradient("z")
        with self.assertRaises(clt.NotFoundError):
            trainer.input_gradient("v")

    def test_gradients_of_a_step(self):
        one, two = self.trainer(accumulate=2), self.trainer(accumulate=2)
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        for _ in range(3):
            one.step(x, y)
            two.gradients(x, y)
            two.set_gradient("fc.weight", two.gradient("fc.weight"))
            two.apply()
        self.assert_same(one.store["fc.weight"], two.store["fc.weight"])

    def test_two_devices(self):
        one = self.trainer()
        two = clt.Trainer(support.line(), devices="pocl/2", batch=16, lr=0.1)
        self.assertEqual(len(two.store.devices), 2)
        x, y = support.numbers(15, 3), support.numbers(15, 1)
        for _ in range(5):
            self.assert_close(float(one.step(x, y)), float(two.step(x, y)))
        two.store.check()

    def test_many_shapes(self):
        trainer = self.trainer(batch=64)
        reference = support.Line(trainer.store, 0.1)
        for n in list(range(1, 65)) + [7, 0]:
            x, y = support.numbers(n, 3), support.numbers(n, 1)
            found = trainer.step(x, y)
            if n:
                self.assert_close(float(found), reference.step(x, y))
        self.assertLessEqual(len(trainer._plans), 32)


class Stores(support.Case):
    def test_mapping(self):
        net = support.mlp()
        store = clt.Store(net, support.DEVICES, seed=3)
        self.assertEqual(sorted(store), ["0.bias", "0.weight", "2.bias", "2.weight"])
        value = support.numbers(8, 4)
        store["0.weight"] = value
        self.assert_same(store["0.weight"], value)
        store["0.weight"] = value.T.astype(np.float64).T
        self.assert_same(store["0.weight"], value)
        store["0.bias"] = 0.5
        self.assert_same(store["0.bias"], np.full(8, 0.5))
        self.assertEqual(store.parameters, 8 * 4 + 8 + 3 * 8 + 3)
        with self.assertRaises(KeyError) as caught:
            store["0.wieght"]
        self.assertIn("0.weight", str(caught.exception))
        with self.assertRaises(clt.Error):
            store["0.weight"] = support.numbers(4, 8)
        self.assertEqual(clt.Store(support.mlp(), support.DEVICES, seed=3)["2.weight"].tolist(), store["2.weight"].tolist())

    def test_files(self):
        net = support.mlp()
        store = clt.Store(net, support.DEVICES, seed=1)
        path = os.path.join(self.folder, "net.safetensors")
        store.save(path)
        other = clt.Store(support.mlp(), support.DEVICES, seed=2)
        other.load(path)
        for name in store:
            self.assert_same(other[name], store[name])
        third = clt.Store(support.mlp(), support.DEVICES, seed=4)
        third.load(store.state_dict())
        self.assert_same(third["0.weight"], store["0.weight"])
        with self.assertRaises(clt.MismatchError):
            third.load({"0.weight": store["0.weight"]})
        with self.assertRaises(LookupError):
            store.load(os.path.join(self.folder, "none"))

    def test_predictor(self):
        net = support.mlp()
        store = clt.Store(net, support.DEVICES)
        x = support.numbers(50, 4)
        whole = store.predict(net, x, batch=64)
        self.assert_close(clt.Predictor(net, store, batch=7)(x), whole)
        out = np.zeros((50, 6), np.float64)
        clt.Predictor(net, store, batch=16)(x=x, out={"output": out[:, ::2]})
        self.assert_close(out[:, ::2], whole)
        self.assertEqual(clt.Predictor(net, store, batch=16)(x[:0]).shape, (0, 3))
        # Strides may be negative, also of arrays by DLPack, and in runs of a part of the samples.
        out = np.zeros((50, 6), np.float64)
        for given in (x[::-1], Tensor(x[::-1]), x[::-1].astype(np.float64)):
            clt.Predictor(net, store, batch=7)(given, out={"output": out[::-1, ::2]})
            self.assert_close(out[:, ::2], whole)
            out[:] = 0
        with self.assertRaises(clt.Error) as caught:
            store.predict(net, z=x)
        self.assertIn("'z'", str(caught.exception))
        with self.assertRaises(clt.StateError):
            support.mlp().predict(x)

    def test_out(self):
        """Arrays of one's own for results: whatever does not fit is refused, and nothing behind an array is written."""
        net = support.mlp()
        predictor = clt.Predictor(net, clt.Store(net, support.DEVICES), batch=4)
        x = support.numbers(10, 4)
        guard = np.full((40, 3), 7, np.float32)
        read_only = np.zeros((10, 3), np.float32)
        read_only.flags.writeable = False
        cases = [
            ({"output": guard[:2]}, "output 'output' is [2, 3] and must be [10, 3]"), ({"output": guard[:11]}, "[11, 3]"),
            ({"output": guard[:0]}, "[0, 3]"), ({"output": guard[:10, :2]}, "[10, 2]"), ({"output": guard[:10].ravel()}, "[30]"),
            ({"output": Tensor(guard[:2])}, "[2, 3] and must be [10, 3]"), ({"output": np.array(7, np.float32)}, "is []"),
            ({"output": np.zeros((10, 3), np.int32)}, "has elements i32, and must have f32"),
            ({"output": np.zeros((10, 3), bool)}, "bool"), ({"output": [[0.0] * 3] * 10}, "list"), ({"output": None}, "NoneType"),
            ({"output": read_only}, "read-only"), ({"output": np.lib.stride_tricks.as_strided(guard, (10, 3), (0, 4))}, "stride 0"),
            ({"output": Tensor(np.lib.stride_tricks.as_strided(guard, (10, 3), (0, 4)))}, "stride 0"), ({"outptu": guard[:10]}, "did you mean 'output'?"), ({3: guard[:10]}, "'3'"),
            (guard[:10], "out is ndarray: give a dict"), ("output", "out is str"),
        ]
        for out, words in cases:
            with self.subTest(words=words), self.assertRaises(clt.Error) as caught:
                predictor(x, out=out)
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        self.assert_same(guard, np.full((40, 3), 7, np.float32))
        wanted = predictor(x)
        self.assertIsNot(predictor(x, out={}), guard)
        for given in (guard[3:13], Tensor(guard[3:13])):
            guard[:] = 7
            self.assertIs(predictor(x, out={"output": given}), given)
            self.assert_same(guard[3:13], wanted)
            self.assert_same(np.delete(guard, range(3, 13), 0), np.full((30, 3), 7, np.float32))


class Tensor:
    """An array that is known by DLPack only."""

    def __init__(self, a):
        self.a = a

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.a.__dlpack__()


class Checkpoints(support.Case):
    def test_resume(self):
        """A run that is saved and restored has the bits of one that was not."""
        x, y = support.numbers(16, 3), support.numbers(16, 1)

        def make(seed=0):
            return clt.Trainer(support.line(), devices=support.DEVICES, optimizer="adam", batch=16, seed=seed)

        whole = make()
        for _ in range(6):
            whole.step(x, y)
        first = make()
        for _ in range(3):
            first.step(x, y)
        first.sections["time"] = "2.5 s"
        first.save(os.path.join(self.folder, "run"))
        second = make(seed=9)
        second.restore(os.path.join(self.folder, "run"))
        self.assertEqual(second.sections["time"], "2.5 s")
        self.assertEqual(second.steps, 3)
        self.assertEqual(second.slot_names(), ["exp_avg", "exp_avg_sq"])
        self.assert_same(second.slot("exp_avg", "fc.weight"), first.slot("exp_avg", "fc.weight"))
        for _ in range(3):
            second.step(x, y)
        for name in whole.store:
            self.assert_same(second.store[name], whole.store[name])
        del second.sections["time"]
        with self.assertRaises(KeyError):
            second.sections["time"]

    def test_sections(self):
        """A mapping to texts, also after a restore; whatever would be cut off or changed is refused."""
        folder = os.path.join(self.folder, "run")
        first, second = (clt.Trainer(support.line(), devices=support.DEVICES, batch=4) for _ in range(2))
        wanted = {"time": "2.5 s", "größe": "ä\n\U0001f600", "empty": "", "a" * 100: "b" * 100000}
        first.sections.update(wanted)
        first.sections["gone"] = "x"
        del first.sections["gone"]
        self.assertEqual(dict(first.sections), wanted)
        first.save(folder)
        second.sections["old"] = "is replaced"
        second.restore(folder)
        self.assertEqual((dict(second.sections), len(second.sections)), (wanted, 4))
        self.assertEqual(list(second.sections), sorted(wanted))
        self.assertNotIn("old", second.sections)
        self.assertEqual([name in second.sections for name in ("time", "time\0x", b"time", 3, None, "")],
                         [True] + 5 * [False])
        cases = [("n", "x\0y", "section 'n' contains a zero byte"), ("n\0k", "x", "the name of a section contains a zero"),
                 ("n", b"\0\1", "section 'n' is bytes: it must be text"), ("n", None, "is NoneType"), ("n", 2.5, "is float"),
                 (3, "x", "the name of a section is int"), (None, "x", "NoneType"), ("n", "\ud800", "not UTF-8"),
                 ("", "x", "1 to 100 bytes"), ("ä" * 51, "x", "1 to 100 bytes")]
        for name, value, words in cases:
            with self.subTest(words=words), self.assertRaises(clt.InvalidArgumentError) as caught:
                second.sections[name] = value
            self.assertIn(words, str(caught.exception))
        for name in ("n", "time\0x", 3):
            with self.assertRaises(KeyError):
                second.sections[name]
            with self.assertRaises(KeyError):
                del second.sections[name]
        self.assertEqual(dict(second.sections), wanted)
        second.sections.clear()
        self.assertEqual((dict(second.sections), len(first.sections)), ({}, 4))

    def test_memory(self):
        """1,000 times made and freed: nothing stays."""
        from cltrain._handles import _cores
        clt.available()  # makes the runtime, which stays
        gc.collect()
        before = len(_cores)
        devices = clt.Devices(support.DEVICES)
        net = support.line()
        for _ in range(1000):
            with clt.Store(net, devices) as store:
                store["fc.bias"] = 1.0
        for _ in range(20):
            trainer = clt.Trainer(net, store=clt.Store(net, devices), batch=4)
            trainer.step(support.numbers(4, 3), support.numbers(4, 1))
        del trainer, store, net, devices
        gc.collect()
        self.assertEqual(len(_cores), before)


if __name__ == "__main__":
    support.main()
