"""Invalid data: the command prints one line with the file and the place, exits with 1 or 2, and does not
crash."""
import json
import os
import shutil
import struct
import zipfile
import zlib
from unittest import mock

from command import CommandTest, get, main, put, records

GOLDENS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens")
JPEG = get(os.path.join(GOLDENS, "images", "rgb.jpg"))
PNG = get(os.path.join(GOLDENS, "images", "rgb.png"))
PROGRESSIVE = get(os.path.join(GOLDENS, "images", "progressive.jpg"))
SMALL = ("--image-size", "16")


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, depth=8, colours=2, rows=b"", extra=b"", interlace=0):
    head = struct.pack(">IIBBBBB", width, height, depth, colours, 0, 0, interlace)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def jpeg_of_size(width, height):
    """Returns the JPEG with another size in its header."""
    at = JPEG.index(b"\xff\xc0")
    return JPEG[:at + 5] + struct.pack(">HH", height, width) + JPEG[at + 9:]


def npy(descr, shape, data, fortran=False, version=1):
    head = f"{{'descr': {descr!r}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(head)) + head + data


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


class Images(CommandTest):
    """A folder of valid images with one wrong file or folder."""

    def setUp(self):
        super().setUp()
        self.images = self.path("images")
        self.spec = "images:" + self.images
        for name in "ab":
            os.makedirs(os.path.join(self.images, name))
            for i in range(6):
                put(os.path.join(self.images, name, f"{i}.jpg"), JPEG)
        done = self.run_command("data", "inspect", self.spec, *SMALL, code=None)
        if "libjpeg-turbo" in done.stderr + done.stdout or "libpng" in done.stderr + done.stdout:
            self.skipTest("built without images")

    def run_command(self, *args, code=0, **options):
        if code is not None:
            return super().run_command(*args, code=code, **options)
        for expected in (0, 1, 2):
            try:
                return super().run_command(*args, code=expected, **options)
            except AssertionError as error:
                failed = error
        raise failed

    BROKEN = {
        "text": (b"hello", "is neither a JPEG nor a PNG: it begins with 68 65 6c"),
        "empty": (b"", "is empty"),
        "one byte": (b"\xff", "is neither a JPEG nor a PNG"),
        "half a JPEG": (JPEG[:len(JPEG) // 2], "damaged JPEG: "),
        "a JPEG's head": (JPEG[:30], "damaged JPEG: "),
        "a JPEG without its scan": (JPEG[:JPEG.index(b"\xff\xda")], "damaged JPEG: "),
        "half a progressive JPEG": (PROGRESSIVE[:len(PROGRESSIVE) // 2], "damaged JPEG: "),
        "a huge JPEG": (jpeg_of_size(65500, 65500), "an image of 65500 x 65500"),
        "half a PNG": (PNG[:len(PNG) // 2], "damaged PNG: "),
        "a PNG's head": (PNG[:20], "damaged PNG: "),
        "a PNG without its end": (PNG[:-12], "damaged PNG: "),
        "a wrong checksum": (PNG[:45] + bytes([PNG[45] ^ 255]) + PNG[46:], "damaged PNG: "),
        "a huge PNG": (png(60000, 60000), "an image of 60000 x 60000"),
        "a larger PNG than possible": (png(2 ** 31 - 1, 2 ** 31 - 1), "damaged PNG: "),
        "a PNG of no width": (png(0, 5), "damaged PNG: "),
        "too few rows": (png(20, 20, rows=bytes(61 * 4)), "damaged PNG: "),
        "no palette": (png(2, 2, colours=3, rows=bytes(6)), "damaged PNG: "),
        "another kind of image": (b"GIF89a" + bytes(50), "is neither a JPEG nor a PNG"),
    }

    def test_broken(self):
        bad = os.path.join(self.images, "b", "2.jpg")
        for what, (data, says) in self.BROKEN.items():
            put(bad, data)
            with self.subTest(what=what):
                done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
                self.assert_message(done.stderr, f"data '{self.spec}': 1 of 12 samples cannot be read")
                self.assertIn(f"  1 of 10 samples cannot be read:\n           {bad}: {says}", done.stdout)
                self.assertIn("a                    5", done.stdout) # the others are counted
        said = json.loads(self.run_command("data", "inspect", self.spec, *SMALL, "--json", code=1).stdout)
        self.assertEqual([split["broken"]["count"] for split in said["splits"]], [1, 0])
        self.assertIn(bad, said["splits"][0]["broken"]["first"][0])

    def test_narrow(self):
        put(os.path.join(self.images, "b", "2.jpg"), png(1, 999999, rows=b"\0\1\2\3" * 999999))
        self.run_command("data", "inspect", self.spec, *SMALL)
        done = self.run_command("data", "inspect", self.spec, *SMALL, "--resize", "16000", code=1)
        self.assertIn("b/2.jpg: an image of 1 x 999999 is too narrow to be resized to 16000", done.stdout)

    def test_many_are_broken(self):
        """All images of a class are broken, and more than the message lists."""
        for i in range(6):
            put(os.path.join(self.images, "a", f"{i}.jpg"), b"")
        for i in range(20):
            put(os.path.join(self.images, "b", f"1{i:02}.png"), b"x")
        done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
        self.assertRegex(done.stdout, r"  2\d of 28 samples cannot be read:\n( {11}/\S+/\w+\.\w+: is .*\n){10} {11}and 1\d more\n")

    def test_not_files(self):
        bad = os.path.join(self.images, "b", "2.jpg")
        for make, says in ((os.mkdir, "is not a regular file"), (os.mkfifo, "is not a regular file"),
                           (lambda path: os.symlink("/nowhere", path), "cannot be opened: No such file")):
            os.rename(bad, self.path("kept"))
            make(bad)
            done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
            self.assertIn(f"{bad}: {says}", done.stdout)
            (os.rmdir if os.path.isdir(bad) else os.remove)(bad)
            os.rename(self.path("kept"), bad)
        if os.geteuid():
            os.chmod(bad, 0)
            self.assertIn(f"{bad}: cannot be opened: Permission denied",
                          self.run_command("data", "inspect", self.spec, *SMALL, code=1).stdout)

    def test_found_while_training(self):
        """The message comes after whole records of the steps before."""
        put(os.path.join(self.images, "b", "0.jpg"), JPEG[:200])
        for devices in ("pocl", "pocl/2"):
            with self.subTest(devices=devices):
                done = self.run_command("train", "--model", "softmax", "--data", self.spec, *SMALL, "--devices", devices,
                                        "--batch", "2", "--seed", "1", "--epochs", "3", "--tune", "off", "--quiet",
                                        "--metrics", self.path("m.jsonl"), code=1)
                self.assert_message(done.stderr, os.path.join("b", "0.jpg") + ": damaged JPEG: ")
                records(self.path("m.jsonl"))

    def test_nothing_is_lost(self):
        """A sample that cannot be read, in training or in tests, leaves a checkpoint to resume from."""
        for part in ("train", "val"):
            shutil.copytree(self.images, self.path("parts", part))
        self.spec = "images:" + self.path("parts")
        run, metrics = self.path("run"), self.path("m.jsonl")
        train = ("train", "--model", "softmax", "--data", self.spec, *SMALL, "--devices", "pocl", "--batch", "4", "--epochs", "3",
                 "--tune", "off", "--quiet", "--checkpoint-dir", run, "--metrics", metrics, "--shuffle", "off")
        for part, name, steps in (("val", "a", 3), ("train", "b", None)):
            bad = self.path("parts", part, name, "5.jpg")
            put(bad, b"x")
            with self.subTest(part=part):
                done = self.run_command(*train, code=1)
                self.assert_message(done.stderr, bad + ": is neither")
                done_steps = len(records(metrics)[0])
                self.assertEqual(done_steps, steps or done_steps)
                if done_steps:
                    self.assertEqual(os.listdir(run), [f"step-{done_steps:08}"])
                put(bad, JPEG)
                self.run_command(*train, "--resume")
                self.assertEqual([r["step"] for r in records(metrics)[0]], list(range(1, 10)))
            shutil.rmtree(run)
            os.remove(metrics)

    KINDS = {
        "16 bits": png(20, 20, depth=16, rows=(b"\0" + bytes(range(120))) * 20),
        "grey of 16 bits": png(20, 20, depth=16, colours=0, rows=(b"\0" + bytes(40)) * 20),
        "alpha": png(20, 20, colours=6, rows=(b"\0" + bytes(80)) * 20),
        "palette": png(20, 20, colours=3, rows=(b"\0" + bytes(20)) * 20, extra=chunk(b"PLTE", b"\1\2\3")),
        "interlaced": png(1, 1, rows=b"\0\1\2\3", interlace=1),
        "narrow": png(1, 300, rows=b"\0\1\2\3" * 300),
        "progressive": PROGRESSIVE,
        "CMYK": get(os.path.join(GOLDENS, "images", "cmyk.jpg")),
        "bytes behind it": JPEG + b"more",
    }

    def test_kinds(self):
        for what, data in self.KINDS.items():
            put(os.path.join(self.images, "b", "2.jpg"), data)
            with self.subTest(what=what):
                self.run_command("data", "inspect", self.spec, *SMALL)

    def test_line_break(self):
        """The name of a class would forge a line of the output."""
        os.rename(os.path.join(self.images, "b"), os.path.join(self.images, "b\nfake line"))
        self.assert_bad("data", "inspect", self.spec, *SMALL, code=1,
                        says=(self.images + ": the name of folder 2 of 2 has a line break",))

    def test_folders(self):
        def inspect(says, code=1):
            self.assert_bad("data", "inspect", self.spec, *SMALL, code=code, says=says)

        os.mkdir(os.path.join(self.images, "c"))
        inspect((os.path.join(self.images, "c") + ": this class is empty",))
        put(os.path.join(self.images, "c", "notes.txt"), b"x")
        inspect((os.path.join(self.images, "c") + ": this class is empty",))
        put(os.path.join(self.images, "c", "1.jpg"), JPEG)
        inspect(("c: 1 samples are too few to divide",))
        os.rename(self.images, self.path("train"))
        os.mkdir(self.images)
        inspect((self.images + ": has no folders: put the images of each class",))
        os.rename(self.path("train"), os.path.join(self.images, "train"))
        done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
        self.assert_message(done.stderr, self.images + ": the test split needs a folder val or test beside train")
        os.mkdir(os.path.join(self.images, "val"))
        done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
        self.assert_message(done.stderr, os.path.join(self.images, "val") + ": has no images")
        for name in ("a", "z"):
            os.mkdir(os.path.join(self.images, "val", name))
            put(os.path.join(self.images, "val", name, "1.jpg"), JPEG)
        done = self.run_command("data", "inspect", self.spec, *SMALL, code=1)
        self.assert_message(done.stderr, os.path.join("val", "z") + ": is not a class of the training images")
        os.rename(os.path.join(self.images, "val", "z"), os.path.join(self.images, "val", "b"))
        self.run_command("data", "inspect", self.spec, *SMALL) # class c has no test images
        self.spec = "images:" + self.path("none")
        inspect((self.path("none"), "No such file"))
        self.spec = "images:" + self.path("file")
        put(self.path("file"), b"x")
        inspect((self.path("file"), "Not a directory"))

    def test_options_of_others(self):
        self.assert_bad("data", "inspect", self.spec, "--seq-len", "8", code=2, says=("have samples of 8 tokens",))
        self.assert_bad("data", "inspect", "idx:" + self.data, *SMALL, code=2, says=("only images of images:DIR",))


class Tokens(CommandTest):
    GOOD = struct.pack("<2000H", *(i * 7 % 100 for i in range(2000)))

    @staticmethod
    def head(magic, version, count):
        return struct.pack("<3i", magic, version, count) + bytes(1012)

    def test_files(self):
        good, wide = self.GOOD, struct.pack("<40I", *range(39), 2 ** 31)
        big = good[:2468] + struct.pack("<H", 60000) + good[2470:]
        for name, data, more, says in (
                ("odd", good[:-1], None, "odd.bin: 3999 bytes are not a number of 16-bit tokens"),
                ("empty", b"", None, "empty.bin: 0 tokens, but a sample needs 17"),
                ("short", good[:20], None, "short.bin: 10 tokens, but a sample needs 17"),
                ("cut", self.head(20240520, 1, 2001) + good, None, "cut.bin: truncated: its header announces 2001 tokens"),
                ("more", self.head(20240520, 1, 1999) + good, None, "more.bin: trailing bytes"),
                ("less", self.head(20240520, 1, -1) + good, None, "less.bin: truncated"),
                ("version", self.head(20240520, 3, 2000) + good, None, "version.bin: version 3 of llm.c's header, not 1"),
                ("wide", self.head(20240801, 7, 40) + wide, None, "wide.bin: token 2147483648"),
                ("big", big, b'{"vocab_size": 100}', "big.bin: token 60000 at position 1234 is out of the vocabulary: 0 to 99"),
                ("zero", good, b'{"vocab_size": 0}', "zero.json: vocab_size is not a number of 1 to 65536"),
                ("text", good, b'{"vocab_size": "x"}', "text.json: vocab_size is not a number"),
                ("list", good, b"[]", "list.json: vocab_size is not a number"),
                ("json", good, b'{"vocab_size":\n', "json.json: line 2: ")):
            put(self.path(name + ".bin"), data)
            if more:
                put(self.path(name + ".json"), more)
            with self.subTest(name=name):
                self.assert_bad("data", "inspect", "tokens:" + self.path(name + ".bin"), "--seq-len", "16", code=1,
                                says=(self.path(), says))
        for path in ("none.bin", "data", "*.idx"):
            self.assert_bad("data", "inspect", "tokens:" + self.path(path), code=1, says=(self.path(path) + ": ",))

    def test_before_training(self):
        """A token of the tests that the training text lacks, and a token outside the model's vocabulary."""
        os.mkdir(self.path("text"))
        put(self.path("text", "train.bin"), self.GOOD)
        put(self.path("text", "val.bin"), self.GOOD[:600] + b"\xc8\0" + self.GOOD[602:])
        train = ("train", "--model", "gpt2:layers=1,heads=1,width=8", "--data", "tokens:" + self.path("text"), "--seq-len",
                 "16", "--devices", "pocl", "--batch", "8", "--steps", "2", "--tune", "off", "--quiet")
        self.assert_bad(*train, code=1, says=("val.bin: token 200 at position 300 is out of the vocabulary: 0 to 99",))
        self.assert_bad(*train, "--classes", "50", code=1, says=("train.bin: token ", "out of the vocabulary: 0 to 49"))
        self.run_command(*train, "--classes", "201")
        self.assert_bad(*train, "--classes", "201", "--windows", "shiftd", code=2, says=("did you mean shifted?",))
        self.assert_bad(*train, "--classes", "201", "--augment", "flip", code=2, says=("--augment is for images",))
        self.assert_bad(*train, "--classes", "201", "--normalize", "0,1", code=2, says=("--normalize is for images",))

    def test_windows(self):
        """Runs repeat, each kind of windows gives other losses, and --shuffle off keeps samples in place."""
        put(self.path("all.bin"), self.GOOD)
        losses = {}
        for way in ("shifted", "random", "fixed", None, "again"):
            more = () if way in (None, "again") else ("--windows", way)
            self.run_command("train", "--model", "gpt2:layers=1,heads=1,width=8", "--data", "tokens:" + self.path("all.bin"),
                             "--seq-len", "16", "--devices", "pocl", "--batch", "8", "--steps", "3", "--tune", "off",
                             "--quiet", "--metrics", self.path("m.jsonl"), *more)
            losses[way] = [row["loss"] for row in records(self.path("m.jsonl"))[0]]
        self.assertEqual(losses[None], losses["shifted"])
        self.assertEqual(losses[None], losses["again"])
        self.assertEqual(len({tuple(losses[way]) for way in ("shifted", "random", "fixed")}), 3)


class Arrays(CommandTest):
    X = npy("<f4", (20, 4, 3), floats(*range(240)))
    Y = npy("<f4", (20, 1), floats(*range(20)))

    def write(self, **members):
        path = self.path("data.npz")
        with zipfile.ZipFile(path, "w") as file:
            for name, data in members.items():
                file.writestr(name + ".npy", data)
        return path

    def test_line_break(self):
        data = self.write(**{"x": self.X, "y": self.Y, "a\nfake line": self.Y})
        self.assert_bad("data", "inspect", "npz:" + data, code=1,
                        says=(data + ": the name of an array has a line break",))

    def test_indices(self):
        """Indices beyond the rows of an embedding are reported, not only the NaN that they cause."""
        tokens = [i % 7 for i in range(60)]
        tokens[31] = -3
        for kind, numbers, says in (("last", [*range(6)] * 10, None), ("negative", tokens, "index -3 in input x"),
                                    ("large", [6] * 6 + [*range(6)] * 9, "index 6 in input x")):
            with self.subTest(kind):
                data = self.write(x=npy("<i4", (20, 3), struct.pack("<60i", *numbers)), y=self.Y)
                model = self.path("net.json")
                put(model, json.dumps({"inputs": [{"name": "x"}, {"name": "y"}], "nodes": [
                    {"name": "table", "op": "embedding", "in": ["x"], "count": 6 if kind != "negative" else 7, "width": 4},
                    {"op": "flatten"}, {"name": "out", "op": "linear", "out": 1}],
                    "losses": [{"op": "mse", "in": ["out", "y"]}], "outputs": {"out": "out"}}).encode())
                command = ("train", "--model", model, "--data", "npz:" + data, "--batch", "20", "--steps", "1", "--tune",
                           "off", "--quiet", "--devices", "pocl")
                if says:
                    self.assert_bad(*command, code=1, says=("step 1", "table", says, "out of 0 to"))
                else:
                    self.run_command(*command)
        # Now the wrong index is in the last tenth, which is used for tests.
        self.write(x=npy("<i4", (20, 3), struct.pack("<60i", *[0] * 59, 7)), y=self.Y)
        said = self.run_command("train", "--model", model, "--data", "npz:" + data, "--batch", "9", "--epochs", "1",
                                "--tune", "off", "--devices", "pocl").stdout
        self.assertIn("the test loss is not finite", said)

    def test_arrays(self):
        sizes = {"<c8": 8, "|O": 8, ">f4": 4, "<f2": 2, "<U1": 4, "<u2": 2, "|S1": 1, "<M8[s]": 8}
        cases = [(descr, npy(descr, (20,), bytes(20 * size)), f"array 'x': elements of type {descr}; there are")
                 for descr, size in sizes.items()]
        for what, x, says in cases + [
                ("Fortran", npy("<f4", (20, 2), bytes(160), fortran=True), "array 'x': in Fortran's order"),
                ("record", npy([("a", "<f4")], (20,), bytes(80)), "array 'x': damaged NPY header"),
                ("number", npy("<f4", (), bytes(4)), "array 'x': has 0 axes"),
                ("axes", npy("<f4", (20,) + (1,) * 8, bytes(80)), "array 'x': more than 8 axes"),
                ("none", npy("<f4", (0, 3), b""), "array 'x': axis 0 has 0 elements"),
                ("empty samples", npy("<f4", (20, 0), b""), "array 'x': axis 1 has 0 elements"),
                ("negative", npy("<f4", (-20,), bytes(80)), "array 'x': axis 0 has -20 elements"),
                ("huge", npy("<f4", (2 ** 62, 9), bytes(80)), "array 'x': axis 0 has 4611686018427387904 elements"),
                ("words", npy("<f4", "(a, b)", bytes(80)), "array 'x': damaged NPY header: no shape"),
                ("other length", npy("<f4", (20,), bytes(76)), "array 'x': 76 bytes, but its shape and type need 80"),
                ("samples", npy("<f4", (19,), bytes(76)), "array 'y' has 20 samples, but 'x' has 19"),
                ("i8", npy("<i8", (20,), struct.pack("<20q", *range(19), 2 ** 40)), "array 'x': 1099511627776 in sample 19"),
                ("f8", npy("<f8", (20,), struct.pack("<20d", *range(19), 1e300)), "array 'x': 1e+300 in sample 19 does not"),
                ("version", npy("<f4", (20,), bytes(80), version=9), "array 'x': damaged NPY header"),
                ("text", b"hello", "array 'x': damaged NPY header")]:
            path = self.write(x=x, y=self.Y)
            with self.subTest(what=what):
                done = self.run_command("data", "inspect", "npz:" + path, code=2 if what in sizes or what == "Fortran" else 1)
                self.assert_message(done.stderr, f"{path}: {says}")

    def test_splits_differ(self):
        """A difference between the splits is found before the first step, not at the end of the first epoch.
        """
        label = npy("<i4", (20,), struct.pack("<20i", *(i % 3 for i in range(20))))
        image, wide = npy("|u1", (20, 1, 4, 4), bytes(320)), npy("|u1", (20, 1, 4, 5), bytes(400))
        scaled = npy("<f4", (20, 1, 4, 4), bytes(1280))
        for others, says in (({"image_test": wide, "label_test": label},
                              "field 'image' has images of u8 [1,4,5], but in the training samples images of u8 [1,4,4]"),
                             ({"image_test": scaled, "label_test": label},
                              "field 'image' has images of f32 [1,4,4], but in the training samples images of u8 [1,4,4]"),
                             ({"image_test": image}, "has no field 'label'")):
            path = self.write(image_train=image, label_train=label, **others)
            with self.subTest(says=says):
                done = self.assert_bad("train", "--model", "softmax", "--data", "npz:" + path, "--batch", "20", "--steps", "2",
                                       "--devices", "pocl", "--tune", "off", "--metrics", self.path("m.jsonl"), code=1,
                                       says=(says, f"{path} (test)"))
                self.assertNotIn("step", done.stdout)
                self.assertFalse(os.path.exists(self.path("m.jsonl")) and get(self.path("m.jsonl")))
        # Fields that the model does not use may be missing, and labels may have another type.
        path = self.write(image_train=image, label_train=label, more_train=label, image_test=image,
                          label_test=npy("|u1", (20,), bytes(20)))
        self.run_command("train", "--model", "softmax", "--data", "npz:" + path, "--batch", "20", "--devices", "pocl",
                         "--tune", "off", "--quiet")
        self.assertNotIn("--normalize", self.run_command("data", "inspect", "npz:" + path).stdout)  # all images are black
        self.assert_bad("train", "--model", "softmax", "--data", "npz:" + path, "--windows", "random", code=2,
                        says=("--windows is for tokens:PATH",))

    def test_labels(self):
        image = npy("|u1", (20, 1, 4, 4), bytes(320))
        for labels, says in ((range(-1, 19), "array 'label': label -1 of sample 0 is out of range"),
                             ([0] * 19 + [2 ** 31 - 2], "array 'label': label 2147483646 of sample 19 is out of range: 0 to 19, as many")):
            path = self.write(image=image, label=npy("<i4", (20,), struct.pack("<20i", *labels)))
            self.assert_bad("data", "inspect", "npz:" + path, code=1, says=(path, says))
        for shape, kind, data in (((20, 2), "<i4", bytes(160)), ((20,), "<f4", bytes(80))):
            path = self.write(image=image, label=npy(kind, shape, data))
            self.assert_bad("train", "--model", "mlp", "--data", "npz:" + path, "--devices", "pocl", code=2,
                            says=("images [C,H,W] with labels", "the data have image u8 [1,4,4], label "))

    def test_files(self):
        path = self.write(x=self.X, y=self.Y)
        good = get(path)
        for what, data, says in (("text", b"not a zip", "Not a zip archive"), ("empty", b"", "it is empty"),
                                 ("cut", good[:-30], "Not a zip archive"),
                                 ("half", good[:len(good) // 2], "Not a zip archive"),
                                 ("flipped", good[:300] + bytes([good[300] ^ 1]) + good[301:],
                                  "array 'x': cannot be unpacked: CRC error"),
                                 ("an array", self.X, "Not a zip archive")):
            put(path, data)
            with self.subTest(what=what):
                self.assert_bad("data", "inspect", "npz:" + path, code=1, says=(path, says))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as file:
            file.writestr("x.npy", self.X)
        self.assert_bad("data", "inspect", "npz:" + path, code=2, says=(path, "numpy.savez and numpy.savez_compressed write"))
        with zipfile.ZipFile(path, "w") as file:
            pass
        self.assert_bad("data", "inspect", "npz:" + path, code=1, says=(path, "has no arrays"))
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
            for name, data in (("x", self.X), ("y", self.Y)):
                with file.open(name + ".npy", "w", force_zip64=True) as member:
                    member.write(data)
        said = self.run_command("data", "inspect", "npz:" + path).stdout
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            with mock.patch.object(zipfile, "ZIP64_LIMIT", 0), zipfile.ZipFile(path, "w", method) as file:
                for name, data in (("x", self.X), ("y", self.Y)):
                    file.writestr(name + ".npy", data)
            wide = get(path)
            self.assertIn(b"PK\6\6", wide)
            self.assertEqual(self.run_command("data", "inspect", "npz:" + path).stdout, said)
            # The same file, with only ones in the end record of 32 bits.
            end = wide[:-14] + b"\xff\xff" * 2 + b"\xff" * 8 + wide[-2:]
            put(path, end)
            self.assertEqual(self.run_command("data", "inspect", "npz:" + path).stdout, said)
            locator = len(end) - 42
            directory = end.index(b"PK\1\2")
            for at, value in ((locator, b"x"), (locator + 15, b"\xff"), (locator - 1, b"\xff"),
                              (directory + 46 + 5 + 4 + 7, b"\x7f"), (directory + 46 + 5 + 4 + 15, b"\x7f"),
                              (directory + 46 + 5, b"\2")):
                put(path, end[:at] + value + end[at + 1:])
                self.assert_bad("data", "inspect", "npz:" + path, code=1, says=(path,))

    def test_models(self):
        """Data that lack a field that the model needs, and values that are not finite."""
        def train(code, *says, **arrays):
            done = self.run_command("train", "--model", "lstm-regressor:hidden=4", "--data", "npz:" + self.write(**arrays),
                                    "--devices", "pocl", "--batch", "4", "--steps", "2", "--tune", "off", "--quiet", code=code)
            if code:
                self.assert_message(done.stderr, *says)

        train(0, x=self.X, y=self.Y)
        train(2, "for arrays x [T,I] and y", "the data have x f32 [4,3]", x=self.X)
        train(2, "for arrays x [T,I] and y", "the data have x f32 [], y f32 [1]", x=npy("<f4", (20,), bytes(80)), y=self.Y)
        train(1, "not finite", x=npy("<f4", (20, 4, 3), floats(*[float("nan")] * 240)), y=self.Y)


class Others(CommandTest):
    def test_cifar(self):
        folder = self.path("cifar")
        os.mkdir(folder)
        record = b"\1" + bytes(3072)
        names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
        for name in names:
            put(os.path.join(folder, name), record * 2)
        self.run_command("data", "inspect", "cifar10:" + folder)
        for data, says in ((record * 2 + b"x", "6147 bytes are not a number of records of 3073 bytes"),
                           (b"", "0 bytes are not a number of records"),
                           (record + b"\x0a" + record[1:], "record 1: label 10 is out of range: 0 to 9")):
            put(os.path.join(folder, names[2]), data)
            self.assert_bad("data", "inspect", "cifar10:" + folder, code=1, says=(f"{names[2]}: {says}",))
        os.remove(os.path.join(folder, names[2]))
        self.assert_bad("data", "inspect", "cifar10:" + folder, code=1, says=(names[2], "not found"))

    def test_tokenizer(self):
        folder, golden = self.path("bpe"), os.path.join(GOLDENS, "tokenizer")
        os.mkdir(folder)
        vocabulary, merges = (get(os.path.join(golden, name)) for name in ("vocab.json", "merges.txt"))
        put(self.path("text.txt"), b"hello")
        lines = merges.decode().splitlines()
        for v, m, says in ((vocabulary[:-5], merges, "vocab.json: line "), (b"[]", merges, "vocab.json: not an object"),
                           (b'{"a": 0, "a": 1}', b"", "vocab.json: line 1: duplicate"),
                           (b'{"a": 0, "b": 0}', b"", "vocab.json: tokens 'a' and 'b' have the same number 0"),
                           (b'{"a": 0, "b": 2}', b"", "vocab.json: token 'b': its number is not one of 0 to 1"),
                           (b'{"a": "0"}', b"", "vocab.json: token 'a': its number"),
                           (b'{"a": 99999999999999999999}', b"", "vocab.json: line 1: too big integer"),
                           (None, merges, "vocab.json: "), (vocabulary, None, "merges.txt: cannot be opened"),
                           (vocabulary, merges + b"qqqq zzzz\n", f"merges.txt: line {len(lines) + 1}: 'qqqq' is not in"),
                           (vocabulary, merges + b"abc\n", f"merges.txt: line {len(lines) + 1}: not two tokens"),
                           (vocabulary, merges + lines[1].encode() + b"\n", "this pair was merged before")):
            for name, data in (("vocab.json", v), ("merges.txt", m)):
                path = os.path.join(folder, name)
                if data is not None:
                    put(path, data)
                elif os.path.exists(path):
                    os.remove(path)
            done = self.run_command("data", "tokenize", "--tokenizer", "gpt2:" + folder, "-o", self.path("o.bin"),
                                    self.path("text.txt"), code=1) if self.has_bpe() else None
            if done:
                self.assert_message(done.stderr, says)

    def has_bpe(self):
        if not hasattr(self, "bpe"):
            done = self.run_command("data", "tokenize", "--tokenizer", "gpt2:" + self.path("none"), "-o",
                                    self.path("o.bin"), self.path("text.txt"), code=1)
            self.bpe = "PCRE2" not in done.stderr
        return self.bpe

    def test_models(self):
        """Model files that tests/cli/test_models.py lacks: texts that are hardly JSON, huge texts, deep ones.
        """
        for text in (b"", b"\0\0", bytes(range(256)), b"5", b"null", b"{}", b"[" * 100000, b'{"a":' * 5000,
                     b'{"nodes": [], "nodes": []}', b'{"nodes": [{"op": "relu", "in": [' + b'"a",' * 99999 + b'"a"]}]}',
                     b'{"nodes": [{"op": "linear", "out": 99999999999999999999}]}', b'{"nodes": {}, "losses": {}}'):
            put(self.path("net.json"), text)
            with self.subTest(text=text[:40]):
                self.assert_bad("inspect", "--model", self.path("net.json"), code=1, says=(self.path("net.json") + ":",))
        os.mkdir(self.path("folder.json"))
        self.assert_bad("inspect", "--model", self.path("folder.json"), code=1, says=("folder.json: is not a regular file but a folder",))


if __name__ == "__main__":
    main()
