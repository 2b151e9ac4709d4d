"""Devices of this machine, and devices of the host program's own OpenCL objects."""
import ctypes

from . import _api
from ._checks import expect
from ._handles import Guard, Handle, check_process
from ._lib import NULL, check, lib, text
from ._options import Options
from .errors import failure
from .history import is_terminal
from .log import begin_watching

_runtime = None


class _Runtime(Handle):
    def __init__(self, **options):
        check_process()
        if is_terminal():
            begin_watching()
        given = Options("clt_runtime_options", options)
        out = ctypes.c_void_p()
        check(lib.clt_runtime_create(ctypes.byref(given.struct), ctypes.byref(out)))
        self._own(out.value, lib.clt_runtime_destroy, "runtime")


def runtime():
    global _runtime
    if _runtime is None or _runtime.closed:
        _runtime = _Runtime()
    return _runtime


def set_cache(folder):
    """Sets the folder of compiled kernels and tuning records for devices that are opened from now on.
    "" keeps nothing. See clt_runtime_options."""
    global _runtime
    _runtime = _Runtime(cache_dir=folder)


def _row(info):
    row = {}
    for name, *_ in info._fields_:
        if name != "struct_size":
            value = getattr(info, name)
            row[name] = text(value) if isinstance(value, bytes) else value
    row["kind"] = ("cpu", "gpu", "other")[info.kind] if 0 <= info.kind < 3 else "other"
    return row


def available():
    """Returns a dict for each device of this machine, as `cltrain devices` prints them. Devices that cannot
    be used have `usable` 0, and `skip` says why."""
    handle = runtime()._core.use()
    rows = []
    for index in range(lib.clt_runtime_device_count(handle)):
        info = _api.clt_device_info()
        lib.clt_device_info_init(ctypes.byref(info))
        check(lib.clt_runtime_device_info(handle, index, ctypes.byref(info)))
        rows.append(_row(info))
    return rows


class Devices(Handle):
    """Open devices. `clt.Devices("pocl/2")` opens two halves of a CPU.

    `which` is a list as for `--devices` of the command: all, gpu, cpu, PLATFORM[:INDEX] or a row's number,
    separated by commas; /N divides a device into N parts, @C takes C cores. None: the best single device.
    Options are those of clt_device_options.
    """

    def __init__(self, which=None, **options):
        given = Options("clt_device_options", options)
        array, count = ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_int()
        check(lib.clt_devices_open(runtime()._core.use(), _listed(which),
                                   ctypes.byref(given.struct), ctypes.byref(array), ctypes.byref(count)))
        self._array, self._count = array, count.value
        address = ctypes.cast(array, ctypes.c_void_p).value
        number = count.value
        self._own(address, lambda ptr: lib.clt_devices_close(ctypes.cast(ptr, ctypes.POINTER(ctypes.c_void_p)), number),
                  "list of devices", guard=Guard())

    @classmethod
    def adopt(cls, context, device=None, queue=None, **options):
        """Makes a device of the program's OpenCL objects: those of pyopencl, or any with an address `int_ptr`.

        The queue must be in-order. Without one the library makes its own. The library retains the objects.
        """
        pointers = []
        if device is None and queue is not None:
            device = getattr(queue, "device", None)
        if device is None:
            listed = getattr(context, "devices", [])
            if len(listed) != 1:
                raise failure("invalid_argument", "name the device: the context has not exactly one")
            device = listed[0]
        for name, value in (("context", context), ("device", device), ("queue", queue)):
            if value is None:
                pointers.append(None)
            elif hasattr(value, "int_ptr"):
                pointers.append(value.int_ptr)
            else:
                raise failure("invalid_argument", f"{name} is {type(value).__name__}, which has no address int_ptr: "
                                                  "give an object of pyopencl")
        given = Options("clt_device_options", options)
        out = ctypes.c_void_p()
        check(lib.clt_device_adopt(runtime()._core.use(), *pointers, ctypes.byref(given.struct), ctypes.byref(out)))
        self = cls.__new__(cls)
        self._array, self._count = (ctypes.c_void_p * 1)(out.value), 1
        self._own(out.value, lib.clt_device_close, "device", guard=Guard())
        return self

    def __len__(self):
        return self._count

    def __iter__(self):
        return iter(self.info())

    def info(self):
        """Returns a dict for each device."""
        self._core.use()
        rows = []
        for index in range(self._count):
            info = _api.clt_device_info()
            lib.clt_device_info_init(ctypes.byref(info))
            check(lib.clt_device_get_info(self._array[index], ctypes.byref(info)))
            rows.append(dict(_row(info), label=text(lib.clt_device_label(self._array[index]))))
        return rows

    def __repr__(self):
        if self.closed:
            return "<Devices: closed>"
        return "<Devices: " + ", ".join(row["label"] for row in self.info()) + ">"


def _listed(which):
    if which is None:
        return NULL
    if isinstance(which, int) and not isinstance(which, bool):  # a row's number
        return str(which)
    return expect(which, str, "devices", "Devices, or text such as \"all\", \"gpu\" or \"pocl/2\"")


def open_devices(which):
    """Returns Devices for what `devices=` of a trainer or store may be."""
    if isinstance(which, Devices):
        which._core.use()
        return which
    return Devices(which)
