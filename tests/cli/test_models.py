"""Built-in models and model files: their layers, and mistakes in files with their lines."""
import copy
import io
import json
import math
import os
import random
import struct
import zipfile

from command import CLASSES, COLUMNS, ROWS, CommandTest, main, put, records, tensors

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "examples")
LENET = os.path.join(EXAMPLES, "lenet.json")

SMALL = {
    "inputs": [{"name": "image", "shape": [1, 8, 8]}, {"name": "label", "shape": [], "classes": 3}],
    "nodes": [{"name": "conv", "op": "conv2d", "out": 4, "kernel": 3},
              {"op": "relu"},
              {"op": "flatten"},
              {"name": "fc", "op": "linear", "out": "classes"}],
    "outputs": {"logits": "fc"},
    "losses": [{"op": "cross_entropy", "in": ["fc", "label"]}],
    "metrics": [{"name": "accuracy", "op": "correct", "in": ["fc", "label"]}],
}


def npz(arrays):
    """Returns an NPZ file of nested lists: integers as i4, other numbers as f4."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        for name, values in arrays.items():
            shape, flat = [], values
            while isinstance(flat, list) and (not shape or isinstance(flat[0], list)):
                shape.append(len(flat) if not shape else len(flat[0]))
                flat = flat if len(shape) == 1 else [v for row in flat for v in row]
            kind = "i" if isinstance(flat[0], int) else "f"
            head = f"{{'descr': '<{kind}4', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))},), }}"
            head = head.encode().ljust(117) + b"\n"
            file.writestr(name + ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head +
                          struct.pack(f"<{len(flat)}{kind}", *flat))
    return out.getvalue()


def numbers(path, name):
    with zipfile.ZipFile(path) as file:
        data = file.read(name + ".npy")
    data = data[10 + struct.unpack("<H", data[8:10])[0]:]
    return struct.unpack(f"<{len(data) // 4}f", data)


class Models(CommandTest):
    def write(self, model, name="net.json"):
        text = model if isinstance(model, str) else json.dumps(model, indent=1)
        put(self.path(name), text.encode())
        return self.path(name)

    def inspect(self, model, *more):
        return json.loads(self.run_command("inspect", "--model", model, "--json", *more).stdout)

    def test_inspect(self):
        found = self.inspect("lenet")
        self.assertEqual(found["parameters"], 129068)
        rows = {row["name"]: row for row in found["nodes"]}
        self.assertEqual(rows["conv2"]["shape"], [-1, 50, 9, 9])
        self.assertEqual(rows["conv2"]["parameters"], 50 * 20 * 25 + 50)
        self.assertEqual(rows["conv2"]["flops"], 2 * 50 * 20 * 25 * 81)
        text = self.run_command("inspect", "--model", "lenet", "--data", "synthetic:3x32x32:7").stdout
        self.assertRegex(text, r"(?m)^conv1 +conv2d +Bx20x30x30 +560 ")
        self.assertRegex(text, r"(?m)^logits +linear +Bx7 ")
        self.assert_bad("inspect", code=2, says=("--model is missing",))
        self.assert_bad("inspect", "--model", "lenet", "--data", "synthetic:3x32", code=2,
                        says=("synthetic:CxHxW",))

    def test_example(self):
        """The first example of docs/models.md has the model that the page describes."""
        with open(os.path.join(EXAMPLES, "..", "..", "docs", "models.md"), encoding="utf-8") as file:
            lines = file.read().splitlines()
        begin = lines.index("    {")
        path = self.write("\n".join(lines[begin:lines.index("    }", begin) + 1]))
        self.assertEqual(self.inspect(path, "--data", "idx:" + self.data)["parameters"],
                         (ROWS * COLUMNS + 1) * 64 + 65 * CLASSES)

    def test_classes(self):
        """"classes" are those of the labels, even if the data have other labels too (CIFAR-100's coarse
        ones)."""
        for name in ("train.bin", "test.bin"):
            put(self.path(name), b"".join(bytes([i, i]) + bytes(3072) for i in range(20)))
        data = "--data", "cifar100:" + self.path("")
        file = {"nodes": [{"op": "flatten", "in": "image"}, {"name": "top", "op": "linear", "out": "classes"}],
                "losses": [{"op": "cross_entropy", "in": ["top", "label"]}]}
        fields = [{"name": name} for name in ("image", "label", "coarse_label")]
        for inputs in ({}, {"inputs": fields}, {"inputs": fields[::-1]}):
            self.assertEqual(self.inspect(self.write(json.dumps({**file, **inputs})), *data)["parameters"], 3073 * 100)
        file["losses"][0]["in"][1] = "coarse_label"
        fields[1:] = fields[2:]
        self.assertEqual(self.inspect(self.write(json.dumps({**file, "inputs": fields})), *data)["parameters"], 3073 * 20)

    def test_inspect_text(self):
        """Models of text can be listed without data, as models of images can."""
        found = self.inspect("gpt2:124M")
        self.assertEqual(found["parameters"], 124439808)
        rows = {row["name"]: row for row in self.inspect("gpt2:layers=1,heads=2,width=8", "--data", "synthetic",
                                                         "--seq-len", "12", "--classes", "30")["nodes"]}
        self.assertEqual(rows["logits"]["shape"], [-1, 12, 30])
        rows = {row["name"]: row for row in self.inspect("lenet", "--classes", "7")["nodes"]}
        self.assertEqual(rows["logits"]["shape"], [-1, 7])
        for option in ("--image-size", "--resize", "--seq-len"):
            self.assert_bad("inspect", "--model", "lenet", option, "32", code=2, says=(option, "synthetic:CxHxW"))
        for model in ("unet", "lstm-regressor"):
            self.assert_bad("inspect", "--model", model, code=2, says=("--data is missing", "arrays x and y"))
        self.assert_bad("inspect", "--model", "gpt2:nano", "--data", "synthetic:1x8x8", code=2, says=("is for text",))
        for name, says in (("gpt2:nano,layers=1,350M", "nano and 350M"), ("resnet18:imagenet,small", "imagenet and small")):
            self.assert_bad("inspect", "--model", name, code=2, says=(says,))

    def test_same_as_built_in(self):
        """A model file gives the parameters and the training bits of the built-in model."""
        self.assertEqual(self.inspect(LENET, "--data", "synthetic"), self.inspect("lenet"))
        mlp = self.changed(inputs=[{"name": "image"}, {"name": "label"}],
                           nodes=[{"op": "flatten"}, {"name": "fc1", "op": "linear", "out": 256},
                                  {"op": "relu"}, {"name": "fc", "op": "linear", "out": "classes",
                                                   "parameters": "fc2"}])
        outcomes = []
        for name, model in (("a", "mlp"), ("b", self.write(mlp))):
            self.train("--steps", "4", "--metrics", self.path(name), "--checkpoint-dir",
                       self.path(name + "-run"), "--tune", "off", "--quiet", model=model)
            steps, epochs = records(self.path(name))
            newest = max(os.listdir(self.path(name + "-run")))
            outcomes.append(([r["loss"] for r in steps], epochs and epochs[0]["test_accuracy"],
                             tensors(self.path(name + "-run", newest, "model.safetensors"))))
        self.assertEqual(outcomes[0], outcomes[1])
        self.assertEqual(len(outcomes[0][0]), 4)

    def test_attention(self):
        """A learnt position bias with dropout gives the same on one device and on two."""
        model = self.changed(
            inputs=[{"name": "image"}, {"name": "label"}],
            parameters=[{"name": "bias", "shape": [2, 6, 6]}],
            nodes=[{"name": "rows", "op": "reshape", "shape": [6, 5], "in": "image"},
                   *({"name": name, "op": "linear", "out": 32, "in": "rows"} for name in "qkv"),
                   {"op": "attention", "in": ["q", "k", "v", "bias"], "heads": 2, "dropout": 0.3},
                   {"op": "flatten"},
                   {"name": "fc", "op": "linear", "out": "classes"}])
        path, losses = self.write(model), []
        for devices in ("pocl", "pocl/2"):
            run = self.path(devices.replace("/", "-"))
            self.train("--steps", "3", "--metrics", run + ".jsonl", "--checkpoint-dir", run, "--split", "equal", "--tune", "off",
                       "--quiet", model=path, devices=devices)
            losses.append([r["loss"] for r in records(run + ".jsonl")[0]])
            bias = tensors(os.path.join(run, max(os.listdir(run)), "model.safetensors"))["bias"]
            self.assertGreater(sum(abs(b) > 0 for b in bias), 60)
        for one, two in zip(*losses):
            self.assertAlmostEqual(one, two, places=5)

    def test_branches(self):
        """Two losses with weights, shared and explicit parameters, and nodes with several inputs."""
        model = copy.deepcopy(SMALL)
        model["inputs"] = [{"name": "image"}, {"name": "label"}]
        model["parameters"] = [{"name": "gain", "shape": [1], "init": 2.0}]
        model["nodes"] = [
            {"name": "flat", "op": "flatten", "in": "image"},
            {"name": "a", "op": "linear", "out": 6},
            {"name": "b", "op": "linear", "out": 6, "in": "flat", "parameters": "a"},
            {"name": "c", "op": "mul", "in": ["b", "gain"]},
            {"name": "d", "op": "add", "in": ["a", "c"]},
            {"name": "fc", "op": "linear", "out": "classes"},
            {"name": "back", "op": "linear", "out": 30, "in": "d"},
        ]
        model["losses"] = [{"name": "class", "op": "cross_entropy", "in": ["fc", "label"]},
                           {"name": "image_loss", "op": "mse", "in": ["back", "flat"], "weight": 0.5}]
        model["outputs"] = {"logits": "fc", "image_again": "back"}
        path = self.write(model)
        rows = {r["name"]: r for r in self.inspect(path, "--data", "idx:" + self.data)["nodes"]}
        self.assertEqual((rows["b"]["parameters"], rows["b"]["shared"]), (0, rows["a"]["parameters"]))
        self.assertEqual(rows["c"]["parameters"], 1)
        out = self.train("--epochs", "2", "--metrics", self.path("m"), "--lr", "0.05", model=path).stdout
        steps, epochs = records(self.path("m"))
        self.assertLess(steps[-1]["loss"], steps[0]["loss"])
        last = epochs[-1]
        self.assertAlmostEqual(last["test_loss"], last["test_class"] + 0.5 * last["test_image_loss"], places=5)
        self.assertRegex(out, r"test class \d.* test image_loss \d.* test accuracy \d")

    def test_equal_losses(self):
        """A loss that is a metric too, and a loss that occurs twice."""
        model = copy.deepcopy(SMALL)
        model["inputs"] = [{"name": "x"}, {"name": "y"}]
        model["nodes"] = [{"name": "out", "op": "linear", "out": 1}]
        model["losses"] = [{"op": "mse", "in": ["out", "y"], "weight": 0.25},
                           {"name": "again", "op": "mse", "in": ["out", "y"], "weight": 0.75}]
        model["metrics"] = [{"name": "error", "op": "mse", "in": ["out", "y"]}]
        model["outputs"] = {"out": "out"}
        put(self.path("data.npz"), npz({"x": [[i / 8.0, 1.0] for i in range(16)], "y": [[i / 4.0] for i in range(16)]}))
        losses = {}
        for name, losses_of in (("twice", model["losses"]), ("once", [{"op": "mse", "in": ["out", "y"]}])):
            model["losses"] = losses_of
            self.run_command("train", "--model", self.write(model), "--data", "npz:" + self.path("data.npz"), "--devices", "pocl",
                             "--batch", "4", "--epochs", "2", "--tune", "off", "--quiet", "--metrics", self.path(name))
            steps, epochs = records(self.path(name))
            losses[name] = [r["loss"] for r in steps]
            self.assertAlmostEqual(epochs[-1]["test_loss"], epochs[-1]["test_error"], places=5)
        for once, twice in zip(losses["once"], losses["twice"]):
            self.assertAlmostEqual(once, twice, places=5)

    def test_numbers(self):
        """Results of operators on numbers, masks and parts, compared with Python."""
        rows = [[0.5, -1.5, 2.0, 0.25], [-0.125, 3.0, -2.0, 1.0], [1.5, 1.5, -0.75, -4.0]]
        put(self.path("x.npz"), npz({"x": rows, "y": [[0.0]] * 3}))
        nodes = {
            "clamp": ({"op": "clamp", "in": "x", "min": -1, "max": 1.75}, lambda r: [min(max(v, -1), 1.75) for v in r]),
            "below": ({"op": "clamp", "in": "x", "max": 1}, lambda r: [min(v, 1) for v in r]),
            "zero": ({"op": "constant", "number": 0, "shape": [1, 1]}, None),
            "mask": ({"op": "gt", "in": ["x", "zero"]}, None),
            "not": ({"op": "logical_not", "in": "mask"}, None),
            "negative": ({"op": "cast", "in": "not", "to": "f32"}, lambda r: [float(v <= 0) for v in r]),
            "three": ({"op": "constant", "number": 3}, None),
            "where": ({"op": "where", "in": ["mask", "x", "three"]}, lambda r: [v if v > 0 else 3.0 for v in r]),
            "square": ({"op": "pow", "in": "x", "exponent": 2}, lambda r: [v * v for v in r]),
            "power": ({"op": "pow", "in": ["square", "x"]}, lambda r: [(v * v) ** v for v in r]),
            "log": ({"op": "log", "in": "square"}, lambda r: [math.log(v * v) for v in r]),
            "rsqrt": ({"op": "rsqrt", "in": "square"}, lambda r: [1 / abs(v) for v in r]),
            "first": ({"op": "split", "in": "x", "sizes": [1, 3], "axis": -1, "part": 0}, lambda r: r[:1]),
            "rest": ({"op": "split", "in": "x", "sizes": [1, 3], "axis": -1, "part": 1}, lambda r: r[1:]),
            "cut": ({"op": "slice", "in": "x", "start": [0, 1], "stop": [None, 3]}, lambda r: r[1:3]),
            "stack": ({"op": "stack", "in": ["x", "clamp"], "axis": -1},
                      lambda r: [w for v in r for w in (v, min(max(v, -1), 1.75))]),
            "cosine": ({"op": "cosine_similarity", "in": ["x", "where"]},
                       lambda r: [sum(a * b for a, b in zip(r, [v if v > 0 else 3 for v in r])) / math.sqrt(
                           sum(v * v for v in r) * sum(v * v if v > 0 else 9 for v in r))]),
            "fc": ({"op": "linear", "in": "x", "out": 1}, None),
        }
        checked = {name: of for name, (_, of) in nodes.items() if of}
        model = self.write({"nodes": [{"name": name, **node} for name, (node, _) in nodes.items()],
                            "outputs": {name: name for name in checked},
                            "losses": [{"op": "mean", "in": "fc"}]})
        self.run_command("train", "--model", model, "--data", "npz:" + self.path("x.npz"), "--batch", "2", "--steps", "1",
                         "--devices", "pocl", "--tune", "off", "--quiet", "--checkpoint-dir", self.path("run"))
        self.run_command("predict", "--model", model, "--checkpoint", self.path("run"), "npz:" + self.path("x.npz"), "-o",
                         self.path("y.npz"), "--devices", "pocl")
        for name, of in checked.items():
            wanted = [v for row in rows for v in of(row)]
            found = numbers(self.path("y.npz"), name)
            with self.subTest(name=name):
                self.assertEqual(len(found), len(wanted))
                for a, b in zip(found, wanted):
                    self.assertAlmostEqual(a, b, delta=1e-5 * max(1, abs(b)))

    def test_layers(self):
        """Layers of one, two and three dimensions: their shapes and parameters, and that they train."""
        model = self.changed(nodes=[
            {"name": "up", "op": "conv_transpose2d", "out": 4, "kernel": [3, 2], "stride": 2, "output_padding": [1, 0]},
            {"name": "groups", "op": "group_norm", "groups": 2},
            {"op": "reshape", "shape": [4, 2, 9, 16]},
            {"name": "deep", "op": "conv3d", "out": 6, "kernel": [1, 3, 3], "stride": [1, 2, 2], "groups": 2},
            {"name": "images", "op": "instance_norm", "affine": True},
            {"op": "reshape", "shape": [6, 56]},
            {"name": "line", "op": "conv1d", "out": 8, "kernel": 3, "dilation": 2, "bias": False},
            {"name": "longer", "op": "conv_transpose1d", "out": 8, "kernel": 2, "stride": 2},
            {"op": "max_pool1d", "kernel": 3, "stride": 2, "padding": 1},
            {"op": "adaptive_avg_pool1d", "size": 16},
            {"name": "rms", "op": "rms_norm"},
            {"name": "turned", "op": "rotary", "halves": True},
            {"op": "reshape", "shape": [2, 8, 8], "name": "q"},
            {"name": "ones", "op": "constant", "number": 1, "shape": [8, 8]},
            {"name": "mask", "op": "gt", "in": ["ones", "least"]},
            {"op": "scaled_dot_product_attention", "in": ["q", "q", "q", "mask"], "causal": True},
            *SMALL["nodes"][2:]])
        model["nodes"].insert(0, {"name": "least", "op": "constant", "number": -1e9})
        model["nodes"][1]["in"] = "image"
        path = self.write(model)
        rows = {row["name"]: row for row in self.inspect(path)["nodes"]}
        self.assertEqual(rows["up"]["shape"], [-1, 4, 18, 16])
        self.assertEqual(rows["rms"]["parameters"], 16)
        rng = random.Random(1)
        put(self.path("im.npz"), npz({"image": [[[[rng.random() for _ in range(8)] for _ in range(8)]] for _ in range(6)],
                                      "label": [0, 1, 2, 1, 0, 2]}))
        self.run_command("train", "--model", path, "--data", "npz:" + self.path("im.npz"), "--batch", "3", "--steps", "2",
                         "--devices", "pocl", "--tune", "off", "--quiet", "--metrics", self.path("m"), "--checkpoint-dir",
                         self.path("run"))
        steps, _ = records(self.path("m"))
        self.assertEqual(len(steps), 2)
        sizes = {name: len(values) for name, values in tensors(
            self.path("run", max(os.listdir(self.path("run"))), "model.safetensors")).items()}
        for name, size in (("up.weight", 1 * 4 * 3 * 2), ("deep.weight", 6 * 2 * 3 * 3), ("line.weight", 8 * 6 * 3),
                           ("longer.weight", 8 * 8 * 2), ("groups.bias", 4), ("images.weight", 6)):
            self.assertEqual(sizes[name], size)
        self.assertNotIn("line.bias", sizes)

    def assert_file(self, model, where, *says):
        """Checks that the message is one line that begins with the file and the line where `where` first
        occurs."""
        path = self.write(model)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        line = text[:text.index(where)].count("\n") + 1
        done = self.assert_bad("inspect", "--model", path, code=1, says=says)
        self.assertTrue(done.stderr.startswith(f"cltrain: {path}:{line}: "), f"line {line}: {done.stderr}")

    def changed(self, **changes):
        model = copy.deepcopy(SMALL)
        for key, value in changes.items():
            model[key] = value
        return model

    def with_node(self, **node):
        return self.changed(nodes=[*SMALL["nodes"][:1], node, *SMALL["nodes"][2:]])

    def test_mistakes(self):
        self.inspect(self.write(SMALL))
        self.assert_file('{\n "nodes": [\n  {"op": }\n]}', '{"op": }', "column")
        self.assert_file('{\n"nodes": [],\n"nodes": []}', '"nodes": []}', "duplicate")
        self.assert_file("[]", "[]", "is an object")
        self.assert_file(self.changed(nodes=[]), '"nodes"', "has no entry")
        self.assert_file(self.changed(nods=[]), '"nods"', "did you mean nodes?")
        self.assert_file(self.changed(losses=[]), '"losses"', "has no entry")
        self.assert_file(self.with_node(op="rleu"), '"rleu"', "did you mean relu?", "rleu2")
        self.assert_file(self.with_node(op="relu", slope=1), '"slope"', "takes no attributes")
        self.assert_file(self.with_node(op="dropout", q=0.1), '"q"', "did you mean p?")
        self.assert_file(self.with_node(name="x1", op="dropout", p="half"), '"half"', "x1 (dropout)", "a number")
        self.assert_file(self.with_node(op="conv2d", out=4, kernel=[3]), '"kernel": [', "height, width")
        self.assert_file(self.with_node(name="n", op="conv2d", out=4, kernel=[3, -1]), '"kernel": [', "n (conv2d)")
        self.assert_file(self.with_node(name="n", op="linear"), '{\n   "name": "n"', "give 'out'")
        self.assert_file(self.with_node(name="n", op="linear", out=0), '"out": 0', "an integer of at least 1")
        # Numbers that would be 0 or 1 in 32 bits.
        for op, key in (("conv2d", "groups"), ("attention", "heads"), ("lstm", "layers")):
            self.assert_file(self.with_node(op=op, **{key: 4294967296}), f'"{key}"', "an integer of at least 1")
        self.assert_file(self.with_node(op="softmax", axis=4294967297), '"axis"', "an integer of -8 to 7")
        self.assert_file(self.with_node(op="slice", start=[0, 2 ** 40, 0, 0]), '"start"', "must be an integer")
        self.assert_file(self.with_node(op="split", sizes=[1, 3], part=2), '"part"', "0 to 1")
        self.assert_file(self.with_node(name="n", op="pow"), '{\n   "name": "n"', "exponent")
        self.assert_file(self.with_node(op="cast", to="f99"), '"to"', "f32, f16, bf16, i32, u8 or f64")
        self.assert_file(self.with_node(op="constant", number=1, shape=[0]), '"shape": [\n    0', "1 to 16777216")
        self.assert_file(self.with_node(name="n", op="conv1d", out=4, kernel=3), '{\n   "name": "n"', "must have 3")
        self.assert_file(self.with_node(name="n", op="add", **{"in": ["conv", "imag"]}), '"in": [\n    "conv",\n    "imag"', "did you mean image?")
        self.assert_file(self.with_node(name="n", op="add"), '{\n   "name": "n"', "takes 2 operands")
        self.assert_file(self.with_node(name="n", op="conv2d", out=4, kernel=99), '{\n   "name": "n"', "n (conv2d)")
        self.assert_file(self.with_node(name="n", op="scale"), '{\n   "name": "n"', "'factor' is missing")
        self.assert_file(self.with_node(name="conv", op="relu"), '"name": "conv",\n   "op": "relu"', "name is taken")
        self.assert_file(self.with_node(name="image", op="relu"), '"name": "image",\n   "op"', "name is taken")
        self.assert_file(self.changed(losses=[{"op": "hinge", "in": ["fc", "label"]}]), '"hinge"', "no loss 'hinge'")
        self.assert_file(self.changed(losses=[{"op": "mse", "in": ["fc", "label"]}]), '{\n   "op": "mse"', "loss: ")
        self.assert_file(self.changed(outputs={"logits": "fd"}), '"logits"', "did you mean fc?")
        self.assert_file(self.changed(inputs=[{"name": "image"}]), '"name": "image"', "no 'shape' here")
        self.assert_file(self.changed(inputs=[{"name": "image", "shape": [1, 0]}]), '"shape"', "dimension 1")
        self.assert_file(self.changed(parameters=[{"name": "p", "shape": [2], "init": "x"}]), '"init"', "uniform")
        self.assert_file(self.changed(nodes=[{"name": "fc", "op": "linear", "out": "classes"}]), '{\n   "op": "cross',
                         "do not fit the logits", "a flatten is missing before the last linear layer")
        self.assert_file(self.changed(tp=[{"parameters": "x*"}]), '{\n   "parameters"', 'no parameter matches "x*"')
        self.assert_file(self.changed(tp=[{"parameters": "fc.weight", "dim": 2}]), '{\n   "parameters"',
                         "parameter fc.weight is", "cannot be split along dimension 2")
        self.assert_file(self.changed(tp=[{"parameters": "fc.*", "block": 2}]), '"block"', "did you mean blocks?")
        self.assert_file(self.changed(pp="fc"), '"pp"', "must be a list of patterns")
        self.assert_file(self.changed(pp=["fc", 2]), '"pp"', "must be a list of patterns")
        self.assert_file(self.changed(pp=[]), '"pp"', "must be a list of patterns")
        self.assert_file(self.changed(pp=["f*", "fd"]), '"pp": [', 'no layer matches "fd"')
        flat = {"name": "fc", "op": "linear", "in": ["image", "w"]}
        self.assert_file(self.changed(nodes=[flat], parameters=[{"name": "w", "shape": [3, 64]}]), '{\n   "name": "fc"',
                         "the last dimension of", "a flatten of it is missing before this layer")
        for loss in "mse", "huber":
            self.assert_file(self.changed(inputs=[*SMALL["inputs"], {"name": "target", "shape": [3]}],
                                          nodes=[{"name": "fc", "op": "linear", "out": 3}],
                                          losses=[{"op": loss, "in": ["fc", "target"]}]), f'{{\n   "op": "{loss}"',
                             "differ in shape", "a flatten is missing before the last linear layer")
        for kind in ("losses", "metrics"):
            few = self.with_node(op="relu")
            few["nodes"][-1] = {"name": "fc", "op": "linear", "out": 2}
            few["losses"][0] = {"op": "mean", "in": "fc"} if kind == "metrics" else few["losses"][0]
            self.assert_file(few, '{\n   "op": "cross' if kind == "losses" else '{\n   "name": "accuracy"',
                             "the labels have 3 classes, the logits 2")
        rows = self.changed(inputs=[{"name": "image", "shape": [5], "classes": 9}, SMALL["inputs"][1]])
        rows["nodes"] = [{"name": "n", "op": "embedding", "count": 8, "width": 3}, *SMALL["nodes"][2:]]
        self.assert_file(rows, '{\n   "name": "n"', "8 rows, but the tokens have 9 numbers")
        self.assert_unused()
        model = self.changed(inputs=SMALL["inputs"][:1])
        self.assert_file(model, '"out": "classes"', "no labels")

    def assert_unused(self):
        """Attributes and names that would be ignored are refused: those that repeat another attribute, and
        duplicate names."""
        given = [{"name": "p", "shape": [4, 1, 3, 3]}]
        for name, node in (("out", {"op": "conv2d", "in": ["image", "p"], "out": 7}),
                           ("kernel", {"op": "conv2d", "in": ["image", "p"], "kernel": 5}),
                           ("bias", {"op": "linear", "in": ["conv", "p"], "bias": True}),
                           ("parameters", {"op": "conv1d", "in": ["image", "p"], "parameters": "q"}),
                           ("width", {"op": "embedding", "in": ["label", "p"], "width": 7}),
                           ("scale", {"op": "upsample2d", "size": 9, "scale": 3})):
            model = self.changed(parameters=given, nodes=[*SMALL["nodes"][:1], node, *SMALL["nodes"][2:]])
            self.assert_file(model, f'"{name}": {json.dumps(node[name])}', f"'{name}' has no use")
        self.assert_file(self.with_node(op="relu", parameters="conv"), '"parameters"', "relu2 (relu) has no 'parameters'")
        two = [*SMALL["nodes"][:3], {"name": "linear5", "op": "linear", "out": 6}, {"op": "linear", "out": 6},
               *SMALL["nodes"][3:]]
        self.assert_file(self.changed(nodes=two), '{\n   "op": "linear"', "two nodes would have the name linear5; give this one")
        two[4] = {"name": "n", "op": "linear", "out": 5, "parameters": "linear5"}
        self.assert_file(self.changed(nodes=two), '{\n   "name": "n"', "linear5.weight")
        twice = self.changed(metrics=[{"op": "correct", "in": ["fc", "label"]},
                                      {"name": "correct", "op": "mean", "in": "fc"}])
        self.assert_file(twice, '"name": "correct"', "name is taken")

    def test_control_characters(self):
        """A name with a line break would forge a line of the output."""
        for change in ({"nodes": [{**SMALL["nodes"][0], "name": "a\nfake line"}, *SMALL["nodes"][1:]]},
                       {"metrics": [{**SMALL["metrics"][0], "name": "\x1b[2J"}]},
                       {"outputs": {"a\x7f": "fc"}}):
            self.assert_bad("inspect", "--model", self.write({**SMALL, **change}), code=1,
                            says=("net.json:", "a line break or another control character"))

    def test_data_that_do_not_fit(self):
        path = self.write(self.changed(inputs=[{"name": "picture"}]))
        self.assert_bad("inspect", "--model", path, "--data", "idx:" + self.data, code=1,
                        says=(f"{path}:4: ", "the data have image u8 [1,6,5], label u8 [] of"))
        path = self.write(SMALL)
        self.assert_bad("inspect", "--model", path, "--data", "idx:" + self.data, code=1,
                        says=(f"{path}:5: ", "another shape"))
        for key, value, says in (("classes", CLASSES + 1, f"{CLASSES + 1} classes here, and {CLASSES} in the data"),
                                 ("type", "f32", "is f32 here, and i32 as the data are read")):
            path = self.write(self.changed(inputs=[{"name": "image"}, {"name": "label", key: value}]))
            self.assert_bad("inspect", "--model", path, "--data", "idx:" + self.data, code=1,
                            says=(f"{path}:8: input 'label'", says))
        self.assert_bad("inspect", "--model", self.path("none.json"), code=1, says=("none.json", "No such file"))
        self.assert_bad("inspect", "--model", "lenett", code=2, says=("did you mean lenet?", ".json"))


if __name__ == "__main__":
    main()
