"""Views of arrays for the library: NumPy, DLPack, OpenCL buffers, and what NumPy makes arrays of."""
import ctypes

import numpy as np

from . import _api, _dlpack
from ._checks import at_least, several, shown
from ._lib import check, lib
from .errors import failure

DTYPES = {_api.CLT_F32: np.dtype(np.float32), _api.CLT_F16: np.dtype(np.float16), _api.CLT_I32: np.dtype(np.int32),
          _api.CLT_U8: np.dtype(np.uint8), _api.CLT_F64: np.dtype(np.float64), _api.CLT_I64: np.dtype(np.int64)}
_NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
_NAMES = {value: name for name, value in _api.ENUMS["clt_dtype"].items()}
# Types that the library does not have, and the smallest of its types that holds all their values.
_WIDER = {np.dtype(np.int8): np.int32, np.dtype(np.int16): np.int32, np.dtype(np.uint16): np.int32,
          np.dtype(np.uint32): np.int64}


def dtype_name(number):
    return _NAMES.get(number, "?")


class View:
    """A clt_array, and what must live as long as its memory is used."""
    __slots__ = ("array", "keep", "shape", "source")

    def __init__(self, array, keep, shape, source=None):
        self.array = array
        self.keep = keep
        self.shape = shape
        self.source = source  # the NumPy array, if it is one

    @property
    def on_host(self):
        return not self.array.buffer

    def is_exact(self, dtype):
        """Returns whether the library reads this memory in place for a tensor of the type."""
        return bool(self.array.buffer) or (self.array.dtype == dtype and (
            self.source is None or self.source.flags.c_contiguous))


def _int_ptr(value, what):
    pointer = getattr(value, "int_ptr", None)
    if not isinstance(pointer, int) or not pointer:
        raise failure("invalid_argument", f"{what} is an OpenCL object without an address (int_ptr is {pointer!r})")
    return pointer


def view(value, what, wanted=None, write=False):
    """Returns a View of anything that holds numbers.

    `wanted` is the type of the tensor that the array is for, if it is known. Smaller integers become i32,
    and halves f32. The library itself converts float64 and int64.
    """
    if hasattr(value, "int_ptr"):  # pyopencl.Buffer
        array = _api.clt_array(buffer=_int_ptr(value, what), whole=1)
        return View(array, value, None)
    if hasattr(value, "base_data") and hasattr(value.base_data, "int_ptr"):  # pyopencl.array.Array
        return _of_opencl_array(value, what)
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray):
        tensor, read_only, capsule = _dlpack.read(value, what)
        if write and read_only:
            raise failure("invalid_argument", f"{what} may only be read")
        array = _api.clt_array()
        shape = _dlpack.fill(array, tensor, what)
        result = View(array, (value, capsule), shape)
        result.source = None
        if write:
            _refuse_repeated(array, what)
        return result
    if write:
        return _to_write(value, what)
    return _of_numpy(value, what, wanted)


def _of_opencl_array(value, what):
    array = _api.clt_array(buffer=_int_ptr(value.base_data, what), offset=int(value.offset))
    _describe(array, np.dtype(value.dtype), value.shape, value.strides, what)
    return View(array, value, tuple(value.shape))


def _describe(array, dtype, shape, strides, what):
    if len(shape) > _api.CLT_MAX_RANK:
        raise failure("invalid_argument", f"{what} has {len(shape)} dimensions: at most {_api.CLT_MAX_RANK}")
    if dtype not in _NUMBERS:
        raise _wrong_type(dtype, what)
    array.dtype = _NUMBERS[dtype]
    array.rank = len(shape)
    array.shape[:len(shape)] = shape
    array.strides[:len(shape)] = strides


def _wrong_type(dtype, what):
    return failure("unsupported", f"{what} has elements {dtype}: give float32, float64, int32, int64 or smaller "
                                  "integers, such as with .astype(numpy.float32)")


