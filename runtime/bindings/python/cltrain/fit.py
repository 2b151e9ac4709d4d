"""The loop over epochs: data sets and arrays by the library's own loop, iterables by one in Python."""
import contextlib
import ctypes
import math
import signal
import threading
import time

from . import _api, _handles
from ._lib import error, lib, suggestion
from ._options import Options, document, names
from .data import as_dataset
from .errors import failure
from .history import Callback, History, Line, of_struct

_ON_STEP, _ON_CHECKPOINT, _SHOULD_STOP = (dict(_api.clt_fit_options._fields_)[name]
                                          for name in ("on_step", "on_checkpoint", "should_stop"))


class _Function(Callback):
    def __init__(self, function):
        self.function = function

    def on_epoch(self, trainer, progress):
        self.function(progress)


class Run:
    """A run of fit: its callbacks, the line on the terminal, and why it ends."""

    def __init__(self, trainer, callbacks, progress):
        self.trainer = trainer
        self.callbacks = [c if isinstance(c, Callback) else _Function(c) for c in callbacks]
        if progress is None:
            progress = _is_terminal()
        self.line = Line() if progress else None
        self.history = History()
        self.failure = None
        self.lr = math.nan  # of the last step
        self.stopping = False
        self.interrupted = False
        self.step_calls = [c.on_step for c in self.callbacks if type(c).on_step is not Callback.on_step]
        self.labels = trainer.model.losses + trainer.model.metrics
        self._old = None

    def stop(self):
        self.stopping = True

    def call(self, function, *arguments):
        """Calls Python from C. An exception ends the run, and is raised when the run has ended."""
        try:
            function(*arguments)
        except BaseException as failed:
            if self.failure is None:
                self.failure = failed
            self.stopping = True

    def wants_step(self):
        return bool(self.step_calls) or (self.line is not None and time.monotonic() >= self.line.due)

    def on_step(self, progress):
        for function in self.step_calls:
            function(self.trainer, progress)
        if self.line is not None and time.monotonic() >= self.line.due:
            self.line.step(progress)

    def on_epoch(self, progress):
        self.history.add(progress)
        if self.line is not None:
            self.line.epoch(progress)
        for callback in self.callbacks:
            callback.on_epoch(self.trainer, progress)

    def on_checkpoint(self):
        for callback in self.callbacks:
            callback.on_checkpoint(self.trainer)

    def _interrupt(self, *_):
        self.stopping = self.interrupted = True

    def __enter__(self):
        if self.trainer._run is not None:
            raise failure("state", "fit is running already")
        self.trainer._core.use()
        self.trainer._run = self
        # Python's own handler would raise in the middle of a callback, where nobody can catch it.
        if threading.current_thread() is threading.main_thread() and \
                signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._interrupt)
        _handles.running(self)
        return self

    def __exit__(self, *_):
        _handles.ended(self)
        self.trainer._run = None
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def finish(self):
        """Raises what ended the run."""
        if self.failure is not None:
            raise self.failure
        if self.interrupted:
            raise KeyboardInterrupt


def _is_terminal():
    import sys
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


_OWN = ("train", "test", "callbacks", "progress")
_ALLOWED = names("clt_fit_options")


