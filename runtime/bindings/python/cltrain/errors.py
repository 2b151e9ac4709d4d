"""Exceptions: `Error`, and a class for each status of the library.

The classes also belong to the built-in exceptions of their kind, so `except ValueError` and
`except FileNotFoundError`-like code work as expected.
"""
from . import _api

_BUILTIN = {
    "invalid_argument": ValueError, "out_of_memory": MemoryError, "out_of_device_memory": MemoryError,
    "shape": ValueError, "unsupported": NotImplementedError, "not_found": LookupError, "io": OSError,
    "format": ValueError, "nonfinite": ArithmeticError, "mismatch": ValueError, "timeout": TimeoutError,
}


class Error(RuntimeError):
    """A call of the library failed. `status` is its number, `status_name` its name."""
    status = None
    status_name = "ERROR"


BY_STATUS = {}


def _make_classes():
    for name, status in _api.ENUMS["clt_status"].items():
        if status == _api.CLT_OK:
            continue
        # Their messages begin with a name: an abbreviation stays in capitals.
        title = "".join(word.upper() if word in ("io", "mpi") else word.capitalize() for word in name.split("_"))
        title = title.replace("Opencl", "OpenCL") + "Error"
        bases = (Error, _BUILTIN[name]) if name in _BUILTIN else (Error,)
        made = type(title, bases, {"__doc__": _api.STATUS_DOCS[status].capitalize() + ".", "__module__": "cltrain",
                                   "status": status, "status_name": name.upper()})
        BY_STATUS[status] = made
        globals()[title] = made


_make_classes()
__all__ = ["Error"] + sorted(made.__name__ for made in BY_STATUS.values())


def failure(name, message):
    """Returns an exception of this package's own, by the name of a status."""
    return BY_STATUS[_api.ENUMS["clt_status"][name]](message)
