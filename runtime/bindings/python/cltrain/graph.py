"""Graphs: models written out operator by operator. See docs/models.md and docs/operators.md."""
import ctypes
import gc
import numbers
import weakref

from . import _api
from ._checks import expect, number, several, shown
from ._handles import Handle
from ._layers import LayerMethods
from ._lib import check, lib, suggestion, text
from ._operators import Operators
from ._options import Options, enum
from .errors import failure

_Results = ctypes.c_void_p * _api.CLT_MAX_RESULTS
_DTYPES = {value: name for name, value in _api.ENUMS["clt_dtype"].items()}


class Value:
    """A tensor of a graph. The batch is written -1, and c times the batch -c."""
    __slots__ = ("graph", "_ptr")

    def __init__(self, graph, ptr):
        self.graph = graph
        self._ptr = ptr

    def _use(self):
        self.graph._core.use()
        return self._ptr

    @property
    def shape(self):
        ptr = self._use()
        return tuple(lib.clt_value_dim(ptr, axis) for axis in range(lib.clt_value_rank(ptr)))

    @property
    def dtype(self):
        return _DTYPES[lib.clt_value_dtype(self._use())]

    @property
    def name(self):
        return text(lib.clt_value_name(self._use()))

    def __repr__(self):
        sizes = "x".join("B" if d == -1 else f"{-d}B" if d < 0 else str(d) for d in self.shape)
        return f"<{self.name or 'value'}: {self.dtype}[{sizes}]>"

    def _binary(self, other, op, factor=None, term=None):
        if isinstance(other, Value):
            return getattr(self.graph, op)(self, other)
        if isinstance(other, numbers.Real) and factor is not None:
            return self.graph.scale(self, factor=factor(other), term=term(other))
        return NotImplemented

    def __add__(self, other):
        return self._binary(other, "add", lambda n: 1, float)

    __radd__ = __add__

    def __sub__(self, other):
        return self._binary(other, "sub", lambda n: 1, lambda n: -n)

    def __rsub__(self, other):
        return self._binary(other, "sub", lambda n: -1, float) if isinstance(other, numbers.Real) else NotImplemented

    def __mul__(self, other):
        return self._binary(other, "mul", float, lambda n: 0)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._binary(other, "div", lambda n: 1 / n, lambda n: 0)

    def __matmul__(self, other):
        return self._binary(other, "matmul")

    def __neg__(self):
        return self * -1


def _store(given):
    from .store import Store
    return expect(given, Store, "store", "a clt.Store, such as trainer.store")


def _sizes(shape):
    return [number(size, "int64_t", "a size of the shape") for size in several(shape, "shape", "a tuple of integers")]


def _pair(given, where="a loss or metric", what="(sum, weight), as cross_entropy, mse and correct return them"):
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise failure("invalid_argument", f"{where} is {shown(given)}: it must be {what}")
    return given


def _dims(sizes):
    return (ctypes.c_int64 * max(1, len(sizes)))(*sizes)


