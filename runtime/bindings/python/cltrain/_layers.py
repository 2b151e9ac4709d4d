"""Layers: operators that make their own parameters, named and initialised as in PyTorch."""
import ctypes
import math
import numbers

from . import _api
from ._checks import at_least, number, shown
from ._lib import check, lib
from ._operators import OPERANDS, Operators
from ._options import Options
from .errors import failure


def _several(value, count, where):
    values = list(value) if isinstance(value, (tuple, list)) else [value] * count
    if len(values) != count:
        raise failure("invalid_argument", f"{where} has {len(values)} sizes: it needs one, or {count}")
    return [number(size, "int64_t", where) for size in values]


def _is_size(value):
    """Returns whether a number is given, and not a value of the graph."""
    return isinstance(value, numbers.Number)


def weights_of_classes(values, classes):
    """Returns class weights as a list. The library reads as many numbers as there are classes."""
    try:
        values = [float(value) for value in values]
    except (TypeError, ValueError):
        raise failure("invalid_argument", f"class_weights is {shown(values)}: it needs a number for each of the {classes} "
                                          "classes") from None
    if len(values) != classes:
        raise failure("invalid_argument", f"class_weights has {len(values)} numbers: it needs one for each of the {classes} "
                                          "classes")
    return values


class LayerMethods:
    """Each method takes the operator's own operands too: `linear(x, 64)` makes weight and bias, and
    `linear(x, weight, bias)` is the bare operator."""

    def linear(self, x, out, bias=True, *, name=None):
        """x [.., K] -> [.., out], with NAME.weight [out, K] and NAME.bias [out]."""
        if not _is_size(out):
            return Operators.linear(self, x, out, None if isinstance(bias, bool) else bias, name=name)
        return self._product("linear", x, out, None, bias, name, {})

    def conv1d(self, x, out, kernel=None, bias=True, *, name=None, **attributes):
        """x [B, C, L] -> [B, out, ..]. Attributes: stride, padding, dilation, groups."""
        return self._product("conv1d", x, out, kernel, bias, name, attributes)

    def conv2d(self, x, out, kernel=None, bias=True, *, name=None, **attributes):
        """x [B, C, H, W] -> [B, out, ..], with a kernel of one size or (height, width). Attributes: stride,
        padding, dilation, groups."""
        return self._product("conv2d", x, out, kernel, bias, name, attributes)

    def conv3d(self, x, out, kernel=None, bias=True, *, name=None, **attributes):
        """x [B, C, D, H, W] -> [B, out, ..]. Attributes: stride, padding, dilation, groups."""
        return self._product("conv3d", x, out, kernel, bias, name, attributes)

    def conv_transpose1d(self, x, out, kernel=None, bias=True, *, name=None, **attributes):
        """x [B, C, L] -> [B, out, ..]. Attributes: stride, padding, output_padding, dilation, groups."""
        return self._product("conv_transpose1d", x, out, kernel, bias, name, attributes)

    def conv_transpose2d(self, x, out, kernel=None, bias=True, *, name=None, **attributes):
        """x [B, C, H, W] -> [B, out, ..]. Attributes: stride, padding, output_padding, dilation, groups."""
        return self._product("conv_transpose2d", x, out, kernel, bias, name, attributes)

    def _product(self, op, x, out, kernel, bias, name, attributes):
        if not _is_size(out):  # the weight is given, then the bias
            given = kernel if kernel is not None else None if isinstance(bias, bool) else bias
            return getattr(Operators, op)(self, x, out, given, name=name, **attributes)
        if op != "linear" and kernel is None:
            raise failure("invalid_argument", f"{op}: give the size of the kernel")
        out = number(out, "int64_t", "out")
        groups = at_least(1, attributes.get("groups", 1), "int", "groups")
        letters = dict(OPERANDS[op])
        name, sizes = name or self._name(op), x.shape
        of_x = letters["x"]
        if len(sizes) != len(of_x) if of_x[0] != "*" else not sizes:
            raise failure("shape", f"{op} '{name}': x has {len(sizes)} dimensions, the batch among them, and must have "
                                   f"{len(of_x)}")
        axes = sum(letter != "o" and letter not in of_x for letter in letters["weight"])  # of the kernel
        kernels = iter(_several(kernel, axes, "kernel") if axes else ())
        shape = []
        for letter in letters["weight"]:
            if letter in of_x:
                shape.append(sizes[of_x.index(letter) - len(of_x)])
            else:
                shape.append(out if letter == "o" else next(kernels))
        if op != "linear":
            shape[1] //= groups
        bound = 1 / math.sqrt(max(1, math.prod(shape[1:])))  # PyTorch's: one over the root of the fan in
        weight = self.parameter(f"{name}.weight", shape, uniform=bound)
        vector = self.parameter(f"{name}.bias", (out,), uniform=bound) if bias else None
        return getattr(Operators, op)(self, x, weight, vector, name=name, **attributes)

    def layer_norm(self, x, weight=None, bias=None, *, axes=1, eps=1e-5, name=None):
        """Normalises the last `axes` axes, with NAME.weight and NAME.bias."""
        if weight is None:
            name, axes = name or self._name("layer_norm"), at_least(1, axes, "int", "axes")
            shape = x.shape[-axes:]
            weight = self.parameter(f"{name}.weight", shape, 1.0)
            bias = self.parameter(f"{name}.bias", shape)
        return Operators.layer_norm(self, x, weight, bias, axes=axes, eps=eps, name=name)

    def rms_norm(self, x, weight=None, *, axes=1, eps=None, name=None):
        """Divides by the root mean square of the last `axes` axes, with NAME.weight."""
        if weight is None:
            name, axes = name or self._name("rms_norm"), at_least(1, axes, "int", "axes")
            weight = self.parameter(f"{name}.weight", x.shape[-axes:], 1.0)
        return Operators.rms_norm(self, x, weight, axes=axes, eps=eps, name=name)

    def group_norm(self, x, groups=None, weight=None, bias=None, *, eps=1e-5, name=None):
        """Normalises groups of channels, with NAME.weight and NAME.bias."""
        if weight is None:
            name = name or self._name("group_norm")
            weight, bias = self._per_channel(x, name)
        return Operators.group_norm(self, x, weight, bias, groups=groups, eps=eps, name=name)

    def instance_norm(self, x, weight=None, bias=None, *, affine=False, eps=1e-5, name=None):
        """Normalises each channel of each sample; with affine=True it has NAME.weight and NAME.bias."""
        name = name or self._name("instance_norm")
        if affine and weight is None:
            weight, bias = self._per_channel(x, name)
        return Operators.instance_norm(self, x, weight, bias, eps=eps, name=name)

    def batch_norm(self, x, *operands, eps=1e-5, momentum=0.1, synchronised=False, name=None):
        """Normalises channels over the batch, with the parameters and states of torch.nn.BatchNorm2d."""
        name = name or self._name("batch_norm")
        if not operands:
            weight, bias = self._per_channel(x, name)
            channels = x.shape[1:2]
            operands = (weight, bias, self.state(f"{name}.running_mean", channels),
                        self.state(f"{name}.running_var", channels, init=1.0),
                        self.state(f"{name}.num_batches_tracked", (), "i32"))
        return Operators.batch_norm(self, x, *operands, eps=eps, momentum=momentum, synchronised=synchronised, name=name)

    def _per_channel(self, x, name):
        if len(x.shape) < 2:
            raise failure("shape", f"'{name}': x has no channels (dimension 1)")
        return (self.parameter(f"{name}.weight", x.shape[1:2], 1.0), self.parameter(f"{name}.bias", x.shape[1:2]))

    def embedding(self, indices, count, width=None, *, padding_idx=None, name=None):
        """indices [..] i32 -> [.., width], with NAME.weight [count, width]."""
        if _is_size(count):
            if width is None:
                raise failure("invalid_argument", "embedding: give the number of rows and their width")
            name = name or self._name("embedding")
            count = self.parameter(f"{name}.weight", (count, width), normal=1.0)
        return Operators.embedding(self, indices, count, padding_idx=padding_idx, name=name)

    def lstm(self, x, hidden, *operands, layers=1, bidirectional=False, dropout=0.0, name=None, **attributes):
        """x [B, T, I] -> [B, T, directions * hidden], with the parameters of torch.nn.LSTM (batch_first)."""
        if not _is_size(hidden):
            return Operators.lstm(self, x, hidden, *operands, name=name, **attributes)
        return self._recurrent(lib.clt_layer_lstm, "lstm", x, hidden, layers, bidirectional, dropout, name, operands, attributes)

    def gru(self, x, hidden, *operands, layers=1, bidirectional=False, dropout=0.0, name=None, **attributes):
        """x [B, T, I] -> [B, T, directions * hidden], with the parameters of torch.nn.GRU (batch_first)."""
        if not _is_size(hidden):
            return Operators.gru(self, x, hidden, *operands, name=name, **attributes)
        return self._recurrent(lib.clt_layer_gru, "gru", x, hidden, layers, bidirectional, dropout, name, operands, attributes)

    def cross_entropy(self, logits, labels, *, label_smoothing=0.0, ignore_index=-100, class_weights=None, name=None):
        """Sum of the cross entropies of softmax(logits) over axis 1 and the labels [..] i32; weight: the number of labels
        that are not ignored. class_weights: a number for each class, as the weight of torch.nn.CrossEntropyLoss; both
        results are weighted then. It needs logits [P, C]."""
        if class_weights is None:
            return Operators.cross_entropy(self, logits, labels, label_smoothing=label_smoothing, ignore_index=ignore_index,
                                           name=name)
        classes = self._class_count(logits)
        given = Options("clt_cross_entropy_options", {"label_smoothing": label_smoothing, "ignore_index": ignore_index,
                                                      "class_weights": weights_of_classes(class_weights, classes)})
        results = ctypes.c_void_p(), ctypes.c_void_p()
        check(lib.clt_cross_entropy(self._pointer(logits), self._pointer(labels), ctypes.byref(given.struct),
                                    ctypes.byref(results[0]), ctypes.byref(results[1])))
        if name:
            lib.clt_label(results[0], name)
        return tuple(self._value(result.value) for result in results)

    def _class_count(self, logits):
        self._pointer(logits)
        if len(logits.shape) != 2:
            raise failure("shape", f"class_weights need logits [P, C], not {logits!r}")
        return logits.shape[1]

    def _recurrent(self, function, op, x, hidden, layers, bidirectional, dropout, name, operands, attributes):
        if operands or attributes:
            unknown = f"'{next(iter(attributes))}'" if attributes else "further operands"
            raise failure("invalid_argument", f"{op} with parameters of its own has no use for {unknown}")
        settings = _api.clt_layer_recurrent()
        for member, value in (("hidden", hidden), ("layers", layers), ("bidirectional", bidirectional),
                              ("dropout", dropout)):
            c_type = _api.MEMBERS["clt_layer_recurrent"][member][1]
            setattr(settings, member, number(value, c_type, member, flag=member == "bidirectional"))
        made = function(self._core.use(), self._pointer(x), name or self._name(op), ctypes.byref(settings))
        if not made and not lib.clt_graph_status(self._core.use()):
            raise failure("invalid_argument", f"{op}: {layers} layers of {hidden} units are not possible")
        return self._value(made)
