"""The command line of cltrain-launch."""
import argparse
import os
import re
import shlex
import shutil

from cltrain_checkpoints import argument
from cltrain_program import HELP, find_program

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
  without a new checkpoint, the next one takes one rank less, but at least --min-ranks.

a job that grows and shrinks (--ranks):
  cltrain-launch --resize N --job DIR, or a change of the file of --hosts, changes the number of ranks.
  The ranks save, end, and go on with the new number. A rank that is killed or stopped leaves the job.
  With --hosts it comes back if its host answers."""


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


def least_and_most(text):
    """Reads MIN:MAX."""
    found = re.fullmatch(r"(\d{1,6}):(\d{1,6})", text)
    low, high = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= low <= high:
        raise argparse.ArgumentTypeError(f"'{text}': must be MIN:MAX, two numbers of ranks, MIN from 1 to MAX")
    return low, high


# Variables by which batch systems and mpiexec learn of other hosts.
NODES = ("SLURM_JOB_ID", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_JOBID", "LOADL_HOSTFILE", "COBALT_NODEFILE", "FLUX_URI",
         "HYDRA_HOST_FILE", "OMPI_MCA_orte_default_hostfile", "PRTE_MCA_prte_default_hostfile")


def most_here():
    """Returns how many processes of a job this host may have. Each needs memory and threads of its own."""
    return max(64, 8 * (os.cpu_count() or 1))


def check_many(parser, options, name, count):
    """Refuses more ranks than this host can have, if nothing says that others have some."""
    if count > most_here() and not options.hosts and len(options.mpiexec) == 1 and not any(map(os.environ.get, NODES)):
        parser.error(f"{name}: more than {most_here()} ranks, 8 a core of this host (64 if that is less): name other hosts "
                     "with --hosts or in --mpiexec, as 'mpiexec -f FILE'")


def check_resize(parser, options, rest):
    """Checks the options of a request to a running job. Returns whether there is one."""
    if options.job and not options.resize:
        parser.error("--job belongs to --resize N")
    if options.resize and not options.job:
        parser.error("--resize needs --job DIR, which the job named when it began")
    if options.resize and (rest or options.ranks or options.range):
        parser.error("--resize and --job go alone: they ask a job that runs")
    return bool(options.resize)


def check_ranks(parser, options):
    """Checks how many ranks there are. With --ranks, sets what train needs to know."""
    mesh = argument(options.arguments, "--parallel")
    if not options.range:
        for name in ("global_batch", "hosts"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} needs --ranks MIN:MAX")
        if not options.ranks:
            parser.error("-n N is missing, or --ranks MIN:MAX")
        check_many(parser, options, f"-n {options.ranks}", options.ranks)
        options.min_ranks = options.min_ranks or options.ranks
        if options.min_ranks > options.ranks:
            parser.error("--min-ranks must be at most -n")
        return
    low, high = options.range
    check_many(parser, options, f"--ranks {low}:{high}", high)
    if options.min_ranks:
        parser.error("--min-ranks belongs to -n without --ranks; MIN of --ranks takes its place")
    if options.ranks and not low <= options.ranks <= high:
        parser.error(f"-n {options.ranks} is not within --ranks {low}:{high}")
    if not options.checkpoints:
        parser.error("--ranks needs --checkpoint-dir among the options of train: the job changes at checkpoints")
    if mesh and re.match(r"local=\d", mesh):
        parser.error(f"--parallel {mesh} fixes the number of replicas: write local=*, which is as many as the devices "
                     "make, or leave out --ranks")
    if mesh and mesh != "auto" and "=*" not in mesh:
        parser.error(f"--parallel {mesh} fixes the number of devices: write dp=*, which takes all that the other axes "
                     "leave, or leave out --ranks")
    if not options.wait >= 0:
        parser.error("--wait must be at least 0")
    if options.global_batch and argument(options.arguments, "--global-batch"):
        parser.error("--global-batch is given twice")
    if not argument(options.arguments, "--global-batch"):
        options.arguments += ["--global-batch", options.global_batch or "fixed"]


class Parser(argparse.ArgumentParser):
    """Mistakes are one line, as those of the command."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (see --help)\n")


