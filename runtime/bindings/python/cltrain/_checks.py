"""Arguments of C functions. ctypes would wrap numbers that do not fit, and C would cut texts off at a zero byte."""
import numbers
import os

from .errors import failure

_UNSIGNED = ("uint32_t", "uint64_t", "size_t", "unsigned int")
_BITS = {"int": 32, "int32_t": 32, "uint32_t": 32, "unsigned int": 32, "int64_t": 64, "uint64_t": 64, "size_t": 64}
RANGES = {c_type: (0, 2**bits - 1) if c_type in _UNSIGNED else (-2**(bits - 1), 2**(bits - 1) - 1)
          for c_type, bits in _BITS.items()}


def shown(value):
    """Returns a value for a message: one line, also for arrays and objects."""
    if value is None or isinstance(value, (str, bytes, numbers.Number, type)) or callable(value):
        found = " ".join(repr(value).split())
        return found if len(found) <= 60 else found[:57] + "..."
    return f"of the type {type(value).__name__}"


def number(value, c_type, where, flag=False):
    """Returns a number for C. bool stands for 0 and 1 only where `flag` allows it: switches have the type int in C."""
    wrong = isinstance(value, bool) and not flag
    if c_type in ("double", "float"):
        if wrong or not isinstance(value, numbers.Real):
            raise failure("invalid_argument", f"{where} is {shown(value)}: it must be a number")
        try:
            return float(value)
        except OverflowError:
            raise failure("invalid_argument", f"{where} is {shown(value)}: it must be a number that a double can hold") \
                from None
    if wrong or not (isinstance(value, numbers.Integral) or isinstance(value, numbers.Real) and value == value // 1):
        raise failure("invalid_argument", f"{where} is {shown(value)}: it must be an integer")
    least, most = RANGES[c_type]
    if not least <= value <= most:
        raise failure("invalid_argument", f"{where} is {shown(value)}: it must lie in {least} to {most}")
    return int(value)


def at_least(least, value, c_type, where):
    """Returns an integer that must not be smaller."""
    value = number(value, c_type, where)
    if value < least:
        raise failure("invalid_argument", f"{where} is {value}: it must be at least {least}")
    return value


def encoded(value, where):
    """Returns text, or a path, for C."""
    if not isinstance(value, (str, bytes, os.PathLike)):
        raise failure("invalid_argument", f"{where} is {shown(value)}: it must be text")
    try:
        value = os.fsencode(value)
    except UnicodeEncodeError:
        raise failure("invalid_argument", f"{where} is {shown(value)}, which is not UTF-8") from None
    if b"\0" in value:
        raise failure("invalid_argument", f"{where} is {shown(value)}: a zero byte ends texts")
    return value


def _text(value, c_type, where):
    return encoded(value, where)


def _integer(value, c_type, where):
    if type(value) is int and -2**31 <= value < 2**31:  # almost all
        return value if value >= 0 or c_type not in _UNSIGNED else number(value, c_type, where)
    return number(value, c_type, where, c_type == "int")


def checked(function, rows, null):
    """Returns a function that checks the arguments of a C function. `rows` has (place, name, type) of numbers and texts.
    `null` is passed on: a text that is left out."""
    rows = [(place, name, c_type, _text if c_type == "text" else number if c_type in ("double", "float") else _integer)
            for place, name, c_type in rows]

    def call(*arguments):
        given = list(arguments)
        for place, name, c_type, convert in rows:
            if given[place] is not null:
                given[place] = convert(given[place], c_type, name)
        return function(*given)

    return call


def expect(value, kinds, where, what):
    """Refuses an argument of another class."""
    if not isinstance(value, kinds):
        raise failure("invalid_argument", f"{where} is {shown(value)}: it must be {what}")
    return value


def several(value, where, what):
    """Returns a list of what can be iterated, and is no text."""
    if not isinstance(value, (str, bytes)):
        try:
            return list(value)
        except TypeError:
            pass
    raise failure("invalid_argument", f"{where} is {shown(value)}: it must be {what}")
