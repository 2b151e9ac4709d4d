"""The loop over epochs: data sets and arrays by the library's own loop, iterables by one in Python."""
import ctypes
import math
import signal
import threading
import time

from . import _api, _handles, _policies
from ._evaluation import End, end_epoch, means_of, pinned
from ._lib import error, lib, suggestion, text
from ._options import Options, document, names
from .data import as_dataset
from .errors import failure
from .history import Callback, History, Line, is_terminal, of_struct
from .log import watch_compile
from .metrics import measured

_ON_REPORT, _ON_POLICY, _ON_CHECKPOINT, _SHOULD_STOP, _ON_HOOK = (
    dict(_api.clt_fit_options._fields_)[name]
    for name in ("on_step", "on_policy", "on_checkpoint", "should_stop", "on_step_begin"))


class _Function(Callback):
    def __init__(self, function):
        self.function = function

    def on_epoch(self, trainer, progress):
        self.function(progress)


def _listed(callbacks):
    if callbacks is None:
        return ()
    if isinstance(callbacks, str) or not hasattr(callbacks, "__iter__"):
        raise failure("invalid_argument", f"callbacks is {type(callbacks).__name__}: give a list of callbacks")
    return callbacks


def _callback(given):
    if isinstance(given, Callback):
        return given
    if isinstance(given, type) and issubclass(given, Callback):
        raise failure("invalid_argument", f"callbacks has the class {given.__name__}: give an object of it, "
                                          f"{given.__name__}()")
    if not callable(given):
        raise failure("invalid_argument", f"callbacks has {given!r}: give objects of clt.Callback, or functions that take "
                                          "the Progress of an epoch")
    return _Function(given)


class Run:
    """A run of fit: its callbacks, the line on the terminal, and why it ends."""

    def __init__(self, trainer, callbacks, progress):
        self.trainer = trainer
        self.callbacks = [_callback(c) for c in _listed(callbacks)]
        if progress is None:
            progress = is_terminal()
        self.line = Line() if progress else None
        self.history = History()
        self.failure = None
        self.lr = math.nan  # of the last step
        self.end = End()
        self.stopping = False
        self.interrupted = False
        self.calling = False  # a function of the program runs, which a second Ctrl-C ends
        self.in_python = False  # the loop over an iterable, which an exception may leave at any place
        self.step_calls = [c.on_step for c in self.callbacks if type(c).on_step is not Callback.on_step]
        self.hooks = {name: [getattr(c, name) for c in self.callbacks
                             if getattr(type(c), name) is not getattr(Callback, name)]
                      for name in ("on_step_begin", "on_gradients")}
        self.labels = trainer.labels
        self._old = None

    def stop(self):
        self.stopping = True

    def call(self, function, *arguments):
        """Calls Python from C. An exception ends the run, and is raised when the run has ended. Returns the result."""
        failed = result = None
        try:
            self.calling = True
            result = function(*arguments)
            self.calling = False
        except BaseException as error:
            self.calling = False
            failed = error
        if self.in_python:
            if failed is not None and _handles.forked():
                raise failed
        else:
            _handles.end_child(failed)
        if failed is not None:
            if self.failure is None:
                self.failure = failed
            self.stopping = True
        return result

    def wants_step(self):
        return bool(self.step_calls) or (self.line is not None and time.monotonic() >= self.line.due)

    def on_step(self, progress):
        for function in self.step_calls:
            function(self.trainer, progress)
        if self.line is not None and time.monotonic() >= self.line.due:
            self.line.step(progress)

    def on_hook(self, name, progress):
        for function in self.hooks[name]:
            function(self.trainer, progress)

    def on_begin(self):
        for callback in self.callbacks:
            self._direct(callback.on_begin)

    def on_end(self):
        for callback in self.callbacks:
            self._direct(callback.on_end)

    def _direct(self, function):
        """Calls a function of the program outside the library, where exceptions come out of fit at once."""
        try:
            self.calling = True
            function(self.trainer)
        finally:
            self.calling = False

    def on_epoch(self, progress):
        self.history.add(progress)
        if self.line is not None:
            self.line.epoch(progress)
        for callback in self.callbacks:
            callback.on_epoch(self.trainer, progress)

    def on_validation(self, progress):
        self.history.add_validation(progress)
        for callback in self.callbacks:
            callback.on_validation(self.trainer, progress)

    def on_policy(self, step, what):
        self.history.decisions.append((step, what))
        if self.line is not None:
            self.line.remark(f"step {step}: {what}")

    def on_checkpoint(self):
        for callback in self.callbacks:
            callback.on_checkpoint(self.trainer)

    def _interrupt(self, *_):
        # An iterable or a callback waits for something, and nothing comes.
        if self.interrupted and (self.in_python or self.calling):
            raise KeyboardInterrupt
        self.stopping = self.interrupted = True

    def __enter__(self):
        if self.trainer._run is not None:
            raise failure("state", "fit is running already")
        self.trainer._core.pin()  # with its store and devices
        self.trainer._run = self
        # Python's own handler would raise in the middle of a callback, where nobody can catch it.
        if threading.current_thread() is threading.main_thread() and \
                signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._old = signal.signal(signal.SIGINT, self._interrupt)
        if self.line is not None:
            watch_compile(add=self.line.compile)
        _handles.running(self)
        return self

    def __exit__(self, *_):
        _handles.ended(self)
        if self.line is not None:
            watch_compile(remove=self.line.compile)
        self.trainer._run = None
        self.trainer._core.unpin()
        if self._old is not None:
            signal.signal(signal.SIGINT, self._old)

    def finish(self):
        """Raises what ended the run."""
        if self.failure is not None:
            raise self.failure
        if self.interrupted:
            raise KeyboardInterrupt


