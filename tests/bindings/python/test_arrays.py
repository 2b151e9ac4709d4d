"""Arrays: NumPy, DLPack, lists; what is read in place, what is converted, what is refused."""
import ctypes
import os
import random

import numpy as np

import cltrain as clt
import support
from cltrain import _api, _dlpack
from cltrain._lib import check, lib
from cltrain.arrays import view

_new = ctypes.pythonapi.PyCapsule_New
_new.argtypes, _new.restype = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p], ctypes.py_object
_NAMES = {"versioned": b"dltensor_versioned", "plain": b"dltensor", "used": b"used_dltensor"}


class Producer:
    """A tensor of another library: an array that is only known by DLPack."""

    def __init__(self, array, kind="plain", device=1, version=(1, 0), read_only=False, **header):
        self.array = array
        self.kind, self.device = kind, device
        managed = _dlpack.Versioned() if kind == "versioned" else _dlpack.Managed()
        if kind == "versioned":
            managed.major, managed.minor = version
            managed.flags = int(read_only)
        t = managed.tensor
        size = array.itemsize
        self.shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
        self.strides = (ctypes.c_int64 * max(1, array.ndim))(*[s // size for s in array.strides])
        t.data, t.device.type, t.ndim = array.ctypes.data, device, array.ndim
        t.dtype.code = {"f": 2, "i": 0, "u": 1, "c": 5, "b": 6}[array.dtype.kind]
        t.dtype.bits, t.dtype.lanes = size * 8, 1
        t.shape, t.strides = self.shape, self.strides
        for name, value in header.items():
            setattr(t.dtype if name in ("code", "bits", "lanes") else t, name, value)
        self.managed = managed

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self, **options):
        if options and self.kind != "versioned":
            raise TypeError("an old producer")
        return _new(ctypes.addressof(self.managed), _NAMES[self.kind], None)


class Views(support.Case):
    def test_numpy(self):
        a = np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-1]
        v = view(a, "a")
        self.assertEqual(v.array.host, a.ctypes.data)
        self.assertEqual(list(v.array.strides[:2]), list(a.strides))
        self.assertEqual(list(v.array.shape[:2]), [2, 6])
        out = np.zeros((2, 6), np.float32)
        check(lib.clt_array_copy(ctypes.byref(v.array), ctypes.byref(view(out, "out", write=True).array)))
        self.assert_same(out, a)

    def test_types(self):
        for dtype, wanted in ((np.int8, _api.CLT_I32), (np.uint16, _api.CLT_I32), (np.uint32, _api.CLT_I64),
                              (np.float16, _api.CLT_F32), (np.float64, _api.CLT_F64), (np.uint8, _api.CLT_U8)):
            self.assertEqual(view(np.ones(3, dtype), "a").array.dtype, wanted)
        swapped = np.arange(3, dtype=">f4")
        self.assert_same(view(swapped, "a").source, [0, 1, 2])
        self.assertEqual(view([1.5, 2.5], "a").array.dtype, _api.CLT_F64)

    def test_refused(self):
        for bad in (np.ones(2, bool), np.ones(2, np.complex64), np.ones(2, np.uint64), np.array(["a"]),
                    np.array([None]), [[1, 2], [3]]):
            with self.assertRaises(clt.Error) as caught:
                view(bad, "input 'x'")
            self.assertIn("input 'x'", str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        with self.assertRaises(clt.InvalidArgumentError):
            view(np.zeros((1,) * 9, np.float32), "a")
        frozen = np.zeros(3, np.float32)
        frozen.flags.writeable = False
        with self.assertRaises(clt.InvalidArgumentError):
            view(frozen, "out", write=True)


class DLPack(support.Case):
    def test_address(self):
        """C gets the producer's address."""
        x = support.numbers(12, 4)
        for kind in ("plain", "versioned"):
            data = clt.Dataset.arrays(x=Producer(x, kind))
            pointer = ctypes.c_void_p()
            check(lib.clt_dataset_field_data(data._core.use(), 0, ctypes.byref(pointer)))
            self.assertEqual(pointer.value, x.ctypes.data)
            data.close()

    def test_step(self):
        """The step reads the producer's memory with copy=False, and a copy otherwise."""
        net = support.line()
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=8, lr=0.1)
        x, y = support.numbers(8, 3), support.numbers(8, 1, seed=1)
        seen, original = [], trainer._c_step

        def spy(handle, pointer, event):
            batch = pointer._obj
            seen.append([batch.feeds[i].array.host for i in range(batch.n_feeds)])
            return original(handle, pointer, event)

        trainer._c_step = spy
        reference = support.Line(trainer.store, 0.1)
        for kind in ("plain", "versioned"):
            step = trainer.step(x=Producer(x, kind), y=Producer(y, kind), copy=False)
            self.assert_close(float(step), reference.step(x, y))
            self.assertEqual(seen.pop(), [x.ctypes.data, y.ctypes.data])
        step = trainer.step(x=x, y=y, copy=False)
        self.assert_close(float(step), reference.step(x, y))
        self.assertEqual(seen.pop(), [x.ctypes.data, y.ctypes.data])
        for arrays in ({"x": Producer(x), "y": Producer(y)}, {"x": x, "y": y}):
            step = trainer.step(arrays)
            wanted = reference.step(x, y)
            self.assertNotIn(x.ctypes.data, seen.pop())
            self.assert_close(float(step), wanted)

    def test_strides(self):
        a = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
        v = view(Producer(a), "a")
        out = np.zeros((4, 3), np.float32)
        check(lib.clt_array_copy(ctypes.byref(v.array), ctypes.byref(view(out, "out", write=True).array)))
        self.assert_same(out, a)
        dense = view(Producer(np.ones((2, 3), np.float32), strides=None), "a")
        self.assertEqual(list(dense.array.strides[:2]), [12, 4])

    def test_refused(self):
        a = np.ones((2, 3), np.float32)
        cases = [
            (Producer(np.ones(2, np.complex64)), "complex64"), (Producer(np.ones(2, bool)), "bool8"),
            (Producer(a, device=2), "CUDA"), (Producer(a, device=99), "99"), (Producer(a, kind="used"), "capsule"),
            (Producer(a, kind="versioned", version=(2, 0)), "2.0"), (Producer(a, ndim=9), "9 dimensions"),
            (Producer(a, ndim=-1), "-1 dimensions"), (Producer(a, lanes=4), "vectors of 4"),
            (Producer(a, shape=None), "no shape"), (Producer(a, data=None), "no memory"),
            (Producer(a, byte_offset=2**63), "bytes behind"),
        ]
        negative = Producer(a)
        negative.shape[0] = -2
        huge = Producer(a)
        huge.shape[0] = huge.shape[1] = 2**40
        for producer, words in cases + [(negative, "negative"), (huge, "no memory holds")]:
            with self.assertRaises(clt.Error) as caught:
                view(producer, "input 'x'")
            self.assertIn(words, str(caught.exception))
        with self.assertRaises(clt.InvalidArgumentError):
            view(Producer(a, kind="versioned", read_only=True), "out", write=True)

    def test_random_headers(self):
        """Whatever a header holds, it is described within its limits or refused."""
        source = random.Random(5)
        memory, good = np.ones(64, np.float32), 0
        sizes = [0, 1, 2, 3, 8, -1, 2**31, 2**40, 2**62, 2**63 - 1, -2**63]
        for _ in range(int(os.environ.get("CLT_TEST_RUNS", "20000"))):
            t = _dlpack.Tensor()
            rank = source.choice([0, 1, 2, 3, 8, 9, -1, 2**31 - 1])
            shape = (ctypes.c_int64 * 9)(*[source.choice(sizes) for _ in range(9)])
            strides = (ctypes.c_int64 * 9)(*[source.choice(sizes) for _ in range(9)])
            t.data = source.choice([0, memory.ctypes.data])
            t.device.type, t.ndim = source.choice([1, 1, 1, 3, 4, 2, 77]), rank
            t.dtype.code, t.dtype.bits = source.choice([2, 2, 0, 1, 4, 5, 6, 200]), source.choice([32, 16, 64, 8, 1, 255])
            t.dtype.lanes = source.choice([1, 1, 1, 0, 2])
            t.shape = source.choice([shape, shape, None]) if 0 <= rank <= 9 else None
            t.strides = source.choice([strides, None])
            t.byte_offset = source.choice([0, 0, 4, 2**61, 2**64 - 1])
            array = _api.clt_array()
            try:
                _dlpack.fill(array, t, "x")
            except clt.Error:
                continue
            good += 1
            self.assertEqual(array.rank, t.ndim)
            reach = sum(max(0, array.shape[i] - 1) * abs(array.strides[i]) for i in range(array.rank))
            self.assertTrue(array.offset < 2**62 and reach < 2**62)
            self.assertTrue(all(size >= 0 for size in array.shape[:array.rank]))
        self.assertGreater(good, 100)


if __name__ == "__main__":
    support.main()
