"""csv: data sets, weights of classes and of samples: from a file to predictions in the file's units."""
import csv
import json
import os
import random
import re
import subprocess
import unicodedata

from command import COMMAND, DEVICE, CommandTest, get, main, put, records, tensors

MODEL = "mlp:16"


def columns(text):
    """Returns the columns of a text in a terminal, by Unicode's tables."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


class Table(CommandTest):
    def setUp(self):
        super().setUp()
        probe = self.path("probe.csv")
        put(probe, b"a,b\n1,2\n2,3\n")
        done = subprocess.run([COMMAND, "data", "inspect", "csv:" + probe], capture_output=True, text=True, timeout=60,
                              check=False)
        if "no libcsv" in done.stderr:
            self.skipTest("built without libcsv")

    def write(self, name, rows):
        with open(self.path(name), "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(rows)
        return "csv:" + self.path(name)

    def rows(self, name):
        with open(self.path(name), newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def houses(self, count=200):
        """Prices of 100,000 and more, which follow from size and town."""
        rng = random.Random(4)
        towns = {"Old, Town": 50000, "Harbour": 20000, 'The "Hill"': 0}
        rows = [("size", "town", "price")]
        for _ in range(count):
            size, town = rng.uniform(50, 150), rng.choice(list(towns))
            rows.append((f"{size:.3f}", town, f"{1000 * size + towns[town]:.2f}"))
        return rows

    def fit(self, data, *more, folder="run"):
        return self.train("--data", data, "--epochs", "40", "--optimizer", "adam", "--lr", "0.02", "--checkpoint-dir",
                          self.path(folder), *more, model=MODEL)

    def test_regression(self):
        houses = self.houses()
        data = self.write("houses.csv", houses)
        self.fit(data)
        use = ("--checkpoint", self.path("run"), "--devices", DEVICE)
        found = json.loads(self.run_command("eval", *use, "--data", data, "--report", "--json").stdout)["metrics"]
        self.assertGreater(found["r2"], 0.97)
        self.run_command("predict", *use, "--data", data, "-o", self.path("test.csv"))
        tests = [float(row[2]) for i, row in enumerate(houses[1:]) if i % 10 == 9]
        errors = [abs(float(row["prediction"]) - price) for row, price in zip(self.rows("test.csv"), tests)]
        self.assertEqual(len(errors), 20)
        self.assertAlmostEqual(found["mae"] / (sum(errors) / 20), 1, places=4)
        self.assertLess(found["mae"], 10000)
        # New rows have no price, another order of columns, and a town that is unknown.
        new = self.write("new.csv", [("town", "note", "size"), ("Harbour", "x", 100), ("Nowhere", "y", 60)])
        done = self.run_command("predict", *use, new, "-o", self.path("new_out.csv"))
        self.assertAlmostEqual(float(self.rows("new_out.csv")[0]["prediction"]), 120000, delta=10000)
        self.assertIn("column 'town': 1 texts are unknown to the training samples, the first in line 3 ('Nowhere')",
                      done.stderr)
        self.assert_bad("predict", *use, self.write("bad.csv", [("town", "size"), ("Harbour", "big")]), "-o",
                        self.path("bad_out.csv"), code=1, says=("line 2, column 2 ('size'): 'big' is no number",))
        self.assert_bad("predict", *use, self.write("less.csv", [("town",), ("Harbour",)]), "-o",
                        self.path("bad_out.csv"), code=1, says=("has no column 'size'",))

    def test_large_mean(self):
        """Targets far from 0 are written with the digits that tell them apart, as their mean error needs them."""
        rows = [("x", "when")] + [(f"{i}", f"{1.7e9 + 2 * i}") for i in range(300)]
        data = self.write("times.csv", rows)
        self.fit(data, folder="times")
        use = ("--checkpoint", self.path("times"), "--devices", DEVICE)
        found = json.loads(self.run_command("eval", *use, "--data", data, "--report", "--json").stdout)["metrics"]
        tests = [float(row[1]) for i, row in enumerate(rows[1:]) if i % 10 == 9]
        self.run_command("predict", *use, "--data", data, "-o", self.path("times_out.csv"))
        self.run_command("predict", *use, "--data", data, "-o", self.path("times_out.json"))
        with open(self.path("times_out.json"), encoding="utf-8") as file:
            of_json = [row["prediction"][0] for row in json.load(file)["predictions"]]
        for numbers in ([float(row["prediction"]) for row in self.rows("times_out.csv")], of_json):
            self.assertEqual(len(set(numbers)), 30)
            mae = sum(abs(number - when) for number, when in zip(numbers, tests)) / 30
            self.assertAlmostEqual(mae / found["mae"], 1, places=3)

    def test_classification(self):
        rng = random.Random(5)
        rows = [("a", "b", "kind")]
        for i in range(300):
            kind = "rare" if i % 12 == 0 else "usual"
            rows.append((rng.gauss(2 if kind == "rare" else 0, 1), rng.gauss(0, 1), kind))
        data = self.write("kinds.csv", rows)
        recall = {}
        for number, more in enumerate(((), ("--class-weights", "balanced"), ("--class-weights", "8,1"),
                                       ("--sample-weights", "balanced"))):
            use = ("--checkpoint", self.path(f"run{number}"), "--devices", DEVICE, "--data", data)
            self.fit(data, *more, folder=f"run{number}")
            found = json.loads(self.run_command("eval", *use, "--report", "--json").stdout)
            recall[more] = found["metrics"]["classes"][0]["recall"]
            self.assertEqual([c["name"] for c in found["metrics"]["classes"]], ["rare", "usual"])
        for more in list(recall)[1:]:
            self.assertGreaterEqual(recall[more], recall[()])
        self.run_command("predict", *use, "-o", self.path("out.json"))
        for row in json.loads(get(self.path("out.json")))["predictions"]:
            self.assertIn(row["label"]["name"], ("rare", "usual"))

    def test_draws(self):
        """Draws do not depend on devices, and go on after a resume."""
        data = self.write("houses.csv", self.houses(60))
        usual = ("--sample-weights", "y", "--virtual-shards", "2", "--batch", "8", "--check-every", "0")
        # Prices are normalised, so some weights are negative.
        self.assertIn("the weight of sample", self.train("--data", data, *usual, code=2, model=MODEL).stderr)
        rows = self.houses(60)
        kinds = self.write("kinds.csv", [("size", "town")] + [row[:2] for row in rows[1:]])
        usual = ("--sample-weights", "balanced", "--virtual-shards", "2", "--batch", "8", "--check-every", "0")
        models = {}
        for name, devices, steps in (("one", DEVICE + "@1", "9"), ("two", DEVICE + "/2", "9"), ("half", DEVICE + "@1", "4")):
            self.train("--data", kinds, *usual, "--steps", steps, "--checkpoint-dir", self.path(name), devices=devices,
                       model=MODEL)
            models[name] = tensors(self.path(name, f"step-0000000{steps}", "model.safetensors"))
        self.assertEqual(models["one"], models["two"])
        self.train("--data", kinds, *usual, "--steps", "9", "--resume", "--checkpoint-dir", self.path("half"),
                   devices=DEVICE + "@1", model=MODEL)
        self.assertEqual(tensors(self.path("half", "step-00000009", "model.safetensors")), models["one"])

    def test_resume(self):
        """The data of a resumed run mean what those of its checkpoint do."""
        rows = self.houses(60)
        kinds = [("size", "late", "town"), *((row[0], i % 7, row[1]) for i, row in enumerate(rows[1:]))]
        run = ("--val", "0.2", "--checkpoint-dir", self.path("run"))
        data = self.write("kinds.csv", kinds)
        self.train("--data", data, "--steps", "3", *run, model=MODEL)
        others = (
            ([kinds[0], *((3 * float(a) + 10, b, c) for a, b, c in kinds[1:])], "", ("column 'size'", "the mean", "same data")),
            ([("width", *kinds[0][1:]), *kinds[1:]], "", ("column 'width'", "'size'")),
            ([kinds[0], *((a, b, c.replace("Harbour", "Zoo")) for a, b, c in kinds[1:])], "",
             ("column 'town'", "other categories")),
            ([("more", *kinds[0]), *((i, *row) for i, row in enumerate(kinds[1:]))], "", ("4 columns", "3 in the checkpoint")),
            (kinds, "?drop=late", ("column 'late' is dropped", "number")),
            (kinds, "?missing=mean", ("column 'size'", "missing=")))
        for number, (table, options, says) in enumerate(others):
            with self.subTest(says=says):
                other = self.write(f"other{number}.csv", table) + options
                self.assert_bad(*self.arguments("--data", other, "--steps", "6", "--resume", *run, model=MODEL), code=1,
                                says=("--resume", *says))
        self.train("--data", data, "--steps", "6", "--resume", *run, model=MODEL)
        self.train("--data", data, "--steps", "6", "--checkpoint-dir", self.path("straight"), *run[:2], model=MODEL)
        self.assertEqual(*(tensors(self.path(name, "step-00000006", "model.safetensors")) for name in ("run", "straight")))

    def test_resume_weights(self):
        """Weights of classes and samples belong to a run: with others, losses are other quantities."""
        rng = random.Random(8)
        data = self.write("kinds.csv", [("a", "kind"), *((rng.gauss(0, 1), rng.choice(("no", "yes"))) for _ in range(60))])
        usual = ("--data", data, "--val", "0.2", "--checkpoint-dir")
        ways = {"none": (), "weights": ("--class-weights", "1,3"), "drawn": ("--sample-weights", "balanced")}
        for name, how in ways.items():
            self.train(*usual, self.path(name), *how, "--steps", "2", model=MODEL)
        for name, how, says in (("none", ways["weights"], ("--class-weights", "without them")),
                                ("weights", (), ("--class-weights is missing",)),
                                ("weights", ("--class-weights", "1,2"), ("class 1 has the weight 2, but 3",)),
                                ("none", ways["drawn"], ("--sample-weights balanced", "without them")),
                                ("drawn", (), ("--sample-weights is missing", "with balanced"))):
            with self.subTest(name=name, how=how):
                self.assert_bad(*self.arguments(*usual, self.path(name), *how, "--steps", "4", "--resume", model=MODEL),
                                code=2, says=says)
        for name, how in ways.items():
            self.train(*usual, self.path(name), *how, "--steps", "4", "--resume", model=MODEL)

    def test_validation(self):
        """Means of a checkpoint are those of the rows that are left for training; a column can mark the others, and
        give weights."""
        houses = self.houses(80)
        rng = random.Random(6)
        marks = [rng.random() < 0.3 for _ in houses[1:]]
        rows = [("late", "weight", *houses[0])] + [(int(m), 2, float(r[0]) + 1000 * m, *r[1:])
                                                   for m, r in zip(marks, houses[1:])]
        data = self.write("houses.csv", rows) + "?field=late|weight"
        done = self.fit(data, "--val", "late", "--sample-weights", "weight")
        kept = [row for i, row in enumerate(rows[1:]) if i % 10 != 9 and not row[0]]
        self.assertIn(f"{len(kept)} samples, {72 - len(kept)} for validation", done.stdout)
        for name, more in (("run", ()), ("fraction", ("--val", "0.5", "--seed", "2")), ("none", ())):
            if name != "run":
                self.fit(data, *more, folder=name)
            state = json.loads(get(os.path.join(self.path(name), sorted(os.listdir(self.path(name)))[-1], "state.json")))
            columns = {c["name"]: c for c in state["sections"]["use"]["csv"]["columns"]}
            means = [sum(float(row[i]) for row in kept) / len(kept) for i in (2, 4)]
            found = [columns[c]["mean"] for c in ("size", "price")]
            if name == "run":
                self.assertAlmostEqual(found[0], means[0], 6)
                self.assertAlmostEqual(found[1], means[1], 6)
                self.assertLess(found[0], 200)
            elif name == "fraction":
                fraction = found
            else:
                self.assertNotAlmostEqual(found[0], fraction[0], 1)
        said = json.loads(self.run_command("data", "inspect", data, "--val", "late", "--json").stdout)["splits"]
        self.assertEqual([part["samples"] for part in said], [len(kept), 72 - len(kept), 8])
        # Of four features the size has mean 0, and one of three towns is 1.
        self.assertAlmostEqual(said[0]["fields"][0]["mean"], 1 / 4, 5)
        self.assert_bad("data", "inspect", data, "--val", "idx:x", code=2, says=("divides training samples only",))
        # Validation and eval read the tests alike: the loss of eval is that of training's last epoch.
        path = self.path("m.jsonl")
        self.fit(data, "--val", "0.5", "--metrics", path, folder="again")
        got = json.loads(self.run_command("eval", "--checkpoint", self.path("again"), "--devices", DEVICE, "--data", data,
                                          "--json").stdout)
        self.assertAlmostEqual(got["test_loss"], records(path)[1][-1]["test_loss"], 6)

    def test_labels_of_validation(self):
        """Why another file has no labels is said with line and column."""
        rows = [("a", "risk")] + [(i % 7, i % 3) for i in range(40)]
        data = self.write("train.csv", rows) + "?task=classify"
        for last, says in (("9", "line 42, column 2 ('risk'): the training samples have no label '9'"),
                           ("1.0", "have no label '1.0'; did you mean '1'?"),
                           ("", "line 42, column 2 ('risk'): the value is missing")):
            with self.subTest(last):
                val = self.write("val.csv", [*rows, (1, last)])
                done = self.train("--data", data, "--val", val, "--steps", "1", model="mlp", code=1)
                self.assert_message(done.stderr, "has no field 'label': ", says)
        val = self.write("val.csv", [("a", "b")] + [(1, 2)] * 9)
        done = self.train("--data", data, "--val", val, "--steps", "1", model="mlp", code=1)
        self.assert_message(done.stderr, "has no field 'label': ", "line 1: has no column 'risk'")
        done = self.train("--data", data, "--val", data.split("?")[0].replace("csv:", "csv:/."), model="mlp", code=2)
        self.assert_message(done.stderr, "those are the data of --data")

    def test_usage(self):
        data = self.write("houses.csv", self.houses(30))
        for more, code, says in ((("--class-weights", "balanced"), 2,
                                  "--class-weights balanced: is for classifiers, and the data have no field label"),
                                 (("--sample-weights", "balanced"), 2, "--sample-weights balanced: is for classifiers"),
                                 (("--sample-weights", "none"), 2, "no field 'none'"),
                                 (("--sample-weights", "x"), 2, "no number for each sample"),
                                 (("--sample-weights", "y", "--shuffle", "off"), 2, "--shuffle off")):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments("--data", data, *more, model=MODEL), code=code, says=(says,))
        for more, says in ((("1,2,3",), "4 numbers"), (("1,2,3,-1",), "not negative"),
                           (("1,2,3,1e39",), "--class-weights 1,2,3,1e39: the weight of class 3 (1e+39) is out of the range"),
                           (("1e-60,2,3,4",), "the weight of class 0 (1e-60) is out of the range 1e-18 to 1e18")):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments("--class-weights", *more, model=MODEL), code=2, says=(says,))

    def test_other_delimiter(self):
        """A new file that separates values otherwise than the training samples."""
        self.fit(self.write("houses.csv", self.houses(30)))
        put(self.path("new.csv"), b"size;town\n100;Harbour\n")
        use = ("--checkpoint", self.path("run"), "--devices", DEVICE)
        new = "csv:" + self.path("new.csv")
        self.assert_bad("predict", *use, new, "-o", self.path("out.csv"), code=1,
                        says=("has one column only, 'size;town'; did you mean delimiter=;?",))
        self.run_command("predict", *use, new + "?delimiter=;", "-o", self.path("out.csv"))
        put(self.path("comma.csv"), b"size,town\n100,Harbour\n")
        self.run_command("predict", *use, "csv:" + self.path("comma.csv"), "-o", self.path("comma.out.csv"))
        self.assertEqual(get(self.path("out.csv")), get(self.path("comma.out.csv")))
        # All rows in the other form give the loss of the first form.
        houses = "csv:" + self.path("houses.csv")
        text = [";".join(value.replace(";", "") for value in row) for row in csv.reader(get(houses[4:]).decode().splitlines())]
        put(self.path("tests.csv"), "\n".join(text[1:]).encode().replace(b'The "Hill"', b'"The ""Hill"""'))
        said = self.run_command("eval", *use, "--data", "csv:" + self.path("tests.csv") + "?delimiter=;,header=off").stdout
        self.assertEqual(said, self.run_command("eval", *use, "--data", houses).stdout)
        self.assert_bad("eval", *use, "--data", houses + "?missing=mean", code=2,
                        says=("csv: option missing=mean: the model was trained without it",))

    def test_names(self):
        """Names of any letters keep tables aligned and CSV files readable."""
        names = ["\u6771\u4eac", "e\u0301te\u0301", "two\nlines", 'a\t"quoted", b', "\u00c4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc1",
                 "\u00c4\u00f6\u00fc\u00e4\u00f6\u00fc\u00e4\u00f6\u00fc2", "\u6771" * 12, "=1+1"]
        rng = random.Random(5)
        data = self.write("names.csv", [("x", "kind")] + [(rng.gauss(i % 8, 0.1), names[i % 8]) for i in range(240)])
        self.fit(data)
        use = ("--checkpoint", self.path("run"), "--devices", DEVICE, "--data", data)
        lines = self.run_command("eval", *use, "--report", "--confusion").stdout.splitlines()
        start = next(i for i, line in enumerate(lines) if line.startswith("  class "))
        table = lines[start:start + 9]
        self.assertEqual({columns(line) for line in table}, {columns(table[0])}, "\n".join(table))
        start = next(i for i, line in enumerate(lines) if line.endswith(" predicted"))
        matrix = lines[start + 1:start + 10]
        self.assertEqual({columns(line) for line in matrix}, {columns(matrix[0])}, "\n".join(matrix))
        shown = "\n".join(matrix)
        for text in ("two\\nlines", 'a\\t"quoted", b', names[0] + " ", names[1] + " ", "\u6771" * 9 + "~"):
            self.assertIn(text, shown)
        # The two names that only differ in their last letter.
        self.assertEqual(matrix[0].count("\u00fc1 ") + matrix[0].count("\u00fc2 "), 2)
        said = self.run_command("data", "inspect", data).stdout
        counts = [line.rsplit(" ", 1)[0] for line in said.splitlines() if re.match(" {8,}[0-9]+  ", line)]
        self.assertEqual(len(counts), 16)
        self.assertEqual({columns(line) for line in counts if names[6] not in line}, {columns(counts[0])}, said)
        self.run_command("predict", *use, "-o", self.path("out.csv"))
        labels = [row["label"] for row in self.rows("out.csv")]
        self.assertEqual(labels, [names[i % 8] for i in range(240) if i % 10 == 9])

    def test_inspect(self):
        said = self.run_command("data", "inspect", self.write("houses.csv", self.houses(30))).stdout
        self.assertRegex(said, r"column size +number +mean [\d.]+, std")
        self.assertRegex(said, r"column town +category +3 names")
        self.assertRegex(said, r"column price +target")


if __name__ == "__main__":
    main()
