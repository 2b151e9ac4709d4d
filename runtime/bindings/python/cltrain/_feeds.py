"""Feeds of steps: C structures that are made once for each kind of batch and used again.

At most two steps are queued, and a step reads its arrays until it has run. So the arrays of a batch are
copied to memory of the trainer, of which there are three sets: the host program may change its arrays as
soon as the call returns.
"""
import ctypes

import numpy as np

from . import _api
from ._checks import number
from ._lib import lib, suggestion
from .arrays import DTYPES, convert, view
from .errors import failure

SETS = 3


class Input:
    """What a graph says about an input."""
    __slots__ = ("name", "encoded", "dtype", "shape", "batched")

    def __init__(self, name, value):
        self.name = name
        self.encoded = name.encode()
        self.dtype = _api.ENUMS["clt_dtype"][value.dtype]
        self.shape = value.shape
        self.batched = -value.shape[0] if value.shape and value.shape[0] < 0 else 0  # rows of a sample; 0: no batch


class _Set:
    """One batch: the C structures, and the memory that they point to."""
    __slots__ = ("feeds", "arrays", "batch", "pointer", "staging", "keep")

    def __init__(self, count):
        self.feeds = (_api.clt_feed * max(1, count))()
        self.arrays = [feed.array for feed in self.feeds]  # they share the memory of the feeds
        self.batch = _api.clt_step_batch()
        lib.clt_step_batch_init(ctypes.byref(self.batch))
        self.batch.feeds, self.batch.n_feeds = self.feeds, count
        self.pointer = ctypes.byref(self.batch)
        self.staging = [None] * count
        self.keep = None


class Feeds:
    """Feeds for NumPy arrays of certain names, types, shapes and strides."""
    __slots__ = ("sets", "next", "staged", "direct", "count")

    def __init__(self, inputs, arrays, copy):
        self.sets = [_Set(len(arrays)) for _ in range(SETS)]
        self.next = 0
        self.staged, self.direct = [], []  # places in the list of arrays
        self.count = _count(inputs, {name: a.shape for name, a in arrays.items()})
        for place, (name, a) in enumerate(arrays.items()):
            row = inputs[name]
            checked = convert(a, row.dtype, f"input '{name}'")
            # The library checks the range of int64, and copies what it converts. The rest is copied here.
            wanted = DTYPES.get(row.dtype)
            by_library = checked.dtype != wanted or (not copy and a.dtype == wanted)
            (self.direct if by_library else self.staged).append(place)
            for one in self.sets:
                if not by_library:
                    one.staging[place] = np.empty(a.shape, wanted)
                _describe(one, place, row, checked if by_library else one.staging[place])
        for one in self.sets:
            one.batch.count = self.count

    def fill(self, arrays):
        """Returns the C batch for these arrays."""
        one = self.sets[self.next]
        self.next = (self.next + 1) % SETS
        for place in self.staged:
            np.copyto(one.staging[place], arrays[place])
        if self.direct:
            kept = []
            for place in self.direct:
                a = arrays[place]
                if a.dtype not in _AS_IS:
                    a = convert(a, None, "input")
                    one.arrays[place].strides[:a.ndim] = a.strides
                one.arrays[place].host = a.__array_interface__["data"][0] or ctypes.addressof(one.arrays[place])
                kept.append(a)
            one.keep = kept
        return one


_AS_IS = frozenset(DTYPES.values())


def _describe(one, place, row, a):
    feed, array = one.feeds[place], one.arrays[place]
    feed.name, feed.device = row.encoded, -1
    seen = view(a, f"input '{row.name}'", row.dtype)
    ctypes.memmove(ctypes.byref(array), ctypes.byref(seen.array), ctypes.sizeof(array))


def _count(inputs, shapes):
    """Returns the number of samples, which all arrays of a batch must agree on."""
    counts = {}
    for name, shape in shapes.items():
        if name not in inputs:
            raise failure("not_found", f"the model has no input '{name}'{suggestion(name, list(inputs))}")
        row = inputs[name]
        if row.batched:
            if not shape:
                raise failure("shape", f"input '{name}' needs a dimension for the samples")
            counts[name] = shape[0] // row.batched
    if len(set(counts.values())) > 1:
        raise failure("invalid_argument", "arrays of different numbers of samples: "
                      + ", ".join(f"{name} has {n}" for name, n in counts.items()))
    return next(iter(counts.values()), 1)


def check_count(count, held):
    """Refuses a number of samples that is not that of the arrays."""
    if number(count, "int64_t", "count") != held:
        raise failure("invalid_argument", f"count is {count}, and the arrays hold {held} samples: give slices of them, and "
                                          "no count")


def of_views(inputs, arrays, count=None):
    """Returns a batch of any arrays, such as DLPack tensors and OpenCL buffers, which are read in place."""
    views = {}
    for name, value in arrays.items():
        if name not in inputs:
            raise failure("not_found", f"the model has no input '{name}'{suggestion(name, list(inputs))}")
        views[name] = view(value, f"input '{name}'", inputs[name].dtype)
    shapes = {name: v.shape for name, v in views.items() if v.shape is not None}
    one = _Set(len(views))
    if any(inputs[name].batched for name in shapes):
        held = _count(inputs, shapes)
        if count is not None:
            check_count(count, held)
        count = held
    elif count is not None:
        count = number(count, "int64_t", "count")
    elif any(inputs[name].batched for name in views):
        raise failure("invalid_argument", "OpenCL buffers do not say how many samples they hold: give count=")
    else:
        count = 1
    one.batch.count = count
    for place, (name, v) in enumerate(views.items()):
        one.feeds[place].name, one.feeds[place].device = inputs[name].encoded, -1
        ctypes.memmove(ctypes.byref(one.arrays[place]), ctypes.byref(v.array), ctypes.sizeof(v.array))
    one.keep = list(views.values())
    return one
