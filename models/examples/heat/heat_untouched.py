"""Rods warm up from their ends. heat.py is heat_untouched.py with a network that learns meanwhile to predict a rod ten
time steps later."""
import numpy as np

RODS, CELLS, STEPS = 64, 32, 200


def advanced(u):
    """Ten explicit steps of the heat equation. A rod conducts better where it is warm."""
    u = u.copy()
    for _ in range(10):
        left, middle, right = u[:, :-2], u[:, 1:-1], u[:, 2:]
        u[:, 1:-1] = middle + np.float32(0.2) * (1 + middle * middle) * (left - 2 * middle + right)
    return u


r = np.arange(RODS)
now = np.zeros((RODS, CELLS), np.float32)
now[:, 0] = r % 8 / 8
now[:, -1] = r // 8 / 16
for step in range(1, STEPS + 1):
    after = advanced(now)
    print(f"step {step}: mean temperature {after.mean(dtype=float):.6f}")
    now = after