_OWN = ("train", "test", "callbacks", "progress") + _policies.OPTIONS
_ALLOWED = names("clt_fit_options")


def fit(trainer, train, test=None, *, callbacks=(), progress=None, **options):
    """Trains, evaluates after each epoch, and returns a History. If `steps` or a policy ends the run within an epoch, the
    part of the epoch is evaluated and reported as an epoch.

    train, test: a Dataset, a tuple of arrays in the order of model.inputs, a dict of arrays, the text that names a
    data set, or an iterable of one's own that gives batches: dicts, or tuples in the order of the inputs. A list,
    or any other object that can be iterated again, is an epoch each time; so is a function that returns an
    iterator. An iterator that is used up ends the run. Fields u8 that feed f32 inputs are divided by 255.

    callbacks: objects of Callback, or functions that get the Progress of each epoch. Their exceptions end the run,
    and come out of fit. Ctrl-C ends the run after the current step, writes the checkpoint if there is a
    checkpoint_dir, and raises KeyboardInterrupt then. A second one raises in a callback that waits.

    validation: arrays or a data set apart from training and test, or the fraction of the training samples that is
    kept apart, such as 0.1. Reports then have "val_loss" and so on.

    keep_best: a metric such as "val_accuracy", or min:NAME or max:NAME. The link `best` in checkpoint_dir leads to
    the best checkpoint. patience: the run ends when so many evaluations in a row did not improve by more than
    min_delta. plateau: "plateau:FACTOR:PATIENCE[:MIN]", or a dict of members of clt_plateau, lowers the rate. They
    watch the metric `monitor`, else that of keep_best, else val_loss.

    policies: objects of Policy, which decide by the metrics of each evaluation. Their states are in the checkpoints.

    progress: True writes a line on stderr; None does if stderr is a terminal. On a terminal a first run shows how many
    kernels are left to compile.

    Other options are those of clt_fit_options:

    """
    policies = {name: options.pop(name) for name in _policies.OPTIONS if name in options}
    policies = {name: value for name, value in policies.items() if value is not None}
    for name in options:
        if name not in _ALLOWED + list(_OWN):
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
            run.on_begin()
            if train_set is not None:
                _fit_dataset(run, train_set, test_set, options, policies)
            else:
                if policies:
                    raise failure("unsupported", f"fit has no use for '{next(iter(policies))}' with an iterable: "
                                                 "a callback can do it")
                from ._iterables import fit_iterable
                fit_iterable(run, train, test_set, options)
            run.on_end()
    finally:
        if own_train:
            train_set.close()
        if own_test:
            test_set.close()
    run.finish()
    return run.history


fit.__doc__ += document("clt_fit_options")


