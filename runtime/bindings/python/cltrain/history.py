"""What a run reports: Progress, History, and the line on a terminal."""
import math
import sys
import time

from . import _api

_MEMBERS = _api.MEMBERS["clt_progress"]
_COUNTS = {row[3] for row in _MEMBERS.values()}
_SCALARS = [name for name, (kind, _, depth, count, _) in _MEMBERS.items()
            if kind == "scalar" and depth == 0 and count is None and name not in _COUNTS]


class Progress:
    """A report of a step or an epoch: `step`, `epoch`, `loss`, `lr`, `samples`, `seconds` and so on, as
    clt_progress has them. `metrics` has the means over the validation and the test set after an epoch, such as
    "val_loss" and "test_accuracy"."""

    def __init__(self, values, metrics=None):
        self.__dict__.update(values)
        self.metrics = metrics or {}

    def __repr__(self):
        rows = dict(self.__dict__)
        rows.update(rows.pop("metrics"))
        return "Progress(" + ", ".join(f"{name}={value:g}" for name, value in rows.items()) + ")"


def of_struct(struct, labels):
    values = {name: getattr(struct, name) for name in _SCALARS}
    metrics = {}
    for kind in ("val", "test", "average_val", "average_test"):
        means, count = getattr(struct, f"{kind}_means"), getattr(struct, f"n_{kind}_means")
        if means:
            metrics.update((f"{kind}_{label}", means[i]) for i, label in enumerate(labels) if i < count)
    return Progress(values, metrics)


class History(dict):
    """A dict of lists with an entry for each epoch: "epoch", "loss", "lr", "seconds", "test_loss", ...

    The last entry may be that of a part of an epoch, if `steps` or a policy ends the run there. With validate_every
    "val_loss" and so on are those of the last evaluation in the epoch, NaN if the epoch had none. `validations` has all
    evaluations of the validation set, a dict for each: "step", "epoch", "val_loss", ...

    `decisions` has (step, text) for what policies did: the best checkpoint, a lower rate, the end."""

    def __init__(self):
        super().__init__()
        self.decisions = []
        self.validations = []
        self._last = {}  # of the evaluations since the last entry

    def add(self, progress):
        row = {"epoch": progress.epoch, "step": progress.step, "loss": progress.loss, "lr": progress.lr,
               "seconds": progress.seconds, **self._last, **progress.metrics}
        self.add_validation(progress)
        self._last = {}
        length = len(self.get("epoch", []))
        for name in row:
            self.setdefault(name, [math.nan] * length)
        for name, values in self.items():
            values.append(row.get(name, math.nan))

    def add_validation(self, progress):
        found = {name: value for name, value in progress.metrics.items() if name.startswith(("val_", "average_val_"))}
        if found:
            self._last.update(found)
            self.validations.append({"step": progress.step, "epoch": progress.epoch, **found})


def is_terminal():
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


class Line:
    """A line on a terminal that is written anew ten times a second; one line an epoch stays."""

    def __init__(self, stream=None):
        self.stream = stream or sys.stderr
        self.due = 0.0
        self.width = 0

    def step(self, progress):
        self.due = time.monotonic() + 0.1
        rate = progress.samples / progress.step_seconds if progress.step_seconds > 0 else math.nan
        left = (progress.total_steps - progress.step) * progress.seconds / max(1, progress.step)
        total = f"/{progress.total_steps}" if progress.total_steps else ""
        text = f"step {progress.step}{total}  loss {progress.loss:.4f}  {rate:,.0f} samples/s"
        self._write(text + (f"  {left:.0f} s left" if progress.total_steps else ""), "")

    def epoch(self, progress):
        text = f"epoch {progress.epoch}: loss {progress.loss:.4f}"
        self._write(text + "".join(f", {name} {value:.4f}" for name, value in progress.metrics.items()), "\n")

    def compile(self, device, kernels, done, total):
        """Shows how many kernels are left, before the first step. Threads of several devices call it."""
        if time.monotonic() >= self.due and done < total:
            self.due = time.monotonic() + 0.1
            self._write(f"compiling for {device}: {total - done} of {total} {'kernels' if kernels else 'programs'} left", "")

    def remark(self, text):
        self._write(text, "\n")

    def _write(self, text, end):
        try:
            self.stream.write("\r" + text.ljust(self.width) + end)
            self.stream.flush()
        except (OSError, ValueError):  # the terminal is gone; training goes on
            pass
        self.width = 0 if end else len(text)


class Callback:
    """Base of callbacks of `fit`. A plain function counts as `on_epoch`. Any of them may call trainer.stop()."""

    def on_begin(self, trainer):
        pass

    def on_step_begin(self, trainer, progress):
        """Before a step is enqueued: here a program sets the rate (trainer.set_lr) or parameters."""

    def on_gradients(self, trainer, progress):
        """When the gradients of a step are added up, before the update: trainer.gradient and set_gradient."""

    def on_step(self, trainer, progress):
        pass

    def on_epoch(self, trainer, progress):
        pass

    def on_validation(self, trainer, progress):
        """After an evaluation of the validation set that does not end an epoch (validate_every)."""

    def on_checkpoint(self, trainer):
        pass

    def on_end(self, trainer):
        pass
