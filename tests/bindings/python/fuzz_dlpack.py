"""Feeds random DLPack headers to the Python package, and prints the lines of its reader that were reached.

    PYTHONPATH=build-test/bindings/python tests/bindings/python/fuzz_dlpack.py [RUNS]       1,000,000 runs

The bytes of a right header are changed at random. Pointers of a header cannot be checked by anyone, so they
are right or null. Whatever is accepted must be described as the header says. If it lies within the memory
that the test owns, C's copy of it must be NumPy's.
"""
import ctypes
import inspect
import random
import sys

import numpy as np

import cltrain as clt
from cltrain import _api, _dlpack
from cltrain._lib import check, lib
from cltrain.arrays import view

NEW = ctypes.pythonapi.PyCapsule_New
NEW.argtypes, NEW.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
MEMORY = np.arange(512, dtype=np.uint8).view(np.float32)
BASE, BYTES = MEMORY.ctypes.data, MEMORY.nbytes
DTYPES = {_api.CLT_F32: np.float32, _api.CLT_F64: np.float64, _api.CLT_I32: np.int32, _api.CLT_I64: np.int64,
          _api.CLT_U8: np.uint8, _api.CLT_F16: np.float16}
NAMES = (b"dltensor", b"dltensor_versioned", b"used_dltensor", b"other")


class Producer:
    """A tensor with a random header."""

    def __init__(self, source):
        self.knows_versions = source.random() < 0.5
        self.name = source.choice(NAMES[:2] * 8 + NAMES)
        self.managed = managed = _dlpack.Versioned() if b"versioned" in self.name else _dlpack.Managed()
        self.device = source.choice([1, 1, 1, 1, 3, 2, 4, 99, -5])
        t = managed.tensor
        t.device.type, t.ndim, t.byte_offset = 1, source.randrange(4), source.choice([0, 0, 4, 8])
        t.dtype.code, t.dtype.bits, t.dtype.lanes = source.choice([(2, 32), (2, 64), (0, 32), (1, 8), (2, 16)]) + (1,)
        self.shape = (ctypes.c_int64 * 9)(*[source.choice([0, 1, 2, 3, 4, -1, 2**40]) for _ in range(9)])
        self.strides = (ctypes.c_int64 * 9)(*[source.choice([0, 1, 2, 3, -1, 2**61, -2**63]) for _ in range(9)])
        if isinstance(managed, _dlpack.Versioned):
            managed.major, managed.flags = 1, source.randrange(2)
        for _ in range(source.choice([0, 0, 1, 2, 5])):
            ctypes.memset(ctypes.addressof(managed) + source.randrange(ctypes.sizeof(managed)), source.randrange(256), 1)
        if not 0 <= t.ndim <= 9:
            self.shape = None  # a reader that looked at it would crash
        t.data = source.choice([BASE] * 9 + [None])
        t.shape = source.choice([self.shape] * 9 + [None])
        t.strides = source.choice([self.strides] * 3 + [None]) if self.shape else None

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if options and not self.knows_versions:
            raise TypeError("an old producer")
        return NEW(ctypes.addressof(self.managed), self.name, None)


def check_view(v, producer):
    t, a = producer.managed.tensor, v.array
    assert (a.rank, a.offset) == (t.ndim, t.byte_offset)
    sizes, strides = list(a.shape[:a.rank]), list(a.strides[:a.rank])
    assert sizes == [t.shape[i] for i in range(t.ndim)] and all(size >= 0 for size in sizes)
    if not a.host or a.dtype not in DTYPES:
        return False
    item = np.dtype(DTYPES[a.dtype]).itemsize
    assert not t.strides or strides == [t.strides[i] * item for i in range(t.ndim)]
    steps = [(size - 1) * stride for size, stride in zip(sizes, strides)]
    low = a.offset + sum(min(0, s) for s in steps)
    high = a.offset + sum(max(0, s) for s in steps) + item
    if low < 0 or high > BYTES or np.prod(sizes, dtype=object) > 4096:
        return False
    if a.offset % item or any(stride % item for stride in strides):
        return False
    raw = MEMORY.view(np.uint8)[a.offset:]
    expected = np.lib.stride_tricks.as_strided(np.frombuffer(raw, DTYPES[a.dtype], count=1), sizes, strides)
    out = np.empty(sizes, DTYPES[a.dtype])
    check(lib.clt_array_copy(ctypes.byref(a), ctypes.byref(view(out, "out", write=True).array)))
    assert out.tobytes() == expected.tobytes(), (sizes, strides)
    return True


def lines_of(function):
    """The numbers of a function's lines that hold code."""
    code = function.__code__
    return {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}


def main(runs):
    source, reached, accepted, compared = random.Random(runs), set(), 0, 0
    wanted = set().union(*[lines_of(f) for f in vars(_dlpack).values()
                           if inspect.isfunction(f) and f.__module__ == _dlpack.__name__])

    def trace(frame, event, _):
        if frame.f_code.co_filename != _dlpack.__file__:
            return None
        if event == "line":
            reached.add(frame.f_lineno)
        return trace

    for run in range(runs):
        producer = Producer(source)
        sys.settrace(trace if run % 20 == 0 else None)  # tracing takes most of the time
        try:
            v = view(producer, "x", write=source.random() < 0.2)
        except clt.Error as error:
            assert str(error).count("\n") == 0 and "x" in str(error)
            continue
        finally:
            sys.settrace(None)
        accepted += 1
        compared += check_view(v, producer)
    reached &= wanted
    print(f"{runs} runs: {accepted} headers accepted, {compared} of them copied by C and by NumPy")
    print(f"cltrain/_dlpack.py: {len(reached)} of {len(wanted)} lines reached, {100 * len(reached) / len(wanted):.1f} %; "
          f"not: {sorted(wanted - reached)}")
    assert accepted > runs // 100 and compared > runs // 1000 and len(reached) >= 0.8 * len(wanted)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000000)
