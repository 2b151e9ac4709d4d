"""Files of TensorBoard: curves of losses, rates and metrics."""
import ctypes
import os
import time

from ._handles import Guard, Handle
from ._lib import check, lib
from .errors import failure
from .history import Callback

_FLUSH_SECONDS = 5.0


class TensorBoard(Callback):
    """Writes the curves of a run to a folder that TensorBoard shows.

        trainer.fit(data, callbacks=[clt.TensorBoard("runs/first")])

    Every step has the curves "loss", "norm" and "lr". Every epoch has "epoch_loss" and its metrics, such as
    "val_accuracy". A run that goes on in the same folder replaces the curves from its first step on. With several
    ranks, rank 0 writes.
    """

    def __init__(self, folder):
        self.folder = os.fspath(folder)
        self._file, self._writes, self._flushed = None, None, 0.0

    def scalar(self, tag, step, value):
        """Adds a number of the program's own to the curve `tag`, in callbacks of a run."""
        if self._writes is None:
            raise failure("state", "the file of TensorBoard is open during fit only")
        if not self._writes:
            return
        if self._file is None:  # now the first step is known, also that of a resumed run
            self._file = _File(self.folder, step)
        self._file.scalar(tag, step, value)

    def on_begin(self, trainer):
        self._close()
        self._writes = trainer.world is None or trainer.world.rank == 0
        if self._writes:
            os.makedirs(self.folder, exist_ok=True)

    def on_step(self, trainer, progress):
        for tag in ("loss", "norm", "lr"):
            self.scalar(tag, progress.step, getattr(progress, tag))
        now = time.monotonic()
        if self._file is not None and now > self._flushed + _FLUSH_SECONDS:
            self._flushed = now
            self._file.flush()

    def on_validation(self, trainer, progress):
        for tag, value in progress.metrics.items():
            self.scalar(tag, progress.step, value)

    def on_epoch(self, trainer, progress):
        self.scalar("epoch_loss", progress.step, progress.loss)
        self.on_validation(trainer, progress)
        if self._file is not None:
            self._file.flush()

    def on_end(self, trainer):
        self._close()
        self._writes = None

    def _close(self):
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()


class _File(Handle):
    def __init__(self, folder, first_step):
        out = ctypes.c_void_p()
        check(lib.clt_event_file_create(os.fsencode(folder), first_step, ctypes.byref(out)))
        self._own(out.value, lib.clt_event_file_destroy, "file of events", guard=Guard())

    def scalar(self, tag, step, value):
        with self._core.guard:
            check(lib.clt_event_file_scalar(self._core.use(), tag, step, value))

    def flush(self):
        with self._core.guard:
            check(lib.clt_event_file_flush(self._core.use()))
