"""Loads the shared libraries and gives their functions the prototypes of _api.py."""
import ctypes
import os

from . import _api
from ._checks import checked
from .errors import BY_STATUS, Error

NULL = ctypes.c_char_p()  # for a text that is left out

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib")


def _path(library):
    """Returns the file beside this package, or the name by which the loader finds a system's library."""
    name = f"lib{library}.so.{_api.SOVERSION}"
    inside = os.path.join(_FOLDER, name)
    return inside if os.path.exists(inside) else name


def _open(library):
    try:
        handle = ctypes.CDLL(_path(library))
    except OSError as error:
        raise ImportError(f"lib{library} cannot be loaded: {error}. Install the libraries that it needs "
                          "(Debian: ocl-icd-libopencl1 and those that ldd names), or build the package here") from None
    for name, (result, arguments, _) in _api.FUNCTIONS[library].items():
        function = getattr(handle, name, None)
        if function is None:
            raise ImportError(f"{_path(library)} has no function {name}: it is not version {_api.VERSION}, "
                              "for which this package was built")
        function.restype = result
        function.argtypes = arguments
    return handle


class _Functions:
    """The functions of libcltrain and libcltrain-models. Calls release the GIL."""

    def __init__(self):
        for library in ("cltrain", "cltrain-models"):
            handle = _open(library)
            for name, (_, _, rows) in _api.FUNCTIONS[library].items():
                function = getattr(handle, name)
                setattr(self, name, checked(function, rows, NULL) if rows else function)


def _check_layouts():
    """Compares ctypes' structures with those of the compiler. A wrong offset would corrupt memory."""
    for structure, (size, offsets) in _api.LAYOUTS.items():
        if ctypes.sizeof(structure) != size:
            raise ImportError(f"{structure.__name__} has {ctypes.sizeof(structure)} bytes here and {size} in C")
        for member, offset in offsets.items():
            if getattr(structure, member).offset != offset:
                raise ImportError(f"{structure.__name__}.{member} is at byte {getattr(structure, member).offset} here "
                                  f"and at {offset} in C")


_check_layouts()
lib = _Functions()


def message():
    return (lib.clt_error_message() or b"").decode("utf-8", "replace")


def error(status):
    """Returns the exception for a status that a call has just returned on this thread."""
    return BY_STATUS.get(status, Error)(message() or f"status {status}")


def check(status):
    if status:
        raise error(status)


def text(value):
    """Returns a C string as str, NULL as None."""
    return None if value is None else value.decode("utf-8", "replace")


def nearest(word, names):
    """Returns the name that is most like `word`, or None."""
    encoded = [name.encode() for name in names]
    array = (ctypes.c_char_p * max(1, len(encoded)))(*encoded)
    return text(lib.clt_nearest(str(word).encode(errors="replace").replace(b"\0", b""), array, len(encoded)))


def suggestion(word, names):
    found = nearest(word, names)
    return f"; did you mean '{found}'?" if found else ""


_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_libc.free.restype = None
_libc.strdup.argtypes = [ctypes.c_char_p]
_libc.strdup.restype = ctypes.c_void_p


def owned_text(pointer):
    """Returns a string that the library allocated, and frees it."""
    try:
        return ctypes.string_at(pointer).decode("utf-8", "replace")
    finally:
        _libc.free(pointer)


def malloced(words):
    """Returns text in memory of C, which the library frees."""
    return _libc.strdup(words.encode())


_mpi = None


def mpi():
    """Returns libcltrain-mpi, which is loaded when it is first needed."""
    global _mpi
    if _mpi is None:
        if "cltrain-mpi" not in _api.FUNCTIONS:
            raise ImportError("this package was built without MPI: install libmpich-dev or libopenmpi-dev, and build "
                              "it again")
        _mpi = _open("cltrain-mpi")
    return _mpi
