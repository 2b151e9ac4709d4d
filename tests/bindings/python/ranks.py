"""Two ranks train one model, each with its own half of every batch: the numbers are NumPy's for the whole batch.
A third rank, between the two, is not in their communicator and does other work.
mpiexec starts it on 3 ranks. Without mpi4py, or with one of another MPI library, it says so and is skipped."""
import os
import shutil
import sys
import tempfile

import numpy as np

import cltrain as clt
import support

try:
    from mpi4py import MPI
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SKIP = 77


def other_work(communicator):
    """The rank that is left out has no communicator to open a world of, and trains alone."""
    try:
        clt.World(communicator)
    except clt.MismatchError as error:
        print(f"skipped: {error}")
        return SKIP
    except clt.InvalidArgumentError as error:
        assert "MPI_COMM_NULL" in str(error), error
    else:
        raise AssertionError("a world of MPI_COMM_NULL")
    trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=16, lr=0.1)
    reference = support.Line(trainer.store, 0.1)
    x, y = support.numbers(16, 3), support.numbers(16, 1, seed=2)
    for _ in range(3):
        np.testing.assert_allclose(float(trainer.step(x=x, y=y)), reference.step(x, y), **support.CLOSE)
    trainer.close()
    return 0


def main():
    # A communicator of the program's own, as of a simulation that has other ranks too.
    out = MPI.COMM_WORLD.rank == 1
    communicator = MPI.COMM_WORLD.Split(MPI.UNDEFINED if out else 0, MPI.COMM_WORLD.rank)
    if out:
        return other_work(communicator)
    try:
        world = clt.World(communicator)
    except clt.MismatchError as error:
        print(f"skipped: {error}")
        return SKIP
    assert (world.rank, world.ranks) == (communicator.rank, communicator.size)
    assert (world.rank, world.ranks) == (MPI.COMM_WORLD.rank // 2, 2)
    net = support.line()
    trainer = clt.Trainer(net, devices=support.DEVICES, batch=16, lr=0.1, world=world)
    reference = support.Line(trainer.store, 0.1)
    x, y = support.numbers(160, 3), support.numbers(160, 1, seed=1)
    for i in range(0, 160, 16):
        begin = i + 16 * world.rank // world.ranks
        end = i + 16 * (world.rank + 1) // world.ranks
        step = trainer.step(x=x[begin:end], y=y[begin:end], total=16)
        np.testing.assert_allclose(float(step), reference.step(x[i:i + 16], y[i:i + 16]), **support.CLOSE)
    step = trainer.step(x=x[:4], y=y[:4])  # the ranks tell each other how many they have
    assert step.samples == 4 * world.ranks, step.samples
    reference.step(np.concatenate([x[:4]] * world.ranks), np.concatenate([y[:4]] * world.ranks))
    folder = communicator.bcast(tempfile.mkdtemp(prefix="cltrain-") if world.rank == 0 else None)
    board = clt.TensorBoard(os.path.join(folder, "curves"))
    history = trainer.fit((x, y), (x, y), epochs=2, shuffle=False, callbacks=[board])
    for _ in range(2):
        for i in range(0, 160, 16):
            reference.step(x[i:i + 16], y[i:i + 16])
    np.testing.assert_allclose(trainer.store["fc.weight"], reference.w, **support.CLOSE)
    assert len(history["epoch"]) == 2
    # One rank stops another run, also in a step that ends it within an epoch: `fit` returns on all ranks.
    for steps, stop_at, entries in ((100, 3, []), (4, 4, [4])):
        other = clt.Trainer(support.line(), devices=support.DEVICES, batch=16, world=world)

        class Stop(clt.Callback):
            def on_step(self, trainer, progress):
                if world.rank == 1 and progress.step == stop_at:
                    trainer.stop()

        stopped = other.fit((x, y), (x, y), steps=steps, callbacks=[Stop()])
        assert stopped.get("step", []) == entries, stopped
        assert stop_at <= other.steps <= stop_at + 2, other.steps
        other.close()
    report = trainer.evaluate((x, y), metrics=True)  # of the samples of both ranks
    error = x @ reference.w.T + reference.b - y
    assert report["samples"] == 160, report
    np.testing.assert_allclose([report["mae"], report["mse"]], [np.abs(error).mean(), (error**2).mean()], **support.CLOSE)
    communicator.Barrier()
    files = os.listdir(board.folder)
    assert len(files) == 1, files  # rank 0's
    communicator.Barrier()
    if world.rank == 0:
        shutil.rmtree(folder)
    trainer.close()
    world.close()
    communicator.Free()
    return 0


if __name__ == "__main__":
    sys.exit(main())
