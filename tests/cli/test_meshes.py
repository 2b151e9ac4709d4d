"""eval, predict and sample on meshes of devices: what they say is what one device says."""
import json
import os
import struct
import zipfile

from command import CommandTest, main, put

TEXT = "she sells sea shells by the sea shore; " * 40


def outputs(path):
    """Returns the f32 arrays of an NPZ file."""
    found = {}
    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            data = file.read(name)
            begin = 10 + struct.unpack("<H", data[8:10])[0]
            found[name] = struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])
    return found


class Meshes(CommandTest):
    def use(self, command, devices, *args, code=0):
        return self.run_command(command, "--checkpoint", self.path("run"), "--devices", devices, *args, code=code)

    def near(self, have, want, most):
        self.assertEqual(len(have), len(want))
        for a, b in zip(have, want):
            self.assertLessEqual(abs(a - b), most * (1 + abs(b)))

    def compare_uses(self, meshes):
        """Compares eval and predict of the checkpoint on meshes with one device."""
        data = "--data", "idx:" + self.data
        out = self.path("out.npz")

        def both(devices, *mesh):
            loss = json.loads(self.use("eval", devices, *data, "--json", *mesh).stdout)
            self.use("predict", devices, *data, "-o", out, "--batch", "8", *mesh)
            return loss, outputs(out)

        want, arrays = both("pocl@1")
        self.assertGreater(max(map(abs, arrays["logits.npy"])), 0.05)
        for devices, *mesh in meshes:
            with self.subTest(mesh=mesh):
                loss, found = both(devices, *mesh)
                self.near(list(loss.values()), list(want.values()), 1e-5)
                self.assertEqual(list(found), list(arrays))
                for name, values in arrays.items():
                    self.near(found[name], values, 1e-5)

    def test_layers(self):
        self.train("--steps", "4", "--checkpoint-dir", self.path("run"), "--parallel", "tp=2", model="mlp:16,8",
                   devices="pocl/2")
        self.compare_uses((("pocl/2", "--parallel", "tp=2"), ("pocl/2", "--parallel", "pp=2"),
                           ("pocl/2", "--parallel", "pp=2", "--stages", "fc3"),
                           ("pocl/2,pocl/2", "--parallel", "dp=2,tp=2"), ("pocl/2", "--zero", "3")))

    def test_rows_of_images(self):
        model = self.path("images.json")
        with open(model, "w", encoding="utf-8") as file:
            json.dump({"inputs": [{"name": "image", "space": 2}, {"name": "label"}],
                       "nodes": [{"name": "c", "op": "conv2d", "in": "image", "out": 4, "kernel": 3},
                                 {"op": "relu"}, {"op": "max_pool2d"}, {"op": "flatten"},
                                 {"name": "logits", "op": "linear", "out": "classes"}],
                       "losses": [{"op": "cross_entropy", "in": ["logits", "label"]}],
                       "outputs": {"logits": "logits"}}, file)
        self.train("--steps", "2", "--checkpoint-dir", self.path("run"), model=model, devices="pocl@1")
        self.compare_uses((("pocl/2", "--parallel", "space=2"),))

    def compare_texts(self, model, meshes):
        put(self.path("text.txt"), TEXT.encode())
        self.run_command("train", "--model", model, "--data", "text:" + self.path("text.txt"), "--seq-len", "32",
                         "--batch", "8", "--steps", "30", "--optimizer", "adam", "--lr", "0.01", "--tune", "off",
                         "--devices", "pocl@1", "--checkpoint-dir", self.path("run"))
        usual = "--prompt", TEXT[:20], "--tokens", "24", "--ids", "--quiet"
        for draw in (("--greedy",), ("--seed", "5", "--samples", "2")):
            want = self.use("sample", "pocl@1", *usual, *draw).stdout
            self.assertGreater(len(want.split()), 24)
            for devices, *mesh in meshes:
                with self.subTest(mesh=mesh, draw=draw):
                    self.assertEqual(self.use("sample", devices, *usual, *draw, *mesh).stdout, want)

    def test_text_of_gpt2(self):
        self.compare_texts("gpt2:layers=2,heads=2,width=16",
                           (("pocl/2", "--parallel", "tp=2"), ("pocl/2", "--parallel", "pp=2"),
                            ("pocl/2,pocl/2", "--parallel", "pp=2,tp=2"), ("pocl/2", "--zero", "3")))
        text = "--data", "text:" + self.path("text.txt")
        for command, *more in (("sample",), ("predict", *text, "-o", self.path("out.npz")), ("eval", *text)):
            done = self.use(command, "pocl/2,pocl/2", "--parallel", "tp=4", *more, code=2)
            self.assertIn("2 heads cannot be divided over 4 places of tp", done.stderr)

    def test_text_of_lstm(self):
        self.compare_texts("lstm:hidden=16", (("pocl/2", "--parallel", "tp=2"), ("pocl/2", "--parallel", "pp=2")))

        def bad(command, devices, *args, says):
            self.assert_bad(command, "--checkpoint", self.path("run"), "--devices", devices, *args, code=2, says=says)

        bad("sample", "pocl/2", "--parallel", "dp=2", says=("dp=2", "nothing to divide along dp"))
        bad("sample", "pocl/2", "--parallel", "time=2", says=("nothing to divide along time",))
        bad("sample", "pocl/2", "--parallel", "tp=3", says=("tp=3", "is for 3 devices"))
        bad("sample", "pocl/2", "--parallel", "pp=2", "--stages", "fc9", says=('no layer matches "fc9"',))
        bad("sample", "pocl/2", says=("--devices pocl/2", "without --parallel"))
        for command in ("sample", "predict", "eval"):
            more = () if command == "sample" else ("--data", "text:" + self.path("text.txt"))
            more += ("-o", self.path("out.npz")) if command == "predict" else ()
            bad(command, "pocl/2", "--zero", "1", *more, says=("--zero 1", "0 or 3"))
            bad(command, "pocl/2", "--stages", "fc", *more, says=("--stages fc", "needs a pipeline"))
        self.assertFalse(os.path.exists(self.path("out.npz")))


if __name__ == "__main__":
    main()
