"""eval --report and --confusion, and the classes that predict writes to CSV and JSON files."""
import csv
import json
import os
import random
import shutil
import subprocess

from command import CLASSES, COMMAND, DEVICE, TEST, CommandTest, get, main, put
from test_use import npz, png

MODEL = "mlp:16"


class Report(CommandTest):
    def setUp(self):
        super().setUp()
        self.run_folder = self.path("run")
        self.train("--epochs", "2", "--checkpoint-dir", self.run_folder, model=MODEL)

    def eval(self, *args, devices=DEVICE, **options):
        return self.run_command("eval", "--data", "idx:" + self.data, "--checkpoint", self.run_folder, "--devices",
                                devices, *args, **options)

    def predicted(self):
        """Returns label, best class and all probabilities of each test sample, as predict writes them."""
        path = self.path("all.json")
        self.run_command("predict", "--data", "idx:" + self.data, "--checkpoint", self.run_folder, "--devices", DEVICE,
                         "--top", CLASSES, "-o", path)
        rows = json.loads(get(path))["predictions"]
        self.assertEqual([row["sample"] for row in rows], list(range(TEST)))
        return [(row["label"]["class"], row["classes"][0]["class"],
                 {c["class"]: c["probability"] for c in row["classes"]}) for row in rows]

    def test_report(self):
        rows = self.predicted()
        found = json.loads(self.eval("--report", "--confusion", "--json", "--top", "2").stdout)["metrics"]
        matrix = [[sum(label == i and best == k for label, best, _ in rows) for k in range(CLASSES)]
                  for i in range(CLASSES)]
        self.assertEqual(found["confusion"], matrix)
        self.assertAlmostEqual(found["accuracy"], sum(label == best for label, best, _ in rows) / TEST)
        second = sum(sorted(p, key=p.get)[-2:].count(label) for label, _, p in rows)
        self.assertAlmostEqual(found["top"]["accuracy"], second / TEST)
        areas = []
        for c, one in enumerate(found["classes"]):
            inside = [p[c] for label, _, p in rows if label == c]
            outside = [p[c] for label, _, p in rows if label != c]
            pairs = sum((a > b) + (a == b) / 2 for a in inside for b in outside)
            areas.append(pairs / len(inside) / len(outside))
            self.assertAlmostEqual(one["auc"], areas[-1], delta=1e-6)
            self.assertAlmostEqual(one["recall"], matrix[c][c] / sum(matrix[c]))
            predicted = sum(row[c] for row in matrix)
            self.assertAlmostEqual(one["precision"], matrix[c][c] / predicted if predicted else 0)
            self.assertEqual(one["samples"], len(inside))
        self.assertAlmostEqual(found["auc"], sum(areas) / CLASSES, delta=1e-6)
        self.assertAlmostEqual(found["macro"]["recall"], sum(c["recall"] for c in found["classes"]) / CLASSES)

    def test_devices(self):
        """Several devices, uneven batches and other outputs give the same report."""
        said = self.eval("--report", "--confusion").stdout
        self.assertEqual(self.eval("--report", "--confusion", "--batch", "7", devices=DEVICE + "/2").stdout, said)
        self.assertIn("macro average", said)
        self.assertIn("AUC 0.", said.replace("AUC 1.", "AUC 0."))

    def test_picture(self):
        if not shutil.which("gnuplot"):
            self.skipTest("gnuplot was not found")
        picture = self.path("confusion.png")
        self.eval("--confusion", "-o", picture)
        self.assertEqual(get(picture)[:8], b"\x89PNG\r\n\x1a\n")

    def test_usage(self):
        use = ("eval", "--data", "idx:" + self.data, "--checkpoint", self.run_folder, "--devices", DEVICE)
        for args, says in ((["-o", "x.png"], "--confusion"), (["--confusion", "-o", "x.jpg"], ".png"),
                           (["--top", "2"], "--report"), (["--report", "--top", CLASSES + 1], f"has {CLASSES} classes")):
            with self.subTest(args=args):
                self.assert_bad(*use, *args, code=2, says=(says,))

    def test_absent_class(self):
        """AUC of a class without samples is not defined, as in scikit-learn."""
        labels = self.path("data", "t10k-labels-idx1-ubyte")
        put(labels, bytes(b % (CLASSES - 1) if i >= 8 else b for i, b in enumerate(get(labels))))
        said = self.eval("--report").stdout
        self.assertIn(f"AUC is not defined: no samples have class {CLASSES - 1}", said)
        found = json.loads(self.eval("--report", "--json").stdout)["metrics"]
        self.assertIsNone(found["auc"])
        self.assertIsNone(found["classes"][-1]["auc"])


