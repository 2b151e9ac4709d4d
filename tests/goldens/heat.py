"""The simulation of models/examples/heat in NumPy, and the samples that a trainer draws from its reservoirs there."""
import numpy as np

RODS, CELLS, STEPS, CAPACITY = 64, 32, 200, 1024


def rods_of(rank):
    """Returns the rods of a rank before the first step and after each step, f32 [STEPS + 1, RODS, CELLS]."""
    states = np.zeros((STEPS + 1, RODS, CELLS), np.float32)
    for r in range(RODS):
        states[0, r, 0] = r % 8 / 8
        states[0, r, -1] = (r // 8 + RODS // 8 * rank) / 16
    for step in range(STEPS):
        u = states[step]
        for _ in range(10):
            change = u[:, :-2] - np.float32(2) * u[:, 1:-1] + u[:, 2:]
            rate = np.float32(0.2) * (np.float32(1) + u[:, 1:-1] * u[:, 1:-1])
            u = np.concatenate([u[:, :1], u[:, 1:-1] + rate * change, u[:, -1:]], 1)
        states[step + 1] = u
    return states


def record_draws(clt, rank):
    """Returns the numbers of the samples that the rank draws in each step, i32 [STEPS, RODS]. Sample step * RODS + rod
    is that rod before and after that step. `clt` is the Python package."""
    fields = {"x": ("f32", (CELLS,)), "y": ("f32", (CELLS,)), "number": ("i32", ())}
    samples, states = clt.Reservoir(CAPACITY, fields), rods_of(rank)
    draws = np.zeros((STEPS, RODS), np.int32)
    for step in range(STEPS):
        samples.push(x=states[step], y=states[step + 1], number=np.arange(step * RODS, (step + 1) * RODS))
        drawn = samples.draw(0, step, RODS, first=rank * RODS)
        draws[step] = drawn["number"]
        x, y = samples_of(states, draws[step])
        assert np.array_equal(drawn["x"], x) and np.array_equal(drawn["y"], y), f"rank {rank}, step {step}"
    return draws


def samples_of(states, numbers):
    """Returns the inputs and targets of samples."""
    steps, rods = np.divmod(numbers, RODS)
    return states[steps, rods], states[steps + 1, rods]