def fit(trainer, train, test=None, *, callbacks=(), progress=None, **options):
    """Trains, evaluates after each epoch, and returns a History.

    train, test: a Dataset, a tuple of arrays in the order of model.inputs, a dict of arrays, the text that names a
    data set, or an iterable of one's own that gives batches: dicts, or tuples in the order of the inputs. A list,
    or any other object that can be iterated again, is an epoch each time; so is a function that returns an
    iterator. An iterator that is used up ends the run. Fields u8 that feed f32 inputs are divided by 255.

    callbacks: objects of Callback, or functions that get the Progress of each epoch. Their exceptions end the run,
    and come out of fit. Ctrl-C ends the run after the current step, writes the checkpoint if there is a
    checkpoint_dir, and raises KeyboardInterrupt then.

    progress: True writes a line on stderr; None does if stderr is a terminal.

    Other options are those of clt_fit_options:

    """
    for name in options:
        if name not in _ALLOWED:
            raise failure("not_found", f"fit has no option '{name}'{suggestion(name, _ALLOWED + list(_OWN))}")
    inputs = list(trainer.model.inputs)
    train_set, own_train = as_dataset(train, inputs, "train")
    test_set, own_test = as_dataset(test, inputs, "test")
    run = Run(trainer, callbacks, progress)
    try:
        if test is not None and test_set is None:
            raise failure("invalid_argument", f"test is {type(test).__name__}: give arrays or a data set, whose number of "
                                              "samples is known")
        with trainer._guard, run:
            for callback in run.callbacks:
                callback.on_begin(trainer)
            if train_set is not None:
                _fit_dataset(run, train_set, test_set, options)
            else:
                from ._iterables import fit_iterable
                fit_iterable(run, train, test_set, options)
            for callback in run.callbacks:
                callback.on_end(trainer)
    finally:
        if own_train:
            train_set.close()
        if own_test:
            test_set.close()
    run.finish()
    return run.history


fit.__doc__ += document("clt_fit_options")


def _fit_dataset(run, train, test, options):
    trainer = run.trainer
    given = Options("clt_fit_options", options)
    struct = given.struct

    def on_step(_, address):
        report = _api.clt_progress.from_address(address)
        run.lr = report.lr
        if run.wants_step():
            run.call(lambda: run.on_step(of_struct(report, run.labels)))

    def on_epoch(_, address):
        report = of_struct(_api.clt_progress.from_address(address), run.labels)
        report.lr = run.lr  # reports of epochs lack it
        run.call(lambda: run.on_epoch(report))

    def on_checkpoint(_):
        run.call(run.on_checkpoint)

    def should_stop(_):
        return int(run.stopping)

    struct.on_step, struct.on_epoch = _ON_STEP(on_step), _ON_STEP(on_epoch)
    struct.on_checkpoint, struct.should_stop = _ON_CHECKPOINT(on_checkpoint), _SHOULD_STOP(should_stop)
    trainer._settle()
    with _pinned(train, test):
        status = lib.clt_fit(trainer._core.use(), train._core.use(), test._core.use() if test is not None else None,
                             ctypes.byref(struct))
    if status and not (status == _api.CLT_STOPPED and run.stopping):
        failed = error(status)
        cause = train.failure or (test is not None and test.failure)
        if run.failure is None and cause:
            raise cause  # the exception of the data set's own function, not the line that tells of it
        if run.failure is None:
            raise failed


@contextlib.contextmanager
def _pinned(*datasets):
    """Keeps data sets while the library reads them, even if the interpreter ends meanwhile."""
    cores = [data._core for data in datasets if data is not None]
    for data in datasets:
        if data is not None:
            data.failure = None
    for core in cores:
        core.pin()
    try:
        yield
    finally:
        for core in cores:
            core.unpin()


def evaluate(trainer, data, **options):
    given = Options("clt_fit_options", options)
    dataset, own = as_dataset(data, list(trainer.model.inputs), "test")
    if dataset is None:
        raise failure("invalid_argument", f"evaluate takes arrays or a data set, not {type(data).__name__}")
    try:
        labels = trainer.model.losses + trainer.model.metrics
        sums, weights = ((ctypes.c_double * max(1, len(labels)))() for _ in range(2))
        with trainer._guard, _pinned(dataset):
            trainer._settle()
            status = lib.clt_evaluate(trainer._core.use(), dataset._core.use(), ctypes.byref(given.struct), sums, weights)
            if status:
                failed = error(status)
                raise dataset.failure or failed
        return {label: sums[i] / weights[i] if weights[i] else math.nan for i, label in enumerate(labels)}
    finally:
        if own:
            dataset.close()


