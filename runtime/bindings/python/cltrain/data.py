"""Data sets: files, arrays, functions."""
import ctypes
import os
from collections.abc import Mapping

import numpy as np

from . import _api
from ._checks import expect, number, several, shown
from ._handles import Handle, end_child, inside
from ._lib import check, lib, suggestion, text
from ._options import Options, document, enum
from .arrays import DTYPES, dtype_name, view
from .errors import failure


class Dataset(Handle):
    """A fixed number of samples with named fields.

        clt.Dataset.open("fashion-mnist", split="test")
        clt.Dataset.arrays(x=images, y=labels)
        clt.Dataset.callback(1000, {"x": ("f32", (4,))}, fill)
    """

    def _begin(self, pointer, keep=None, parents=()):
        self._own(pointer, lib.clt_dataset_free, "data set", parents)
        self._core.keep = keep
        self._source = keep if isinstance(keep, Dataset) else self  # whose function computes the samples
        self.failure = None  # the exception of a callback
        return self

    @classmethod
    def open(cls, spec, **options):
        """Opens files: a name, or KIND:PATH as `--data` of the command takes it. Options are those of
        clt_dataset_options:

        """
        given = Options("clt_dataset_options", options)
        out = ctypes.c_void_p()
        check(lib.clt_dataset_open(spec, ctypes.byref(given.struct), ctypes.byref(out)))
        return cls.__new__(cls)._begin(out.value)

    @classmethod
    def arrays(cls, *fields, classes=None, images=(), copy=False, name="arrays", **named):
        """Makes a data set of arrays whose first dimension counts the samples.

        Dense arrays of float32, int32 and uint8 are read where they lie, also those that come by DLPack:
        they must not change while they are used. copy=True copies them. float64 and int64 are converted.

        classes: numbers of classes by field, which are checked. images: fields that fit normalises.
        """
        for mapping in fields:
            named = {**expect(mapping, Mapping, "fields", "a dict from names to arrays"), **named}
        images, classes = several(images, "images", "a list of names of fields"), classes or {}
        expect(classes, Mapping, "classes", "a dict from names of fields to numbers of classes")
        for field in images:
            if field not in named:
                raise failure("not_found", f"images has {shown(field)}, which is no field{suggestion(field, list(named))}")
        if not named:
            raise failure("invalid_argument", "a data set needs at least one field")
        views = {field: view(value, f"field '{field}'") for field, value in named.items()}
        counts = {v.shape[0] if v.shape else None for v in views.values()}
        if len(counts) > 1 or None in counts:
            raise failure("invalid_argument", "fields need the same number of samples: "
                          + ", ".join(f"{field} has the shape {v.shape}" for field, v in views.items()))
        on_devices = not all(v.on_host for v in views.values())
        if on_devices and any(v.on_host for v in views.values()):
            raise failure("invalid_argument", "some fields are OpenCL buffers, and some are in host memory: "
                          + ", ".join(f for f, v in views.items() if v.on_host) + "; all must be of one kind")
        out = ctypes.c_void_p()
        create = lib.clt_dataset_create_buffers if on_devices else lib.clt_dataset_create_arrays
        check(create(name, counts.pop(), ctypes.byref(out)))
        self = cls.__new__(cls)._begin(out.value, views)
        for field, v in views.items():
            borrow = not copy and not on_devices and _can_stay(v)
            place = ctypes.c_int()
            check(lib.clt_dataset_add_array(out, field, ctypes.byref(v.array),
                                            _api.CLT_DATA_BORROW if borrow else _api.CLT_DATA_COPY,
                                            ctypes.byref(place)))
            if field in images:
                check(lib.clt_dataset_set_image(out, place.value))
        for field, count in classes.items():
            check(lib.clt_dataset_set_classes(out, self._field(field), count))
        return self

    @classmethod
    def callback(cls, count, fields, fill, serial=True, name="callback"):
        """Makes a data set whose samples a function computes.

        fields: name -> (dtype, shape of a sample).
        fill: gets an int64 array of sample numbers, and a dict of arrays to write. It runs on threads of the
        loader, and must give the same sample for a number each time, and write all of it: f32 that it does
        not write are NaN, i32 are -1. serial=False lets several threads call it
        at once.
        """
        shapes = {field: row[:2] for field, row in described(fields).items()}
        if not callable(fill):
            raise failure("invalid_argument", f"fill is {shown(fill)}: it must be a function of numbers and arrays")
        out = ctypes.c_void_p()
        self = cls.__new__(cls)

        def call(_, indices, number, pointers):
            outer = getattr(inside, "fill", None)
            try:
                inside.fill = self
                numbers = np.frombuffer((ctypes.c_int64 * number).from_address(indices), np.int64)
                addresses = (ctypes.c_void_p * len(shapes)).from_address(pointers)
                arrays = {}
                for (field, (dtype, shape)), address in zip(shapes.items(), addresses):
                    if address:
                        size = int(np.prod(shape, dtype=np.int64)) * DTYPES[dtype].itemsize * number
                        raw = (ctypes.c_char * size).from_address(address)
                        ctypes.memset(address, 0xff, size)  # NaN and -1: what is not written is no number
                        arrays[field] = np.frombuffer(raw, DTYPES[dtype]).reshape((number,) + shape)
                fill(numbers, arrays)
                end_child(None)
                return _api.CLT_OK
            except BaseException as error:  # it must not pass through C
                end_child(error)
                self.failure = error
                line = f"the function of data set {name} failed: {type(error).__name__}: {error}"
                return lib.clt_error_set(_api.CLT_ABORTED, line.replace("\0", " ").encode(errors="replace"))
            finally:
                inside.fill = outer

        function = _api.FUNCTIONS["cltrain"]["clt_dataset_create_callback"][1][2](call)
        check(lib.clt_dataset_create_callback(name, count, function, None, int(serial), ctypes.byref(out)))
        self._begin(out.value, function)
        for field, (dtype, shape) in shapes.items():
            check(lib.clt_dataset_add_field(out, field, dtype, len(shape),
                                            (ctypes.c_int64 * max(1, len(shape)))(*shape), None,
                                            _api.CLT_DATA_BORROW, None))
        return self

    def _field(self, name):
        number = ctypes.c_int()
        check(lib.clt_dataset_find_field(self._core.use(), name, ctypes.byref(number)))
        return number.value

    def augment(self, field, how):
        """Changes samples at random while training: "crop", "crop:PADDING", "flip", "resized-crop", separated by
        commas."""
        settings = _api.clt_augment()
        lib.clt_augment_init(ctypes.byref(settings))
        check(lib.clt_augment_parse(how, ctypes.byref(settings)))
        check(lib.clt_dataset_augment(self._core.use(), field, ctypes.byref(settings)))
        return self

    def set_sample_weights(self, weights):
        """Lets training draw samples with replacement, in proportion to a weight for each sample. None: no weights."""
        if weights is None:
            check(lib.clt_dataset_set_sample_weights(self._core.use(), None))
            return self
        weights = weights_of_samples(weights)
        if weights.shape != (len(self),):
            raise failure("invalid_argument", f"weights has the shape {weights.shape}: it needs a number for each of the "
                                              f"{len(self)} samples")
        check(lib.clt_dataset_set_sample_weights(self._core.use(),
                                                 weights.ctypes.data_as(ctypes.POINTER(ctypes.c_double))))
        return self

    def split(self, fraction, seed=0):
        """Returns (rest, part): data sets that read the samples of this one. `fraction` of the samples, chosen at
        random by the seed, are in `part`. With the name of a field instead, those whose number in it is not 0."""
        rest, part = ctypes.c_void_p(), ctypes.c_void_p()
        if isinstance(fraction, str):
            check(lib.clt_dataset_split_by(self._core.use(), fraction, ctypes.byref(rest), ctypes.byref(part)))
        else:
            check(lib.clt_dataset_split(self._core.use(), fraction, seed, ctypes.byref(rest), ctypes.byref(part)))
        return tuple(Dataset.__new__(Dataset)._begin(pointer.value, self, [self._core]) for pointer in (rest, part))

    def __len__(self):
        return lib.clt_dataset_count(self._core.use())

    @property
    def name(self):
        return text(lib.clt_dataset_name(self._core.use()))

    @property
    def fields(self):
        """A dict: name -> (type, shape of a sample, number of classes or 0)."""
        rows = {}
        name, dtype, rank = ctypes.c_char_p(), ctypes.c_int(), ctypes.c_int()
        shape = (ctypes.c_int64 * _api.CLT_DATA_MAX_RANK)()
        for index in range(lib.clt_dataset_field_count(self._core.use())):
            check(lib.clt_dataset_field_info(self._core.use(), index, ctypes.byref(name), ctypes.byref(dtype),
                                             ctypes.byref(rank), shape, None))
            rows[text(name.value)] = (dtype_name(dtype.value), tuple(shape[:rank.value]),
                                      lib.clt_dataset_classes(self._core.use(), index))
        return rows

    def array(self, field):
        """Returns a copy of all samples of a field that are in host memory."""
        if self._source is not self:  # a part of another data set
            handle = self._core.use()
            return self._source.array(field)[[lib.clt_dataset_number(handle, i) for i in range(len(self))]]
        pointer = ctypes.c_void_p()
        check(lib.clt_dataset_field_data(self._core.use(), self._field(field), ctypes.byref(pointer)))
        dtype, shape, _ = self.fields[field]
        out = np.empty((len(self),) + shape, DTYPES[enum("clt_dtype", dtype, "type")])
        if out.nbytes:
            ctypes.memmove(out.ctypes.data, pointer.value, out.nbytes)
        return out

    def __repr__(self):
        return f"<Dataset {self.name}: {len(self)} samples>" if not self.closed else "<Dataset: closed>"


