"""`cltrain data`: describes data sets, and converts text to tokens and back to samples."""
import array
import json
import os
import random
import struct
import subprocess
import zipfile

from command import CLASSES, COLUMNS, COMMAND, ROWS, TEST, TRAIN, CommandTest, get, main, put, records


class Inspect(CommandTest):
    def test_text(self):
        out = self.run_command("data", "inspect", "idx:" + self.data).stdout
        raw = get(os.path.join(self.data, "train-images-idx3-ubyte"))[16:]
        mean = sum(raw) / len(raw)
        std = (sum(x * x for x in raw) / len(raw) - mean ** 2) ** 0.5
        self.assertIn(f"--normalize {mean / 255:.4g},{std / 255:.4g}\n", out)
        for words in (f"idx:{self.data} (train): {TRAIN} samples", f"(test): {TEST} samples",
                      f"[1,{ROWS},{COLUMNS}]", "0 to 255", f"{CLASSES} classes"):
            self.assertIn(words, out)

    def test_json(self):
        out = json.loads(self.run_command("data", "inspect", "idx:" + self.data, "--json").stdout)
        raw = get(os.path.join(self.data, "train-images-idx3-ubyte"))[16:]
        labels = get(os.path.join(self.data, "train-labels-idx1-ubyte"))[8:]
        train, test = out["splits"]
        self.assertEqual((train["samples"], test["samples"]), (TRAIN, TEST))
        image, label = train["fields"]
        self.assertEqual((image["name"], image["dtype"], image["shape"]),
                         ("image", "u8", [1, ROWS, COLUMNS]))
        mean = sum(raw) / len(raw)
        self.assertAlmostEqual(image["mean"], mean, places=4)
        self.assertAlmostEqual(image["std"], (sum(x * x for x in raw) / len(raw) - mean ** 2) ** 0.5,
                               places=4)
        self.assertEqual((image["min"], image["max"]), (min(raw), max(raw)))
        self.assertEqual([row["count"] for row in label["classes"]],
                         [labels.count(c) for c in range(CLASSES)])

    def test_mistakes(self):
        self.assert_bad("data", code=2, says=("inspect", "tokenize"))
        self.assert_bad("data", "inspct", code=2, says=("did you mean inspect?",))
        self.assert_bad("data", "inspect", code=2, says=("one SPEC",))
        self.assert_bad("data", "inspect", "idx:" + self.path("none"), code=1, says=("none",))
        self.assert_bad("data", "inspect", "idx:" + self.data, "--tokenizer", "bytes", code=2,
                        says=("--tokenizer does not belong",))
        self.assert_bad("data", "tokenize", "x", code=2, says=("--tokenizer is missing",))
        self.assert_bad("data", "tokenize", "x", "--tokenizer", "bytes", code=2, says=(".bin",))
        self.assert_bad("data", "tokenize", "--tokenizer", "bytes", code=2, says=("files",))

    def test_models_want_images(self):
        put(self.path("a.txt"), b"x" * 1000)
        self.assert_bad("train", "--model", "mlp", "--data", "text:" + self.path("a.txt"),
                        "--seq-len", "8", "--devices", "pocl", code=2, says=("for images [C,H,W] with labels",))


