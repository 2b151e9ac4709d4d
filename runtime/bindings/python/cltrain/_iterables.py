"""fit for iterables of one's own: a loop over steps in Python."""
import math
import time

from . import _api
from ._lib import check, lib
from ._options import Options
from .errors import failure
from .fit import evaluate
from .history import _SCALARS, Progress

# What a loop over batches can do. The batches themselves decide the order of samples.
_USED = ("epochs", "steps", "checkpoint_dir", "checkpoint_every", "keep", "resume", "resume_from", "mean", "std",
         "ignore_index")


def _iterator(source, first):
    """Returns an iterator over an epoch, or None if there are no more epochs."""
    if callable(source) and not hasattr(source, "__iter__"):
        return iter(source())
    iterator = iter(source)
    if iterator is source and not first:  # it was used up by the epoch before
        return None
    return iterator


class _Loop:
    def __init__(self, run, test, options):
        for name, value in options.items():
            if name not in _USED and value is not None:
                raise failure("unsupported", f"fit has no use for '{name}' with an iterable: its batches decide that")
        for name, functions in run.hooks.items():
            if functions:
                raise failure("unsupported", f"{name} of callbacks needs a data set: a loop over batches of one's own can "
                                             "call trainer.gradients and apply")
        self.run, self.trainer, self.test = run, run.trainer, test
        self.options = Options("clt_fit_options", options).struct
        self.evaluation = {name: options[name] for name in ("mean", "std", "ignore_index") if name in options}
        self.start = self.last = time.monotonic()
        self.epoch = 0
        self.samples = 0
        self.total, self.weight = 0.0, 0
        self.step = None  # enqueued, not reported yet

    def report(self):
        """Reports the step before, which has run while the next batch was made."""
        step, self.step = self.step, None
        if step is None:
            return
        result = step._read()
        self.total += result.loss * result.samples
        self.weight += result.samples
        self.samples += result.samples
        if self.run.wants_step():
            self.run.call(lambda: self.run.on_step(self._progress(result)))

    def _progress(self, result, **other):
        now = time.monotonic()
        values = dict.fromkeys(_SCALARS, 0)
        values.update(step=result.step + 1, epoch=self.epoch + 1, samples=result.samples, loss=result.loss,
                      total_steps=self.options.steps, norm=result.norm, lr=result.lr, loss_scale=result.loss_scale,
                      skipped=result.skipped, seconds=now - self.start, step_seconds=now - self.last,
                      test_loss=math.nan, test_metric=math.nan)
        values.update(other)
        self.last = now
        return Progress(values)

    def take(self, batch):
        """Enqueues a step, then reports the one before."""
        if not isinstance(batch, (dict, tuple, list)):
            raise failure("invalid_argument", f"a batch is {type(batch).__name__}: the iterable must give dicts or tuples "
                                              "of arrays")
        run, self.trainer._run = self.trainer._run, None  # this loop may make steps, its callbacks may not
        try:
            step = self.trainer.step(batch) if isinstance(batch, dict) else self.trainer.step(*batch)
        finally:
            self.trainer._run = run
        self.report()
        self.step = step

    def save(self):
        if not self.options.checkpoint_dir:
            return
        self.run.call(self.run.on_checkpoint)
        check(lib.clt_trainer_save_state(self.trainer._core.use(), self.options.checkpoint_dir, self.options.keep))

    def end_epoch(self):
        step = self.step
        self.report()
        if step is None:
            return
        result = step._read()
        metrics = {}
        if self.test is not None:
            means = evaluate(self.trainer, self.test, **self.evaluation)
            metrics = {f"test_{name}": value for name, value in means.items()}
        progress = self._progress(result, samples=self.samples, loss=self.total / max(1, self.weight))
        progress.metrics = metrics
        self.run.call(lambda: self.run.on_epoch(progress))
        self.total, self.weight, self.samples = 0.0, 0, 0
        self.epoch += 1

    def done(self):
        return self.run.stopping or (self.options.steps and self.trainer.steps >= self.options.steps)

    def go(self, source):
        epochs = self.options.epochs if not self.options.steps else math.inf
        every = self.options.checkpoint_every
        while self.epoch < epochs and not self.done():
            iterator = _iterator(source, self.epoch == 0)
            if iterator is None:
                break
            before = self.trainer.steps
            for batch in iterator:
                self.take(batch)
                if every > 0 and self.trainer.steps % every == 0:
                    self.save()
                if self.done():
                    break
            if self.trainer.steps == before and not self.done():
                raise failure("invalid_argument", f"epoch {self.epoch + 1} of the iterable has no batch")
            if self.run.stopping:
                self.report()
                break
            self.end_epoch()
            if every < 0:
                self.save()


def fit_iterable(run, source, test, options):
    if not callable(source) and not hasattr(source, "__iter__"):
        raise failure("invalid_argument", f"train is {type(source).__name__}: give arrays, a data set or an iterable of "
                                          "batches")
    if options.get("resume_from") or (options.get("resume") and options.get("checkpoint_dir")):
        raise failure("unsupported", "a run over an iterable cannot resume by itself, because nobody knows where its "
                                     "batches go on: call trainer.restore, and give the rest of them")
    loop = _Loop(run, test, options)
    run.in_python = True
    try:
        loop.go(source)
    except BaseException:
        run.in_python = False
        # Ctrl-C and exceptions of the iterable: the state of the last step is worth keeping.
        if run.trainer._core.ptr is not None and lib.clt_trainer_wait(run.trainer._core.ptr) == _api.CLT_OK:
            loop.save()
        raise
    run.in_python = False
    run.trainer._settle()
    loop.save()


