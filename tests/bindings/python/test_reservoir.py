"""Reservoirs: pushes and draws, training from them, threads."""
import gc
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
            (lambda: cells.push(x=x), "each of the fields"), (lambda: cells.draw(0, 0, -1), "count"), (lambda: cells.push(x[:2], y, label), "[2, 1]"),
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
        """The trainer keeps its reservoir. Closing the reservoir leaves the trainer with all it has."""
        for leave in (lambda cells: cells.close(), lambda cells: cells.__exit__(None, None, None)):
            trainer = self.trainer(optimizer="adam")
            trainer.set_reservoir(clt.Reservoir(8, FIELDS))
            gc.collect()
            cells = trainer._reservoir
            cells.push(*samples(4))
            self.assertGreater(trainer.step_reservoir(3), 0)
            trainer.sections["time"] = "3"
            moments, weights = trainer.slot("exp_avg", "fc.weight"), trainer.store["fc.weight"]
            leave(cells)
            self.assertEqual((cells.closed, trainer.closed, trainer.steps, trainer.sections["time"]), (True, False, 3, "3"))
            self.assert_same(trainer.slot("exp_avg", "fc.weight"), moments)
            self.assert_same(trainer.store["fc.weight"], weights)
            with self.assertRaises(clt.StateError):
                trainer.step_reservoir()
            cells.close()
            float(trainer.step(*samples(4)))
            with clt.Reservoir(8, FIELDS) as other:
                other.push(*samples(4))
                trainer.set_reservoir(other)
                trainer.step_reservoir(2, wait=False)  # enqueued: they read it when it is closed
            self.assertEqual(trainer.steps, 6)
            float(trainer.step(*samples(4)))
            trainer.close()

    def test_close_of_one_of_two(self):
        """Two trainers draw from one reservoir, and one of them has another now."""
        one, two, closed = self.trainer(), self.trainer(), self.trainer()
        cells, other = clt.Reservoir(8, FIELDS), clt.Reservoir(8, FIELDS)
        for made in (cells, other):
            made.push(*samples(4))
        for trainer in (one, two, closed):
            trainer.set_reservoir(cells)
        two.set_reservoir(other)
        closed.close()
        cells.close()
        self.assertGreater(two.step_reservoir(), 0)
        with self.assertRaises(clt.StateError):
            one.step_reservoir()
        for wrong in ("a", clt.Dataset.arrays(x=samples(4)[0])):
            with self.assertRaises(clt.InvalidArgumentError) as caught:
                one.set_reservoir(wrong)
            self.assertIn("give a clt.Reservoir", str(caught.exception))

    def test_close_in_fit(self):
        cells = clt.Reservoir(100, FIELDS)
        cells.push(*samples(50))
        for attach in (False, True):
            trainer = self.trainer()
            refused = []

            def on_step(self, trainer, progress):
                try:
                    cells.close()
                except clt.StateError as error:
                    refused.append(str(error))

            if attach:
                trainer.set_reservoir(cells)
            data = samples(32) if attach else cells
            trainer.fit(data, steps=4, callbacks=[type("Closes", (clt.Callback,), {"on_step": on_step})()])
            self.assertEqual((trainer.steps, len(refused), cells.closed), (4, 4, False))
            self.assertIn("in use", refused[0])
        self.assertGreater(trainer.step_reservoir(), 0)


if __name__ == "__main__":
    support.main()
