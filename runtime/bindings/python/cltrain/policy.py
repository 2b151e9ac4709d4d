"""Policies of a program's own: what follows from the evaluations of a run of fit. See <cltrain/policy.h>."""
import ctypes
import json

from . import _api
from ._checks import encoded, shown
from ._lib import NULL, check, lib, malloced, text
from .errors import failure

_BEGIN, _EVALUATED, _SAVE = (dict(_api.clt_policy._fields_)[name] for name in ("begin", "evaluated", "save"))


class Policy:
    """Base of policies of one's own, for fit(.., policies=[..]). Policies decide by the metrics of each evaluation.

        class Below(clt.Policy):
            name = "below"
            good = 0

            def begin(self, run, state):
                self.good = state or 0

            def evaluated(self, run, metrics):
                if "val_loss" in metrics:
                    self.good = self.good + 1 if metrics["val_loss"] < 0.1 else 0
                if self.good == 3:
                    run.stop("val_loss was below 0.1 for 3 evaluations")

            def save(self):
                return self.good

    What `save` returns is in the checkpoints, under `name`. A run that resumes gives it to `begin`, and then makes the
    decisions of a run without a break. With several ranks the policies of all ranks see the same numbers, and must decide
    the same. An exception ends the run, and comes out of fit.
    """

    name = None  # of the state in checkpoints; None: the name of the class

    def begin(self, run, state):
        """The run begins. `state` is what `save` returned for the checkpoint from which the run resumes, or None."""

    def evaluated(self, run, metrics):
        """After each evaluation. `metrics` is a dict with the attributes `step` and `epoch`. It has what was evaluated:
        "loss" and "test_loss" at the end of an epoch, "val_loss" there too or, with validate_every, after every so many
        steps."""

    def save(self):
        """Returns the state, before each checkpoint: whatever json.dumps takes."""
        return None


class Metrics(dict):
    """The metrics of an evaluation by name."""

    def __init__(self, struct):
        super().__init__((text(struct.names[i]), struct.values[i]) for i in range(struct.count))
        self.step, self.epoch = struct.step, struct.epoch


class PolicyRun:
    """The run, for a policy during its calls."""

    def __init__(self, trainer):
        self.trainer = trainer
        self._pointer, self._may_keep = None, False

    def _use(self):
        if self._pointer is None:
            raise failure("state", "a run takes decisions during the calls of its policies only")
        return self._pointer

    def stop(self, why):
        """Ends the run after this call. `why` is a clause for the history, such as "val_loss is below 0.1"."""
        lib.clt_policy_stop(self._use(), why)

    def keep(self, why=None):
        """Makes this state the best one: the link `best` in checkpoint_dir leads to it. For calls of
        `evaluated`. A run without checkpoint_dir keeps nothing."""
        pointer = self._use()
        if not self._may_keep:
            raise failure("state", "run.keep is for `evaluated`, when an evaluation was made")
        lib.clt_policy_keep(pointer, NULL if why is None else why)

    @property
    def lr(self):
        """The base learning rate of the steps to come."""
        return lib.clt_policy_lr(self._use())

    def set_lr(self, lr, why=None):
        """Sets the base rate. A policy has the rate in its state, and sets it again in `begin`."""
        check(lib.clt_policy_set_lr(self._use(), lr, NULL if why is None else why))


class Made:
    """The C structure of a policy. `run` is that of fit, which keeps exceptions."""

    def __init__(self, policy, run):
        if not isinstance(policy, Policy):
            raise failure("invalid_argument", f"policies has {shown(policy)}: give objects of classes made from clt.Policy")
        self.policy, self.run, self.of_policy = policy, run, PolicyRun(run.trainer)
        name = type(policy).__name__ if policy.name is None else policy.name
        self.struct = _api.clt_policy()
        lib.clt_policy_init(ctypes.byref(self.struct))
        self.struct.name = encoded(name, f"the name of policy {type(policy).__name__}")
        self.struct.begin, self.struct.evaluated = _BEGIN(self._begin), _EVALUATED(self._evaluated)
        self.struct.save = _SAVE(self._save)
        self.pointer = ctypes.pointer(self.struct)

    def _call(self, pointer, function, *arguments):
        before, self.of_policy._pointer = self.of_policy._pointer, pointer
        try:
            self.run.call(function, self.of_policy, *arguments)
        finally:
            self.of_policy._pointer = before
        if self.run.failure is None:
            return _api.CLT_OK
        return lib.clt_error_set(_api.CLT_ABORTED, f"policy {text(self.struct.name)} failed")

    def _begin(self, _, pointer, state):
        return self._call(pointer, lambda run: self.policy.begin(run, None if state is None else json.loads(state)))

    def _evaluated(self, _, pointer, address):
        self.of_policy._may_keep = True
        status = self._call(pointer, self.policy.evaluated, Metrics(_api.clt_evaluation.from_address(address)))
        self.of_policy._may_keep = False
        return status

    def _save(self, _):
        made = self.run.call(lambda: json.dumps(self.policy.save(), allow_nan=False))
        return None if made is None else malloced(made)
