"""The command line of cltrain-launch for asynchronous jobs."""
import argparse
import os
import shlex
import socket

from cltrain_checkpoints import argument
from cltrain_hosts import HostsError, read_hosts
from cltrain_options import Parser, most_here, whole
from cltrain_program import HELP, find_program
from cltrain_remote import SECRET, is_here

REMOTE = "ssh -oBatchMode=yes -oConnectTimeout=20 -oServerAliveInterval=15"

EPILOG = """The job's secret is taken from the variable CLTRAIN_SECRET; without it a random one is made.

hosts:
  With --hosts, workers run on the hosts in this file, and holders on this one. Each host needs the command and the data
  under the same paths. The file is read again when it changes: workers begin on hosts that are new, and end on hosts that
  are gone. A worker also joins by hand, with a number that no other has:

    CLTRAIN_SECRET=... cltrain train OPTIONS --async S --servers N --worker K --join HOST:PORT

{worker} in an option of train, as in --devices nv:{worker}, becomes the worker's number, and {slot} its number on its
host; both are 0 for holders. SIGINT, SIGTERM, SIGHUP and SIGUSR1 save and end the run. A second SIGINT or SIGTERM ends it
at once. Exit codes are those of synchronous jobs."""

# Options of synchronous jobs, and what to do instead.
SYNCHRONOUS = {name: "is for synchronous jobs: leave it out" for name in
               ("--global-batch", "--min-ranks", "--wait", "--deadline", "--setup-deadline", "--heartbeat")}
SYNCHRONOUS |= {
    "--ranks": "workers of --async come and go while the job runs, without a new start: write -n N for their number, and "
               "--hosts FILE for hosts that change",
    "--resize": "asks a job of --ranks; workers of --async come and go when the file of --hosts changes",
    "--job": "belongs to --resize, for a job of --ranks",
    "--mpiexec": "processes of --async are not started by mpiexec: see --hosts and --remote"}


def is_asynchronous(words):
    rest = words[words.index("--") + 1:] if "--" in words else []
    return any(word == "--async" or word.startswith("--async=") for word in rest)


def make_parser():
    parser = Parser(
        prog="cltrain-launch", allow_abbrev=False, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Starts an asynchronous job: holders of the parameters and workers, which are connected by sockets. "
                    "Starts workers\nthat end early again.",
        usage="cltrain-launch -n WORKERS [options] -- train --async S --servers N [options of train]\n"
              "       cltrain-launch --hosts FILE [options] -- train --async S --servers N [options of train]")
    parser.add_argument("-n", type=whole(1), dest="workers", metavar="N",
                        help="number of workers (with --hosts: at most, default: all slots)")
    parser.add_argument("--hosts", metavar="FILE", help="run workers on the hosts in this file, lines NAME, NAME:SLOTS or "
                        "NAME slots=SLOTS; the name of this host and localhost mean this one")
    parser.add_argument("--remote", type=shlex.split, default=REMOTE, metavar="COMMAND",
                        help=f"with --hosts: starts a program on a host, as ssh does (default: {REMOTE})")
    parser.add_argument("--restarts", type=whole(0), default=3, metavar="K",
                        help="start each worker again at most K times (default: 3)")
    parser.add_argument("--listen", metavar="ADDRESS:PORT",
                        help="where holder 0 listens; the others listen at any port (default: 127.0.0.1:0; 0.0.0.0:0 if "
                             "--hosts has another host)")
    parser.add_argument("--reach", metavar="HOST", help="the name by which other hosts reach this one (with --hosts: its "
                        "host name)")
    parser.add_argument("--no-bind", action="store_true",
                        help="let each worker use all cores, instead of its part of them")
    parser.add_argument("--program", metavar="FILE", help=HELP)
    return parser


def check_hosts(parser, options):
    """Reads the file of --hosts, and sets where holders listen."""
    options.keeps_on = bool(options.listen) and not is_local(options.listen) # with workers that others start
    if not options.hosts:
        if not options.workers:
            parser.error("-n N is missing, the number of workers, or --hosts FILE")
        if options.workers > most_here():
            parser.error(f"-n {options.workers}: more than {most_here()} workers, 8 a core of this host (64 if that is "
                         "less): name other hosts with --hosts")
        options.listen = options.listen or "127.0.0.1:0"
        return
    try:
        hosts = read_hosts(options.hosts)
    except HostsError as error:
        parser.error(str(error))
    slots = sum(hosts.values())
    if not slots:
        parser.error(f"--hosts {options.hosts}: the file has no host")
    if options.workers and options.workers > slots:
        parser.error(f"-n {options.workers}: --hosts {options.hosts} has {slots} slots")
    if not options.remote:
        parser.error("--remote must be a command, such as ssh")
    others = [host for host in hosts if not is_here(host)]
    options.listen = options.listen or ("0.0.0.0:0" if others else "127.0.0.1:0")
    if others and is_local(options.listen):
        parser.error(f"--listen {options.listen}: {others[0]} of --hosts cannot reach this address")
    if is_any(options.listen):
        options.reach = options.reach or socket.gethostname()


def read_options(words, script):
    own, rest = words[:words.index("--")], words[words.index("--") + 1:]
    parser = make_parser()
    for word in own:
        name = word.split("=")[0]
        if name in SYNCHRONOUS:
            parser.error(f"{name} with --async: {SYNCHRONOUS[name]}" if name in ("--ranks", "--mpiexec") else
                         f"{name} with --async: it {SYNCHRONOUS[name]}")
    options = parser.parse_args(own)
    options.arguments = rest
    options.checkpoints = argument(rest, "--checkpoint-dir")
    if rest[0] != "train":
        parser.error("write `train` and its options after --")
    for name in ("--holder", "--worker", "--join", "--listen", "--reach"):
        if argument(rest, name) is not None:
            parser.error(f"{name} is set by this program: leave it out among the options of train")
    try:
        options.holders = int(argument(rest, "--servers") or 1)
    except ValueError:
        options.holders = 1 # cltrain refuses the value
    if options.listen and ":" not in options.listen:
        parser.error(f"--listen {options.listen}: must be ADDRESS:PORT")
    options.program = find_program(parser, options.program, os.path.dirname(script))
    check_hosts(parser, options)
    if is_any(options.listen) and not options.reach and options.holders > 1:
        parser.error(f"--listen {options.listen}: add --reach HOST, the name by which other hosts reach this one")
    if options.holders < 1 or options.holders > 64:
        parser.error(f"--servers {options.holders}: must be 1 to 64")
    if "\n" in os.environ.get(SECRET, ""):
        parser.error(f"{SECRET} must be one line")
    return options


def is_any(address):
    """Whether ADDRESS:PORT stands for all addresses of this host."""
    return address.rpartition(":")[0] in ("", "*", "0.0.0.0", "::", "[::]")


def is_local(address):
    """Whether only this host can reach ADDRESS:PORT."""
    host = address.rpartition(":")[0]
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")
