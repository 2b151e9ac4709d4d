"""Reservoirs: pushes and draws, training from them, threads."""
import os
import threading

import numpy as np

import cltrain as clt
import support

FIELDS = {"x": ("f32", (3,)), "y": ("f32", (1,))}


def samples(n, seed=0):
    x = support.numbers(n, 3, seed=seed)
    return x, x.sum(1, keepdims=True) + 0.5


class Reservoirs(support.Case):
    def trainer(self, **options):
        return clt.Trainer(support.line(), devices=support.DEVICES, **{"batch": 16, "lr": 0.1, "seed": 5, **options})

    def test_steps(self):
        """The losses are those of NumPy on the samples that are drawn."""
        trainer = self.trainer()
        reference = support.Line(trainer.store, 0.1)
        cells = clt.Reservoir(64, FIELDS, seed=1)
        trainer.set_reservoir(cells)
        self.assertTrue(np.isnan(trainer.step_reservoir()))
        self.assertEqual(trainer.steps, 0)
        for step in range(20):
            cells.push(*samples(10, step))
            drawn = cells.draw(5, step, 16)
            self.assert_close(trainer.step_reservoir(), reference.step(drawn["x"], drawn["y"]))
        self.assert_close(trainer.store["fc.weight"], reference.w)
        stats = cells.stats
        self.assertEqual((stats["seen"], stats["kept"], stats["dropped"], len(cells)), (200, 64, 0, 64))
        self.assertEqual(stats["seen"], stats["kept"] + stats["replaced"] + stats["declined"])
        trainer.set_reservoir(None)
        with self.assertRaises(clt.StateError):
            trainer.step_reservoir()

    def test_newest(self):
        cells = clt.Reservoir(8, {"n": ("i32", ())}, policy="newest")
        cells.push(n=np.arange(100))
        self.assertEqual(set(cells.draw(0, 0, 200)["n"]), set(range(92, 100)))
        weighted = clt.Reservoir(8, {"n": ("i32", ())}, policy="weighted")
        weighted.push(np.arange(100), weights=np.arange(100) < 3)
        self.assertEqual(set(weighted.draw(0, 0, 200)["n"]), {0, 1, 2})

    def test_arrays(self):
        """Strides, doubles and a host that writes its arrays anew."""
        cells = clt.Reservoir(100, FIELDS)
        wide = np.zeros((10, 6))
        wide[:, ::2] = samples(10)[0]
        y = samples(10)[1]
        cells.push(x=wide[:, ::2], y=y.astype(np.float64))
        wide[:] = np.nan
        found = cells.draw(1, 0, 300)
        self.assertEqual({tuple(r) for r in found["x"].tolist()}, {tuple(r) for r in samples(10)[0].tolist()})
        self.assert_close(found["y"], found["x"].sum(1, keepdims=True) + 0.5)

    def test_fit_and_threads(self):
        """Eight threads push while fit trains."""
        cells = clt.Reservoir(500, FIELDS, least=50)
        trainer = self.trainer(lr=0.05)
        failures = []

        def work(seed):
            try:
                for k in range(50):
                    cells.push(*samples(10, 100 * seed + k))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        history = trainer.fit(cells, samples(64, 999), steps=300)
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual((trainer.steps, cells.stats["seen"]), (300, 4000))
        self.assertLess(history["test_loss"][-1], 0.01)

    def test_checkpoint(self):
        """Samples and random state are in checkpoints: the run goes on with the same bits."""
        def make(name):
            trainer, cells = self.trainer(), clt.Reservoir(32, FIELDS, save=True)
            trainer.set_reservoir(cells)
            return trainer, cells

        whole, cells = make("a")
        for k in range(8):
            cells.push(*samples(10, k))
            whole.step_reservoir()
        first, cells = make("b")
        for k in range(4):
            cells.push(*samples(10, k))
            first.step_reservoir()
        first.save(os.path.join(self.folder, "run"))
        second, cells = make("c")
        second.restore(os.path.join(self.folder, "run"))
        for k in range(4, 8):
            cells.push(*samples(10, k))
            second.step_reservoir()
        self.assert_same(second.store["fc.weight"], whole.store["fc.weight"])

    def test_refused(self):
        cells = clt.Reservoir(32, {**FIELDS, "label": ("i32", (), 3)})
        x, y = samples(4)
        label = np.arange(4) % 3
        cases = [
            (lambda: cells.push(x=x), "each of the fields"), (lambda: cells.push(x[:2], y, label), "[2, 1]"),
            (lambda: cells.push(x[:, :2], y, label), "x"), (lambda: cells.push(x > 0, y, label), "bool"),
            (lambda: cells.push(x, y, label + 1), "label"), (lambda: cells.push(x, y, label, weights=[1, 1, 1, 1]), "weights"),
            (lambda: clt.Reservoir(0, FIELDS), "capacity"), (lambda: clt.Reservoir(5, FIELDS, polic="newest"), "'policy'"),
            (lambda: clt.Reservoir(5, FIELDS, policy="newst"), "'newest'"), (lambda: self.trainer().fit(cells), "steps"),
            (lambda: self.trainer().evaluate(cells), "reservoir"),
            (lambda: clt.Dataset.arrays(x=x).stats, None),
        ]
        for call, words in cases:
            with self.assertRaises((clt.Error, AttributeError)) as caught:
                call()
            self.assertIn(words or "stats", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(cells.stats["seen"], 0)

    def test_order(self):
        """The trainer keeps its reservoir; closing the reservoir closes the trainer."""
        trainer = self.trainer()
        trainer.set_reservoir(clt.Reservoir(8, FIELDS))
        trainer._reservoir.push(*samples(4))
        self.assertGreater(trainer.step_reservoir(), 0)
        trainer._reservoir.close()
        self.assertTrue(trainer.closed)


if __name__ == "__main__":
    support.main()
