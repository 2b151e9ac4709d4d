"""Reservoirs: data sets that the program fills while a trainer draws from them."""
import contextlib
import ctypes
import weakref

import numpy as np

from . import _api
from ._checks import at_least, several, shown
from ._lib import check, lib, suggestion
from ._options import Options, document
from .arrays import DTYPES, view
from .data import Dataset, described, weights_of_samples
from .devices import Devices
from .errors import failure


class Reservoir(Dataset):
    """Holds up to `capacity` samples of those that were pushed; training draws from them with replacement.

        cells = clt.Reservoir(100_000, {"x": ("f32", (4,)), "y": ("f32", (1,))}, policy="uniform")
        trainer.set_reservoir(cells)
        while simulating:
            cells.push(x=states, y=changes)                  any thread; copied when the call returns
            loss = trainer.step_reservoir(10)

    Or a thread trains by `trainer.fit(cells, steps=..)`, while others push.

    fields: name -> (type, shape of a sample), and the number of classes if it holds labels. device: Devices in whose
    context OpenCL buffers lie that are pushed. Other options are those of clt_reservoir_options:

    """

    def __init__(self, capacity, fields, *, images=(), device=None, name="reservoir", **options):
        rows, images = described(fields), several(images, "images", "a list of names of fields")
        for field in images:
            if field not in rows:
                raise failure("not_found", f"images has {shown(field)}, which is no field{suggestion(field, list(rows))}")
        given = Options("clt_reservoir_options", options)
        if not isinstance(device, (Devices, type(None))):
            raise failure("invalid_argument", "device must be Devices, such as trainer.store.devices")
        out = ctypes.c_void_p()
        with device._core.guard if device is not None else contextlib.nullcontext():
            if device is not None:
                device._core.use()
                given.struct.device = device._array[0]
            check(lib.clt_dataset_create_reservoir(name, capacity, ctypes.byref(given.struct), ctypes.byref(out)))
            self._begin(out.value, None, [] if device is None else [device._core])
        self._trainers = weakref.WeakSet()  # those that draw from it
        self._types = {}
        for field, (dtype, shape, classes) in rows.items():
            place = ctypes.c_int()
            self._types[field] = dtype, shape
            sizes = (ctypes.c_int64 * max(1, len(shape)))(*shape)
            check(lib.clt_dataset_add_field(out, field, dtype, len(shape), sizes, None, _api.CLT_DATA_BORROW,
                                            ctypes.byref(place)))
            if field in images:
                check(lib.clt_dataset_set_image(out, place.value))
            if classes:
                check(lib.clt_dataset_set_classes(out, place.value, classes))

    def close(self):
        """Frees the reservoir. Trainers that drew from it go on without one. Closing twice is allowed."""
        if self._core.ptr is None:
            return
        self._core.shut = True  # no call on another thread begins from here on
        try:
            self._core.refuse_in_use()
            for trainer in list(self._trainers):
                if not trainer.closed:
                    trainer.set_reservoir(None)
            super().close()
        finally:
            self._core.shut = False

    @contextlib.contextmanager
    def _in_use(self):
        """A call that uses the reservoir, which cannot be closed meanwhile."""
        self._core.pin()
        try:
            yield self._core.use()
        finally:
            self._core.unpin()

    def _arrays(self, views):
        arrays = (_api.clt_array * max(1, len(views)))()
        for array, one in zip(arrays, views):
            ctypes.memmove(ctypes.byref(array), ctypes.byref(one.array), ctypes.sizeof(array))
        return arrays

    def push(self, *arrays, weights=None, **named):
        """Pushes samples: an array for each field, by name or in the order of the fields. `weights` has a number for
        each sample, with the policy "weighted"."""
        named = {**dict(zip(self._types, arrays)), **named}
        if set(named) != set(self._types) or len(arrays) > len(self._types):
            raise failure("invalid_argument", f"push needs an array for each of the fields {', '.join(self._types)}")
        views = [view(named[field], f"field '{field}'", dtype) for field, (dtype, _) in self._types.items()]
        if weights is not None:
            weights = weights_of_samples(weights)
            if weights.ndim != 1 or any(v.shape and v.shape[0] != len(weights) for v in views):
                raise failure("invalid_argument", "weights needs a number for each sample")
            weights = weights.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
        with self._in_use() as pointer:
            check(lib.clt_dataset_push(pointer, self._arrays(views), len(views), weights))

    def draw(self, seed, step, count, first=0):
        """Returns a dict of the samples that a step draws, from place `first` of its batch on; None if there are too
        few samples to begin."""
        count = at_least(0, count, "int64_t", "count")
        made = {field: np.empty((count,) + shape, DTYPES[dtype]) for field, (dtype, shape) in self._types.items()}
        views = [view(a, field, write=True) for field, a in made.items()]
        drawn = ctypes.c_int64()
        with self._in_use() as pointer:
            check(lib.clt_dataset_draw(pointer, seed, step, first, count, self._arrays(views), len(views),
                                       ctypes.byref(drawn)))
        return made if drawn.value == count else None

    def array(self, field):
        raise failure("unsupported", "a reservoir gives samples by draw: its memory changes while samples are pushed")

    @property
    def stats(self):
        """A dict: seen = kept + replaced + declined + dropped samples, capacity, bytes."""
        struct = _api.clt_reservoir_stats()
        lib.clt_reservoir_stats_init(ctypes.byref(struct))
        with self._in_use() as pointer:
            check(lib.clt_dataset_reservoir_stats(pointer, ctypes.byref(struct)))
        return {name: getattr(struct, name) for name, *_ in struct._fields_ if name != "struct_size"}


Reservoir.__doc__ += document("clt_reservoir_options")
