"""Reads DLPack capsules: tensors of other libraries, where they lie in memory.

https://dmlc.github.io/dlpack/latest/ describes the structures. The producer frees the memory when the
capsule is freed, so the capsule is kept as long as the memory is read.
"""
import ctypes

from . import _api
from .errors import failure

CPU, PINNED, OPENCL = 1, 3, 4
_DEVICES = {1: "CPU", 2: "CUDA", 3: "pinned host memory", 4: "OpenCL", 7: "Vulkan", 8: "Metal", 10: "ROCm",
            11: "pinned ROCm memory", 13: "CUDA managed memory", 14: "oneAPI", 15: "WebGPU"}
_KINDS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}
# The types that arrays may have, by kind and bits.
TYPES = {("float", 32): _api.CLT_F32, ("float", 16): _api.CLT_F16, ("bfloat", 16): _api.CLT_BF16,
         ("int", 32): _api.CLT_I32, ("uint", 8): _api.CLT_U8, ("float", 64): _api.CLT_F64, ("int", 64): _api.CLT_I64}


class Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("id", ctypes.c_int32)]


class DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", Device), ("ndim", ctypes.c_int32), ("dtype", DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", Tensor)]


READ_ONLY = 1
_valid = ctypes.pythonapi.PyCapsule_IsValid
_valid.argtypes, _valid.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_int
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.argtypes, _pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p


def _capsule_of(producer, what):
    device = int(producer.__dlpack_device__()[0])
    if device not in (CPU, PINNED, OPENCL):
        raise failure("unsupported", f"{what} is in memory of {_DEVICES.get(device, f'a device of type {device}')}: "
                                     "copy it to the host first")
    try:
        return producer.__dlpack__(max_version=(1, 0))
    except TypeError:  # a producer that knows no versions
        return producer.__dlpack__()


def read(producer, what):
    """Returns (tensor, read only, capsule)."""
    capsule = _capsule_of(producer, what)
    if _valid(capsule, b"dltensor_versioned"):
        managed = Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != 1:
            raise failure("unsupported", f"{what} is a DLPack tensor of version {managed.major}.{managed.minor}: "
                                         "version 1 and capsules without a version can be read")
        return managed.tensor, bool(managed.flags & READ_ONLY), capsule
    if _valid(capsule, b"dltensor"):
        return Managed.from_address(_pointer(capsule, b"dltensor")).tensor, False, capsule
    raise failure("invalid_argument", f"{what}: __dlpack__ gave {type(capsule).__name__}, not a capsule with a tensor "
                                      "that nobody has taken yet")


def fill(array, tensor, what):
    """Describes the tensor in a clt_array. Everything that a wrong header could hold is checked."""
    kind = _KINDS.get(tensor.dtype.code, f"type {tensor.dtype.code}")
    if tensor.dtype.lanes != 1 or (kind, tensor.dtype.bits) not in TYPES:
        lanes = f" in vectors of {tensor.dtype.lanes}" if tensor.dtype.lanes != 1 else ""
        raise failure("unsupported", f"{what} has elements {kind}{tensor.dtype.bits}{lanes}: "
                                     "give float32, float64, int32, int64, uint8 or 16-bit floats")
    if not 0 <= tensor.ndim <= _api.CLT_MAX_RANK:
        raise failure("invalid_argument", f"{what} has {tensor.ndim} dimensions: at most {_api.CLT_MAX_RANK}")
    if tensor.device.type not in (CPU, PINNED, OPENCL):
        raise failure("unsupported", f"{what} is in memory of {_DEVICES.get(tensor.device.type, 'an unknown device')}")
    if tensor.ndim and not tensor.shape:
        raise failure("invalid_argument", f"{what} has {tensor.ndim} dimensions and no shape")
    array.dtype = TYPES[kind, tensor.dtype.bits]
    array.rank = tensor.ndim
    shape = [tensor.shape[i] for i in range(tensor.ndim)]
    if any(size < 0 for size in shape):
        raise failure("invalid_argument", f"{what} has the shape {shape}: no dimension may be negative")
    strides = _strides(tensor, shape, tensor.dtype.bits // 8, what)
    for i, (size, stride) in enumerate(zip(shape, strides)):
        array.shape[i] = size
        array.strides[i] = stride
    if tensor.byte_offset >= 2**62:
        raise failure("invalid_argument", f"{what} begins {tensor.byte_offset} bytes behind its memory")
    if not tensor.data and 0 not in shape:
        raise failure("invalid_argument", f"{what} has no memory")
    array.offset = tensor.byte_offset
    if tensor.device.type == OPENCL:
        array.buffer = tensor.data
    else:
        array.host = tensor.data
    return tuple(shape)


def _strides(tensor, shape, size, what):
    strides = [0] * tensor.ndim
    extent, reach = size, 0
    for i in reversed(range(tensor.ndim)):
        strides[i] = tensor.strides[i] * size if tensor.strides else extent
        extent *= max(1, shape[i])
        reach += max(0, shape[i] - 1) * abs(strides[i])
    if extent >= 2**62 or reach >= 2**62 or any(abs(stride) >= 2**62 for stride in strides):
        raise failure("invalid_argument", f"{what} has the shape {shape}, which no memory holds")
    return strides
