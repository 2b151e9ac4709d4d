"""Sets the members of C structures from keyword arguments, by the description in _api.py."""
import ctypes
import numbers

from . import _api
from ._checks import encoded, number, several, shown
from ._lib import lib, suggestion
from .errors import failure


def names(structure, leave_out=()):
    """Returns the members that keyword arguments may set."""
    members = _api.MEMBERS[structure]
    counts = {row[3] for row in members.values()}
    return [name for name, (kind, _, depth, _, _) in members.items()
            if name != "struct_size" and name not in leave_out and name not in counts
            and kind in ("scalar", "enum", "string") and depth <= 1]


def document(structure, leave_out=()):
    """Returns lines about the members, for a docstring."""
    lines = []
    for name in names(structure, leave_out):
        doc = " ".join(_api.MEMBERS[structure][name][4].split())
        lines.append(f"    {name}: {doc}" if doc else f"    {name}")
    return "\n".join(lines)


class Options:
    """A C structure, with the memory that its pointers need."""

    def __init__(self, structure, given, leave_out=()):
        self.struct = getattr(_api, structure)()
        self.keep = []
        init = getattr(lib, structure + "_init", None)
        if init:
            init(ctypes.byref(self.struct))
        allowed = names(structure, leave_out)
        for name, value in given.items():
            if name not in allowed:
                raise failure("not_found", f"{structure} has no option '{name}'{suggestion(name, allowed)}")
            if value is not None:
                self._set(structure, name, value)

    def _set(self, structure, name, value):
        kind, c_type, depth, count, _ = _api.MEMBERS[structure][name]
        where = name
        if kind == "string":
            value = encoded(value, where)
            self.keep.append(value)
        elif kind == "enum":
            value = enum(c_type, value, where)
        elif depth == 1:
            value = self._array(c_type, value, count, where)
        else:
            value = number(value, c_type, where, flag=c_type == "int")
        setattr(self.struct, name, value)

    def _array(self, c_type, value, count, where):
        if isinstance(value, numbers.Real):
            value = [value]
        values = [number(v, c_type, where) for v in several(value, where, "a list of numbers")]
        array = (_scalar(c_type) * max(1, len(values)))(*values)
        self.keep.append(array)
        if isinstance(count, str) and count in _api.MEMBERS[type(self.struct).__name__]:
            setattr(self.struct, count, len(values))
        return array


def _scalar(c_type):
    return {"int": ctypes.c_int, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64, "size_t": ctypes.c_size_t,
            "double": ctypes.c_double, "float": ctypes.c_float}[c_type]


def enum(c_type, value, where):
    """Returns the value of an enumeration that a name or a number stands for."""
    values = _api.ENUMS[c_type]
    if isinstance(value, str):
        if value.lower() not in values:
            raise failure("not_found", f"{where} is '{value}': it must be one of {', '.join(values)}"
                                       f"{suggestion(value, list(values))}")
        return values[value.lower()]
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value not in values.values():
        raise failure("invalid_argument", f"{where} is {shown(value)}: it must be one of {', '.join(values)}")
    return int(value)
