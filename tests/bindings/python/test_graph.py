"""Graphs: operators of the schema, layers, model files, messages."""
import inspect
import json
import os

import numpy as np

import cltrain as clt
import support
from cltrain import layers as L
from cltrain._operators import Operators


def softmax_loss(logits, labels):
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(1, keepdims=True)
    log = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    return -log[np.arange(len(labels)), labels].mean()


class Graphs(support.Case):
    def test_numbers(self):
        """A network's outputs and loss are those of NumPy in doubles."""
        net = support.mlp()
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=16)
        x, y = support.numbers(16, 4), np.arange(16) % 3
        s = {name: value.astype(np.float64) for name, value in trainer.store.items()}
        logits = np.tanh(x @ s["0.weight"].T + s["0.bias"]) @ s["2.weight"].T + s["2.bias"]
        self.assert_close(net.predict(x), logits)
        found = trainer.evaluate((x, y))
        self.assert_close(found["loss"], softmax_loss(logits, y))
        self.assert_close(found["accuracy"], np.mean(logits.argmax(1) == y))

    def test_operators_of_values(self):
        g = clt.Graph()
        a, b = g.input("a", (3,)), g.input("b", (3,))
        g.output((a + b) * 2 - a / b + 1 - (-a) / 4 + (3 - b), "y")
        store = clt.Store(g, support.DEVICES)
        x, z = support.numbers(5, 3), support.numbers(5, 3, seed=1) + 5
        self.assert_close(store.predict(g, a=x, b=z), (x + z) * 2 - x / z + 1 + x / 4 + (3 - z))

    def test_every_operator(self):
        """Methods have the operands and attributes of the schema, and a docstring."""
        made = [name for name in vars(Operators) if not name.startswith("_")]
        self.assertGreater(len(made), 70)
        for name in made:
            method = getattr(Operators, name)
            self.assertTrue(method.__doc__, name)
            self.assertIn("name", inspect.signature(method).parameters, name)
        signature = inspect.signature(Operators.conv2d).parameters
        self.assertEqual(list(signature), ["self", "x", "weight", "bias", "stride", "padding", "dilation", "groups", "name"])
        self.assertEqual(signature["stride"].default, 1)

    def test_attributes(self):
        g = clt.Graph()
        x = g.input("x", (4, 6))
        self.assertEqual(g.slice(x, start=(0, 1, 0), stop=(None, 3, 5), step=(1, 1, 2)).shape, (-1, 2, 3))
        self.assertEqual(g.transpose(x, permutation=(0, 2, 1)).shape, (-1, 6, 4))
        self.assertEqual(g.reshape(x, shape=(-1, 24)).shape, (-1, 24))
        self.assertEqual(g.concat(x, x, axis=2).shape, (-1, 4, 12))
        self.assertEqual(g.reduce_mean(x, axes=(1, 2), keepdims=True).shape, (-1, 1, 1))
        self.assertEqual(g.cast(g.constant(np.ones(3)), to="i32").dtype, "i32")

    def test_layers(self):
        """Layers have PyTorch's parameters."""
        g = clt.Graph()
        image = g.input("image", (4, 8, 8))
        h = g.conv2d(image, 6, (3, 5), padding=(1, 2), groups=2, name="c")
        self.assertEqual(h.shape, (-1, 6, 8, 8))
        h = g.batch_norm(h, name="bn")
        h = g.group_norm(h, 3, name="gn")
        h = g.conv_transpose2d(h, 2, 2, stride=2, bias=False, name="t")
        self.assertEqual(h.shape, (-1, 2, 16, 16))
        h = g.layer_norm(g.flatten(h), name="ln")
        tokens = g.input("tokens", (5,), "i32")
        e = g.rms_norm(g.embedding(tokens, 11, 3, name="e"), name="rms")
        r = g.lstm(e, 7, layers=2, bidirectional=True, name="r")
        self.assertEqual(r.shape, (-1, 5, 14))
        g.output(h, "h")
        g.output(r, "r")
        store = clt.Store(g, support.DEVICES)
        shapes = {name: store.shape(name) for name in store}
        for name, shape in {"c.weight": (6, 2, 3, 5), "c.bias": (6,), "bn.running_var": (6,), "bn.num_batches_tracked": (),
                            "gn.weight": (6,), "t.weight": (6, 2, 2, 2), "ln.bias": (512,), "e.weight": (11, 3),
                            "rms.weight": (3,), "r.weight_ih_l1_reverse": (28, 14)}.items():
            self.assertEqual(shapes[name], shape, name)
        self.assertNotIn("t.bias", shapes)
        bound = 1 / np.sqrt(2 * 3 * 5)
        w = store["c.weight"]
        self.assertTrue(0.9 * bound < np.abs(w).max() <= bound)
        self.assert_same(store["bn.running_var"], np.ones(6))
        self.assertTrue(store.is_state("bn.running_mean"))

    def test_shared(self):
        g = clt.Graph()
        x = g.input("x", (4,))
        g.output(g.linear(g.linear(x, 4, name="same"), 4, name="same"))
        self.assertEqual(len(clt.Store(g, support.DEVICES)), 2)
        self.assertIn("+shared", str(g.summary()))

    def test_summary(self):
        s = support.mlp(4, 8, 3).summary()
        self.assertEqual(s.parameters, 4 * 8 + 8 + 8 * 3 + 3)
        self.assertEqual([row["op"] for row in s.rows][:3], ["linear", "tanh", "linear"])
        self.assertIn("Bx8", str(s))

    def test_model_files(self):
        path = os.path.join(self.folder, "net.json")
        with open(path, "w") as file:
            json.dump({"inputs": [{"name": "x", "shape": [4], "type": "f32"}, {"name": "y", "shape": [2], "type": "f32"}],
                       "nodes": [{"name": "fc", "op": "linear", "in": "x", "out": 2}],
                       "losses": [{"op": "mse", "in": ["fc", "y"]}]}, file)
        net = clt.load_model(path)
        self.assertEqual(list(net.inputs), ["x", "y"])
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=4)
        x, y = support.numbers(4, 4), support.numbers(4, 2)
        w, b = trainer.store["fc.weight"], trainer.store["fc.bias"]
        self.assert_close(trainer.evaluate((x, y))[net.losses[0]], np.mean((x @ w.T + b - y)**2))
        data = clt.Dataset.arrays(image=np.zeros((6, 1, 28, 28), np.uint8), label=np.zeros(6, np.uint8), classes={"label": 10})
        lenet = clt.load_model("lenet", data)
        self.assertEqual(lenet.find("logits").shape, (-1, 10))
        self.assertIn("lenet", clt.models())
        with self.assertRaises(clt.NotFoundError) as caught:
            clt.load_model("lenett", data)
        self.assertIn("lenet", str(caught.exception))
        self.assertEqual(clt.mlp(2, [8], 1).find("prediction").shape, (-1, 1))

    def test_class_weights(self):
        """The loss is the weighted mean of torch.nn.CrossEntropyLoss(weight, ignore_index=-100), in NumPy."""
        weights = [0.5, 0.0, 4.0]
        x, y = support.numbers(40, 4), np.random.default_rng(2).integers(0, 3, 40)
        y[::9] = -100

        def mean(scores):
            scores = scores.astype(np.float64)[y >= 0]
            log = scores - np.log(np.exp(scores).sum(1, keepdims=True))
            w = np.array(weights)[y[y >= 0]]
            return -(w * log[np.arange(len(w)), y[y >= 0]]).sum() / w.sum()

        g = clt.Graph()
        logits = g.output(g.linear(g.input("x", (4,)), 3), "logits")
        g.loss("loss", g.cross_entropy(logits, g.input("y", (), "i32"), class_weights=weights))
        fields = {"x": ("f32", (4,)), "label": ("i32", (), 3)}
        for net in (g, clt.Sequential(L.linear(3), input=(4,), loss="cross_entropy", class_weights=weights),
                    clt.load_model("mlp:4", fields=fields, class_weights=weights)):
            trainer = clt.Trainer(net, devices=support.DEVICES, batch=16, lr=0.1)
            self.assert_close(trainer.evaluate((x, y))["loss"], mean(trainer.predict(x)))
            first = float(trainer.step(x[:16], y[:16]))
            for _ in range(20):
                last = float(trainer.step(x[:16], y[:16]))
            self.assertLess(last, first)
        x, y = g.find("x"), g.find("y")
        for call, words in ((lambda: g.cross_entropy(logits, y, class_weights=[1, 2]), "2 numbers"),
                            (lambda: g.cross_entropy(logits, y, class_weights=3), "is 3"),
                            (lambda: g.cross_entropy(g.input("z", (3, 5)), y, class_weights=weights), "[P, C]"),
                            (lambda: clt.Graph().cross_entropy(logits, y, class_weights=weights), "another graph"),
                            (lambda: clt.Sequential(L.linear(3), input=(4,), loss="mse", class_weights=weights),
                             "class_weights"),
                            (lambda: clt.load_model("mlp:4", fields={"x": ("f32", (4,)), "y": ("f32", (1,))},
                                                    class_weights=weights), "class_weights")):
            with self.assertRaises(clt.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(clt.InvalidArgumentError):
            clt.Sequential(L.linear(2), input=(4,), loss="cross_entropy", class_weights=[1, -1])

    def test_trained(self):
        """A graph that has a trainer does not change: the trainer would not see it, and give results other names."""
        g = clt.Graph()
        x, y = g.input("x", (4,)), g.input("y", (), "i32")
        logits = g.output(g.linear(x, 3, name="fc"), "logits")
        g.loss("loss", g.cross_entropy(logits, y))
        g.metric("accuracy", g.correct(logits, y))
        made = clt.Store(g, support.DEVICES)
        trainer = clt.Trainer(g, store=made, batch=16)
        data = support.numbers(16, 4), np.arange(16) % 3
        means = trainer.evaluate(data)
        for change in (lambda: g.loss("extra", g.cross_entropy(logits, y)), lambda: g.metric("more", g.correct(logits, y)),
                       lambda: g.linear(x, 2), lambda: g.lora("fc", rank=2), lambda: g.input("z"), lambda: x + 1,
                       lambda: g.relu(x), lambda: g.parameter("p", (3,)), lambda: g.state("s", ()), lambda: g.freeze("fc*"),
                       lambda: g.constant([1.0]), lambda: g.output(x, "o"), lambda: g.input_gradient("x"),
                       lambda: g.param_group("fc*", lr=2), lambda: g.lstm(x, 3), lambda: g.output_gradient(x, "v"),
                       lambda: g.cross_entropy(logits, y, class_weights=[1, 2, 3]), lambda: g.cut(x)):
            with self.assertRaisesRegex(clt.StateError, r"^a trainer of this graph exists.*trainer\.close\(\)"):
                change()
        self.assertEqual(trainer.evaluate(data), means)
        self.assertEqual(list(trainer.fit(data, test=data, epochs=1))[-2:], ["test_loss", "test_accuracy"])
        trainer.close()
        g.metric("again", g.correct(logits, y))
        trainer = clt.Trainer(g, store=made, batch=16)
        found = trainer.evaluate(data)
        self.assertEqual(list(found), ["loss", "accuracy", "again"])
        self.assertEqual(found["again"], found["accuracy"])
        del trainer  # garbage counts no more
        g.metric("last", g.correct(logits, y))

    def test_functions_in_sequential(self):
        net = clt.Sequential(L.linear(4), lambda g, x: g.relu(x) + x, input=(4,))
        self.assertEqual(net.find("output").shape, (-1, 4))

    def test_messages(self):
        g = clt.Graph()
        x = g.input("x", (4,))
        with self.assertRaises(AttributeError) as caught:
            L.linaer(4)
        self.assertIn("linear", str(caught.exception))
        with self.assertRaises(TypeError):
            g.relu(x, slope=1)
        with self.assertRaises(clt.InvalidArgumentError) as caught:
            clt.Graph().max_pool2d(clt.Graph().input("z", (1, 4, 4)), kernel=0)
        with self.assertRaises(clt.Error) as caught:
            g.conv2d(x, 3, 3)
        self.assertIn("dimensions", str(caught.exception))
        other = clt.Graph().input("x", (4,))
        with self.assertRaises(clt.InvalidArgumentError) as caught:
            g.add(x, other)
        self.assertIn("another graph", str(caught.exception))
        with self.assertRaises(ValueError) as caught:  # ShapeError is one
            g.add(x, g.input("z", (5,)))
        self.assertIsInstance(caught.exception, clt.ShapeError)
        self.assertIn("x", str(caught.exception))


if __name__ == "__main__":
    support.main()
