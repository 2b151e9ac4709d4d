"""Ranks: processes that train one model together, over a communicator of mpi4py."""
import ctypes

from . import _api, _lib
from ._handles import Handle
from ._lib import check, lib
from .errors import failure


class World(Handle):
    """The ranks of a communicator of mpi4py, for Trainer(world=..).

    Making and closing a world is collective. The communicator is duplicated. mpi4py and libcltrain-mpi must
    use the same MPI library.
    """

    def __init__(self, communicator):
        try:
            from mpi4py import MPI
        except ImportError:
            raise failure("unsupported", "World needs mpi4py, which uses the MPI library of this package: see "
                                         "docs/python.md") from None
        if not isinstance(communicator, MPI.Comm):
            raise failure("invalid_argument", f"World takes a communicator of mpi4py, not {type(communicator).__name__}")
        library = _lib.mpi()
        _same_library(library, MPI)
        size = MPI._sizeof(MPI.Comm)
        kind = {ctypes.sizeof(ctypes.c_int): ctypes.c_int, ctypes.sizeof(ctypes.c_void_p): ctypes.c_void_p}[size]
        handle = kind.from_address(MPI._addressof(communicator)).value
        struct = _api.clt_world()
        lib.clt_world_init(ctypes.byref(struct))
        library.clt_world_open_mpi.argtypes = [kind, ctypes.POINTER(_api.clt_world)]
        check(library.clt_world_open_mpi(handle, ctypes.byref(struct)))
        self._struct = struct
        self._own(ctypes.addressof(struct), lambda ptr: lib.clt_world_close(ctypes.byref(struct)), "world")
        self._core.keep = struct

    def _pointer(self):
        self._core.use()
        return ctypes.pointer(self._struct)

    @property
    def rank(self):
        self._core.use()
        return self._struct.rank

    @property
    def ranks(self):
        self._core.use()
        return self._struct.ranks


def _same_library(library, MPI):
    """Two MPI libraries in one process have handles that mean nothing to each other."""
    room = ctypes.create_string_buffer(65536)
    length = ctypes.c_int()
    library_version = ctypes.CDLL(library._name).MPI_Get_library_version
    library_version(room, ctypes.byref(length))
    ours, theirs = room.value.decode("utf-8", "replace").strip(" \0\n"), MPI.Get_library_version().strip(" \0\n")
    if ours != theirs:
        raise failure("mismatch", f"mpi4py uses {theirs.splitlines()[0]}, and libcltrain-mpi {ours.splitlines()[0]}: "
                                  "build one of them with the other's MPI")
