"""The command line of cltrain-launch."""
import argparse
import os
import shlex
import shutil

from cltrain_checkpoints import argument

EXIT = """exit codes:
  0         training is done
  1         training failed, restarts included
  2         wrong use
  130, 143  a signal stopped training after saving: 130 for SIGINT, 143 for the others

signals:
  SIGINT, SIGTERM, SIGHUP and SIGUSR1, to this program or to a rank, save and end the run. This
  program passes the signal to a rank as soon as one can take it (SIGHUP as SIGTERM). If no rank can
  after 5 s, all ranks without a heartbeat file get it, and everything is killed 5 s later. A second
  SIGINT or SIGTERM kills all ranks at once if it comes half a second later or more. If this program is
  killed, everything that it started on this node ends. Ranks of other nodes end if mpiexec ends them.

restarts:
  The job restarts if a rank is killed, stops or makes no progress, or if mpiexec or its helper ends.
  It does not restart after a mistake in options or data or a step that is not finite, which would
  only happen again. A restart takes as many ranks as the attempt before. If two attempts in a row end
  without a new checkpoint, the next one takes one rank less, but at least --min-ranks."""


def find_program(name, here):
    """Finds the command in the folder `here`, otherwise on the path."""
    beside = os.path.join(here, name)
    return beside if os.access(beside, os.X_OK) else shutil.which(name)


def setup_deadline(rest):
    """Returns a deadline after which the ranks have already named each other."""
    setup, tune = (argument(rest, name) for name in ("--setup-timeout", "--tune"))
    try:
        setup = 600.0 if setup is None else float(setup)
        return setup + 60 + float(0 if tune in (None, "off") else tune) if setup > 0 else 0.0
    except ValueError: # cltrain refuses the value
        return 0.0


def whole(least):
    def read(text):
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}")
        return value
    read.__name__ = "whole number"
    return read


def read_options(words, here, description):
    """Reads the options. `here` is the folder of this program."""
    own, rest = words, []
    if "--" in words:
        own, rest = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(
        prog="cltrain-launch", description=description, epilog=EXIT, allow_abbrev=False,
        usage="cltrain-launch -n N [options] -- train --model NAME --data SPEC [options of train]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=whole(1), required=True, dest="ranks", metavar="N", help="number of ranks")
    parser.add_argument("--restarts", type=whole(0), default=0, metavar="K",
                        help="restart at most K times, from the newest intact checkpoint (default: 0)")
    parser.add_argument("--min-ranks", type=whole(1), metavar="M", help="restart with at least M ranks (default: N)")
    parser.add_argument("--deadline", type=float, default=120, metavar="SECONDS",
                        help="name a rank and end the job if the rank makes no progress in training for this "
                        "time and all ranks are on this node, or if a process of this node is stopped for this "
                        "time (default: 120); see also train's --comm-timeout")
    parser.add_argument("--setup-deadline", type=float, metavar="SECONDS",
                        help="name the ranks that have not reached their first step this time after the start, "
                        "and end the job; 0: never (default: train's --setup-timeout and --tune plus 60, so 660)")
    parser.add_argument("--heartbeat", metavar="DIR", help="keep the ranks' heartbeat files in this folder, "
                        "which all nodes must share (default: a temporary folder)")
    parser.add_argument("--mpiexec", default="mpiexec", metavar="COMMAND", type=shlex.split,
                        help="the command with its options, such as 'mpiexec -bind-to core' (default: mpiexec)")
    parser.add_argument("--program", metavar="FILE",
                        help="the command cltrain (default: beside this program, or on the path)")
    options = parser.parse_args(own)
    options.arguments = rest
    options.program = options.program or find_program("cltrain", here)
    options.min_ranks = options.min_ranks or options.ranks
    options.checkpoints = argument(rest, "--checkpoint-dir")
    if not rest or rest[0] != "train":
        parser.error("write `train` and its options after --")
    if "--heartbeat" in rest or argument(rest, "--heartbeat"):
        parser.error("write --heartbeat before --")
    if not options.program:
        parser.error("the command cltrain is neither beside this program nor on the path; see --program")
    if not shutil.which(options.program):
        parser.error(f"{options.program} is not a program; see --program")
    if not shutil.which(options.mpiexec[0] if options.mpiexec else ""):
        parser.error("mpiexec was not found (Debian: mpich); see --mpiexec")
    if options.min_ranks > options.ranks:
        parser.error("--min-ranks must be at most -n")
    if options.restarts and not options.checkpoints:
        parser.error("--restarts needs --checkpoint-dir among the options of train")
    if not options.deadline > 0:
        parser.error("--deadline must be above 0")
    if options.setup_deadline is None:
        options.setup_deadline = setup_deadline(rest)
    if not options.setup_deadline >= 0:
        parser.error("--setup-deadline must be at least 0")
    return options
