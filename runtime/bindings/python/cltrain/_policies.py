"""Validation sets, and what follows from evaluations: the best checkpoint, an early end, a lower rate."""
import contextlib
import ctypes
import numbers
from collections.abc import Mapping

from . import _api
from ._checks import encoded, number, several, shown
from ._lib import check, lib
from ._options import Options
from .data import as_dataset
from .errors import failure
from .policy import Made

OPTIONS = ("validation", "keep_best", "patience", "min_delta", "monitor", "plateau", "policies")


def _watched(metric, least=0.0):
    """Returns what a policy watches. "min:NAME" and "max:NAME" name the direction."""
    if not isinstance(metric, str):
        raise failure("invalid_argument", f"metric is {shown(metric)}: it must be a name, min:NAME or max:NAME")
    direction, _, name = metric.rpartition(":")
    if direction not in ("", "min", "max"):
        raise failure("invalid_argument", f"metric '{metric}': it must be a name, min:NAME or max:NAME")
    larger = ctypes.c_int(direction == "max")
    if not direction and lib.clt_metric_direction(name, ctypes.byref(larger)):
        raise failure("not_found", f"it is not known whether larger values of '{name}' are better: write min:{name} or "
                                   f"max:{name}")
    return _api.clt_watched(metric=encoded(name, "metric"), larger=larger.value, least=least)


def _plateau(value):
    if isinstance(value, str):
        made = _api.clt_plateau()
        lib.clt_plateau_init(ctypes.byref(made))
        check(lib.clt_plateau_parse(value, ctypes.byref(made)))
        return made
    if not isinstance(value, Mapping):
        raise failure("invalid_argument", f"plateau is {shown(value)}: give \"plateau:FACTOR:PATIENCE[:MIN]\", or a dict")
    return Options("clt_plateau", dict(value)).struct


@contextlib.contextmanager
def policies(run, struct, keep_best=None, patience=None, min_delta=0.0, monitor=None, plateau=None, policies=()):
    """Sets the policies of a clt_fit_options, in the order of the command: keep_best, plateau, patience; then those of the
    program."""
    own = [Made(policy, run) for policy in several(policies, "policies", "a list of objects of clt.Policy")]
    made = []

    def add(function, *arguments):
        out = ctypes.POINTER(_api.clt_policy)()
        check(function(*arguments, ctypes.byref(out)))
        made.append(out)

    watch = monitor or keep_best or "val_loss"
    if monitor and patience is None and plateau is None:
        raise failure("invalid_argument", "monitor needs patience or plateau, which watch it")
    try:
        if keep_best is not None:
            if not struct.checkpoint_dir:
                raise failure("invalid_argument", "keep_best needs checkpoint_dir, the folder of the checkpoints")
            add(lib.clt_policy_best, ctypes.byref(_watched(keep_best)))
        if plateau is not None:
            add(lib.clt_policy_plateau, ctypes.byref(_watched(watch)), ctypes.byref(_plateau(plateau)))
        if patience is not None:
            add(lib.clt_policy_patience, ctypes.byref(_watched(watch, number(min_delta, "double", "min_delta"))),
                number(patience, "int", "patience"))
        pointers = made + [one.pointer for one in own]
        struct.policies = (ctypes.POINTER(_api.clt_policy) * max(1, len(pointers)))(*pointers)
        struct.n_policies = len(pointers)
        yield
    finally:
        for one in made:
            lib.clt_policy_destroy(one)


@contextlib.contextmanager
def validation_set(train, validation, inputs, seed):
    """Yields (training set, validation set or None). A number is the fraction of the training samples that is
    kept apart, chosen at random by the seed."""
    if validation is None:
        yield train, None
    elif isinstance(validation, numbers.Real) and not isinstance(validation, bool):
        rest, part = train.split(float(validation), seed)
        with rest, part:
            yield rest, part
    else:
        found, own = as_dataset(validation, inputs, "validation")
        if found is None:
            raise failure("invalid_argument", f"validation is {type(validation).__name__}: give a fraction, arrays or a "
                                              "data set")
        try:
            yield train, found
        finally:
            if own:
                found.close()
