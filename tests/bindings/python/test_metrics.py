"""Metrics: scikit-learn's numbers of tests/goldens/metrics.json, evaluations of a trainer, bad input."""
import json
import math
import os
import threading

import numpy as np

import cltrain as clt
import support

ROOT = os.environ.get("CLT_TEST_SOURCE") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")


def cases():
    with open(os.path.join(ROOT, "tests", "goldens", "metrics.json"), encoding="ascii") as file:
        return json.load(file)


class Goldens(support.Case):
    def assert_number(self, found, wanted, name):
        if wanted is None:
            self.assertTrue(math.isnan(found), name)
        else:
            self.assertAlmostEqual(found, wanted, delta=1e-9 * max(1, abs(wanted)), msg=name)

    def collect(self, case):
        """Adds the samples of a case in three batches."""
        classes = case["classes"]
        if classes:
            metrics = clt.Metrics(classes, ignore_index=-1, top=case["top"], auc=True)
            predictions, targets = np.array(case["scores"]) / 20, case["labels"]
        else:
            metrics = clt.Metrics(outputs=case["outputs"])
            predictions, targets = np.array(case["predictions"]), np.array(case["targets"])
        weights = case["weights"]
        for part in np.array_split(np.arange(len(targets)), 3):
            metrics.add(predictions[part], np.asarray(targets)[part],
                        None if weights is None else np.array(weights)[part])
        return metrics

    def test_scikit_learn(self):
        classifiers = 0
        for number, case in enumerate(cases()):
            metrics = self.collect(case)
            found = metrics.read()
            for name, wanted in case["result"].items():
                self.assert_number(found[name], wanted, f"case {number}: {name}")
            self.assertEqual(set(found) - {"samples", "weight"}, set(case["result"]))
            if not case["classes"]:
                continue
            classifiers += 1
            np.testing.assert_allclose(metrics.confusion, case["confusion"], rtol=1e-12)
            for name, wanted in ((f"{c} {n}", row[n]) for c, row in enumerate(case["by_class"]) for n in row):
                c, key = name.split()
                if not (key == "auc" and case["classes"] == 2 and c == "0"):  # scikit-learn has class 1's only
                    self.assert_number(metrics.by_class()[int(c)][key], wanted, f"case {number}: class {name}")
        self.assertEqual(classifiers, 100)