class Tokenize(CommandTest):
    def test_bytes(self):
        put(self.path("a.txt"), bytes(range(256)) * 4)
        put(self.path("b.txt"), b"hello")
        out = self.path("out.bin")
        self.run_command("data", "tokenize", "--tokenizer", "bytes", "-o", out, self.path("a.txt"),
                         self.path("b.txt"))
        tokens = array.array("H", get(out))
        self.assertEqual(list(tokens), list(range(256)) * 4 + list(b"hello"))
        self.assertEqual(json.loads(get(self.path("out.json")))["vocab_size"], 256)
        said = json.loads(self.run_command("data", "inspect", "tokens:" + out, "--seq-len", "16",
                                           "--json").stdout)
        windows = (len(tokens) - 1) // 16
        self.assertEqual([split["samples"] for split in said["splits"]],
                         [windows - (windows + 9) // 10, (windows + 9) // 10])
        field = said["splits"][1]["fields"][1]
        first = 16 * said["splits"][0]["samples"] + 1
        test = list(tokens)[first:first + 16 * said["splits"][1]["samples"]]
        self.assertEqual(field["name"], "targets")
        self.assertEqual([row["count"] for row in field["classes"]],
                         [test.count(token) for token in range(256)])
        # A failed run leaves the old output. The output may be one of the inputs.
        self.assert_bad("data", "tokenize", "--tokenizer", "bytes", "-o", out, self.path("a.txt"), self.path("gone.txt"),
                        code=1, says=("gone.txt",))
        self.assertEqual(array.array("H", get(out)), tokens)
        self.run_command("data", "tokenize", "--tokenizer", "bytes", "-o", out, out)
        self.assertEqual(len(get(out)), 4 * len(tokens))
        self.assertEqual(sorted(name for name in os.listdir(os.path.dirname(out)) if name.startswith("out")),
                         ["out.bin", "out.json"])

    def test_gpt2(self):
        folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens", "tokenizer")
        cases = json.loads(get(os.path.join(folder, "cases.json")))
        longest = max(cases, key=lambda case: len(case["ids"]))
        put(self.path("a.txt"), longest["text"].encode())
        put(self.path("bad.txt"), b"good\xff")
        out = self.path("out.bin")
        run = subprocess.run([COMMAND, "data", "tokenize", "--tokenizer", "gpt2:" + folder, "-o", out,
                              self.path("a.txt"), self.path("a.txt")], capture_output=True,
                             text=True, timeout=60)
        if run.returncode and "PCRE2" in run.stderr:
            self.skipTest("built without PCRE2")
        self.assertEqual(run.returncode, 0, run.stderr)
        end = json.loads(get(self.path("out.json")))["vocab_size"] - 1
        self.assertEqual(list(array.array("H", get(out))),
                         longest["ids"] + [end] + longest["ids"])
        self.assert_bad("data", "tokenize", "--tokenizer", "gpt2:" + folder, "-o",
                        self.path("bad.bin"), self.path("bad.txt"), code=1,
                        says=("bad.txt", "byte 4", "UTF-8"))
        self.assertFalse(os.path.exists(self.path("bad.bin")))


class Normalize(CommandTest):
    MODEL = {"inputs": [{"name": "image"}, {"name": "x"}, {"name": "label"}],
             "nodes": [{"name": "flat", "op": "flatten", "in": "image"}, {"name": "a", "op": "linear", "out": 5},
                       {"name": "b", "op": "linear", "out": 5, "in": "x"}, {"op": "add", "in": ["a", "b"]},
                       {"name": "fc", "op": "linear", "out": "classes"}],
             "losses": [{"op": "cross_entropy", "in": ["fc", "label"]}]}

    def write(self, change):
        """Writes images of two channels, another array, and labels."""
        rng = random.Random(3)
        image, x = ([rng.randrange(8) / 8 for _ in range(40 * n)] for n in (8, 3))
        image = [change(value, i // 4 % 2) for i, value in enumerate(image)]
        with zipfile.ZipFile(self.path("data.npz"), "w") as file:
            for name, kind, shape, data in (("image", "<f4", (40, 2, 2, 2), struct.pack("<320f", *image)),
                                            ("x", "<f4", (40, 3), struct.pack("<120f", *x)),
                                            ("label", "|u1", (40,), bytes(i % 3 for i in range(40)))):
                head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}".encode()
                head += b" " * (-(len(head) + 11) % 64) + b"\n"
                file.writestr(name + ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + data)

    def losses(self, *args):
        put(self.path("net.json"), json.dumps(self.MODEL).encode())
        self.run_command("train", "--model", self.path("net.json"), "--data", "npz:" + self.path("data.npz"), "--devices",
                         "pocl", "--batch", "9", "--steps", "5", "--tune", "off", "--quiet", "--metrics", self.path("m"), *args)
        return [row["loss"] for row in records(self.path("m"))[0]]

    def test_images_alone(self):
        """--normalize acts as if the images had been written normalised. The other input does not change."""
        self.write(lambda value, channel: (value - (0.5, 0.25)[channel]) / (0.25, 0.5)[channel])
        expected = self.losses()
        self.write(lambda value, channel: value)
        self.assertEqual(self.losses("--normalize", "0.5,0.25,0.25,0.5"), expected)
        self.assertNotEqual(self.losses(), expected)
        said = json.loads(self.run_command("data", "inspect", "npz:" + self.path("data.npz"), "--json").stdout)
        fields = {field["name"]: field for field in said["splits"][0]["fields"]}
        self.assertEqual(len(fields["image"]["normalize"]), 4)
        self.assertNotIn("normalize", fields["x"])


class Augment(CommandTest):
    """Random changes of training samples depend on the seed of the run only."""

    def losses(self, *args, **options):
        path = self.path("metrics.jsonl")
        self.train("--steps", "6", "--tune", "off", "--metrics", path, *args, **options)
        found = [row["loss"] for row in records(path)[0]]
        os.remove(path)
        return found

    def test_arrays(self):
        plain, changed = self.losses(), self.losses("--augment", "crop:1,flip")
        self.assertNotEqual(plain, changed)
        self.assertEqual(changed, self.losses("--augment", "crop:1,flip"))
        self.assertNotEqual(changed, self.losses("--augment", "crop:1,flip", "--seed", "1"))
        self.assert_bad(*self.arguments("--augment", "crp"), code=2, says=("augment 'crp'",))
        self.assert_bad(*self.arguments("--augment", "resized-crop"), code=2, says=("images",))

    def test_folders_of_images(self):
        goldens = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens", "images")
        for name, file in (("a", "rgb.png"), ("b", "grey.png")):
            os.makedirs(self.path("images", name))
            for i in range(20):
                put(self.path("images", name, f"{i}.png"), get(os.path.join(goldens, file)))
        spec = "images:" + self.path("images")
        run = subprocess.run([COMMAND, "data", "inspect", spec, "--image-size", "16"],
                             capture_output=True, text=True, timeout=60)
        if run.returncode and "libpng" in run.stderr:
            self.skipTest("built without libpng")
        for words in ("(train): 36 samples", "(test): 4 samples", "[3,16,16]", "2 classes, of 18 to 18"):
            self.assertIn(words, run.stdout)
        path = self.path("metrics.jsonl")
        arguments = ("train", "--model", "mlp", "--data", spec, "--image-size", "16", "--batch", "9",
                     "--epochs", "30", "--augment", "resized-crop:0.5,flip", "--normalize",
                     "0.5,0.5,0.5,0.25,0.25,0.25", "--tune", "off", "--metrics", path)
        self.run_command(*arguments, "--devices", "pocl")
        epochs = records(path)[1]
        self.assertGreater(epochs[-1]["test_accuracy"], 0.9) # colour and grey images
        put(self.path("images", "b", "00.png"), b"not an image")
        self.run_command("data", "inspect", spec, code=1)
        done = self.run_command(*arguments, "--devices", "pocl", code=1)
        self.assertIn("b/00.png: is neither a JPEG nor a PNG", done.stderr)


main()
