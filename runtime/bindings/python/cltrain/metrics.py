"""Metrics of predictions, with scikit-learn's definitions. See <cltrain/metrics.h>."""
import ctypes
import math

import numpy as np

from . import _api
from ._checks import expect
from ._handles import Guard, Handle
from ._lib import check, lib
from ._options import Options, document
from .arrays import view
from .errors import failure
from .world import World

_REGRESSION = ("mae", "mse", "rmse", "r2")
_CLASSES = [name for name in _api.MEMBERS["clt_metrics_result"]
            if name not in _REGRESSION + ("struct_size", "samples", "weight")]
_OF_CLASS = [name for name in _api.MEMBERS["clt_metrics_class"] if name != "struct_size"]
IGNORED = -100  # the label that cross_entropy and correct leave out


class Metrics(Handle):
    """Collects predictions batch by batch, and computes metrics of all of them.

        metrics = clt.Metrics(10, top=5, auc=True)              a classifier of 10 classes
        metrics.add(logits, labels)                             for each batch
        metrics.read()["f1_macro"], metrics.confusion

        clt.Metrics(outputs=3)                                  a regression: mae, mse, rmse, r2

    `trainer.evaluate(data, metrics=metrics)` adds all samples of a data set. Options are those of
    clt_metrics_options:

    """

    def __init__(self, classes=0, **options):
        given = Options("clt_metrics_options", {"classes": classes, **options})
        out = ctypes.c_void_p()
        check(lib.clt_metrics_create(ctypes.byref(given.struct), ctypes.byref(out)))
        self._own(out.value, lib.clt_metrics_destroy, "object of metrics", guard=Guard())
        self._guard = self._core.guard
        self._options = given.struct
        self.classes = given.struct.classes

    def add(self, predictions, targets, weights=None):
        """Adds samples. predictions: scores [count, classes] or numbers [count, outputs]. targets: labels [count], or
        numbers like the predictions. weights: a number for each sample."""
        of_targets = _api.CLT_I32 if self.classes else _api.CLT_F32
        views = [view(predictions, "predictions", _api.CLT_F32), view(targets, "targets", of_targets)]
        views.append(None if weights is None else view(weights, "weights", _api.CLT_F32))
        if not views[0].shape:
            raise failure("shape", "predictions need a dimension for the samples")
        arrays = [None if v is None else ctypes.byref(v.array) for v in views]
        with self._guard:
            check(lib.clt_metrics_add(self._core.use(), *arrays, views[0].shape[0]))

    def gather(self, world):
        """Adds the samples of all other ranks. All ranks call it once, after the last sample."""
        expect(world, World, "world", "a clt.World")
        with self._guard:
            check(lib.clt_metrics_gather(self._core.use(), world._pointer()))

    def read(self):
        """Returns a dict: "samples", "accuracy", "precision_macro" and so on, or "mae", "mse", "rmse" and "r2". A metric
        that these samples do not define is NaN."""
        struct = _api.clt_metrics_result()
        lib.clt_metrics_result_init(ctypes.byref(struct))
        with self._guard:
            check(lib.clt_metrics_read(self._core.use(), ctypes.byref(struct)))
        unwanted = {name for name, wanted in (("auc", self._options.auc), ("top_accuracy", self._options.top))
                    if not wanted}
        names = ["samples", "weight"] + [n for n in (_CLASSES if self.classes else _REGRESSION) if n not in unwanted]
        return {name: getattr(struct, name) for name in names}

    def by_class(self):
        """Returns a dict for each class: precision, recall, f1, auc and support."""
        rows = []
        for number in range(self.classes):
            struct = _api.clt_metrics_class()
            lib.clt_metrics_class_init(ctypes.byref(struct))
            with self._guard:
                check(lib.clt_metrics_read_class(self._core.use(), number, ctypes.byref(struct)))
            rows.append({name: getattr(struct, name) for name in _OF_CLASS if name != "auc" or self._options.auc})
        return rows

    @property
    def confusion(self):
        """A matrix [label, prediction] of the samples' weights, or of their numbers without weights."""
        if not self.classes:
            raise failure("invalid_argument", "a regression has no confusion matrix: it needs the number of classes")
        matrix = np.empty((self.classes, self.classes))
        with self._guard:
            check(lib.clt_metrics_confusion(self._core.use(), matrix.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
                                            matrix.size))
        return matrix


Metrics.__doc__ += document("clt_metrics_options", ["classes"])


def measured(model, metrics, output, field, ignore_index):
    """Returns (Metrics, output, field) of an evaluation. Metrics that are not given fit the output."""
    outputs = list(model.outputs) or [n for n in ("logits", "prediction") if lib.clt_graph_find(model._core.use(), n)]
    if output is None and len(outputs) != 1:
        raise failure("invalid_argument", f"the model has the outputs {', '.join(outputs) or '(none)'}: give output=, the "
                                          "one that is measured")
    output = outputs[0] if output is None else output
    field = list(model.inputs)[-1] if field is None else field
    if isinstance(metrics, Metrics):
        return metrics, output, field
    if metrics is not True and not isinstance(metrics, dict):
        raise failure("invalid_argument", f"metrics is {type(metrics).__name__}: give True, a dict of options, or Metrics")
    options = {} if metrics is True else dict(metrics)
    shape = model.find(output).shape
    if field in model.inputs and model.inputs[field].dtype == "i32":
        options = {"classes": shape[-1], "logits": 1, "ignore_index": IGNORED if ignore_index is None else ignore_index,
                   **options}
    else:
        options = {"outputs": math.prod(shape[1:]), **options}
    return Metrics(**options), output, field