class Regression(CommandTest):
    def test_report(self):
        rng = random.Random(2)
        left, right = ([[rng.random() for _ in range(6)] for _ in range(90)] for _ in range(2))
        y = [sum(a) - sum(b) for a, b in zip(left, right)]
        npz(self.path("in.npz"), y=("<f4", (90, 1), y),
            x=("<f4", (90, 2, 6), [v for a, b in zip(left, right) for v in a + b]))
        self.train("--data", "npz:" + self.path("in.npz"), "--epochs", "3", "--lr", "0.01", "--checkpoint-dir",
                   self.path("run"), model=MODEL)
        use = ("--checkpoint", self.path("run"), "--data", "npz:" + self.path("in.npz"), "--devices", DEVICE)
        found = json.loads(self.run_command("eval", *use, "--report", "--json").stdout)
        self.run_command("predict", *use, "-o", self.path("out.csv"))
        with open(self.path("out.csv"), newline="", encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        errors = [float(row["prediction"]) - t for row, t in zip(rows, y[81:])]
        metrics = found["metrics"]
        self.assertEqual(len(rows), 9)
        self.assertAlmostEqual(metrics["mae"], sum(map(abs, errors)) / 9, delta=1e-5)
        self.assertAlmostEqual(metrics["mse"], found["test_loss"], delta=1e-5)
        mean = sum(y[81:]) / 9
        self.assertAlmostEqual(metrics["r2"], 1 - sum(e * e for e in errors) / sum((t - mean) ** 2 for t in y[81:]),
                               delta=1e-4)
        self.assert_bad("eval", *use, "--confusion", code=2, says=("predicts numbers",))


class Images(CommandTest):
    def same_without_a_class(self, use):
        """A class without a folder, or with an empty one, changes no label and no prediction of the others."""
        few = self.path("few")
        shutil.copytree(self.path("images", "dog, big"), os.path.join(few, "dog, big"))
        for empty in (False, True):
            if empty:
                os.makedirs(os.path.join(few, 'a "cat"'))
            self.run_command("predict", *use, "--data", "images:" + few, "--top", "2", "-o", self.path("few.csv"))
            with open(self.path("few.csv"), newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([row["label"] for row in rows], ["dog, big"] * 2)
            with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
                whole = [row for row in csv.DictReader(file) if row["label"] == "dog, big"]
            for row, other in zip(rows, whole, strict=True):
                self.assertEqual(row["class"], other["class"])
                self.assertAlmostEqual(float(row["probability"]), float(other["probability"]), places=6)
            found = json.loads(self.run_command("eval", *use, "--data", "images:" + few, "--confusion",
                                                "--json").stdout)["metrics"]
            right = sum(row["class"] == "dog, big" for row in rows)
            self.assertEqual(found["confusion"], [[0, 0], [2 - right, right]])
            self.train("--data", "images:" + self.path("images"), "--val", "images:" + few, "--image-size", "8", "--steps",
                       "1", model=MODEL)

    def test_files(self):
        """Names of files and folders are in CSV and JSON files, also such that need quotes."""
        rng = random.Random(3)
        for name in ('a "cat"', "dog, big"):
            for i in range(12):
                folder = self.path("images", name)
                os.makedirs(folder, exist_ok=True)
                put(os.path.join(folder, f"{i}.png"), png(8, 8, [[rng.randrange(256) for _ in range(24)]
                                                                for _ in range(8)], 3))
        data = "images:" + self.path("images")
        probe = subprocess.run([COMMAND, "data", "inspect", data, "--image-size", "8"], capture_output=True, text=True,
                               timeout=60, check=False)
        if "no libpng" in probe.stderr:
            self.skipTest("built without libpng")
        self.train("--data", data, "--image-size", "8", "--batch", "8", "--checkpoint-dir", self.path("run"), model=MODEL)
        use = ("--checkpoint", self.path("run"), "--devices", DEVICE)
        self.run_command("predict", *use, "--data", data, "--top", "2", "-o", self.path("out.csv"))
        with open(self.path("out.csv"), newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([row["label"] for row in rows], ['a "cat"'] * 2 + ["dog, big"] * 2)
        for row in rows:
            self.assertTrue(os.path.exists(row["file"]))
            self.assertIn(os.sep + row["label"] + os.sep, row["file"])
            self.assertAlmostEqual(float(row["probability"]) + float(row["probability_2"]), 1, places=6)
        files = [row["file"] for row in rows]
        self.run_command("predict", *use, *files, "-o", self.path("out.json"))
        found = json.loads(get(self.path("out.json")))["predictions"]
        self.assertEqual([one["file"] for one in found], files)
        self.assertEqual([one["classes"][0]["name"] for one in found], [row["class"] for row in rows])
        # Labels are those of the names in training, so other names are refused.
        renamed = self.path("renamed")
        shutil.copytree(self.path("images"), renamed)
        os.rename(os.path.join(renamed, "dog, big"), os.path.join(renamed, "Dog, big"))
        for command, *more in (("eval",), ("eval", "--report"), ("predict", "-o", self.path("none.csv"))):
            self.assert_bad(command, *use, "--data", "images:" + renamed, *more, code=1,
                            says=("renamed/Dog, big: is not a class of the training images, which are a \"cat\", dog, big; "
                                  "did you mean 'dog, big'?",))
        self.same_without_a_class(use)
        self.run_command("eval", *use, "--data", data)
        self.assert_bad(*self.arguments("--data", "images:" + renamed, "--image-size", "8", "--batch", "8", "--resume",
                                        "--checkpoint-dir", self.path("run"), "--epochs", "9", model=MODEL), code=1,
                        says=("class 0 is 'Dog, big'", "same names"))
        # Validation of training names the folder too.
        self.assert_bad(*self.arguments("--data", data, "--val", "images:" + renamed, "--image-size", "8", model=MODEL),
                        code=1, says=("Dog, big: is not a class of the training images",))
        # A file that cannot be read is named, and the others are written.
        done = self.run_command("predict", *use, files[0], self.path("none.png"), "-o", self.path("some.csv"), code=1)
        self.assertIn("none.png", done.stderr)
        self.assertEqual(get(self.path("some.csv")).count(b"\n"), 2)
        self.assert_bad("predict", *use, files[0], "-o", self.path("out.npz"), code=2, says=(".csv",))
        self.assert_bad("predict", *use, files[0], "-o", self.path("none", "out.csv"), code=1, says=("written",))


if __name__ == "__main__":
    main()