def _fit_dataset(run, train, test, options, policies):
    validation = policies.pop("validation", None)
    if options.get("resume") and not options.get("checkpoint_dir"):
        raise failure("invalid_argument", "resume needs checkpoint_dir, the folder of the checkpoints")
    if options.get("resume_from") and not options.get("resume"):
        raise failure("invalid_argument", "resume_from needs resume=True and checkpoint_dir")
    given = Options("clt_fit_options", options)
    with _policies.validation_set(train, validation, list(run.trainer.model.inputs), max(0, given.struct.seed)) as (
            rest, part), _policies.policies(run, given.struct, **policies):
        _call_fit(run, given.struct, rest, part, test)


def _call_fit(run, struct, train, validation, test):
    trainer = run.trainer

    def on_step(_, address):
        report = _api.clt_progress.from_address(address)
        run.lr = report.lr
        run.end.step(report)
        if run.wants_step():
            run.call(lambda: run.on_step(of_struct(report, run.labels)))

    def on_epoch(_, address):
        report = of_struct(_api.clt_progress.from_address(address), run.labels)
        report.lr = run.lr  # reports of epochs lack it
        run.end.epoch()
        run.call(lambda: run.on_epoch(report))

    def on_validation(_, address):
        run.call(lambda: run.on_validation(of_struct(_api.clt_progress.from_address(address), run.labels)))

    def on_policy(_, step, what):
        run.call(run.on_policy, step, text(what))

    def hook(name):
        def call(_, trainer_address, address):
            report = _api.clt_progress.from_address(address)
            run.call(lambda: run.on_hook(name, of_struct(report, run.labels)))
            return int(run.failure is not None)
        return call

    def on_checkpoint(_):
        run.call(run.on_checkpoint)

    def should_stop(_):
        return int(run.stopping)

    struct.on_step, struct.on_epoch = _ON_REPORT(on_step), _ON_REPORT(on_epoch)
    struct.on_validation, struct.on_policy = _ON_REPORT(on_validation), _ON_POLICY(on_policy)
    struct.on_checkpoint, struct.should_stop = _ON_CHECKPOINT(on_checkpoint), _SHOULD_STOP(should_stop)
    for name, functions in run.hooks.items():
        if functions:
            setattr(struct, name, _ON_HOOK(hook(name)))
    trainer._settle()
    if validation is not None:
        struct.validation = validation._core.use()
    with pinned(train, validation, test, trainer=trainer):
        status = lib.clt_fit(trainer._core.use(), train._core.use(), test._core.use() if test is not None else None,
                             ctypes.byref(struct))
    together = trainer.world is not None and trainer.world.ranks > 1
    if status and not (status == _api.CLT_STOPPED and (run.stopping or together)):
        failed = error(status)
        cause = next((d._source.failure for d in (train, validation, test) if d is not None and d._source.failure), None)
        if run.failure is None and cause:
            raise cause  # the exception of the data set's own function, not the line that tells of it
        if run.failure is None:
            raise failed
    # All ranks evaluate together, also one whose callback has just failed or stopped the run.
    if not status and run.end.is_open and (together or not run.stopping):
        end_epoch(run, struct, validation, test)


def evaluate(trainer, data, *, metrics=None, output=None, field=None, **options):
    if metrics is not None and metrics is not False:
        metrics, output, field = measured(trainer.model, metrics, output, field, options.get("ignore_index"))
    elif output is not None or field is not None:
        raise failure("invalid_argument", f"{'field' if output is None else 'output'} needs metrics")
    given = Options("clt_fit_options", options)
    dataset, own = as_dataset(data, list(trainer.model.inputs), "test")
    if dataset is None:
        raise failure("invalid_argument", f"evaluate takes arrays or a data set, not {type(data).__name__}")
    try:
        def sum_up(*sums):
            arguments = trainer._core.use(), dataset._core.use(), ctypes.byref(given.struct)
            if not metrics:
                return lib.clt_evaluate(*arguments, *sums)
            with metrics._guard:
                return lib.clt_evaluate_metrics(*arguments, output, field, metrics._core.use(), *sums)

        means = means_of(trainer, dataset, sum_up)
        if metrics:
            means = {**metrics.read(), **means}
            if metrics.classes:
                means["confusion"] = metrics.confusion
        return means
    finally:
        if own:
            dataset.close()


