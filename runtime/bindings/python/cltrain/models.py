"""The models of the command, and model files."""
import ctypes
import json
import os

from . import _api
from ._checks import encoded, expect, number, several
from ._layers import weights_of_classes
from ._lib import check, lib, text
from .data import Dataset, described
from .errors import failure
from .graph import Graph, Value


def models():
    """Returns the built-in models: name -> what it is."""
    return {text(lib.clt_model_name(i)): text(lib.clt_model_text(i)) for i in range(lib.clt_model_count())}


def load_model(name, data=None, fields=None, ignore_index=-100, batch=0, class_weights=None):
    """Builds a built-in model ("lenet", "mlp:512,256", "gpt2:nano"), or that of a model file ("net.json").

    data: a Dataset, or a dict of arrays, whose fields decide sizes.
    fields: instead, name -> (type, shape of a sample, number of classes or 0). A model file that has shapes
    needs neither.
    class_weights: of a classifier, a number for each class.
    """
    if isinstance(data, dict):
        data = Dataset.arrays(data)
    expect(data, (Dataset, type(None)), "data", "a clt.Dataset, or a dict of arrays")
    if fields is None:
        fields = data.fields if data is not None else {}
    fields = described(fields)
    rows = (_api.clt_model_field * max(1, len(fields)))()
    for row, (field, (dtype, shape, classes)) in zip(rows, fields.items()):
        row.name, row.dtype, row.rank = encoded(field, "the name of a field"), dtype, len(shape)
        if len(shape) > _api.CLT_DATA_MAX_RANK:
            raise failure("invalid_argument", f"field '{field}' has {len(shape)} dimensions: at most "
                                              f"{_api.CLT_DATA_MAX_RANK}")
        row.dims[:len(shape)] = shape
        row.classes = classes
    given = _api.clt_model_input(fields=rows, n_fields=len(fields), ignore_index=number(ignore_index, "int", "ignore_index"),
                                 batch=number(batch, "int64_t", "batch"))
    if class_weights is not None:
        classes = {row.classes for row in rows if row.classes}
        if len(classes) != 1:
            raise failure("invalid_argument", "class_weights need a field of labels whose number of classes is known")
        given.class_weights = (ctypes.c_double * len(class_weights))(*weights_of_classes(class_weights, classes.pop()))
    graph, name = Graph(), os.fsdecode(encoded(name, "name"))
    check(lib.clt_model_build(name, ctypes.byref(given), graph._core.use()))
    for field in list(fields) or _names_in_file(name):
        found = lib.clt_graph_find(graph._core.use(), field)
        if found:
            graph.inputs[field] = Value(graph, found)
    return graph


def _names_in_file(path):
    with open(path, encoding="utf-8") as file:
        return [row["name"] for row in json.load(file).get("inputs", [])]


def mlp(inputs, hidden, outputs, activation="tanh"):
    """Makes a perceptron that learns a function of numbers: inputs x [B, inputs] and y [B, outputs], output
    "prediction", loss mean of (prediction - y)^2."""
    hidden = [number(size, "int64_t", "a size of hidden") for size in several(hidden, "hidden", "a list of integers")]
    sizes = (ctypes.c_int64 * max(1, len(hidden)))(*hidden)
    out = ctypes.c_void_p()
    inputs, outputs = number(inputs, "int64_t", "inputs"), number(outputs, "int64_t", "outputs")
    check(lib.clt_mlp_regressor(inputs, sizes, len(hidden), outputs, activation, ctypes.byref(out)))
    graph = Graph.__new__(Graph)._begin(out.value)
    graph.inputs = {name: Value(graph, lib.clt_graph_find(out, name)) for name in ("x", "y")}
    return graph
