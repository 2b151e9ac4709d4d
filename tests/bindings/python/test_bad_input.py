"""Bad input between steps: one line that names what is wrong, and nothing is lost. Cycles that leave nothing."""
import gc
import os

import numpy as np

import cltrain as clt
import support


class BadInput(support.Case):
    def setUp(self):
        super().setUp()
        self.x, self.y = support.numbers(8, 3), support.numbers(8, 1, seed=1)

    def trainer(self):
        trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=8, lr=0.1)
        trainer.sections["time"] = "2"
        return trainer

    def csv(self, rows):
        path = os.path.join(self.folder, f"rows-{len(os.listdir(self.folder))}.csv")
        with open(path, "w", encoding="utf-8") as file:
            file.write(rows)
        return lambda trainer: clt.Dataset.open(f"csv:{path}")

    def closed(self, trainer):
        gone = self.trainer()
        gone.close()
        gone.close()
        gone.step(x=self.x, y=self.y)

    def cases(self):
        x, y = self.x, self.y
        step = lambda **arrays: lambda trainer: trainer.step(**arrays)  # noqa: E731
        return [
            (step(x=x[0], y=y), "x"), (step(x=x[:, :2], y=y), "x is f32 [8, 2], and must be f32 [8, 3]"),
            (step(x=x[None], y=y), "x"), (step(x=x, y=y[:7]), "y"),
            (step(x=x.astype(complex), y=y), "complex"), (step(x=x > 0, y=y), "bool"),
            (step(x=x.astype(np.int64), y=y), "int64"), (step(x=[[1, 2, 3], [1, 2]], y=y), "x"),
            (step(x=np.array(["a"] * 8), y=y), "x"), (step(x=x[::2, ::-1], y=y), "x"),
            (step(z=x, y=y), "z"), (step(x=x), "y"),
            (lambda trainer: trainer.set_gradient("fc.wieght", x), "fc.w"),
            (lambda trainer: trainer.predict(x=x[:, :1]), "x"),
            (lambda trainer: trainer.store.__getitem__("nothing"), "nothing"),
            (lambda trainer: trainer.sections["tme"], "tme"),
            (self.closed, "closed"),
            (self.csv("a,b,y\n1,2,3\n4,nan,6\n7,8,9\n"), "line 3, column 2 ('b')"),
            (self.csv("a,b,y\n1,2,3\n4,5,6,7\n7,8,9\n"), "line 3, column 4"),
            (self.csv("a,b,y\n1,2,3\n4,5,6\n7,8\n"), "line 4, column 3 ('y')"),
        ]

    def test_nothing_is_lost(self):
        clean, other = self.trainer(), self.trainer()
        for number, (call, words) in enumerate(self.cases()):
            with self.subTest(number=number, words=words):
                with self.assertRaises((clt.Error, KeyError)) as caught:
                    call(other)
                self.assertIn(words, str(caught.exception))
                self.assertNotIn("\n", str(caught.exception))
            self.assertEqual(float(clean.step(x=self.x, y=self.y)), float(other.step(x=self.x, y=self.y)))
        for name in clean.store:
            self.assert_same(clean.store[name], other.store[name])


class Cycles(support.Case):
    def one(self):
        x, y = support.numbers(8, 3), support.numbers(8, 1, seed=1)
        trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=8, lr=0.1)
        float(trainer.step(x=x, y=y))
        trainer.predict(x=x)
        trainer.close()

    def test_cycles(self):
        """Trainers that come and go leave no Python objects behind, and no open files."""
        counts = []
        for _ in range(4):
            for _ in range(10):
                self.one()
            gc.collect()
            counts.append((len(gc.get_objects()), len(os.listdir("/proc/self/fd"))))
        self.assertLessEqual(counts[3][0], counts[1][0] + 20)
        self.assertEqual(counts[3][1], counts[1][1])


if __name__ == "__main__":
    support.main()
