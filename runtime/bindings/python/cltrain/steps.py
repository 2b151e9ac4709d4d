"""Steps that were enqueued, and the program's own sections of checkpoints."""
import ctypes
from collections.abc import MutableMapping

from . import _api
from ._lib import check, lib, text
from .errors import Error


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
    """Named texts of the program's own in checkpoints."""

    def __init__(self, trainer):
        self._trainer = trainer
        self._known = set()

    def __setitem__(self, name, value):
        check(lib.clt_trainer_set_section(self._trainer._core.use(), name.encode(), str(value).encode()))
        self._known.add(name)

    def __getitem__(self, name):
        out = ctypes.c_char_p()
        if lib.clt_trainer_section(self._trainer._core.use(), name.encode(), ctypes.byref(out)):
            raise KeyError(name)
        return text(out.value)

    def __delitem__(self, name):
        self[name]
        check(lib.clt_trainer_set_section(self._trainer._core.use(), name.encode(), None))
        self._known.discard(name)

    def __iter__(self):
        return iter([name for name in sorted(self._known) if name in self])

    def __len__(self):
        return len(list(iter(self)))
