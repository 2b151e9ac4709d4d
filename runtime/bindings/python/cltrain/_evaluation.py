"""Evaluations of data sets, also of an epoch that a run leaves in its middle."""
import contextlib
import ctypes
import math
import time

from ._lib import error, lib
from .errors import StateError
from .history import _SCALARS, Progress


@contextlib.contextmanager
def pinned(*datasets, trainer):
    """Keeps data sets and a trainer while the library reads them, even if the interpreter ends meanwhile."""
    cores = [data._core for data in (trainer, *datasets) if data is not None]
    sources = [data._source for data in datasets if data is not None]
    for source in sources:
        source.failure = None
    for core in cores:
        core.pin()
    before, trainer._guard.sources = trainer._guard.sources, trainer._guard.sources + sources
    try:
        yield
    finally:
        trainer._guard.sources = before
        for core in cores:
            core.unpin()


def means_of(trainer, dataset, evaluate):
    """Returns the means of losses and metrics by name, whose sums a function of the library computes."""
    labels = trainer.labels
    sums, weights = ((ctypes.c_double * max(1, len(labels)))() for _ in range(2))
    with trainer._guard, pinned(dataset, trainer=trainer):
        trainer._settle()
        status = evaluate(sums, weights)
        if status:
            failed = error(status)
            raise dataset._source.failure or failed
    return {label: sums[i] / weights[i] if weights[i] else math.nan for i, label in enumerate(labels)}


class End:
    """The epoch that is under way: the library does not report it if the run ends in its middle."""

    def __init__(self):
        self.began = time.monotonic()
        self.is_open = False
        self.last = None  # the report of its last step
        self.total, self.samples = 0.0, 0

    def step(self, report):
        self.is_open, self.last = True, (report.step, report.epoch, report.total_steps, report.loss_scale, report.skipped)
        if math.isfinite(report.loss):
            self.total += report.loss * report.samples
            self.samples += report.samples

    def epoch(self):
        self.is_open = False
        self.total, self.samples = 0.0, 0

    def progress(self, lr):
        values = dict.fromkeys(_SCALARS, 0)
        values.update((name, math.nan) for name in _SCALARS if name.endswith(("_loss", "_metric")))
        values.update(zip(("step", "epoch", "total_steps", "loss_scale", "skipped"), self.last))
        values.update(samples=self.samples, loss=self.total / self.samples if self.samples else math.nan, lr=lr,
                      norm=math.nan, seconds=time.monotonic() - self.began)
        return Progress(values)


def end_epoch(run, struct, validation, test):
    """Evaluates and reports an epoch in whose middle the run ended, as the library does for whole epochs."""
    trainer = run.trainer
    sets = {"val": None if struct.validate_every else validation, "test": test}

    def evaluated(prefix):
        found = {}
        for kind, data in sets.items():
            if data is not None:
                means = means_of(trainer, data, lambda *sums: lib.clt_evaluate(
                    trainer._core.use(), data._core.use(), ctypes.byref(struct), *sums))
                found.update((f"{prefix}{kind}_{label}", mean) for label, mean in means.items())
        return found

    metrics = {}
    try:
        metrics.update(evaluated(""))
        if metrics and trainer._average and trainer.averaged:
            with trainer.averages():
                metrics.update(evaluated("average_"))
    except StateError:  # a rank that lost its devices cannot evaluate when the run has ended
        if trainer.world is None or trainer.world.ranks == 1:
            raise
    progress = run.end.progress(run.lr)
    progress.metrics = metrics
    run.call(lambda: run.on_epoch(progress))
