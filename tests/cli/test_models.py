"""Models by name and in files: what they are built of, and mistakes in files with their lines."""
import copy
import json
import os

from command import CommandTest, main, put, records, tensors

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

    def test_same_as_built_in(self):
        """The same parameters, and the same bits of training."""
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
        """A position bias that is learnt, with dropout: one device and two give the same."""
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
        """Two losses with weights, shared and explicit parameters, several inputs to a node."""
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

    def assert_file(self, model, where, *says):
        """One line that begins with the file and the line on which `where` first stands."""
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
        self.assert_file(self.with_node(op="conv2d", out=4, kernel=[3]), '"kernel": [', "[height, width]")
        self.assert_file(self.with_node(name="n", op="conv2d", out=4, kernel=[3, -1]), '"kernel": [', "n (conv2d)")
        self.assert_file(self.with_node(name="n", op="linear"), '{\n   "name": "n"', "give 'out'")
        self.assert_file(self.with_node(name="n", op="linear", out=0), '"out": 0', "at least 1")
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
        model = self.changed(inputs=SMALL["inputs"][:1])
        self.assert_file(model, '"out": "classes"', "no labels")

    def test_data_that_do_not_fit(self):
        path = self.write(self.changed(inputs=[{"name": "picture"}]))
        self.assert_bad("inspect", "--model", path, "--data", "idx:" + self.data, code=1,
                        says=(f"{path}:4: ", "the data have image u8 [1,6,5], label u8 [] of"))
        path = self.write(SMALL)
        self.assert_bad("inspect", "--model", path, "--data", "idx:" + self.data, code=1,
                        says=(f"{path}:5: ", "another shape"))
        self.assert_bad("inspect", "--model", self.path("none.json"), code=1, says=("none.json", "No such file"))
        self.assert_bad("inspect", "--model", "lenett", code=2, says=("did you mean lenet?", ".json"))


if __name__ == "__main__":
    main()
