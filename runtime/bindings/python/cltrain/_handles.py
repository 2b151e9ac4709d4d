"""Handles of C objects: who keeps whom alive, locks, the end of the interpreter, and fork.

A `Core` owns one C object. It outlives the Python object if other C objects still need it: a store is
destroyed after its trainers, in whatever order Python drops the objects.
"""
import atexit
import ctypes
import os
import sys
import threading
import time
import weakref

from .errors import failure

_exiting = False
_forked = False
_used = False  # a runtime was made: OpenCL's drivers may have threads
_cores = set()
_guards = weakref.WeakSet()
_pinning = threading.Lock()
inside = threading.local()  # .fill: the data set in whose function this thread is
_FORKED = ("was made before fork, and a forked process cannot use it: OpenCL's drivers do not work there. "
           "Start processes with multiprocessing.get_context('spawn')")
# Seconds that the end of the interpreter waits for calls of daemon threads, all together.
_EXIT_WAIT = 10.0
_exit_end = 0.0


class Guard:
    """One thread at a time uses a store, its trainers and its devices.

    The garbage collector may drop an object in the middle of another call, even of one on the same
    thread. Then the object is destroyed when that call has ended.
    """
    __slots__ = ("lock", "depth", "later", "sources", "__weakref__")

    def __init__(self):
        self.anew()
        _guards.add(self)

    def anew(self):
        self.lock = threading.RLock()
        self.depth = 0
        self.later = []
        self.sources = []  # data sets that a call of the holder reads

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            if getattr(inside, "fill", None) in self.sources:  # the holder of the lock waits for this thread's samples
                raise failure("state", "the function of a data set runs during fit, and cannot use the trainer, its store "
                                       "or its devices")
            self.lock.acquire()
        self.depth += 1

    def __exit__(self, *_):
        while self.later and self.depth == 1:
            self.later.pop()._destroy()
        self.depth -= 1
        self.lock.release()

    def after_fork(self):
        """In a child only the thread that forked is left. Only what it holds itself is held."""
        if self.lock._is_owned():
            self.later = []
        else:
            self.anew()

    def when_free(self, core):
        if self.lock.acquire(timeout=max(0, _exit_end - time.monotonic())) if _exiting else self.lock.acquire(blocking=False):
            try:
                if self.depth:
                    self.later.append(core)
                else:
                    core._destroy()
            finally:
                self.lock.release()
        elif not _exiting:
            self.later.append(core)


class Core:
    __slots__ = ("ptr", "destroy", "parents", "children", "dropped", "guard", "what", "keep", "pins", "shut")

    def __init__(self, ptr, destroy, what, parents=(), guard=None):
        self.ptr = ptr
        self.destroy = destroy
        self.what = what
        self.parents = tuple(parents)
        self.children = {}  # in the order in which they were made
        self.dropped = False
        self.guard = guard
        self.keep = None
        self.pins = 0  # calls on other threads that use it, and that no guard holds back
        self.shut = False  # closed, but the C object ends with the Python object
        for parent in self.parents:
            parent.children[self] = None
        _cores.add(self)

    def use(self):
        if self.ptr is None or self.shut:
            raise failure("state", f"this {self.what} {_FORKED if _forked else 'is closed'}")
        return self.ptr

    def need(self, parent):
        """Makes another object outlive this one."""
        self.parents += (parent,)
        parent.children[self] = None

    def free(self, parent):
        """Ends what `need` began."""
        self.parents = tuple(p for p in self.parents if p is not parent)
        parent.children.pop(self, None)
        if parent.dropped:
            parent._destroy()

    def pin(self):
        """Keeps the object while a call reads it that no guard knows of: a data set in `fit`."""
        with _pinning:
            self.use()
            self.pins += 1

    def unpin(self):
        with _pinning:
            self.pins -= 1
        if self.dropped:
            self._destroy()

    def close(self):
        """Destroys the objects that need this one, then this one."""
        if self.guard:
            with self.guard:  # another thread waits for the call; a callback of the call is refused
                self.refuse_in_use()
                self._close()
        else:
            self.refuse_in_use()
            self._close()

    def _pinned(self):
        """Returns this object or one that needs it, if a call uses it; else None."""
        if self.pins:
            return self
        return next((found for child in list(self.children) if (found := child._pinned())), None)

    def refuse_in_use(self):
        """Refuses to close what a call uses."""
        user = self._pinned()
        if user is not None:
            by = "" if user is self else f" by a {user.what}"
            raise failure("state", f"this {self.what} is in use{by}: close it when fit, or the call that uses it, has ended")

    def _close(self):
        for child in reversed(list(self.children)):
            child.close()
        self._destroy()

    def drop(self):
        """Python has no reference any more."""
        if self.ptr is None:
            return
        self.dropped = True
        if self.guard:
            self.guard.when_free(self)
        else:
            self._destroy()

    def _destroy(self):
        if self.ptr is None or self.children or self.pins:
            return
        ptr, self.ptr = self.ptr, None
        self.destroy(ptr)
        self.keep = None
        _cores.discard(self)
        for parent in self.parents:
            parent.children.pop(self, None)
            if parent.dropped:
                parent._destroy()
        self.parents = ()


