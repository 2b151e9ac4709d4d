"""Predictions: outputs of a model without training."""
import ctypes
from collections.abc import Mapping

import numpy as np

from . import _api
from ._checks import expect
from ._handles import Handle
from ._lib import check, lib, suggestion, text
from ._options import Options, document
from .arrays import DTYPES, dtype_name, view
from .errors import failure
from .graph import Graph
from .store import Store


# Types that the library converts results to.
_LONGER = {_api.CLT_F32: _api.CLT_F64, _api.CLT_I32: _api.CLT_I64}


class Predictor(Handle):
    """Computes the outputs of a model with the parameters of a store.

        predictor = clt.Predictor(model, trainer.store, batch=256)
        logits = predictor(images)                a NumPy array; with several outputs a dict
        predictor(image=images)                   by the names of inputs

    Options are those of clt_predictor_options:

    """

    def __init__(self, model, store, **options):
        expect(model, Graph, "model", "a clt.Graph")
        expect(store, Store, "store", "a clt.Store, such as trainer.store")
        given = Options("clt_predictor_options", options)
        out = ctypes.c_void_p()
        with store._guard:
            check(lib.clt_predictor_create(model._core.use(), store._core.use(), ctypes.byref(given.struct),
                                           ctypes.byref(out)))
            self._own(out.value, lib.clt_predictor_destroy, "predictor", [store._core], store._guard)
            self.inputs = self._describe(lib.clt_predictor_input_count, lib.clt_predictor_input)
            self.outputs = self._describe(lib.clt_predictor_output_count, lib.clt_predictor_output)
        self._guard = store._guard
        self._core.keep = given
        self.batch = given.struct.batch

    def _describe(self, count, describe):
        rows = {}
        name, dtype, rank = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int()
        dims = (ctypes.c_int64 * _api.CLT_MAX_RANK)()
        for index in range(count(self._core.use())):
            check(describe(self._core.use(), index, ctypes.byref(name), ctypes.byref(dtype), ctypes.byref(rank), dims))
            rows[text(name.value)] = (dtype.value, tuple(dims[:rank.value]))
        return rows

    def __call__(self, *arrays, out=None, **named):
        """Returns the outputs for any number of samples, in runs of at most `batch`.

        out: a dict with arrays of one's own for outputs, by name. They have the shapes of these outputs, and their
        types: f64 does for f32, and i64 for i32. An OpenCL buffer without a shape holds one run of the whole batch.
        """
        named = self._named(arrays, named)
        views = {name: view(value, f"input '{name}'", self.inputs[name][0]) for name, value in named.items()}
        count = self._count(views)
        if out is None:
            out = {}
        self._check_names(out)
        results = {name: self._result(name, count, out) for name in self.outputs}
        with self._guard:
            for start in range(0, max(count, 1), self.batch):
                self._run(views, results, start, min(self.batch, count - start))
            check(lib.clt_predictor_wait(self._core.use()))
        made = {name: out[name] if name in out else result.source for name, result in results.items()}
        return made if len(made) > 1 else next(iter(made.values()))

    def _check_names(self, out):
        if not isinstance(out, Mapping):
            raise failure("invalid_argument", f"out is {type(out).__name__}: give a dict from names of outputs to arrays")
        for name in out:
            if name not in self.outputs:
                raise failure("not_found", f"out has '{name}', but the model has no such output"
                                           f"{suggestion(str(name), list(self.outputs))}")

    def _result(self, name, count, out):
        """Returns a view of the array for an output of `count` samples. The library gets the shapes of parts only, so
        whether these parts lie in the array is checked here."""
        dtype, dims = self.outputs[name]
        shape = tuple(-d * count if d < 0 else d for d in dims)
        if name not in out:
            return view(np.empty(shape, DTYPES[dtype]), name, write=True)
        result = view(out[name], f"output '{name}'", write=True)
        if result.shape is None:
            if count > self.batch:
                raise failure("invalid_argument", f"output '{name}' is an OpenCL buffer without a shape, which holds a "
                                                  f"batch of {self.batch} samples and not {count}: give a clt.Buffer")
            return result
        if result.shape != shape:
            raise failure("shape", f"output '{name}' is {list(result.shape)} and must be {list(shape)}")
        if result.array.dtype != dtype and (not result.on_host or result.array.dtype != _LONGER.get(dtype)):
            raise failure("invalid_argument", f"output '{name}' has elements {dtype_name(result.array.dtype)}, and must "
                                              f"have {dtype_name(dtype)}")
        return result

    def _named(self, arrays, named):
        if len(arrays) == 1 and isinstance(arrays[0], dict):
            named = {**arrays[0], **named}
        else:
            if len(arrays) > len(self.inputs):
                raise failure("invalid_argument", f"{len(arrays)} arrays, but the outputs need the inputs "
                                                  f"{', '.join(self.inputs)}")
            named = {**dict(zip(self.inputs, arrays)), **named}
        for name in named:
            if name not in self.inputs:
                raise failure("not_found", f"the outputs need no input '{name}'{suggestion(name, list(self.inputs))}")
        for name in self.inputs:
            if name not in named:
                raise failure("invalid_argument", f"the array of input '{name}' is missing")
        return named

    def _count(self, views):
        counts = {name: v.shape[0] for name, v in views.items()
                  if v.shape and self.inputs[name][1][:1] and self.inputs[name][1][0] < 0}
        if len(set(counts.values())) > 1:
            raise failure("invalid_argument", "arrays of different numbers of samples: "
                          + ", ".join(f"{name} has {n}" for name, n in counts.items()))
        # Inputs of OpenCL buffers have no shape: they hold one run of the whole batch.
        bare = [name for name, v in views.items() if v.shape is None]
        if bare and max(counts.values(), default=0) > self.batch:
            raise failure("invalid_argument", f"input '{bare[0]}' is an OpenCL buffer without a shape, which holds at most "
                                              f"{self.batch} samples: give a clt.Buffer")
        return next(iter(counts.values()), self.batch if any(v.shape is None for v in views.values()) else 1)

    def _run(self, views, results, start, count):
        feeds = (_api.clt_feed * max(1, len(views)))()
        for feed, (name, v) in zip(feeds, views.items()):
            feed.name, feed.device = name.encode(), -1
            feed.array = v.array
            _part(feed.array, self.inputs[name][1], start, count)
        fetches = (_api.clt_fetch * max(1, len(results)))()
        for fetch, (name, v) in zip(fetches, results.items()):
            fetch.name, fetch.device = name.encode(), -1
            fetch.array = v.array
            _part(fetch.array, self.outputs[name][1], start, count)
        batch = _api.clt_step_batch()
        lib.clt_step_batch_init(ctypes.byref(batch))
        batch.count, batch.feeds, batch.n_feeds = count, feeds, len(views)
        batch.fetches, batch.n_fetches = fetches, len(results)
        check(lib.clt_predictor_run(self._core.use(), ctypes.byref(batch), None))


def _part(array, dims, start, count):
    """Narrows a view of all samples to those of a run."""
    if dims and dims[0] < 0 and not array.whole:
        distance = start * -dims[0] * array.strides[0]
        if array.buffer:
            array.offset += distance
        else:  # the stride may be negative, and an offset may not
            array.host = (array.host or 0) + distance
        array.shape[0] = count * -dims[0]


Predictor.__doc__ += document("clt_predictor_options")
