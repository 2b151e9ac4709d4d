"""After training: classes of image files, outputs of arrays, and generated text."""
import array
import io
import json
import math
import os
import struct
import subprocess
import zipfile
import zlib

from command import CLASSES, COLUMNS, COMMAND, DEVICE, ROWS, TEST, CommandTest, get, main, put

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens")
TYPES = {"<f4": "f", "<f8": "d", "<i4": "i", "|u1": "B"}
TEXT = "abcdefgh\n"
TINY = "gpt2:layers=1,heads=2,width=32"


def png(width, height, rows, colours=1):
    """Returns the bytes of a PNG with 8 bits a colour."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))

    packed = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0 if colours == 1 else 2,
                                                               0, 0, 0)) +
            chunk(b"IDAT", packed) + chunk(b"IEND", b""))


def npz(path, **arrays):
    """Writes arrays, given as (type, shape, numbers)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (kind, shape, numbers) in arrays.items():
            head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
            head += " " * (-(len(head) + 11) % 64) + "\n"
            file.writestr(name + ".npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() +
                          array.array(TYPES[kind], numbers).tobytes())


def read_npz(path):
    """Returns name -> (shape, numbers)."""
    found = {}
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        for name in file.namelist():
            data = io.BytesIO(file.read(name))
            assert data.read(8) == b"\x93NUMPY\1\0"
            length, = struct.unpack("<H", data.read(2))
            assert (10 + length) % 64 == 0
            head = eval(data.read(length).decode(), {})  # pylint: disable=eval-used
            numbers = array.array(TYPES[head["descr"]])
            numbers.frombytes(data.read())
            found[name[:-4]] = (head["shape"], numbers)
    return found


def softmax(row):
    top = max(row)
    powers = [math.exp(x - top) for x in row]
    return [x / sum(powers) for x in powers]