def _setting(value):
    """Returns an attribute's value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return repr(float(value))
    if isinstance(value, str):
        return value
    if value is None:  # the end of an axis, in `stop` of slice
        return "end"
    return ",".join(_setting(v) for v in value)


class Graph(LayerMethods, Operators, Handle):
    """A graph of operators. Its methods add a node each and return its value, or raise at once if
    shapes do not fit. Layers make their own parameters, with PyTorch's names and initial values:

        g = clt.Graph()
        x, label = g.input("image", (1, 28, 28)), g.input("label", (), "i32")
        h = g.relu(g.linear(g.flatten(x), 64, name="fc1"))
        y = g.output(g.linear(h, 10, name="fc2"), "logits")
        g.loss("loss", g.cross_entropy(y, label))
        g.metric("accuracy", g.correct(y, label))
    """

    def __init__(self):
        out = ctypes.c_void_p()
        check(lib.clt_graph_create(ctypes.byref(out)))
        self._begin(out.value)

    def _begin(self, pointer):
        self._own(pointer, lib.clt_graph_destroy, "graph")
        self.inputs = {}  # name -> Value
        self.outputs = {}
        self._counts = {}
        self._store = None
        self._trainers = weakref.WeakSet()
        return self

    def close(self):
        """Ends the use of the graph; trainers and stores keep what they need. Another thread may be in a call, so the
        graph's memory is freed with this object."""
        self._core.shut = True

    def _is_used(self):
        return any(not trainer.closed for trainer in self._trainers)

    def _change(self):
        """Returns the handle for a call that changes the graph. A trainer has read it, and would not see the change."""
        if self._is_used():
            gc.collect()  # a trainer in a cycle may be garbage
        if self._is_used():
            raise failure("state", "a trainer of this graph exists, and would not see the change: change the graph before "
                                   "clt.Trainer(..), or call trainer.close() first and make a new one then")
        return self._core.use()

    # --- tensors ----------------------------------------------------------------------------------

    def input(self, name, shape=(), dtype="f32", batch=True):
        """Adds an input. `shape` is that of a sample; with batch=False that of the whole tensor."""
        sizes = ([-1] if batch else []) + _sizes(shape)
        value = self._value(lib.clt_input(self._change(), name, enum("clt_dtype", dtype, "dtype"),
                                          len(sizes), _dims(sizes)))
        self.inputs[name] = value
        return value

    def parameter(self, name, shape, init=0.0, uniform=None, normal=None):
        """Adds a trained tensor. Its elements begin with `init`, or at random: `uniform` is the bound, `normal`
        the standard deviation or (mean, deviation). An earlier parameter of this name and shape is shared."""
        found, shape = lib.clt_graph_find(self._change(), name), _sizes(shape)
        if found and Value(self, found).shape == tuple(shape):
            return Value(self, found)
        return self._value(lib.clt_parameter(self._core.use(), name, len(shape), _dims(shape),
                                             _init(init, uniform, normal)))

    def state(self, name, shape, dtype="f32", init=0.0):
        """Adds a tensor that changes by `assign` only, such as running statistics."""
        shape = _sizes(shape)
        return self._value(lib.clt_state(self._change(), name, enum("clt_dtype", dtype, "dtype"),
                                         len(shape), _dims(shape), _init(init, None, None)))

    def assign(self, state, value):
        """Gives a state its next value at the end of each training step."""
        check(lib.clt_assign(self._core.use(), self._pointer(state), self._pointer(value)))

    def constant(self, array):
        """Adds a constant from an array."""
        from .arrays import view
        seen = view(array, "the constant")
        import numpy as np
        dense = np.ascontiguousarray(seen.source if seen.source is not None else np.from_dlpack(array))
        if dense.dtype == np.float64:
            dense = dense.astype(np.float32)
        if dense.dtype == np.int64:
            if dense.size and (dense.min() < -2**31 or dense.max() >= 2**31):
                raise failure("invalid_argument", "the constant has integers that i32 cannot hold")
            dense = dense.astype(np.int32)
        seen = view(dense, "the constant")
        return self._value(lib.clt_constant(self._change(), seen.array.dtype, len(dense.shape), _dims(dense.shape),
                                            seen.array.host))

    def find(self, name):
        """Returns the input, parameter, state or output of this name."""
        found = lib.clt_graph_find(self._core.use(), name)
        if not found:
            raise failure("not_found", f"the graph has no tensor '{name}'")
        return Value(self, found)

    # --- results ----------------------------------------------------------------------------------

    def output(self, value, name="output"):
        """Makes a value a result of predictions."""
        self.outputs[name] = self._value(lib.clt_output(self._pointer(value), name))
        return self.outputs[name]

    def output_gradient(self, value, name):
        """Adds an input for the gradient of an output, which the program computes."""
        made = self._value(lib.clt_output_gradient(self._pointer(value), name))
        self.inputs[name] = made
        return made

    def input_gradient(self, name):
        """Asks training for the gradient of an input, which Trainer.input_gradient reads. Call it before a trainer is
        made."""
        check(lib.clt_input_gradient(self._change(), name))

    def loss(self, name, sum_and_weight, coefficient=1.0):
        """Declares a loss of (sum, weight), as cross_entropy, mse and others return them."""
        total, weight = _pair(sum_and_weight)
        check(lib.clt_loss(self._core.use(), name, self._pointer(total), self._pointer(weight), coefficient))

    def metric(self, name, sum_and_weight):
        """Declares a metric of (sum, weight), as `correct` returns them."""
        total, weight = _pair(sum_and_weight)
        check(lib.clt_metric(self._core.use(), name, self._pointer(total), self._pointer(weight)))

    @property
    def losses(self):
        handle = self._core.use()
        return [text(lib.clt_graph_loss_name(handle, i)) for i in range(lib.clt_graph_loss_count(handle))]

    @property
    def metrics(self):
        handle = self._core.use()
        return [text(lib.clt_graph_metric_name(handle, i)) for i in range(lib.clt_graph_metric_count(handle))]

    # --- training ---------------------------------------------------------------------------------

    def freeze(self, pattern):
        """Excludes parameters from training, by a shell pattern of names. Returns their number."""
        return self._match(lib.clt_freeze, pattern)

    def lora(self, pattern, **options):
        """Adds low-rank adapters to linear layers by name, and freezes everything else. Call it before a trainer is
        made. Options: rank, alpha, dropout, as in clt_lora_options. Returns the number of layers."""
        given = Options("clt_lora_options", {"pattern": pattern, **options})
        count = ctypes.c_int()
        check(lib.clt_lora(self._change(), ctypes.byref(given.struct), ctypes.byref(count)))
        return count.value

    def save_adapters(self, store, folder):
        """Saves the adapters of `lora` alone, as peft does."""
        _store(store)
        with store._guard:
            check(lib.clt_lora_save(self._core.use(), store._core.use(), folder))

    def load_adapters(self, store, path):
        """Loads adapters from such a folder, or from a safetensors file."""
        _store(store)
        with store._guard:
            check(lib.clt_lora_load(self._core.use(), store._core.use(), path))

    def merge_adapters(self, store):
        """Adds the adapters to the weights of their layers, and sets each lora_B to zero. The model computes the same."""
        _store(store)
        with store._guard:
            check(lib.clt_lora_merge(self._core.use(), store._core.use()))

    def save_merged(self, store, path):
        """Saves the model with merged weights and without adapters, as a safetensors file."""
        _store(store)
        with store._guard:
            check(lib.clt_lora_save_merged(self._core.use(), store._core.use(), path))

    def param_group(self, pattern, lr=_api.CLT_COMMON_RATE, weight_decay=_api.CLT_COMMON_DECAY):
        """Gives parameters a factor of the rate and a weight decay of their own. Returns their number."""
        return self._match(lib.clt_param_group, pattern, lr, weight_decay)

    def shard(self, pattern, dim=0, blocks=1):
        """Splits parameters along the axis tp of meshes. Returns their number."""
        return self._match(lib.clt_shard, pattern, _api.CLT_AXIS_TENSOR, dim, blocks)

    def shard_value(self, value, axis, dim):
        """Splits a value along the axis "space" or "time" of meshes."""
        check(lib.clt_shard_value(self._pointer(value), enum("clt_axis", f"axis_{axis}", "axis"), dim))

    def cut(self, value):
        """Ends a stage of pipelines behind a value."""
        return self._value(lib.clt_cut(self._pointer(value)))

    def _match(self, function, pattern, *arguments):
        count = ctypes.c_int()
        check(function(self._change(), pattern, *arguments, ctypes.byref(count)))
        return count.value

    def summary(self):
        """Returns a table of layers, shapes and parameters."""
        from .summary import summary
        return summary(self)

    def predict(self, *arrays, **options):
        """Computes the outputs for arrays, with the parameters of the last trainer or store of this model."""
        if self._store is None or self._store() is None:
            raise failure("state", "the model has no parameters yet: make a Trainer or a Store of it, and keep it")
        return self._store().predict(self, *arrays, **options)

    # --- nodes ------------------------------------------------------------------------------------

    def _pointer(self, value):
        if not isinstance(value, Value):
            raise failure("invalid_argument", f"the operand is {shown(value)}: it must be a value of this graph")
        if value.graph is not self:
            raise failure("invalid_argument", f"{value!r} belongs to another graph")
        self._change()
        return value._use()

    def _value(self, pointer):
        if not pointer:
            check(lib.clt_graph_status(self._core.use()))
            raise failure("invalid_argument", "the value could not be made")
        return Value(self, pointer)

    def _name(self, op):
        """Returns a name for a layer that was given none."""
        self._counts[op] = self._counts.get(op, 0) + 1
        return f"{op}{self._counts[op]}"

    def _apply(self, op, operands, attributes, count, name):
        while operands and operands[-1] is None:
            operands.pop()
        pointers = (ctypes.c_void_p * max(1, len(operands)))(
            *[None if operand is None else self._pointer(operand) for operand in operands])
        settings = " ".join(f"{key}={_setting(value)}" for key, value in attributes.items() if value is not None)
        results = _Results()
        check(lib.clt_apply_text(self._change(), op, pointers, len(operands), settings, results))
        if name:
            lib.clt_label(results[0], name)
        if count == 1:
            return self._value(results[0])
        return tuple(self._value(results[i]) for i in range(count))


def _init(init, uniform, normal):
    if uniform is not None:
        uniform = number(uniform, "double", "uniform")
        return _api.clt_init(_api.CLT_INIT_UNIFORM, uniform, 0)
    if normal is not None:
        mean, deviation = _pair(normal, "normal", "(mean, deviation)") if isinstance(normal, (tuple, list)) else (0, normal)
        mean, deviation = number(mean, "double", "normal"), number(deviation, "double", "normal")
        return _api.clt_init(_api.CLT_INIT_NORMAL, mean, deviation)
    init = number(init, "double", "init")
    return _api.clt_init(_api.CLT_INIT_CONSTANT, init, 0) if init else _api.clt_init(_api.CLT_INIT_ZERO, 0, 0)


def operator_named(name):
    """Returns the method of Graph that adds an operator or layer."""
    method = getattr(Graph, name, None)
    names = [n for n in vars(Operators) if not n.startswith("_")]
    if method is None or name.startswith("_") or not (name in names or hasattr(LayerMethods, name)):
        raise AttributeError(f"there is no layer '{name}'{suggestion(name, names)}")
    return method
