"""What a run reports beside its history: curves for TensorBoard, and kernels that are left to compile."""
import os
import pty
import re
import subprocess
import sys
import threading

import numpy as np

import cltrain as clt
import support

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cli"))
from event_reader import events  # noqa: E402


def trainer(**options):
    return clt.Trainer(support.line(), devices=support.DEVICES, **{"batch": 16, "lr": 0.1, **options})


class Collect(clt.Callback):
    """Keeps what fit reports."""

    def __init__(self):
        self.steps = {name: {} for name in ("loss", "norm", "lr")}

    def on_step(self, trainer, progress):
        for name, curve in self.steps.items():
            curve[progress.step] = getattr(progress, name)


class TensorBoard(support.Case):
    def setUp(self):
        super().setUp()
        self.board = os.path.join(self.folder, "runs", "first")
        self.x, self.y = support.numbers(64, 3), support.numbers(64, 1, seed=1)

    def assert_curves(self, wanted):
        read, _ = events(self.board)
        self.assertEqual(read.keys(), wanted.keys())
        for tag, curve in wanted.items():
            self.assertEqual(read[tag], {step: np.float32(value) for step, value in curve.items()}, tag)

    def test_curves(self):
        """The files have the numbers of the callbacks and of the history, in f32."""
        for train in ((self.x, self.y), [(self.x[i:i + 16], self.y[i:i + 16]) for i in range(0, 64, 16)]):
            self.board = os.path.join(self.folder, type(train).__name__)
            seen, board = Collect(), clt.TensorBoard(self.board)

            class Own(clt.Callback):
                def on_epoch(self, trainer, progress):
                    board.scalar("own/number", progress.step, 7.5)

            history = trainer().fit(train, (self.x, self.y), epochs=2, callbacks=[seen, board, Own()])
            self.assertEqual(sorted(seen.steps["loss"]), list(range(1, 9)))
            self.assert_curves({**seen.steps, "epoch_loss": dict(zip(history["step"], history["loss"])),
                                "test_loss": dict(zip(history["step"], history["test_loss"])), "own/number": {4: 7.5, 8: 7.5}})
            with self.assertRaises(clt.StateError):
                board.scalar("own/number", 9, 1.0)

    def test_resumed(self):
        """Steps that are made again replace those of the file before."""
        run = os.path.join(self.folder, "run")
        train, options = (self.x, self.y), {"validation": 0.5, "checkpoint_dir": run}
        first = trainer(optimizer="adam")
        first.fit(train, epochs=2, **options)
        first.fit(train, epochs=1, callbacks=[clt.TensorBoard(self.board)])  # steps 5 and 6, which no checkpoint has
        seen = Collect()
        history = trainer(optimizer="adam").fit(train, epochs=4, resume=True, **options,
                                                callbacks=[seen, clt.TensorBoard(self.board)])
        self.assertEqual(sorted(seen.steps["loss"]), [5, 6, 7, 8])
        self.assert_curves({**seen.steps, "epoch_loss": dict(zip(history["step"], history["loss"])),
                            "val_loss": dict(zip(history["step"], history["val_loss"]))})

    def test_refused(self):
        with open(os.path.join(self.folder, "file"), "w", encoding="ascii"):
            pass
        board = clt.TensorBoard(os.path.join(self.folder, "file", "board"))
        with self.assertRaises(OSError):
            trainer().fit((self.x, self.y), callbacks=[board])
        trainer().fit((self.x, self.y), callbacks=[clt.TensorBoard(self.board)])


PROGRAM = """
import os, sys
import cltrain as clt
import support
clt.set_cache(sys.argv[1])
seen = []
if sys.argv[2] == "function":
    clt.set_compile(lambda *report: seen.append(report))
trainer = clt.Trainer(support.mlp(), devices="pocl", batch=16)
trainer.fit((support.numbers(32, 4), [0, 1, 2, 1] * 8))
for report in seen:
    print(*report, sep="|")
"""


class Compilation(support.Case):
    def first_run(self, how):
        """A process that finds no kernel compiled."""
        cache = os.path.join(self.folder, "cache")
        os.environ["POCL_CACHE_DIR"] = os.path.join(self.folder, "pocl")
        self.addCleanup(os.environ.pop, "POCL_CACHE_DIR")
        os.mkdir(os.environ["POCL_CACHE_DIR"])
        ours, terminal = pty.openpty()
        with open(ours, "rb", buffering=0) as screen:
            written = bytearray()
            reader = threading.Thread(target=self.read, args=(screen, written))
            reader.start()
            try:
                result = support.run(PROGRAM, cache, how, stdout=subprocess.PIPE, stderr=terminal)
            finally:
                os.close(terminal)
                reader.join()
        self.assertEqual(result.returncode, 0, written)
        return result.stdout, written.decode()

    def read(self, screen, written):
        try:
            while part := screen.read(4096):
                written += part
        except OSError:  # the other end is closed
            pass

    def test_function(self):
        """Each kernel counts once: 0 of N to N of N."""
        rows = [line.split("|") for line in self.first_run("function")[0].splitlines()]
        kernels = [(int(done), int(total)) for _, kernels, done, total in rows if kernels == "True"]
        total = kernels[0][1]
        self.assertEqual(kernels[:total + 1], [(done, total) for done in range(total + 1)])
        self.assertGreater(total, 3)
        self.assertTrue(all("pocl" in row[0] for row in rows))
        self.assertIn("False", [row[1] for row in rows])

    def test_line(self):
        """The line of fit counts down, then the run goes on."""
        text = self.first_run("line")[1]
        left = re.findall(r"compiling for pocl.*?: (\d+) of (\d+) kernels left", text)
        self.assertTrue(left, text)
        self.assertEqual(len({total for _, total in left}), 1)
        numbers = [int(number) for number, _ in left]
        self.assertEqual(numbers, sorted(numbers, reverse=True))
        self.assertIn("epoch 1: loss", text.split("kernels left")[-1])


if __name__ == "__main__":
    support.main()
