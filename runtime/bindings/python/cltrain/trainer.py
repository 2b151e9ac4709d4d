"""Trainers: steps, and what belongs to them."""
import contextlib
import ctypes
import math
import time
import weakref

import numpy as np

from . import _api, _feeds
from ._checks import at_least, expect
from ._handles import Handle
from ._lib import check, error, lib, suggestion, text
from ._options import Options, document, names
from .arrays import copy_of, view
from .errors import failure
from .graph import Graph
from .reservoir import Reservoir
from .steps import Sections, Step
from .store import Store
from .world import World

_STORE_OPTIONS = ("parallel", "bucket_bytes", "offload")
_ndarray = np.ndarray


def _total(total):
    return total if type(total) is int and 0 <= total < 2**31 else at_least(0, total, "int64_t", "total")


class Trainer(Handle):
    """Trains a model.

        trainer = clt.Trainer(model, optimizer="adam", lr=1e-3, batch=256, devices="all")
        step = trainer.step(x=images, y=labels)         enqueued: float(step) waits for the loss
        history = trainer.fit((images, labels), epochs=3)

    devices: Devices, or a list as for `clt.Devices`; None: the best single device. store: parameters that
    other trainers use too, instead of devices. seed: of initial values and dropout. schedule: "cosine",
    "step:EVERY:FACTOR", each with ",warmup:STEPS"; a cosine needs schedule_steps, the steps of the run.
    average: averages of weights, "ema:DECAY" or "swa:FROM[:EVERY]"; reports of `fit` then have "average_val_loss" and so on.
    parallel, bucket_bytes, offload: as clt_store_options. world: the ranks that train together.

    Other options are those of clt_trainer_options:

    """

    def __init__(self, model, *, devices=None, store=None, seed=0, world=None, schedule=None, schedule_steps=0,
                 average=None, **options):
        of_store = {name: options.pop(name) for name in _STORE_OPTIONS if name in options}
        allowed = names("clt_trainer_options") + list(_STORE_OPTIONS) + ["schedule", "schedule_steps", "average", "devices",
                                                                               "store"]
        for name in options:
            if name not in allowed:
                raise failure("not_found", f"Trainer has no option '{name}'{suggestion(name, allowed)}")
        if store is not None and (of_store or devices is not None):
            raise failure("invalid_argument", f"{next(iter(of_store), 'devices')} is decided by the store")
        expect(model, Graph, "model", "a clt.Graph, such as clt.Sequential makes it")
        expect(store, (Store, type(None)), "store", "a clt.Store, such as that of another trainer")
        expect(world, (World, type(None)), "world", "a clt.World")
        given = Options("clt_trainer_options", {"seed": seed, **options})
        if schedule is not None:
            if expect(schedule, str, "schedule", "text such as \"cosine,warmup:100\"").startswith("cosine") and not schedule_steps:
                raise failure("invalid_argument", "the cosine needs schedule_steps, the number of steps of the run")
            check(lib.clt_schedule_parse(schedule, schedule_steps, ctypes.byref(given.struct.schedule)))
        if average is not None:
            expect(average, str, "average", "text such as \"ema:0.999\"")
            check(lib.clt_average_parse(average, ctypes.byref(given.struct.average)))
        if store is None:
            zero = {"zero": 3} if given.struct.zero == 3 else {}
            store = Store(model, devices, seed=seed, world=world, **of_store, **zero)
        if world is not None:
            given.struct.world = world._pointer()
        out = ctypes.c_void_p()
        with store._guard:
            check(lib.clt_trainer_create(model._core.use(), store._core.use(), ctypes.byref(given.struct),
                                         ctypes.byref(out)))
            self._own(out.value, lib.clt_trainer_destroy, "trainer", [store._core], store._guard)
        self._core.keep = given
        self._guard = store._guard
        self.model, self.store, self.world = model, store, world
        self.batch = given.struct.batch
        self._inputs = {name: _feeds.Input(name, value) for name, value in model.inputs.items()}
        self._plans = {}
        self._average = average is not None
        self.labels = model.losses + model.metrics  # in the order of means in reports
        self._recent = [None, None]  # the last two steps, which the library still knows
        self._kept = []
        self._run = None
        self._reservoir = None
        self._in_averages = 0
        self._count = 0  # samples of the last batch
        # Looking functions up takes as long as calling them.
        self._c_step, self._c_steps = lib.clt_trainer_step, lib.clt_trainer_steps
        model._store = weakref.ref(store)
        model._trainers.add(self)

    @property
    def sections(self):
        """A mapping of texts of the program's own in checkpoints."""
        return Sections(self)

    # --- steps ------------------------------------------------------------------------------------

    def step(self, *arrays, copy=True, count=None, total=0, **named):
        """Enqueues a training step and returns a Step, usually before it has run.

        Arrays are given by the names of inputs, or in the order of model.inputs, or as a dict. They may be
        NumPy arrays, DLPack tensors, OpenCL buffers (count says how many samples these hold), or lists.

        copy=False: NumPy arrays and DLPack tensors of the input's type are read where they lie. They must not
        change until a result of the step was read, or `wait` was called.
        total: with several ranks, the samples of all; 0: the ranks tell each other.
        """
        if arrays:
            named = self._by_name(arrays, named)
        with self._guard:
            one = self._batch(named, copy, count)
            one.batch.total = _total(total)
            self._count = one.batch.count
            self._enqueue(self._c_step, one)
            step = Step(self, self._c_steps(self._core.ptr) - 1)
            self._recent = [self._recent[1], weakref.ref(step)]
        return step

    def _by_name(self, arrays, named):
        if len(arrays) == 1 and isinstance(arrays[0], dict):
            return {**arrays[0], **named}
        if len(arrays) == 1 and isinstance(arrays[0], (tuple, list)) and len(self._inputs) > 1:
            arrays = arrays[0]
        if len(arrays) > len(self._inputs):
            raise failure("invalid_argument", f"{len(arrays)} arrays, but the model has the inputs "
                                              f"{', '.join(self._inputs)}")
        return {**dict(zip(self._inputs, arrays)), **named}

    def _refuse_in_fit(self):
        """Refuses what callbacks must not do: `fit` counts its steps, and has plans for them. Other threads wait."""
        if self._run is not None:
            raise failure("state", "fit is running: its callbacks may read the store, and call stop()")

    def _batch(self, named, copy, count=None):
        self._refuse_in_fit()
        if self._core.ptr is None:
            self._core.use()
        key = [copy]
        for name, a in named.items():
            if type(a) is not _ndarray:
                break
            key += (name, a.dtype, a.shape, a.strides)
        else:
            key = tuple(key)
            plan = self._plans.get(key)
            if plan is None:
                plan = self._new_plan(key, named, copy)
            if count is not None:
                _feeds.check_count(count, plan.count)
            return plan.fill(tuple(named.values()))
        return self._other_arrays(named, copy, count)

    def _new_plan(self, key, named, copy):
        for name in named:
            if name not in self._inputs:
                raise failure("not_found", f"the model has no input '{name}'{suggestion(name, list(self._inputs))}")
        plan = _feeds.Feeds(self._inputs, named, copy)
        if len(self._plans) >= 32:  # batches of ever new shapes would fill the memory
            self._settle()
            self._plans.clear()
        self._plans[key] = plan
        return plan

    def _other_arrays(self, named, copy, count):
        """Feeds DLPack tensors, buffers, lists. Memory of the host is copied unless copy is False."""
        one = _feeds.of_views(self._inputs, named, count)
        if copy:
            for place, (name, v) in enumerate(zip(named, one.keep)):
                if v.on_host and v.is_exact(self._inputs[name].dtype):
                    dense = copy_of(v)
                    one.keep[place] = dense
                    ctypes.memmove(ctypes.byref(one.arrays[place]), ctypes.byref(dense.array),
                                   ctypes.sizeof(dense.array))
        return one

    def _enqueue(self, function, one):
        # The library keeps results of the last two steps. A Step that somebody holds keeps its own.
        older = self._recent[0]
        if older is not None:
            older = older()
            if older is not None and older._result is None:
                older._read_early()
        status = function(self._core.ptr, one.pointer, None)
        if status:
            raise error(status)
        if one.keep is not None:
            self._kept.append(one)
            if len(self._kept) > _feeds.SETS:
                del self._kept[0]

    def _settle(self):
        """Waits until no step reads memory of this trainer."""
        check(lib.clt_trainer_wait(self._core.use()))
        self._kept.clear()

    def _result(self, number):
        result = _api.clt_step_result()
        lib.clt_step_result_init(ctypes.byref(result))
        with self._guard:
            check(lib.clt_trainer_result(self._core.use(), number, ctypes.byref(result)))
        return result

    def wait(self):
        """Waits until the devices have done everything that was enqueued."""
        with self._guard:
            self._settle()

    @property
    def steps(self):
        """The number of steps done. Setting it restores schedule and random streams."""
        return lib.clt_trainer_steps(self._core.use())

    @steps.setter
    def steps(self, number):
        number = at_least(0, number, "int64_t", "steps")
        with self._guard:
            self._refuse_in_fit()
            lib.clt_trainer_set_steps(self._core.use(), number)

    def set_lr(self, lr):
        """Sets the base rate of the steps that begin from now on."""
        with self._guard:
            check(lib.clt_trainer_set_lr(self._core.use(), lr))

    @property
    def averaged(self):
        """The number of steps in the averages of weights."""
        steps = ctypes.c_int64()
        with self._guard:
            check(lib.clt_trainer_averaged(self._core.use(), ctypes.byref(steps)))
        return steps.value

    @contextlib.contextmanager
    def averages(self):
        """In this `with` block the averages are in the place of the parameters: evaluate, predict and save
        them. What is written to the store meanwhile changes the averages."""
        with self._guard:
            if not self._in_averages:  # blocks inside one another: the outermost one exchanges
                self._settle()
                check(lib.clt_trainer_use_average(self._core.use(), 1))
            self._in_averages += 1
        try:
            yield self.store
        finally:
            with self._guard:
                self._in_averages -= 1
                if not self._in_averages and not self.closed:
                    check(lib.clt_trainer_use_average(self._core.use(), 0))

    # --- parts of a step --------------------------------------------------------------------------

    def forward(self, *arrays, copy=True, count=None, total=0, **named):
        """Runs the forward pass, as the first part of a step: then backward, reduce and apply."""
        self._run_part(lib.clt_trainer_forward, arrays, named, copy, count, total)

    def _run_part(self, function, arrays, named, copy, count, total):
        """Runs a part of a step that reads a batch."""
        if arrays:
            named = self._by_name(arrays, named)
        with self._guard:
            one = self._batch(named, copy, count)
            one.batch.total = _total(total)
            self._count = one.batch.count
            check(function(self._core.use(), one.pointer))
            self._kept.append(one)

    def backward(self, **gradients):
        """Computes the gradients of the losses, or with the gradients that the model declares by output_gradient."""
        with self._guard:
            self._refuse_in_fit()
            if not gradients:
                check(lib.clt_trainer_backward(self._core.use()))
                return
            one = _feeds.of_views(self._inputs, gradients)
            check(lib.clt_trainer_backward_from(self._core.use(), one.feeds, len(gradients)))
            self._kept.append(one)

    def gradients(self, *arrays, copy=True, count=None, total=0, **named):
        """Runs a step up to its update, also with several micro-batches: then gradient, set_gradient and apply."""
        self._run_part(lib.clt_trainer_gradients, arrays, named, copy, count, total)

    def reduce(self):
        """Sums the gradients over all devices."""
        with self._guard:
            self._refuse_in_fit()
            check(lib.clt_trainer_reduce(self._core.use()))

    def reduced(self):
        """Instead of reduce: the gradients that were set are the sums over all devices."""
        with self._guard:
            self._refuse_in_fit()
            check(lib.clt_trainer_reduced(self._core.use()))

    def apply(self):
        """Updates the parameters, and returns a Step."""
        with self._guard:
            self._refuse_in_fit()
            status = lib.clt_trainer_apply(self._core.use(), None)
            if status:
                raise error(status)
            del self._kept[:-_feeds.SETS]
            step = Step(self, self._c_steps(self._core.ptr) - 1)
            self._recent = [self._recent[1], weakref.ref(step)]
        return step

    def gradient(self, name, device=0):
        """Returns a parameter's gradient after backward or reduce, as a NumPy array."""
        out = np.empty(self.store.shape(name), np.float32)
        with self._guard:
            check(lib.clt_trainer_gradient(self._core.use(), device, name, out.ctypes.data, out.nbytes))
        return out

    def set_gradient(self, name, value, device=-1):
        """Sets a parameter's gradient on a device, or on all, between backward and apply."""
        seen = view(value, f"the gradient of '{name}'", _api.CLT_F32)
        with self._guard:
            check(lib.clt_trainer_set_gradient_array(self._core.use(), device, name, ctypes.byref(seen.array)))

    def input_gradient(self, name):
        """Returns the gradient of an input that the model marks by input_gradient, for the samples of the last batch."""
        if name not in self._inputs:
            raise failure("not_found", f"the model has no input '{name}'{suggestion(name, list(self._inputs))}")
        row = self._inputs[name]
        shape = tuple(-size * self._count if size < 0 else size for size in row.shape)
        out = np.empty(shape, np.float32)
        seen = view(out, f"the gradient of '{name}'", write=True)
        with self._guard:
            check(lib.clt_trainer_input_gradient(self._core.use(), -1, name, ctypes.byref(seen.array)))
        return out

    def slot_names(self):
        """Returns the names of the optimizer's tensors, such as exp_avg."""
        found = []
        while (name := lib.clt_trainer_slot_name(self._core.use(), len(found))) is not None:
            found.append(text(name))
        return found

    def slot(self, slot, name):
        """Returns the optimizer's tensor of a parameter: slot("exp_avg", "fc1.weight")."""
        slots = self.slot_names()
        if slot not in slots:
            raise failure("not_found", f"the optimizer has no tensor '{slot}': it has {', '.join(slots) or 'none'}")
        out = np.empty(self.store.shape(name), np.float32)
        with self._guard:
            check(lib.clt_trainer_slot_get(self._core.use(), slots.index(slot), name, out.ctypes.data,
                                           out.nbytes))
        return out

    def set_reservoir(self, reservoir, **options):
        """Lets `step_reservoir` draw from a Reservoir; None: from none. Of clt_fit_options these count: batch, seed,
        mean, std, ignore_index."""
        if not isinstance(reservoir, (Reservoir, type(None))):
            raise failure("invalid_argument", f"reservoir is {type(reservoir).__name__}: give a clt.Reservoir, or None")
        given = Options("clt_fit_options", options)
        with contextlib.ExitStack() as held:
            if reservoir is not None:
                held.enter_context(reservoir._in_use())
            held.enter_context(self._guard)
            self._refuse_in_fit()
            source = None if reservoir is None else reservoir._core.use()
            check(lib.clt_trainer_set_reservoir(self._core.use(), source, ctypes.byref(given.struct)))
            if self._reservoir is not None:
                self._reservoir._trainers.discard(self)
                self._core.free(self._reservoir._core)
            if reservoir is not None:
                reservoir._trainers.add(self)
                self._core.need(reservoir._core)
            self._reservoir = reservoir

    def step_reservoir(self, steps=1, wait=True):
        """Makes training steps on samples of the reservoir. Returns the loss of the last one, which it waits for; NaN
        if there were too few samples to begin. With wait=False it returns None at once."""
        loss, steps = ctypes.c_double(), at_least(1, steps, "int64_t", "steps")
        with self._guard:
            self._refuse_in_fit()
            # Several calls for many steps: between them Ctrl-C ends the loop. Each takes about a tenth of a second.
            piece, done = min(steps, 4), 0
            while True:
                before, began = self.steps, time.monotonic()
                last = done + piece == steps
                check(lib.clt_step_reservoir(self._core.use(), piece, ctypes.byref(loss) if wait and last else None))
                if last:
                    break
                if self.steps == before:  # too few samples to begin
                    loss.value = math.nan
                    break
                done += piece
                piece = min(steps - done, max(1, min(4 * piece, int(0.1 * piece / max(1e-9, time.monotonic() - began)))))
        return loss.value if wait else None

    def finish(self):
        """Ends the use of a trainer of several ranks, and waits until all ranks have called it. Close the trainer
        then. After a failure close it without this call."""
        with self._guard:
            self._refuse_in_fit()
            check(lib.clt_trainer_finish(self._core.use()))

    def recover(self):
        """Drops a device that failed. Returns whether the step has to be given again."""
        redo = ctypes.c_int()
        with self._guard:
            self._refuse_in_fit()
            check(lib.clt_trainer_recover(self._core.use(), ctypes.byref(redo)))
        return bool(redo.value)

    # --- runs -------------------------------------------------------------------------------------

    def fit(self, train, test=None, **options):
        """Trains for epochs, and returns a History. See cltrain.fit.fit for the options."""
        from .fit import fit
        return fit(self, train, test, **options)

    def stop(self):
        """Ends a run of fit after its current step. Any thread, and callbacks, may call it."""
        run = self._run
        if run is not None:
            run.stop()

    def evaluate(self, *data, **options):
        """Returns a dict of the means of losses and metrics over a data set, or over arrays.

            trainer.evaluate((images, labels)), trainer.evaluate("fashion-mnist")

        metrics: True adds accuracy, precision, recall and F1 with the confusion matrix, or the errors of a regression.
        A dict gives options of clt.Metrics, such as {"auc": True, "top": 5}. An object of clt.Metrics is filled:
        give a new one to each evaluation.
        output, field: the output of the model that is measured, and the input with the labels or targets. By default
        the only output, and the last input.
        """
        from .fit import evaluate
        if not data:  # arrays by name
            data = ({name: options.pop(name) for name in list(options) if name in self._inputs},)
        return evaluate(self, data[0] if len(data) == 1 else data, **options)

    def predict(self, *arrays, **options):
        """Computes the outputs of the model for arrays."""
        return self.store.predict(self.model, *arrays, **options)

    def save(self, folder, keep=3):
        """Saves a checkpoint in a new folder below `folder`, without a position in data. keep=0 keeps all."""
        with self._guard:
            check(lib.clt_trainer_save_state(self._core.use(), folder, keep))

    def restore(self, path):
        """Restores a checkpoint, or the newest one of a folder."""
        with self._guard:
            self._refuse_in_fit()
            check(lib.clt_trainer_restore_state(self._core.use(), path))

    def plan(self, explain=False):
        """Returns a text about kernels, memory and the largest batch."""
        from ._lib import owned_text
        out = ctypes.c_void_p()
        with self._guard:
            check(lib.clt_trainer_plan(self.model._core.use(), self.store._core.use(),
                                       ctypes.byref(self._core.keep.struct), int(explain), ctypes.byref(out)))
        return owned_text(out.value)

    def __repr__(self):
        return "<Trainer: closed>" if self.closed else f"<Trainer: {self.steps} steps on {self.store.devices!r}>"


Trainer.__doc__ += document("clt_trainer_options")