class Handle:
    """A Python object that stands for a C object. It can be closed, and used in a `with` block."""

    def _own(self, ptr, destroy, what, parents=(), guard=None):
        self._core = Core(ptr, destroy, what, parents, guard)
        self._finalizer = weakref.finalize(self, self._core.drop)
        _register_exit()

    def close(self):
        """Frees the C object, and all objects that were made from it or that need it. Closing twice is allowed."""
        if self._core.ptr is not None:
            self._core.close()

    @property
    def closed(self):
        return self._core.ptr is None or self._core.shut

    def __enter__(self):
        self._core.use()
        return self

    def __exit__(self, *_):
        self.close()


_stops = set()  # runs of fit in progress, as objects with `stop`


def running(run):
    _stops.add(run)


def ended(run):
    _stops.discard(run)


def _begin_exit():
    """Daemon threads may be in `fit`. They are asked to stop, so that objects can be destroyed."""
    global _exiting, _exit_end
    _exiting, _exit_end = True, time.monotonic() + _EXIT_WAIT
    for run in list(_stops):
        run.stop()


_registered = False


def _register_exit():
    # Exit functions run in reverse order, so this must come behind the first finalizer, which
    # registers the one that destroys all objects.
    global _registered
    if not _registered:
        _registered = True
        atexit.register(_begin_exit)


def check_process():
    """Refuses to begin with OpenCL in a child whose parent used it: drivers' threads are not in the child."""
    global _used
    _used = True
    if _forked:
        raise failure("state", "this process was forked from one that used cltrain: OpenCL's drivers do not work "
                               "here. Start processes with multiprocessing.get_context('spawn')")


def _after_fork():
    global _forked, _pinning
    if not _used:
        return
    _forked = True
    for core in _cores:
        core.ptr = None
        core.keep = None
    _cores.clear()
    _stops.clear()
    _pinning = threading.Lock()
    for guard in _guards:  # a thread that is not in this process may hold its lock
        guard.after_fork()
    # Exit handlers of OpenCL's drivers wait for threads that are not in this process: Intel's CPU
    # runtime (TBB) hangs in 25 of 60 children that are forked while a thread trains. The C library
    # runs the handlers that were registered last first. So these two flush C's files and end the
    # process before those from before the fork. Handlers that the child registers run as always.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):
        libc.on_exit(ctypes.cast(libc._exit, ctypes.c_void_p), None)
        libc.__cxa_atexit(ctypes.cast(libc.fflush, ctypes.c_void_p), None, None)


def forked():
    return _forked


def end_child(failed):
    """Ends a process that was forked in a function that the library calls, when this function ends. Below it are frames
    of the library that wait for threads, and these are not in this process. `failed` is the exception, or None."""
    if not _forked:
        return
    code = 1
    if isinstance(failed, SystemExit):
        code = 0 if failed.code is None else failed.code
        if not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    elif failed is not None:
        sys.excepthook(type(failed), failed, failed.__traceback__)
    else:
        print("cltrain: this process was forked in a function that the library calls, and cannot return to the library: "
              "end it there with sys.exit or os._exit", file=sys.stderr)
    ctypes.pythonapi.Py_Exit(code)  # as the interpreter does it for sys.exit, with atexit's functions


os.register_at_fork(after_in_child=_after_fork)
