"""`cltrain data`: inspect what a data set holds, and text to tokens and back to samples."""
import array
import json
import os
import subprocess

from command import CLASSES, COLUMNS, COMMAND, ROWS, TEST, TRAIN, CommandTest, get, main, put


class Inspect(CommandTest):
    def test_text(self):
        out = self.run_command("data", "inspect", "idx:" + self.data).stdout
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
                        "--seq-len", "8", "--devices", "pocl", code=2, says=("images and labels",))


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


main()
