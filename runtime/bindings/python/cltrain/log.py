"""The library's remarks: warnings, and what it does at the moment."""
from . import _api
from ._lib import lib, text
from ._options import enum

_LEVELS = {value: name for name, value in _api.ENUMS["clt_log_level"].items()}
_function = None


def set_log(function, level="warn"):
    """Sends remarks up to a level ("error", "warn", "info", "debug") to function(level, line); None ends it.

    The function is called on any thread, also on threads of the library. Call this before all else.
    """
    global _function
    most = enum("clt_log_level", level, "level")
    if function is None:
        lib.clt_log_set(_api.FUNCTIONS["cltrain"]["clt_log_set"][1][0](), None, most)
        _function = None
        return

    def call(_, number, line):
        try:
            function(_LEVELS.get(number, "debug"), text(line))
        except Exception:  # nobody could catch it, and a remark must not end a run
            pass

    made = _api.FUNCTIONS["cltrain"]["clt_log_set"][1][0](call)
    lib.clt_log_set(made, None, most)
    _function = made
