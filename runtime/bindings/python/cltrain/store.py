"""Stores: the parameters and states of a model, as a mapping from names to NumPy arrays."""
import ctypes
import weakref
from collections.abc import Mapping

import numpy as np

from . import _api
from ._checks import expect, number
from ._handles import Handle
from ._lib import NULL, check, lib, owned_text, suggestion, text
from ._options import Options, document
from .arrays import DTYPES, dtype_name, view
from .devices import open_devices
from .errors import failure
from .world import World


class Store(Handle, Mapping):
    """The parameters and states of a model on devices.

        store["fc1.weight"]                  a copy as a NumPy array
        store["fc1.weight"] = array          on all devices
        store.save("net.safetensors")        PyTorch reads the file
        store.load("net.safetensors")        or a dict of arrays

    devices: Devices, or a list as for `clt.Devices`. Options are those of clt_store_options:

    """

    def __init__(self, model, devices=None, *, world=None, **options):
        _graph(model)
        given = Options("clt_store_options", options)
        expect(world, (World, type(None)), "world", "a clt.World")
        self.devices = open_devices(devices)
        if world is not None:
            given.struct.world = world._pointer()
        out = ctypes.c_void_p()
        with self.devices._core.guard:
            self.devices._core.use()  # no other thread has closed them
            check(lib.clt_store_create_with(
                model._core.use(), ctypes.cast(self.devices._array, ctypes.POINTER(ctypes.c_void_p)),
                len(self.devices), ctypes.byref(given.struct), ctypes.byref(out)))
            self._own(out.value, lib.clt_store_destroy, "store",
                      [self.devices._core] + ([world._core] if world else []), self.devices._core.guard)
            self._rows = self._describe()
        self._guard = self.devices._core.guard
        self.world = world
        self._core.keep = given
        self._predictors = weakref.WeakKeyDictionary()
        model._store = weakref.ref(self)

    def _describe(self):
        rows = {}
        name, dtype, rank, state = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        dims = (ctypes.c_int64 * _api.CLT_MAX_RANK)()
        for index in range(lib.clt_store_count(self._core.use())):
            check(lib.clt_store_describe(self._core.use(), index, ctypes.byref(name), ctypes.byref(dtype),
                                         ctypes.byref(rank), dims, ctypes.byref(state)))
            rows[text(name.value)] = (dtype.value, tuple(dims[:rank.value]), bool(state.value))
        return rows

    def _row(self, name):
        if not isinstance(name, str) or name not in self._rows:
            raise KeyError(f"the store has no tensor '{name}'{suggestion(str(name), list(self._rows))}")
        return self._rows[name]

    def __getitem__(self, name):
        dtype, shape, _ = self._row(name)
        if dtype not in DTYPES:
            raise failure("unsupported", f"'{name}' has the type {dtype_name(dtype)}, which NumPy lacks")
        out = np.empty(shape, DTYPES[dtype])
        with self._guard:
            if self.world is None:
                check(lib.clt_store_get(self._core.use(), name, out.ctypes.data, out.nbytes))
            else:
                check(lib.clt_store_collect(self._core.use(), name, out.ctypes.data, out.nbytes))
        return out

    def __setitem__(self, name, value):
        dtype, shape, _ = self._row(name)
        if np.isscalar(value):
            of_integers = dtype in (_api.CLT_I32, _api.CLT_I64, _api.CLT_U8)
            value = np.full(shape, number(value, "int32_t" if of_integers else "double", f"'{name}'"), DTYPES[dtype])
        seen = view(value, f"'{name}'", dtype)
        with self._guard:
            check(lib.clt_store_set_array(self._core.use(), name, ctypes.byref(seen.array)))

    def __iter__(self):
        return iter(self._rows)

    def __len__(self):
        return len(self._rows)

    def __contains__(self, name):
        return name in self._rows

    def __repr__(self):
        return f"<Store: {len(self)} tensors, {self.parameters:,} parameters>" if not self.closed else "<Store: closed>"

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__

    def is_state(self, name):
        """Returns whether a tensor is a state, which training does not update by gradients."""
        return self._row(name)[2]

    def shape(self, name):
        return self._row(name)[1]

    @property
    def parameters(self):
        """The number of elements of all parameters."""
        with self._guard:
            return lib.clt_store_parameters(self._core.use())

    def state_dict(self):
        """Returns a dict of copies of all tensors."""
        return {name: self[name] for name in self}

    def load(self, source, skip=None):
        """Loads a safetensors file, a checkpoint, or a dict that has all tensors.

        skip: patterns of names, separated by |, of tensors that keep their initial values: those of a new head.
        Files only. Then lines are returned that say what was loaded and what was not.
        """
        if skip is not None:
            report = ctypes.c_void_p()
            with self._guard:
                check(lib.clt_store_load_skipping(self._core.use(), source, skip,
                                                  ctypes.byref(report)))
            return owned_text(report.value)
        if isinstance(source, Mapping):
            missing = [name for name in self if name not in source]
            unknown = [name for name in source if name not in self]
            if missing:
                raise failure("mismatch", f"the dict lacks '{missing[0]}'")
            if unknown:
                raise failure("mismatch", f"the dict has '{unknown[0]}', which the model lacks")
            self._load_all(source)
            return None
        with self._guard:
            check(lib.clt_store_load_skipping(self._core.use(), source, NULL, None))
        return None

    def _load_all(self, source):
        """Sets all tensors, or none if one does not fit."""
        before = {}
        with self._guard:
            try:
                for name in self:
                    before[name] = self[name]
                    self[name] = source[name]
            except BaseException:
                for name, value in before.items():
                    self[name] = value
                raise

    def save(self, path):
        """Saves parameters and states as a safetensors file."""
        with self._guard:
            check(lib.clt_store_save(self._core.use(), path))

    def check(self):
        """Compares the bits of all devices. Raises MismatchError if they differ."""
        with self._guard:
            check(lib.clt_store_check(self._core.use()))

    def predict(self, model, *arrays, batch=256, **options):
        """Computes the outputs of a model for arrays. See Predictor.__call__."""
        from .predictor import Predictor
        batch = number(batch, "int64_t", "batch")
        _graph(model)
        made = self._predictors.setdefault(model, {})
        if batch not in made or made[batch].closed:
            made[batch] = Predictor(model, self, batch=batch)
        return made[batch](*arrays, **options)


def _graph(model):
    from .graph import Graph
    return expect(model, Graph, "model", "a clt.Graph, such as clt.Sequential makes it")


Store.__doc__ += document("clt_store_options")
