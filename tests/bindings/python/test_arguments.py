"""Arguments of wrong types and numbers out of range: one line that names the argument and says what it takes."""
import os

import numpy as np

import cltrain as clt
import support

LARGE = 2**40  # C's int would wrap it to 0
NO_INTEGER = ["a", None, object(), [1], 1.5, float("nan"), 2**70, -2**70, np.array([1, 2]), b"1"]
NO_NUMBER = ["a", None, object(), [1], 1j, True, np.array([1, 2])]
NO_TEXT = [3, None, object(), ["a"], "a\0b", np.array([1, 2]), "\ud800"]
NO_OBJECT = [3, "x", object(), [1], clt.Graph]


class Arguments(support.Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = support.numbers(8, 3), support.numbers(8, 1, seed=1)
        self.net = support.line()
        self.trainer = clt.Trainer(self.net, devices=support.DEVICES, batch=8, lr=0.1)
        self.store = self.trainer.store

    def refused(self, rows, values, of_store=()):
        for where, call in rows:
            for value in values:
                with self.subTest(where=where, value=repr(value)):
                    with self.assertRaises((clt.Error,) + of_store) as caught:
                        call(value)
                    line = str(caught.exception)
                    self.assertNotIn("\n", line)
                    self.assertNotIn("object has no attribute", line)
                    self.assertIn(where, line)

    def test_integers(self):
        trainer, net, x, y = self.trainer, self.net, self.x, self.y
        fields = {"x": ("f32", (3,))}
        float(trainer.step(x, y))
        trainer.gradients(x, y)
        self.refused([
            ("device", lambda v: trainer.gradient("fc.weight", device=v)),
            ("device", lambda v: trainer.set_gradient("fc.weight", np.zeros((1, 3), np.float32), device=v)),
            ("steps", lambda v: trainer.step_reservoir(v)), ("steps", lambda v: setattr(trainer, "steps", v)),
            ("keep", lambda v: trainer.save(self.folder, keep=v)),
            ("inputs", lambda v: clt.mlp(v, [4], 1)), ("hidden", lambda v: clt.mlp(2, [v], 1)),
            ("capacity", lambda v: clt.Reservoir(v, fields)), ("count", lambda v: clt.Dataset.callback(v, fields, print)),
            ("size of 'x'", lambda v: clt.Reservoir(4, {"x": ("f32", (v,))})),
            ("batch", lambda v: trainer.predict(x, batch=v)), ("shape", lambda v: clt.Graph().input("x", (v,))),
        ], NO_INTEGER)
        values = [v for v in NO_INTEGER if v is not None]  # None stands for the default
        self.refused([
            ("batch", lambda v: clt.Trainer(support.line(), devices=support.DEVICES, batch=v)),
            ("batch", lambda v: clt.Predictor(net, self.store, batch=v)),
            ("epochs", lambda v: trainer.fit((x, y), epochs=v)),
            ("count", lambda v: trainer.step(x, y, count=v)), ("count", lambda v: trainer.step(x.tolist(), y.tolist(), count=v)),
            ("total", lambda v: trainer.step(x, y, total=v)), ("total", lambda v: trainer.forward(x, y, total=v)),
        ], values + [-1, True])
        self.refused([("device", lambda v: trainer.gradient("fc.weight", device=v)),
                      ("in_flight", lambda v: clt.Trainer(net, store=self.store, in_flight=v))], [LARGE, -LARGE, 2**31])
        self.refused([("steps", lambda v: setattr(trainer, "steps", v)), ("steps", trainer.step_reservoir)], [-5, True])
        self.assertFalse(os.listdir(self.folder))
        trainer.apply()

    def test_numbers(self):
        trainer, x, y = self.trainer, self.x, self.y
        self.refused([
            ("lr", trainer.set_lr), ("'fc.weight'", lambda v: self.store.__setitem__("fc.weight", v)),
            ("fraction", lambda v: clt.Dataset.arrays(x=x).split(v)),
        ], [v for v in NO_NUMBER if not isinstance(v, (list, np.ndarray, str))])
        self.refused([
            ("lr", lambda v: clt.Trainer(support.line(), devices=support.DEVICES, lr=v)),
            ("min_delta", lambda v: trainer.fit((x, y), patience=1, monitor="loss", min_delta=v)),
            ("patience", lambda v: trainer.fit((x, y), patience=v, monitor="loss")),
        ], [v for v in NO_NUMBER if v is not None])

    def test_texts(self):
        trainer, net = self.trainer, self.net
        self.refused([
            ("name", lambda v: clt.load_model(v)), ("name", lambda v: clt.Graph().input(v)), ("name", net.find),
            ("dir", trainer.save), ("path", trainer.restore), ("path", self.store.load), ("path", self.store.save),
            ("field", lambda v: clt.Dataset.arrays(x=self.x).augment(v, "flip")),
            ("text", lambda v: clt.Dataset.arrays(x=self.x).augment("x", v)),
            ("spec", clt.Dataset.open), ("activation", lambda v: clt.mlp(2, [3], 1, v)),
        ], NO_TEXT)
        self.refused([("", lambda v: trainer.gradient(v)), ("", lambda v: trainer.slot("exp_avg", v)),
                      ("", lambda v: self.store[v])], NO_TEXT, (KeyError,))
        values = [v for v in NO_TEXT if v is not None]
        self.refused([
            ("schedule", lambda v: clt.Trainer(support.line(), schedule=v)),
            ("average", lambda v: clt.Trainer(support.line(), average=v)),
            ("optimizer", lambda v: clt.Trainer(support.line(), optimizer=v)),
            ("dir", lambda v: trainer.fit((self.x, self.y), checkpoint_dir=v)),
        ], [v for v in values if not isinstance(v, (str, int))])
        self.refused([("devices", clt.Devices)], [object(), ["pocl"], 1.5, True])

    def test_objects(self):
        trainer, net, x = self.trainer, self.net, self.x
        other = support.line()
        metrics = clt.Metrics(3)
        self.refused([
            ("model", clt.Trainer), ("model", clt.Store), ("model", lambda v: clt.Predictor(v, self.store)),
            ("store", lambda v: clt.Trainer(other, store=v)), ("world", lambda v: clt.Trainer(other, world=v)),
            ("world", lambda v: clt.Store(other, world=v)), ("world", metrics.gather),
            ("store", lambda v: clt.Predictor(other, v)), ("reservoir", trainer.set_reservoir),
            ("store", lambda v: net.save_merged(v, "f")), ("store", lambda v: net.save_adapters(v, "f")),
            ("data", lambda v: clt.load_model("lenet", v)), ("fields", lambda v: clt.Reservoir(4, v)),
            ("fields", lambda v: clt.Dataset.callback(4, v, print)), ("field", lambda v: clt.Reservoir(4, {"x": v})),
            ("classes", lambda v: clt.Dataset.arrays(x=x, classes=v)), ("operand", clt.Graph().relu),
            ("images", lambda v: clt.Dataset.arrays(x=x, images=v)), ("images", lambda v: clt.Reservoir(4, {}, images=v)),
            ("loss", lambda v: clt.Graph().loss("loss", v)), ("out", lambda v: trainer.predict(x, out=v)),
            ("evaluate", trainer.evaluate), ("metrics", lambda v: trainer.evaluate((x, self.y), metrics=v)),
        ], [v for v in NO_OBJECT if v != "x"])
        self.refused([("fill", lambda v: clt.Dataset.callback(4, {"x": ("f32", (3,))}, v)), ("function", clt.set_log),
                      ("function", clt.set_compile)], [3, "x", [1]])
        self.refused([("weights", lambda v: clt.Dataset.arrays(x=x).set_sample_weights(v))], [1j * np.ones(8), ["a"] * 8])

    def test_layers(self):
        net = clt.Graph()
        image, row, words = net.input("image", (2, 8, 8)), net.input("row", (6,)), net.input("words", (5, 4))
        self.assertEqual(net.linear(row, np.int64(3)).shape, (-1, 3))
        self.assertEqual(net.conv2d(image, 4, (3, 1), groups=2).shape, (-1, 4, 6, 8))
        self.refused([("out", lambda v: net.linear(row, v)), ("out", lambda v: net.conv2d(image, v, 3)),
                      ("hidden", lambda v: net.lstm(words, v))], [1.5, True, 2**70, 1j])
        self.refused([("kernel", lambda v: net.conv2d(image, 4, v)), ("groups", lambda v: net.conv2d(image, 4, 3, groups=v)),
                      ("axes", lambda v: net.layer_norm(row, axes=v)), ("layers", lambda v: net.gru(words, 3, layers=v))],
                     ["a", 1.5, True, 2**70, object()])
        self.refused([("groups", lambda v: net.conv2d(image, 4, 3, groups=v)), ("axes", lambda v: net.rms_norm(row, axes=v))],
                     [0, -1])
        self.refused([("kernel", lambda v: net.conv2d(image, 4, v))], [(3,), (3, 3, 3), ()])
        self.refused([("operand", lambda v: net.linear(row, v))], ["a", object(), [1]])
        self.refused([("dropout", lambda v: net.lstm(words, 3, dropout=v))], NO_NUMBER)
        self.refused([("normal", lambda v: net.parameter("p", (3,), normal=v)),
                      ("uniform", lambda v: net.parameter("p", (3,), uniform=v))], ["a", (1, 2, 3), True, object()])
        with self.assertRaisesRegex(clt.InvalidArgumentError, "lstm .*'revers'"):
            net.lstm(words, 3, revers=True)

    def test_counts(self):
        """`count` is for OpenCL buffers. That of arrays is the number of their samples."""
        trainer, x, y = self.trainer, self.x, self.y
        for arrays in ((x, y), (x.tolist(), y.tolist())):
            with self.assertRaisesRegex(clt.InvalidArgumentError, "^count is 3, and the arrays hold 8 samples"):
                trainer.step(*arrays, count=3)
            trainer.step(*arrays, count=8, total=8)
        self.assertEqual(trainer.step(x, y).samples, 8)

    def test_gradients_of_two_sizes(self):
        """An output has two rows for a sample, another one: their gradients have different lengths."""
        g = clt.Graph()
        x = g.input("x", (2, 3))
        rows = g.linear(g.reshape(x, shape=(-2, 3)), 2, name="fc")
        g.output_gradient(g.output(rows, "rows"), "v")
        g.output_gradient(g.output(g.linear(g.flatten(x), 2, name="all"), "all"), "w")
        g.input_gradient("x")
        trainer = clt.Trainer(g, devices=support.DEVICES, batch=8)
        x, v, w = support.numbers(8, 2, 3), support.numbers(16, 2, seed=1), support.numbers(8, 2, seed=2)
        trainer.forward(x=x)
        trainer.backward(v=v, w=w)
        wanted = (v @ trainer.store["fc.weight"]).reshape(8, 2, 3) + (w @ trainer.store["all.weight"]).reshape(8, 2, 3)
        self.assert_close(trainer.input_gradient("x"), wanted)


if __name__ == "__main__":
    support.main()
