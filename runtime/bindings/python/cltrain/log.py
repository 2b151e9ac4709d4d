"""The library's remarks: warnings, what it does at the moment, and how many kernels are left to compile."""
import threading

from . import _api
from ._checks import shown
from ._lib import lib, text
from ._options import enum
from .errors import failure

_LEVELS = {value: name for name, value in _api.ENUMS["clt_log_level"].items()}
_LOG_FUNCTION, _COMPILE_FUNCTION = (_api.FUNCTIONS["cltrain"][name][1][0] for name in ("clt_log_set", "clt_compile_set"))
_function = None


def _check(function):
    if function is not None and not callable(function):
        raise failure("invalid_argument", f"function is {shown(function)}: it must be a function, or None")


def set_log(function, level="warn"):
    """Sends remarks up to a level ("error", "warn", "info", "debug") to function(level, line); None ends it.

    The function is called on any thread, also on threads of the library. Call this before all else.
    """
    global _function
    _check(function)
    most = enum("clt_log_level", level, "level")
    if function is None:
        lib.clt_log_set(_LOG_FUNCTION(), None, most)
        _function = None
        return

    def call(_, number, line):
        try:
            function(_LEVELS.get(number, "debug"), text(line))
        except Exception:  # nobody could catch it, and a remark must not end a run
            pass

    made = _LOG_FUNCTION(call)
    lib.clt_log_set(made, None, most)
    _function = made


_watchers = ()  # replaced, never changed: threads of the library read it
_watching = threading.Lock()


def _compiled(_, device, kernels, done, total):
    for watcher in _watchers:
        try:
            watcher(text(device), bool(kernels), done, total)
        except Exception:  # as in set_log
            pass


_compile_function = _COMPILE_FUNCTION(_compiled)
_installed = False


def watch_compile(add=None, remove=None):
    """Changes the functions that learn of compiled kernels."""
    global _watchers
    with _watching:
        _watchers = tuple(w for w in _watchers if w != remove) + (() if add is None else (add,))


def begin_watching():
    """Sets the library's callback, before anything compiles. It stays: threads that compile may read it."""
    global _installed
    with _watching:
        if not _installed:
            _installed = True
            lib.clt_compile_set(_compile_function, None)


_compile_user = None


def set_compile(function):
    """Tells function(device, kernels, done, total) how far compilation has come; None ends it.

    `kernels` is False while a driver builds programs, and True while a driver that compiles late (PoCL) compiles their
    kernels at the first launch. The function is called on threads of the library. Call this before a trainer is made.
    The first step then waits for its kernels. On a terminal `fit` shows the same on its line.
    """
    global _compile_user
    _check(function)
    begin_watching()
    watch_compile(add=function, remove=_compile_user)
    _compile_user = function