def convert(a, wanted, what):
    """Returns the array in a type that the library reads. Only conversions that lose nothing are made."""
    if not a.dtype.isnative:
        a = a.astype(a.dtype.newbyteorder("="))
    dtype = a.dtype
    if dtype in _WIDER and wanted != _api.CLT_F32:
        return a.astype(_WIDER[dtype])
    if wanted == _api.CLT_I32 and dtype == np.uint8:
        return a.astype(np.int32)
    if wanted in (_api.CLT_F32, None) and dtype == np.float16:
        return a.astype(np.float32)
    if wanted == _api.CLT_F32 and dtype.kind in "iu":
        raise failure("unsupported", f"{what} takes f32 and was given {dtype}: convert it with .astype(numpy.float32), "
                                     "and divide bytes of images by 255")
    if wanted == _api.CLT_I32 and dtype.kind == "f":
        raise failure("unsupported", f"{what} takes i32 and was given {dtype}: convert it with .astype(numpy.int32)")
    if dtype not in _NUMBERS:
        raise _wrong_type(dtype, what)
    return a


def _of_numpy(value, what, wanted):
    try:
        a = np.asarray(value)
    except ValueError as error:  # ragged lists
        raise failure("invalid_argument", f"{what} is no array: {error}") from None
    a = convert(a, wanted, what)
    array = _api.clt_array(host=a.__array_interface__["data"][0])
    _describe(array, a.dtype, a.shape, a.strides, what)
    if a.size == 0 and not array.host:
        array.host = ctypes.addressof(array)
    return View(array, a, a.shape, a)


def _to_write(value, what):
    if not isinstance(value, np.ndarray):
        raise failure("invalid_argument", f"{what} is {type(value).__name__}: results go to a NumPy array, "
                                          "a DLPack tensor or an OpenCL buffer")
    if not value.flags.writeable or not value.dtype.isnative:
        raise failure("invalid_argument", f"{what} cannot be written: it is read-only or has another byte order")
    array = _api.clt_array(host=value.__array_interface__["data"][0])
    _describe(array, value.dtype, value.shape, value.strides, what)
    _refuse_repeated(array, what)
    return View(array, value, value.shape, value)


def _refuse_repeated(array, what):
    """Refuses arrays that show the same memory several times: results would be written over each other."""
    shape, strides = array.shape[:array.rank], array.strides[:array.rank]
    if 0 not in shape and any(size > 1 and not stride for size, stride in zip(shape, strides)):
        raise failure("invalid_argument", f"{what} repeats its memory along a dimension (stride 0): give an array with "
                                          "memory for each element")


class Buffer:
    """A view of an OpenCL buffer as an array: rows without gaps from byte `offset` on.

    `memory` is a pyopencl.Buffer, or any object whose `int_ptr` is the address of a cl_mem.
    """

    def __init__(self, memory, dtype, shape, offset=0):
        _int_ptr(memory, "the buffer")
        try:
            self.dtype = np.dtype(dtype)
        except TypeError:
            raise failure("invalid_argument", f"dtype is {shown(dtype)}: it must be a type of NumPy, such as \"f4\"") from None
        self.shape = tuple(at_least(0, size, "int64_t", "a size of the shape")
                           for size in several(shape, "shape", "a tuple of integers"))
        self.base_data, self.offset = memory, at_least(0, offset, "int64_t", "offset")
        strides, size = [], self.dtype.itemsize
        for extent in reversed(self.shape):
            strides.insert(0, size)
            size *= extent
        self.strides = tuple(strides)


def copy_of(v):
    """Returns a view of a dense copy of memory of the host."""
    size = lib.clt_array_elements(ctypes.byref(v.array))
    width = lib.clt_dtype_size(v.array.dtype)
    memory = ctypes.create_string_buffer(max(1, size * width))
    copy = _api.clt_array()
    ctypes.memmove(ctypes.byref(copy), ctypes.byref(v.array), ctypes.sizeof(copy))
    check(lib.clt_array_of(ctypes.byref(copy), memory, v.array.dtype, v.array.rank, v.array.shape))
    check(lib.clt_array_copy(ctypes.byref(v.array), ctypes.byref(copy)))
    return View(copy, memory, v.shape)
