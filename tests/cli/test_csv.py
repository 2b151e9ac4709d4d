"""csv: data sets, weights of classes and of samples: from a file to predictions in the file's units."""
import csv
import json
import random
import subprocess

from command import COMMAND, DEVICE, CommandTest, get, main, put, tensors

MODEL = "mlp:16"


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

    def test_usage(self):
        data = self.write("houses.csv", self.houses(30))
        for more, code, says in ((("--class-weights", "balanced"), 2, "no field"),
                                 (("--sample-weights", "none"), 2, "no field 'none'"),
                                 (("--sample-weights", "x"), 2, "no number for each sample"),
                                 (("--sample-weights", "y", "--shuffle", "off"), 2, "--shuffle off")):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments("--data", data, *more, model=MODEL), code=code, says=(says,))
        for more, says in ((("1,2,3",), "4 numbers"), (("1,2,3,-1",), "not negative"),
                           (("1,2,3,4", "--precision", "bf16"), "--precision f32")):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments("--class-weights", *more, model=MODEL), code=2, says=(says,))

    def test_inspect(self):
        said = self.run_command("data", "inspect", self.write("houses.csv", self.houses(30))).stdout
        self.assertRegex(said, r"column size +number +mean [\d.]+, std")
        self.assertRegex(said, r"column town +category +3 names")
        self.assertRegex(said, r"column price +target")


if __name__ == "__main__":
    main()
