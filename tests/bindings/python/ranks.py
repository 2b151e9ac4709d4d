"""Two ranks train one model, each with its own half of every batch: the numbers are NumPy's for the whole batch.
mpiexec starts it. Without mpi4py, or with one of another MPI library, it says so and is skipped."""
import sys

import numpy as np

import cltrain as clt
import support

try:
    from mpi4py import MPI
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SKIP = 77


def main():
    # A communicator of the program's own, as of a simulation that has other ranks too.
    communicator = MPI.COMM_WORLD.Split(0, MPI.COMM_WORLD.rank)
    try:
        world = clt.World(communicator)
    except clt.MismatchError as error:
        print(f"skipped: {error}")
        return SKIP
    assert (world.rank, world.ranks) == (communicator.rank, communicator.size)
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
    history = trainer.fit((x, y), (x, y), epochs=2, shuffle=False)
    for _ in range(2):
        for i in range(0, 160, 16):
            reference.step(x[i:i + 16], y[i:i + 16])
    np.testing.assert_allclose(trainer.store["fc.weight"], reference.w, **support.CLOSE)
    assert len(history["epoch"]) == 2
    trainer.close()
    world.close()
    communicator.Free()
    return 0


if __name__ == "__main__":
    sys.exit(main())
