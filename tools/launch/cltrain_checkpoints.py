"""What the options of a job say about its checkpoints and its mesh."""
import contextlib
import os

from cltrain_guard import say


def argument(arguments, name):
    """Returns the value of an option of cltrain; the last one counts."""
    value = None
    for i, word in enumerate(arguments):
        if word == name and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif word.startswith(name + "="):
            value = word[len(name) + 1:]
    return value


def checkpoints(options):
    """Returns names and times of checkpoints: a damaged checkpoint may be written again."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(options.checkpoints or ""):
            if entry.name.startswith("step-"):
                found.add((entry.name, entry.stat().st_mtime_ns))
    return found


def tell_mesh(options):
    """Says from which checkpoint a failed job on a mesh can go on."""
    mesh = argument(options.arguments, "--parallel")
    if not mesh:
        return
    names = sorted(name for name, _ in checkpoints(options))
    say(f"the mesh {mesh} needs all its ranks; " +
        (f"resume from the last checkpoint, {os.path.join(options.checkpoints, names[-1])}" if names else
         "there is no checkpoint to resume from"))