def read_options(words, here, description):
    """Reads the options. `here` is the folder of this program."""
    own, rest = words, []
    if "--" in words:
        own, rest = words[:words.index("--")], words[words.index("--") + 1:]
    parser = Parser(
        prog="cltrain-launch", description=description, epilog=EXIT, allow_abbrev=False,
        usage="cltrain-launch -n N [options] -- train --model NAME --data SPEC [options of train]\n"
              "       cltrain-launch --ranks MIN:MAX [options] -- train ... --checkpoint-dir DIR\n"
              "       cltrain-launch --resize N --job DIR\n"
              "       cltrain-launch -n WORKERS [options] -- train --async S --servers N [options of train]\n"
              "       (asynchronous jobs have other options: cltrain-launch --help -- train --async 1)",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=whole(1), dest="ranks", metavar="N", help="number of ranks; with --ranks: at the "
                        "beginning (default: MAX, or the slots of --hosts)")
    parser.add_argument("--restarts", type=whole(0), metavar="K",
                        help="restart at most K times, from the newest intact checkpoint (default: 0); with --ranks: at "
                        "most K times in a row without a new checkpoint (default: 3)")
    parser.add_argument("--min-ranks", type=whole(1), metavar="M", help="restart with at least M ranks (default: N)")
    parser.add_argument("--ranks", type=least_and_most, dest="range", metavar="MIN:MAX", help="let the job grow and "
                        "shrink between these numbers of ranks, at checkpoints; a rank that is lost leaves the job")
    parser.add_argument("--global-batch", choices=("fixed", "scaled"), help="with --ranks: on another number of devices "
                        "keep --batch, or scale batch and learning rate with it (default: fixed)")
    parser.add_argument("--hosts", metavar="FILE", help="with --ranks: run on the hosts in this file, lines NAME, "
                        "NAME:SLOTS or NAME slots=SLOTS; the job changes when the file does, and leaves out hosts that "
                        "do not answer")
    parser.add_argument("--wait", type=float, default=600, metavar="SECONDS", help="with --ranks: if fewer than MIN ranks "
                        "remain, wait for others this time, then end the job (default: 600)")
    parser.add_argument("--resize", metavar="N", help="ask a running job of --ranks for N ranks, or with +K and -K for "
                        "more and fewer")
    parser.add_argument("--job", metavar="DIR", help="with --resize: the folder that the job named when it began")
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
    parser.add_argument("--program", metavar="FILE", help=HELP)
    options = parser.parse_args(own)
    options.arguments = rest
    options.low, options.high = options.range or (0, 0)
    if check_resize(parser, options, rest):
        return options
    if options.restarts is None:
        options.restarts = 3 if options.range else 0
    options.checkpoints = argument(rest, "--checkpoint-dir")
    if not rest or rest[0] != "train":
        parser.error("write `train` and its options after --")
    if "--heartbeat" in rest or argument(rest, "--heartbeat"):
        parser.error("write --heartbeat before --")
    options.program = find_program(parser, options.program, here)
    if not shutil.which(options.mpiexec[0] if options.mpiexec else ""):
        parser.error("mpiexec was not found (Debian: mpich); see --mpiexec")
    check_ranks(parser, options)
    if options.restarts and not options.checkpoints:
        parser.error("--restarts needs --checkpoint-dir among the options of train")
    if not options.deadline > 0:
        parser.error("--deadline must be above 0")
    if options.setup_deadline is None:
        options.setup_deadline = setup_deadline(rest)
    if not options.setup_deadline >= 0:
        parser.error("--setup-deadline must be at least 0")
    return options
