"""OpenCL objects made by ctypes, with the attribute int_ptr that pyopencl's objects have."""
import ctypes
import ctypes.util

import numpy as np

cl = ctypes.CDLL(ctypes.util.find_library("OpenCL") or "libOpenCL.so.1")
_POINTER = ctypes.c_void_p
for _name in ("clCreateContext", "clCreateCommandQueue", "clCreateBuffer", "clCreateUserEvent"):
    getattr(cl, _name).restype = _POINTER
READ_WRITE, BLOCKING = 1, 1


class Object:
    def __init__(self, pointer):
        assert pointer, "OpenCL made no object"
        self.int_ptr = pointer


def _ask(function, number, owner=None, kind=None):
    count = ctypes.c_uint()
    arguments = [] if owner is None else [_POINTER(owner), ctypes.c_uint64(kind)]
    function(*arguments, 0, None, ctypes.byref(count))
    found = (_POINTER * max(1, count.value))()
    assert function(*arguments, count, found, None) == 0
    return found[:count.value]


def pocl():
    """Returns the first device of PoCL."""
    for platform in _ask(cl.clGetPlatformIDs, 0):
        room = ctypes.create_string_buffer(256)
        cl.clGetPlatformInfo(_POINTER(platform), 0x0902, 256, room, None)
        if b"Portable" in room.value:
            return Object(_ask(cl.clGetDeviceIDs, 0, platform, 0xFFFFFFFF)[0])
    raise AssertionError("PoCL is not installed")


class Setup:
    def __init__(self):
        self.device = pocl()
        error = ctypes.c_int()
        one = (_POINTER * 1)(self.device.int_ptr)
        self.context = Object(cl.clCreateContext(None, 1, one, None, None, ctypes.byref(error)))
        self.queue = Object(cl.clCreateCommandQueue(_POINTER(self.context.int_ptr), _POINTER(self.device.int_ptr),
                                                    ctypes.c_uint64(0), ctypes.byref(error)))

    def buffer(self, array):
        array = np.ascontiguousarray(array)
        error = ctypes.c_int()
        made = Object(cl.clCreateBuffer(_POINTER(self.context.int_ptr), ctypes.c_uint64(READ_WRITE),
                                        ctypes.c_size_t(array.nbytes), None, ctypes.byref(error)))
        self.write(made, array)
        return made

    def hold(self):
        """Lets nothing that is enqueued from now on run until the event that is returned is completed."""
        error = ctypes.c_int()
        event = _POINTER(cl.clCreateUserEvent(_POINTER(self.context.int_ptr), ctypes.byref(error)))
        assert error.value == 0
        assert cl.clEnqueueBarrierWithWaitList(_POINTER(self.queue.int_ptr), 1, ctypes.byref(event), None) == 0
        return event

    def complete(self, event):
        assert cl.clSetUserEventStatus(event, 0) == 0
        assert cl.clReleaseEvent(event) == 0

    def write(self, buffer, array):
        assert cl.clEnqueueWriteBuffer(_POINTER(self.queue.int_ptr), _POINTER(buffer.int_ptr), BLOCKING, ctypes.c_size_t(0),
                                       ctypes.c_size_t(array.nbytes), _POINTER(array.ctypes.data), 0, None, None) == 0

    def read(self, buffer, shape):
        out = np.empty(shape, np.float32)
        assert cl.clEnqueueReadBuffer(_POINTER(self.queue.int_ptr), _POINTER(buffer.int_ptr), BLOCKING, ctypes.c_size_t(0),
                                      ctypes.c_size_t(out.nbytes), _POINTER(out.ctypes.data), 0, None, None) == 0
        return out