Dataset.open.__func__.__doc__ += document("clt_dataset_options")


def described(fields):
    """Returns name -> (number of the type, shape of a sample, number of classes or 0) for descriptions of fields."""
    rows = {}
    for name, row in expect(fields, Mapping, "fields", "a dict from names to (type, shape of a sample)").items():
        if not isinstance(row, (tuple, list)) or not 2 <= len(row) <= 3:
            raise failure("invalid_argument", f"field {shown(name)} is {shown(row)}: it must be (type, shape of a sample), "
                                              "and the number of classes third if it holds labels")
        dtype, shape, *classes = row
        shape = several(shape, f"the shape of '{name}'", "a tuple of integers")
        shape = tuple(number(size, "int64_t", f"a size of '{name}'") for size in shape)
        classes = number(classes[0], "int64_t", f"the number of classes of '{name}'") if classes else 0
        rows[name] = enum("clt_dtype", dtype, f"the type of '{name}'"), shape, classes
    return rows


def weights_of_samples(weights):
    """Returns weights as doubles."""
    given = np.asarray(weights)
    if given.dtype.kind not in "fiub":
        raise failure("invalid_argument", f"weights has elements {given.dtype}: it needs a number for each sample")
    return np.ascontiguousarray(given, np.float64)


def _can_stay(v):
    """Returns whether the library reads the memory of a field in place."""
    if v.source is not None:
        return v.source.flags.c_contiguous and v.source.flags.aligned and v.source.dtype in (
            np.float32, np.int32, np.uint8)
    return v.array.dtype not in (_api.CLT_F64, _api.CLT_I64) and bool(lib.clt_array_is_dense(ctypes.byref(v.array)))


def as_dataset(data, inputs, what):
    """Returns (Dataset, whether it was made here) for what `fit` and `evaluate` take; (None, False) for iterables."""
    if data is None or isinstance(data, Dataset):
        return data, False
    if isinstance(data, (str, os.PathLike)):
        return Dataset.open(data, split="test" if what == "test" else "train"), True
    if isinstance(data, dict):
        return Dataset.arrays(data, name=what), True
    if isinstance(data, tuple):
        if len(data) > len(inputs):
            raise failure("invalid_argument", f"{what} has {len(data)} arrays, and the model the inputs "
                                              f"{', '.join(inputs)}")
        return Dataset.arrays(dict(zip(inputs, data)), name=what), True
    return None, False



