"""Rods warm up from their ends, and each rank has rods of its own. heat_mpi.py is heat_mpi_untouched.py with a network
that learns from the rods of all ranks. Of three or more ranks, the last one has other work."""
import numpy as np
from mpi4py import MPI

RODS, CELLS, STEPS = 64, 32, 200


def advanced(u):
    """Ten explicit steps of the heat equation. A rod conducts better where it is warm."""
    u = u.copy()
    for _ in range(10):
        left, middle, right = u[:, :-2], u[:, 1:-1], u[:, 2:]
        u[:, 1:-1] = middle + np.float32(0.2) * (1 + middle * middle) * (left - 2 * middle + right)
    return u


def simulate(team):
    r = np.arange(RODS)
    now = np.zeros((RODS, CELLS), np.float32)
    now[:, 0] = r % 8 / 8
    now[:, -1] = (r // 8 + RODS // 8 * team.rank) / 16
    for step in range(1, STEPS + 1):
        after = advanced(now)
        mean = team.allreduce(after.mean(dtype=float)) / team.size
        now = after
        if team.rank > 0:
            continue
        print(f"step {step}: mean temperature {mean:.6f}")


world = MPI.COMM_WORLD
simulates = world.size < 3 or world.rank < world.size - 1
team = world.Split(0 if simulates else MPI.UNDEFINED, world.rank)
if simulates:
    simulate(team)
    team.Free()