class Predict(CommandTest):
    def images_needed(self):
        for name in "ab":
            os.makedirs(self.path("probe", name))
            for i in range(10):
                put(self.path("probe", name, f"{i}.png"), png(4, 4, [[0] * 4] * 4))
        done = subprocess.run([COMMAND, "data", "inspect", "images:" + self.path("probe"), "--image-size", "4"],
                              capture_output=True, text=True, timeout=60)
        if "no libpng" in done.stderr:
            self.skipTest("built without libpng")

    def predict(self, *args, **options):
        return self.run_command("predict", "--devices", DEVICE, *args, **options)

    def bad(self, *args, code=1, says=()):
        return self.assert_bad("predict", "--devices", DEVICE, *args, code=code, says=says)

    def trained(self, *more, model="mlp"):
        epochs = () if "--epochs" in more else ("--epochs", "8")
        self.train(*epochs, "--lr", "0.2", "--checkpoint-dir", self.path("run"), "--tune", "off", "--quiet", *more,
                   model=model)
        return "--checkpoint", self.path("run")

    def test_samples(self):
        """Test images as a data set, as files and as arrays give the outputs that evaluation has."""
        self.images_needed()
        use = self.trained("--normalize", "0.25,0.5")
        pixels = get(os.path.join(self.data, "t10k-images-idx3-ubyte"))[16:]
        labels = get(os.path.join(self.data, "t10k-labels-idx1-ubyte"))[8:]
        size = ROWS * COLUMNS
        images = [pixels[i * size:(i + 1) * size] for i in range(TEST)]
        said = self.predict(*use, "--data", "idx:" + self.data, "-o", self.path("all.npz"), "--batch", "7").stdout
        self.assertIn(f"1 output of {TEST} samples", said)
        shape, logits = read_npz(self.path("all.npz"))["logits"]
        self.assertEqual(shape, (TEST, CLASSES))
        rows = [logits[i * CLASSES:(i + 1) * CLASSES] for i in range(TEST)]
        best = [max(range(CLASSES), key=row.__getitem__) for row in rows]
        right = sum(a == b for a, b in zip(best, labels)) / TEST
        known = json.loads(self.run_command("eval", "--model", "mlp", "--data", "idx:" + self.data, "--json", *use,
                                            "--normalize", "0.25,0.5", "--devices", DEVICE).stdout)
        self.assertAlmostEqual(known["test_accuracy"], right)
        evaluate = ("eval", "--data", "idx:" + self.data, "--json", *use, "--devices", DEVICE)
        self.assertEqual(json.loads(self.run_command(*evaluate).stdout), known)  # normalised as in the run
        other = json.loads(self.run_command(*evaluate, "--normalize", "0,1").stdout)
        self.assertNotEqual(other["test_loss"], known["test_loss"])
        self.assertGreater(right, 0.6)
        files = []
        for i, image in enumerate(images):
            lines = [image[r * COLUMNS:(r + 1) * COLUMNS] for r in range(ROWS)]
            files.append(self.path(f"{i}.png"))
            if i % 2:  # grey as colours
                put(files[-1], png(COLUMNS, ROWS, [[x for x in line for _ in range(3)] for line in lines], 3))
            else:
                put(files[-1], png(COLUMNS, ROWS, lines))
        found = json.loads(self.predict(*use, "--json", "--top", "9", *files).stdout)["predictions"]
        for record, file, row in zip(found, files, rows):
            chances = softmax(row)
            self.assertEqual(record["file"], file)
            self.assertEqual([c["class"] for c in record["classes"]],
                             sorted(range(CLASSES), key=lambda c: -chances[c]))
            for c in record["classes"]:
                self.assertAlmostEqual(c["probability"], chances[c["class"]], places=5)
        said = self.predict(*use, files[0], "--top", "2").stdout
        self.assertRegex(said, rf"^{files[0]}  {best[0]} 0\.\d{{4}}  \d 0\.\d{{4}}\n$")
        # Bytes and floats: u8 is divided by 255.
        dims = (TEST, 1, ROWS, COLUMNS)
        npz(self.path("bytes.npz"), image=("|u1", dims, pixels), other=("<i4", (TEST,), range(TEST)))
        npz(self.path("floats.npz"), image=("<f8", dims, [x / 255 for x in pixels]))
        for kind in "bytes", "floats":
            self.predict(*use, "npz:" + self.path(kind + ".npz"), "-o", self.path("out.npz"), "--batch", "3")
            again = read_npz(self.path("out.npz"))["logits"]
            self.assertEqual(again[0], shape)
            for a, b in zip(again[1], logits):
                self.assertAlmostEqual(a, b, places=4)

    def test_probabilities(self):
        """If the model has a softmax, no second one is computed. Logits are preferred."""
        self.images_needed()
        put(self.path("a.png"), png(COLUMNS, ROWS, [[255 * (r == 2)] * COLUMNS for r in range(ROWS)]))
        file = {"inputs": [{"name": "image"}, {"name": "label"}],
                "nodes": [{"op": "flatten", "in": "image"}, {"name": "top", "op": "linear", "out": "classes"},
                          {"name": "share", "op": "softmax"}],
                "losses": [{"op": "cross_entropy", "in": ["top", "label"]}]}
        said = []
        for name, outputs in (("share", {"share": "share"}), ("both", {"share": "share", "top": "top"}),
                              ("top", {"top": "top"})):
            put(self.path(name + ".json"), json.dumps(dict(file, outputs=outputs)).encode())
            self.train("--steps", "9", "--lr", "1", "--checkpoint-dir", self.path(name), "--tune", "off", "--quiet",
                       model=self.path(name + ".json"))
            said.append(json.loads(self.predict("--checkpoint", self.path(name), "--json", "--top", "9",
                                                self.path("a.png")).stdout)["predictions"][0]["classes"])
        for one in said[:2]:
            self.assertEqual([c["class"] for c in one], [c["class"] for c in said[2]])
            for a, b in zip(one, said[2]):
                self.assertAlmostEqual(a["probability"], b["probability"], places=5)
        self.assertGreater(said[2][0]["probability"], 0.5)

    def test_files_that_fail(self):
        """Each bad file is named, and the other files are predicted."""
        self.images_needed()
        use = self.trained("--epochs", "1")
        put(self.path("large.png"), png(40, 30, [[7 * r % 256] * 40 for r in range(30)]))
        put(self.path("junk.jpg"), b"no image")
        put(self.path("cut.png"), get(self.path("large.png"))[:60])
        done = self.predict(*use, self.path("junk.jpg"), self.path("large.png"), self.path("cut.png"),
                            self.path("gone.png"), self.path("large.png"), code=1)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 2)
        self.assertEqual(lines[0], lines[1])
        errors = done.stderr.splitlines()
        self.assertEqual(len(errors), 3)
        for line, parts in zip(errors, (("junk.jpg", "neither a JPEG nor a PNG"), ("cut.png", "damaged"),
                                        ("gone.png", "No such file"))):
            for part in parts:
                self.assertIn(part, line)

    def test_arrays_that_fail(self):
        use = self.trained("--epochs", "1")
        n = 2 * ROWS * COLUMNS
        out = "-o", self.path("out.npz")
        for arrays, says in (
                ({"image": ("<f4", (2, ROWS, COLUMNS), [0] * n)}, ("array image", "[6,5]", "[1,6,5]")),
                ({"image": ("<i4", (2, 1, ROWS, COLUMNS), [0] * n)}, ("array image is i32", "mlp takes f32")),
                ({"x": ("<f4", (2, 1, ROWS, COLUMNS), [0] * n)}, ("needs the array image",))):
            npz(self.path("in.npz"), **arrays)
            self.bad(*use, "npz:" + self.path("in.npz"), *out, says=("in.npz", *says))
        put(self.path("in.npz"), b"PK no archive")
        self.bad(*use, "npz:" + self.path("in.npz"), *out, says=("in.npz", "is not a zip archive, or is damaged"))
        self.bad(*use, "npz:" + self.path("gone.npz"), *out, says=("gone.npz", "cannot be opened"))
        npz(self.path("in.npz"), image=("|u1", (2, 1, ROWS, COLUMNS), [0] * n))
        self.bad(*use, "npz:" + self.path("in.npz"), "-o", self.path("no", "out.npz"), says=("out.npz", "written"))

    def test_arrays_by_split(self):
        """A training file with both splits is refused. The message says which option predicts its samples."""
        use = self.trained("--epochs", "1")
        dims = (1, ROWS, COLUMNS)
        pixels = [0.5] * (2 * ROWS * COLUMNS)
        npz(self.path("both.npz"), image_train=("<f4", (2, *dims), pixels), label_train=("<i4", (2,), (0, 1)),
            image_test=("<f4", (2, *dims), pixels), label_test=("<i4", (2,), (0, 1)))
        data = "npz:" + self.path("both.npz")
        self.bad(*use, data, "-o", self.path("out.npz"),
                 says=("arrays by split, as image_test", f"--data {data} instead", "its test samples"))
        self.predict(*use, "--data", data, "-o", self.path("out.npz"))
        self.assertEqual(read_npz(self.path("out.npz"))["logits"][0], (2, CLASSES))

    def test_outputs_that_are_not_finite(self):
        """Outputs that are not finite are written, and counted in a warning."""
        use = self.trained("--epochs", "1")
        numbers = [0.5] * (3 * ROWS * COLUMNS)
        numbers[ROWS * COLUMNS] = math.nan
        npz(self.path("in.npz"), image=("<f4", (3, 1, ROWS, COLUMNS), numbers))
        done = self.predict(*use, "npz:" + self.path("in.npz"), "-o", self.path("out.npz"))
        self.assertIn("warning: output logits is not finite for 1 of 3 samples", done.stderr)
        numbers = read_npz(self.path("out.npz"))["logits"][1]
        self.assertEqual([math.isfinite(x) for x in numbers], [c // CLASSES != 1 for c in range(3 * CLASSES)])

    def test_usage(self):
        self.images_needed()
        use = self.trained("--epochs", "1")
        step = self.path("run", os.listdir(self.path("run"))[0])
        file = "--checkpoint", os.path.join(step, "model.safetensors")
        self.bad("x.png", code=2, says=("--checkpoint is missing",))
        self.bad(*use, code=2, says=("which images?",))
        self.bad(*use, "npz:x.npz", code=2, says=("-o is missing",))
        self.bad(*use, "idx:" + self.data, "-o", "x.csv", code=2, says=("is a data set, not an image file: give it as --data",))
        self.bad(*use, "x.png", "-o", "y.npz", code=2, says=("-o y.npz",))
        self.bad(*file, "x.png", code=2, says=("--model is missing",))
        self.bad(*file, "--model", "mlp", "x.png", code=2, says=("give --data",))
        self.bad(*use, "--model", "lenet", "x.png", says=("conv2d",))
        self.bad(*use, "--model", "mlp:7", "x.png", says=("fc1.weight",))
        self.bad("--checkpoint", self.path("none"), "x.png", says=("none",))
        # A .safetensors file needs --data for the rest.
        put(self.path("a.png"), png(COLUMNS, ROWS, [[9] * COLUMNS] * ROWS))
        self.assertEqual(self.predict(*file, "--model", "mlp", "--data", "idx:" + self.data, self.path("a.png")).stdout,
                         self.predict(*use, self.path("a.png")).stdout)
        text = self.run_command("predict", "--help").stdout
        for word in "--top", "--json", "exit code is 1", "npz:IN.npz":
            self.assertIn(word, text)

    def test_names_that_are_not_utf8(self):
        """Folders of classes may have any name."""
        self.images_needed()
        for name in (b"caf\xe9", b"th\xe9"):
            os.makedirs(os.path.join(os.fsencode(self.path("images")), name))
            for i in range(2):
                with open(os.path.join(os.fsencode(self.path("images")), name, b"%d.png" % i), "wb") as file:
                    file.write(png(4, 4, [[60 * i] * 4] * 4))
        data = "images:" + self.path("images"), "--image-size", "4"
        for split in json.loads(self.run_command("data", "inspect", *data, "--json").stdout)["splits"]:
            self.assertEqual([c["name"] for c in split["fields"][1]["classes"]], ["caf\\xe9", "th\\xe9"])
        self.run_command("train", "--model", "softmax", "--data", *data, "--batch", "2", "--steps", "1", "--tune", "off",
                         "--quiet", "--checkpoint-dir", self.path("run"), "--devices", DEVICE)
        put(self.path("a.png"), png(4, 4, [[9] * 4] * 4))
        said = self.predict("--checkpoint", self.path("run"), self.path("a.png"), "--json", "--top", "2").stdout
        self.assertEqual({c["name"] for c in json.loads(said)["predictions"][0]["classes"]}, {"caf\\xe9", "th\\xe9"})

    def test_folders_of_images(self):
        """Classes have the folders' names, and files are resized and cut as in evaluation."""
        self.images_needed()
        for split in "train", "val":
            for label, name in enumerate(("dark", "light")):
                os.makedirs(self.path("images", split, name))
                for i in range(4):
                    rows = [[(200 * label + 5 * i + x + c * y) % 256 for x in range(20 + i) for c in range(3)]
                            for y in range(24)]
                    put(self.path("images", split, name, f"{i}.png"), png(20 + i, 24, rows, 3))
        self.run_command("train", "--model", "mlp:16", "--data", "images:" + self.path("images"), "--image-size", "12",
                         "--resize", "14", "--batch", "4", "--steps", "30", "--lr", "0.1", "--checkpoint-dir",
                         self.path("run"), "--tune", "off", "--quiet", "--devices", DEVICE)
        use = "--checkpoint", self.path("run")
        self.predict(*use, "--data", "images:" + self.path("images"), "-o", self.path("out.npz"))
        said = self.run_command("eval", *use, "--data", "images:" + self.path("images"), "--devices", DEVICE).stdout
        self.assertIn("(8 samples)", said)
        shape, logits = read_npz(self.path("out.npz"))["logits"]
        self.assertEqual(shape, (8, 2))
        files = [self.path("images", "val", name, f"{i}.png") for name in ("dark", "light") for i in range(4)]
        found = json.loads(self.predict(*use, "--json", "--top", "2", *files).stdout)["predictions"]
        for i, record in enumerate(found):
            chances = softmax(logits[2 * i:2 * i + 2])
            for c in record["classes"]:
                self.assertAlmostEqual(c["probability"], chances[c["class"]], places=5)
                self.assertEqual(c["name"], ("dark", "light")[c["class"]])
        # Options override the checkpoint, and none is ignored.
        self.predict(*use, "--resize", "20", "--image-size", "12", "--data", "images:" + self.path("images"), "-o",
                     self.path("out.npz"))
        other = read_npz(self.path("out.npz"))["logits"][1]
        self.assertNotEqual(other, logits)
        found = json.loads(self.predict(*use, "--json", "--top", "2", "--resize", "20", files[0]).stdout)["predictions"]
        for c in found[0]["classes"]:
            self.assertAlmostEqual(c["probability"], softmax(other[:2])[c["class"]], places=5)
        for option, value in (("--image-size", "13"), ("--classes", "3"), ("--resize", "5")):
            self.bad(*use, option, value, files[0], code=2, says=(f"{option} {value}",))


class Sample(CommandTest):
    def sample(self, *args, code=0, **options):
        return self.run_command("sample", "--devices", DEVICE, "--quiet", *args, code=code, **options)

    def bad(self, *args, code=1, says=()):
        return self.assert_bad("sample", "--devices", DEVICE, *args, code=code, says=says)

    def trained(self, model, length="16", steps="150"):
        put(self.path("text.txt"), (TEXT * 200).encode())
        self.run_command("train", "--model", model, "--data", "text:" + self.path("text.txt"), "--seq-len", length,
                         "--batch", "16", "--steps", steps, "--optimizer", "adamw", "--lr", "0.01", "--checkpoint-dir",
                         self.path("run"), "--tune", "off", "--quiet", "--devices", DEVICE)
        return "--checkpoint", self.path("run")

    def test_gpt2(self):
        """Continues the learned text, beyond the length of the context too. Also sampling and its seeds."""
        use = self.trained(TINY)
        want = (TEXT * 20)[:70]
        self.assertEqual(self.sample(*use, "--greedy", "--prompt", "abc", "--tokens", "67").stdout, want + "\n")
        self.assertEqual(self.sample(*use, "--top-k", "1", "--prompt", "abc", "--tokens", "67").stdout, want + "\n")
        self.assertEqual(self.sample(*use, "--temperature", "0", "--prompt", "abc", "--tokens", "67").stdout,
                         want + "\n")
        # A prompt that is longer than the context, and than the limit for reading token by token.
        put(self.path("prompt"), (TEXT * 20)[:60].encode())
        self.assertEqual(self.sample(*use, "--greedy", "--prompt-file", self.path("prompt"), "--tokens", "10").stdout,
                         want + "\n")
        self.assertEqual(self.sample(*use, "--greedy", "--prompt", "abc", "--tokens", "67", "--samples", "2").stdout,
                         f"{want}\n---\n{want}\n")
        for precision in ("f32", "bf16", "f16"):
            self.assertEqual(self.sample(*use, "--greedy", "--prompt", "abc", "--tokens", "67", "--precision",
                                         precision).stdout, want + "\n")
        self.bad(*use, "--precision", "bf16", "--zero", "3", code=2, says=("one device only: leave out --zero",))
        hot = "--temperature", "4", "--prompt", "abc", "--tokens", "40"
        texts = [self.sample(*use, *hot, "--seed", seed, encoding="utf-8").stdout for seed in (3, 3, 4)]
        self.assertEqual(texts[0], texts[1])
        self.assertNotEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0][:40], want[:40])
        # The first of several texts is the same as a single one.
        both = self.sample(*use, *hot, "--seed", "3", "--samples", "2", encoding="utf-8").stdout
        self.assertTrue(both.startswith(texts[0] + "---\n"))
        self.assertNotEqual(both[len(texts[0]) + 4:], texts[0])
        sure = self.sample(*use, *hot, "--seed", "3", "--top-p", "1e-9").stdout
        self.assertEqual(sure, want[:43] + "\n")

    def test_what_is_printed(self):
        """Control characters could do anything to a terminal. They are escaped, unless bytes or numbers are
        requested."""
        use = self.trained(TINY, steps="1")
        put(self.path("prompt"), b"a\x1b[31m\r\0\x7f\t\xc3\xa9\xc2\x85\n\xff|")
        arguments = *use, "--prompt-file", self.path("prompt"), "--tokens", "3", "--greedy"

        def said(*more):
            done = subprocess.run([COMMAND, "sample", "--devices", DEVICE, "--quiet", *arguments, *more], check=True,
                                  capture_output=True, timeout=240)
            return done.stdout

        raw, ids = said("--raw"), said("--ids")
        self.assertTrue(raw.startswith(get(self.path("prompt"))))
        self.assertEqual(len(raw), len(get(self.path("prompt"))) + 3)
        self.assertEqual(ids, " ".join(map(str, raw)).encode() + b"\n")
        shown = rb"a\x1b[31m\x0d\x00\x7f" + b"\t\xc3\xa9" + rb"\u0085" + b"\n\xef\xbf\xbd|"
        self.assertTrue(said().startswith(shown), said())
        self.assertEqual(said("--ids", "--samples", "2"), ids + ids)
        self.bad(*arguments, "--raw", "--ids", code=2, says=("--raw or --ids",))

    def test_lstm(self):
        use = self.trained("lstm:hidden=24", steps="250")
        self.assertEqual(self.sample(*use, "--greedy", "--prompt", "abcdef", "--tokens", "44").stdout,
                         (TEXT * 20)[:50] + "\n")
        self.assertEqual(self.sample(*use, "--greedy", "--prompt", "abcdef", "--tokens", "44", "--model",
                                     "lstm:hidden=24").stdout, (TEXT * 20)[:50] + "\n")

    def test_length_of_samples(self):
        """Evaluation and outputs of text use the run's sequence length, unless an option sets another."""
        use = *self.trained("lstm:hidden=8", steps="2"), "--data", "text:" + self.path("text.txt"), "--devices", DEVICE
        evaluate = "eval", "--json", *use
        known = json.loads(self.run_command(*evaluate, "--seq-len", "16").stdout)
        self.assertEqual(json.loads(self.run_command(*evaluate).stdout), known)
        self.assertNotEqual(json.loads(self.run_command(*evaluate, "--seq-len", "8").stdout), known)
        self.run_command("predict", *use, "-o", self.path("out.npz"))
        self.assertEqual(read_npz(self.path("out.npz"))["logits"][0][1:], (16, 256))
        self.assert_bad("predict", *use, "-o", self.path("out.csv"), code=1,
                        says=("out.csv: model lstm:hidden=8 predicts neither classes of samples nor numbers: -o OUT.npz gives "
                              "all its outputs, and `cltrain sample` writes text",))
        self.assert_bad("predict", *use[:2], "--devices", DEVICE, self.path("text.txt"), code=1,
                        says=("takes no images", "npz:IN.npz -o OUT.npz"))

    def test_vocabulary(self):
        """The vocabulary is that of the run. The token file does not have it, and the test samples lack some
        tokens."""
        def tokens(name, ids):
            put(self.path(name), struct.pack(f"<{len(ids)}H", *ids))
            return "tokens:" + self.path(name)

        model = "lstm:hidden=8", tokens("a.bin", [i % 50 for i in range(800)])
        self.run_command("train", "--model", model[0], "--data", model[1], "--classes", "64", "--seq-len", "16",
                         "--batch", "8", "--steps", "2", "--checkpoint-dir", self.path("run"), "--tune", "off",
                         "--quiet", "--devices", DEVICE)
        use = "--checkpoint", self.path("run"), "--devices", DEVICE, "--data"
        said = self.run_command("eval", *use, model[1]).stdout
        self.assertEqual(self.run_command("eval", *use, model[1], "--classes", "64").stdout, said)
        out = "-o", self.path("out.npz")
        self.run_command("predict", *use, model[1], *out)
        self.assertEqual(read_npz(self.path("out.npz"))["logits"][0][1:], (16, 64))
        other = tokens("b.bin", [i % 70 for i in range(800)])
        for command in (("eval",), ("predict", *out)):
            self.assert_bad(*command, *use, other, code=1, says=("b.bin: token 64 at position 64 is out of",))

    def test_speed_line(self):
        use = self.trained(TINY, steps="2")
        done = self.run_command("sample", "--devices", DEVICE, *use, "--tokens", "5", "--greedy")
        self.assert_message(done.stderr, "5 tokens, ", " a second")

    def test_errors(self):
        use = self.trained(TINY, steps="2")
        self.bad(code=2, says=("--checkpoint is missing",))
        self.bad(*use, "--prompt", "a", "--prompt-file", "b", code=2, says=("not both",))
        self.bad(*use, "--prompt-file", self.path("none"), says=("none: cannot be opened",))
        self.bad(*use, "--top-p", "1.5", code=2, says=("--top-p 1.5",))
        self.bad(*use, "--model", "gpt2:layers=1,heads=2,width=16", says=("wte.weight",))
        self.bad(*use, "--model", "lenet", code=2, says=("does not continue text",))
        self.bad(*use, "--tokenizer", "bites", code=2, says=("bites",))
        published = os.path.join(GOLDENS, "decoder_gpt2.safetensors")
        golden = "--model", "gpt2:layers=2,heads=2,width=16", "--checkpoint", published
        self.bad(*golden, code=2, says=("--tokenizer is missing", "37 tokens"))
        self.bad(*golden, "--tokenizer", "bytes", says=("bytes has 256 tokens", "only 37"))
        self.train("--steps", "1", "--checkpoint-dir", self.path("images"), "--tune", "off", "--quiet")
        self.bad("--checkpoint", self.path("images"), says=("it is no model of text",))
        self.run_command("predict", "--devices", DEVICE, *use, "x.png", code=1)


if __name__ == "__main__":
    main()
