"""Helpers of the tests of the Python package."""
import os
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import cltrain as clt

# Parts of a CPU are devices that every machine of the tests has.
DEVICES = os.environ.get("CLT_TEST_PYTHON_DEVICES", "pocl")
CLOSE = {"rtol": 2e-5, "atol": 2e-6}


def mlp(inputs=4, hidden=8, outputs=3):
    """A classifier of vectors with the inputs x and y."""
    from cltrain import layers as L
    return clt.Sequential(L.linear(hidden), L.tanh(), L.linear(outputs), input=(inputs,), loss="cross_entropy")


def line(inputs=3, outputs=1):
    """A linear model with a square loss, whose steps NumPy repeats."""
    from cltrain import layers as L
    return clt.Sequential(L.linear(outputs, name="fc"), input=(inputs,), loss="mse")


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Line:
    """The model `line` in doubles: the mean of squares, and steps of SGD."""

    def __init__(self, store, lr):
        self.w = store["fc.weight"].astype(np.float64)
        self.b = store["fc.bias"].astype(np.float64)
        self.lr = lr

    def step(self, x, y):
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        error = x @ self.w.T + self.b - y
        slope = 2 * error / error.size
        self.gradient = slope.T @ x
        self.w = self.w - self.lr * self.gradient
        self.b = self.b - self.lr * slope.sum(0)
        return np.mean(error**2)


def run(program, *arguments, timeout=240, **options):
    """Runs a Python program in a process of its own."""
    folder = os.path.dirname(os.path.dirname(os.path.abspath(clt.__file__)))
    here = os.path.dirname(os.path.abspath(__file__))
    environment = dict(os.environ, PYTHONPATH=f"{folder}:{here}", PYTHONFAULTHANDLER="1")
    return subprocess.run([sys.executable, "-B", "-c", program, *arguments], text=True, timeout=timeout, env=environment,
                          **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options})


class Case(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory(prefix="cltrain-")
        self.folder = self._folder.name
        self.addCleanup(self._folder.cleanup)

    def assert_close(self, found, wanted):
        np.testing.assert_allclose(found, wanted, **CLOSE)

    def assert_same(self, found, wanted):
        np.testing.assert_array_equal(found, wanted)


main = unittest.main
