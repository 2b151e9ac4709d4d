"""Steps that were enqueued, and the program's own sections of checkpoints."""
import ctypes
from collections.abc import MutableMapping

from . import _api
from ._lib import NULL, check, lib, text
from .errors import Error, failure


class Step:
    """A training step that was enqueued. Reading a result waits for the step: `float(step)`, `step.loss`,
    `step.norm` (of the gradient), `step.finite`, `step.lr`, `step.samples`."""
    __slots__ = ("_trainer", "number", "_result", "__weakref__")

    def __init__(self, trainer, number):
        self._trainer = trainer
        self.number = number
        self._result = None

    def _read(self):
        trainer = self._trainer
        if trainer is not None:
            with trainer._guard:  # another thread may read it early at this moment
                if self._result is None:
                    self._result = trainer._result(self.number)
            self._trainer = None
        if isinstance(self._result, Error):
            raise self._result
        return self._result

    def _read_early(self):
        """Keeps the result before the library forgets it."""
        try:
            self._read()
        except Error as failed:
            self._result, self._trainer = failed, None

    def __getattr__(self, name):
        if name in _RESULTS:
            return getattr(self._read(), name)
        raise AttributeError(name)

    def __float__(self):
        return float(self._read().loss)

    def __format__(self, spec):
        return format(float(self), spec)

    def __repr__(self):
        return f"<Step {self.number}>" if self._result is None else f"<Step {self.number}: loss {float(self):g}>"


_RESULTS = frozenset(name for name in _api.MEMBERS["clt_step_result"] if name not in ("struct_size", "step"))


class Sections(MutableMapping):
    """Named texts of the program's own in checkpoints. Restoring a checkpoint replaces them by its own.

    Other things are written as text first: numbers with str, bytes with base64.b64encode(..).decode(), more with
    json.dumps.
    """

    def __init__(self, trainer):
        self._trainer = trainer

    def __setitem__(self, name, value):
        with self._trainer._guard:
            check(lib.clt_trainer_set_section(self._trainer._core.use(), _encoded(name, "the name of a section"),
                                              _encoded(value, f"section {name!r}")))

    def __getitem__(self, name):
        out = ctypes.c_char_p()
        with self._trainer._guard:
            trainer = self._trainer._core.use()
            if not isinstance(name, str) or "\0" in name or \
                    lib.clt_trainer_section(trainer, name.encode("utf-8", "surrogatepass"), ctypes.byref(out)):
                raise KeyError(name)
            return text(out.value)

    def __delitem__(self, name):
        with self._trainer._guard:
            self[name]
            check(lib.clt_trainer_set_section(self._trainer._core.use(), name, NULL))

    def __iter__(self):
        names = []
        with self._trainer._guard:
            while (name := lib.clt_trainer_section_name(self._trainer._core.use(), len(names))) is not None:
                names.append(text(name))
        return iter(sorted(names))

    def __len__(self):
        return len(list(iter(self)))


def _encoded(value, what):
    """Returns text for C. What C would cut off, or Python write as the text of another type, is refused."""
    if not isinstance(value, str):
        raise failure("invalid_argument", f"{what} is {type(value).__name__}: it must be text, such as that of str, "
                                          "json.dumps or base64.b64encode(..).decode()")
    if "\0" in value:
        raise failure("invalid_argument", f"{what} contains a zero byte, which ends texts: encode it, such as in base64")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise failure("invalid_argument", f"{what} has half a surrogate pair, which is not UTF-8: encode it, such as in "
                                          "base64") from None
