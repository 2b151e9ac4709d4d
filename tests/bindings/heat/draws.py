"""The samples that PyTorch trained on for tests/goldens/heat.safetensors are those that a trainer draws, and the initial
values are those of a new store.

    draws.py ROOT
"""
import os
import sys

import numpy as np

import cltrain as clt


def main(root):
    sys.path.insert(0, os.path.join(root, "tests", "goldens"))
    import heat
    from safetensors_file import load
    golden = load(os.path.join(root, "tests", "goldens", "heat.safetensors"))[0]
    for rank in range(2):
        draws = heat.record_draws(clt, rank)
        assert np.array_equal(draws, golden[f"draws.{rank}"]), f"rank {rank} draws other samples: run make_heat.py"
        print(f"rank {rank}: {draws.size} draws of {len(np.unique(draws))} samples")
    store = clt.Store(clt.mlp(heat.CELLS, [64], heat.CELLS), "cpu", seed=0)
    assert len(store) == 4
    for name in store:
        assert np.array_equal(store[name], golden["param." + name]), f"{name} has other initial values: run make_heat.py"


if __name__ == "__main__":
    main(*sys.argv[1:])
