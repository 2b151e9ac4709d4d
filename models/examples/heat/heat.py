"""Rods warm up from their ends. heat.py is heat_untouched.py with a network that learns meanwhile to predict a rod ten
time steps later."""
import cltrain as clt
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
samples = clt.Reservoir(1024, {"x": ("f32", (CELLS,)), "y": ("f32", (CELLS,))})
trainer = clt.Trainer(clt.mlp(CELLS, [64], CELLS), devices="cpu", optimizer="adam", lr=1e-3, batch=RODS)
trainer.set_reservoir(samples)
for step in range(1, STEPS + 1):
    after = advanced(now)
    print(f"step {step}: mean temperature {after.mean(dtype=float):.6f}")
    samples.push(x=now, y=after)
    print(f"loss {trainer.step_reservoir():.9g}")
    now = after
trainer.store.save("heat.safetensors")