class Evaluations(support.Case):
    def test_classifier(self):
        """The numbers of NumPy from the trainer's own predictions, with a label that does not count."""
        trainer = clt.Trainer(support.mlp(), devices=support.DEVICES, batch=32, lr=0.1)
        x, y = support.numbers(100, 4), np.random.default_rng(3).integers(0, 3, 100)
        trainer.fit((x, y), epochs=2)
        y[::7] = -100
        scores = trainer.predict(x)
        counts = y >= 0
        wanted = np.zeros((3, 3))
        np.add.at(wanted, (y[counts], scores[counts].argmax(1)), 1)
        plain = trainer.evaluate((x, y), ignore_index=-100)
        found = trainer.evaluate((x, y), metrics=True, ignore_index=-100)
        self.assert_same(found["confusion"], wanted)
        self.assertEqual(found["samples"], counts.sum())
        self.assertAlmostEqual(found["accuracy"], np.trace(wanted) / counts.sum(), places=6)
        self.assertAlmostEqual(found["recall_macro"], np.mean(np.diag(wanted) / wanted.sum(1)), places=12)
        self.assertEqual(found["loss"], plain["loss"])
        self.assertNotIn("auc", found)
        more = trainer.evaluate((x, y), metrics={"top": 2, "auc": True}, ignore_index=-100)
        ranks = (-scores[counts]).argsort(1, kind="stable")[:, :2]
        self.assertAlmostEqual(more["top_accuracy"], np.mean([label in row for label, row in zip(y[counts], ranks)]))
        self.assertTrue(0 <= more["auc"] <= 1)
        metrics = clt.Metrics(3, ignore_index=-100)
        again = trainer.evaluate((x, y), metrics=metrics, output="output", field="y", ignore_index=-100)
        self.assert_same(metrics.confusion, wanted)
        self.assertEqual(again["f1_micro"], found["f1_micro"])

    def test_regression(self):
        trainer = clt.Trainer(support.line(outputs=2), devices=support.DEVICES, batch=32)
        x, y = support.numbers(50, 3), support.numbers(50, 2, seed=1)
        found = trainer.evaluate((x, y), metrics=True)
        error = trainer.predict(x).astype(np.float64) - y
        self.assertAlmostEqual(found["mae"], np.abs(error).mean(), places=6)
        self.assertAlmostEqual(found["mse"], (error**2).mean(), places=6)
        r2 = 1 - (error**2).sum(0) / ((y - y.mean(0, dtype=np.float64))**2).sum(0)
        self.assertAlmostEqual(found["r2"], r2.mean(), places=5)
        self.assertNotIn("confusion", found)

    def test_loaded_model(self):
        """Models of the command name their outputs."""
        data = clt.Dataset.arrays(x=support.numbers(40, 3), y=support.numbers(40, 1))
        trainer = clt.Trainer(clt.mlp(3, [4], 1), devices=support.DEVICES, batch=8)
        self.assertGreater(trainer.evaluate(data, metrics=True)["rmse"], 0)

    def test_threads(self):
        """Threads add to the same metrics: no sample is lost."""
        metrics = clt.Metrics(3)
        scores, labels = support.numbers(50, 3), np.arange(50) % 3

        def work():
            for _ in range(20):
                metrics.add(scores, labels)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(metrics.read()["samples"], 4000)
        wanted = np.zeros((3, 3))
        np.add.at(wanted, (labels, scores.argmax(1)), 80)
        self.assert_same(metrics.confusion, wanted)

    def test_refused(self):
        trainer = clt.Trainer(support.mlp(), devices=support.DEVICES, batch=4)
        x, y = support.numbers(4, 4), np.arange(4) % 3
        two = clt.Graph()
        v = two.input("v", (2,))
        two.output(v * 2, "a")
        two.output(v * 3, "b")
        metrics = clt.Metrics(3)
        cases = [
            (lambda: clt.Metrics(1), "classes"), (lambda: clt.Metrics(3, topp=2), "'top'"),
            (lambda: clt.Metrics(3, top=4), "top"), (lambda: metrics.read(), "no samples"),
            (lambda: clt.Metrics().confusion, "regression"),
            (lambda: metrics.add(np.zeros((2, 4)), [0, 1]), "predictions"),
            (lambda: metrics.add(np.zeros((2, 3)), [0]), "labels"),
            (lambda: metrics.add(np.zeros((2, 3)), [0, 7]), "7"), (lambda: metrics.add(1.0, [0]), "dimension"),
            (lambda: metrics.add([[0.0, np.nan, 0.0]], [0]), "0"),
            (lambda: metrics.add(np.zeros((1, 3)), [0], [-1.0]), "weight"),
            (lambda: trainer.evaluate((x, y), metrics=5), "int"),
            (lambda: trainer.evaluate((x, y), metrics={"tops": 2}), "'top'"),
            (lambda: trainer.evaluate((x, y), metrics=True, output="logit"), "logit"),
            (lambda: trainer.evaluate((x, y), metrics=True, field="x"), "x"),
            (lambda: trainer.evaluate((x, y), field="y"), "metrics"),
            (lambda: trainer.evaluate((x, y), metrics=clt.Metrics(5)), "expected are 5"),
        ]
        for number, (call, words) in enumerate(cases):
            with self.assertRaises(clt.Error, msg=words) as caught:
                call()
            self.assertIn(words, str(caught.exception), number)
            self.assertNotIn("\n", str(caught.exception))
        metrics.add(np.eye(3), [0, 1, 2])
        self.assertEqual(metrics.read()["accuracy"], 1)


if __name__ == "__main__":
    support.main()
