#!/usr/bin/env python3
"""Writes arrays/: NPZ and HDF5 files as numpy and h5py make them, good and bad.

    pip install numpy==2.4.6 h5py==3.16.0
    python3 make_arrays.py

Element i of array x (all dimensions counted as one) is i * 0.25 - 3; of n, i * 7 - 20; of label, i % 3; of byte,
i * 5 % 256.
"""
import os

import h5py
import numpy

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "arrays")
COUNT = 25


def x(count, kind, *shape):
    size = count * int(numpy.prod(shape))
    return (numpy.arange(size) * 0.25 - 3).astype(kind).reshape(count, *shape)


def n(count, kind):
    return (numpy.arange(count * 4) * 7 - 20).astype(kind).reshape(count, 4)


def arrays(count, wide):
    return {"x": x(count, "f8" if wide else "f4", 2, 3), "n": n(count, "i8" if wide else "i4"),
            "label": (numpy.arange(count) % 3).astype("i8" if wide else "u1"),
            "byte": (numpy.arange(count * 2) * 5 % 256).astype("u1").reshape(count, 2)}


def main():
    os.makedirs(FOLDER, exist_ok=True)
    at = lambda name: os.path.join(FOLDER, name)
    numpy.savez(at("stored.npz"), **arrays(COUNT, True))
    numpy.savez_compressed(at("deflated.npz"), **arrays(COUNT, False))
    numpy.savez(at("named.npz"), x_train=x(5, "f4", 2), label_train=numpy.arange(5) % 3, x_test=x(3, "f4", 2),
                label_test=numpy.arange(3) % 3)
    numpy.savez(at("half_named.npz"), x_train=x(5, "f4"), y=x(5, "f4"))
    numpy.savez(at("counts.npz"), x=x(5, "f4"), y=x(6, "f4"))
    numpy.savez(at("complex.npz"), x=numpy.zeros(5, "c8"))
    numpy.savez(at("big.npz"), x=x(5, ">f4"))
    numpy.savez(at("fortran.npz"), x=numpy.asfortranarray(x(5, "f4", 3)))
    numpy.savez(at("scalar.npz"), x=numpy.float32(1))
    numpy.savez(at("large.npz"), n=numpy.array([1, 2, 3, 2 ** 31, 5, 6, 7, 8, 9, 10, 11, 12]))
    numpy.savez(at("negative.npz"), label=numpy.array([1, 2, -3] * 5), x=x(15, "f4"))
    for name, wide in (("wide.h5", True), ("narrow.h5", False)):
        with h5py.File(at(name), "w") as file:
            for key, value in arrays(COUNT, wide).items():
                file.create_dataset(key, data=value, compression="gzip" if wide else None)
    with h5py.File(at("split.h5"), "w") as file:
        for split, count in (("train", 5), ("test", 3)):
            for key, value in arrays(count, False).items():
                file.create_dataset(f"{split}/{key}", data=value.astype(value.dtype.newbyteorder(">")))
    with h5py.File(at("text.h5"), "w") as file:
        file["x"] = x(5, "f4")
        file["words"] = ["a", "b", "c", "d", "e"]
    with h5py.File(at("counts.h5"), "w") as file:
        file["x"] = x(5, "f4")
        file["y"] = x(6, "f4")
    with h5py.File(at("sparse.h5"), "w") as file:  # one chunk of many is written
        file.create_dataset("x", shape=(10 ** 9, 784), dtype="f4", chunks=(16, 784), compression="gzip")[:16] = 1


main()
