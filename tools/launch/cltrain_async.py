"""Starts an asynchronous job: holders of the parameters and workers, which are connected by sockets. Starts workers
that end early again."""
import argparse
import contextlib
import ctypes
import os
import secrets
import select
import shutil
import signal
import subprocess
import time

from cltrain_checkpoints import argument, checkpoints
from cltrain_guard import put, say
from cltrain_options import find_program, whole

DONE, FAILED, USAGE = 0, 1, 2
LOOK = 0.1 # seconds between looks
GRACE = 30.0 # seconds that a process has to end by itself
AGAIN = 0.5 # seconds before a worker is started again
SAME_SIGNAL = 0.5 # seconds in which a signal that comes again is not a second one
SECRET = "CLTRAIN_SECRET"
PR_SET_PDEATHSIG = 1

EPILOG = """The job's secret is taken from the variable CLTRAIN_SECRET; without it a random one is made. A worker on
another host joins with the same secret:

    CLTRAIN_SECRET=... cltrain train OPTIONS --async S --servers N --worker K --join HOST:PORT

{worker} in an option of train, as in --devices nv:{worker}, becomes the worker's number, and 0 for holders.
SIGINT, SIGTERM, SIGHUP and SIGUSR1 save and end the run. A second SIGINT or SIGTERM ends it at once. Exit codes are
those of synchronous jobs."""


def is_asynchronous(words):
    rest = words[words.index("--") + 1:] if "--" in words else []
    return any(word == "--async" or word.startswith("--async=") for word in rest)


def read_options(words, script):
    own, rest = words[:words.index("--")], words[words.index("--") + 1:]
    parser = argparse.ArgumentParser(
        prog="cltrain-launch", description=__doc__, epilog=EPILOG, allow_abbrev=False,
        usage="cltrain-launch -n WORKERS [options] -- train --async S --servers N [options of train]",
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-n", type=whole(1), required=True, dest="workers", metavar="N", help="number of workers")
    parser.add_argument("--restarts", type=whole(0), default=3, metavar="K",
                        help="start each worker again at most K times (default: 3)")
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="ADDRESS:PORT",
                        help="where holder 0 listens; the others listen at any port (default: 127.0.0.1:0)")
    parser.add_argument("--reach", metavar="HOST", help="the name by which other hosts reach this one")
    parser.add_argument("--no-bind", action="store_true",
                        help="let each worker use all cores, instead of its part of them")
    parser.add_argument("--program", metavar="FILE",
                        help="the command cltrain (default: beside this program, or on the path)")
    options = parser.parse_args(own)
    options.arguments, options.program = rest, options.program or find_program("cltrain", os.path.dirname(script))
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
    if ":" not in options.listen:
        parser.error(f"--listen {options.listen}: must be ADDRESS:PORT")
    if not options.program or not shutil.which(options.program):
        parser.error("the command cltrain is neither beside this program nor on the path; see --program")
    if is_any(options.listen) and not options.reach and options.holders > 1:
        parser.error(f"--listen {options.listen}: add --reach HOST, the name by which other hosts reach this one")
    if options.holders < 1 or options.holders > 64:
        parser.error(f"--servers {options.holders}: must be 1 to 64")
    return options


def is_any(address):
    """Whether ADDRESS:PORT stands for all addresses of this host."""
    return address.rpartition(":")[0] in ("", "*", "0.0.0.0", "::", "[::]")


def is_local(address):
    """Whether only this host can reach ADDRESS:PORT."""
    host = address.rpartition(":")[0]
    return host.startswith("127.") or host in ("localhost", "::1", "[::1]")


def describe(code):
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Process:
    """A holder or a worker."""

    def __init__(self, job, kind, number, words, environment=None, cores=None, **pipes):
        self.kind, self.number, self.restarts, self.name = kind, number, 0, f"{kind} {number}"
        arguments = [a.replace("{worker}", str(number if kind == "worker" else 0)) for a in job.options.arguments]
        command = [job.options.program, *arguments, f"--{kind}", str(number), *words]

        def begin():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if cores:
                os.sched_setaffinity(0, cores)
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env={**job.environment, **(environment or {})},
                                      preexec_fn=begin, start_new_session=True, **pipes)

    def ended(self):
        return self.child.poll()

    def send(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)


class Job:
    def __init__(self, options):
        self.options, self.stop, self.asked, self.kill = options, None, 0.0, False
        self.environment = {**os.environ, SECRET: os.environ.get(SECRET) or secrets.token_hex(32)}
        self.holders, self.workers, self.waiting = [], {}, []
        self.output = b""
        self.given_up, self.done = 0, False # workers that are not started again; whether one has ended with success
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self.on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN: # nohup sets it to be ignored
            signal.signal(signal.SIGHUP, self.on_signal)

    def on_signal(self, number, _):
        if self.stop and time.monotonic() - self.asked > SAME_SIGNAL and number in (signal.SIGINT, signal.SIGTERM):
            self.kill = True
        if not self.stop:
            self.stop, self.asked = number, time.monotonic()
            for holder in self.holders[:1]: # it saves, and ends the others
                holder.send(signal.SIGINT if number == signal.SIGINT else signal.SIGTERM)

    def all(self):
        return [*self.holders, *self.workers.values()]

    def pass_output(self, seconds):
        """Copies holder 0's output for `seconds`, but for the line with its port. Returns whether there may be
        more."""
        pipe = self.holders[0].child.stdout
        if not pipe or not select.select([pipe], [], [], seconds)[0]:
            return bool(pipe)
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            pipe.close()
            self.holders[0].child.stdout = None
        put(1, data)
        return bool(data)

    def read_port(self):
        """Waits until holder 0 says at which port it listens. Returns None if it ends before, or if a second signal
        comes."""
        pipe, text = self.holders[0].child.stdout, b""
        while not self.kill:
            if not select.select([pipe], [], [], LOOK)[0]:
                continue
            data = os.read(pipe.fileno(), 1 << 16)
            if not data:
                break
            text += data
            begin = text.find(b"holder 0 listens on port ")
            end = text.find(b"\n", begin)
            if begin >= 0 and end >= 0:
                put(1, text[:begin] + text[end + 1:])
                return int(text[begin:end].split()[-1])
        put(1, text)
        return None

    def cores_of(self, worker):
        """Returns the cores of a worker, and the variables by which PoCL learns their number."""
        cores = sorted(os.sched_getaffinity(0))
        if self.options.no_bind or self.options.workers == 1:
            return None, {}
        begin, end = (len(cores) * k // self.options.workers for k in (worker, worker + 1))
        own = cores[begin:end] or [cores[worker % len(cores)]]
        count = str(len(own))
        return own, {"POCL_MAX_PTHREAD_COUNT": count, "POCL_CPU_MAX_CU_COUNT": count}

    def start_worker(self, number, restarts=0):
        cores, variables = self.cores_of(number)
        self.workers[number] = Process(self, "worker", number, ["--join", self.join], variables, cores)
        self.workers[number].restarts = restarts

    def start(self):
        """Starts the processes. Returns whether holder 0 listens."""
        address = self.options.listen.rpartition(":")[0]
        reach = ["--reach", self.options.reach] if self.options.reach else []
        self.holders = [Process(self, "holder", 0, ["--listen", self.options.listen, *reach], stdout=subprocess.PIPE)]
        port = self.read_port()
        if port is None:
            return False
        self.join = f"{'127.0.0.1' if address in ('0.0.0.0', '*', '') else address}:{port}"
        for number in range(1, self.options.holders):
            self.holders.append(Process(self, "holder", number, ["--listen", f"{address}:0", *reach, "--join", self.join],
                                        stdout=subprocess.DEVNULL))
        for number in range(self.options.workers):
            self.start_worker(number)
        return True

    def look_at_workers(self):
        """Starts workers again that have ended early. Returns a code if the job cannot go on."""
        now = time.monotonic()
        for number, worker in list(self.workers.items()):
            code = worker.ended()
            if code is None:
                continue
            del self.workers[number]
            self.done |= code == DONE
            if code == DONE or self.stop:
                continue
            if code == USAGE:
                say(f"{worker.name} {describe(code)}: it would only happen again")
                return USAGE
            if worker.restarts < self.options.restarts:
                say(f"{worker.name} {describe(code)}; it is started again (restart {worker.restarts + 1} of "
                    f"{self.options.restarts}), the others go on")
                self.waiting.append((now + AGAIN, number, worker.restarts + 1))
            else:
                say(f"{worker.name} {describe(code)}; it is not started again, the others go on")
                self.given_up += 1
        for entry in [e for e in self.waiting if e[0] <= now]:
            self.waiting.remove(entry)
            if self.holders[0].ended() is None:
                self.start_worker(entry[1], entry[2])
        if not self.workers and not self.waiting and self.given_up and not self.done and not self.stop:
            self.lose_all()
        return None

    def lose_all(self):
        """No worker of this host is left. Workers of other hosts may go on."""
        self.given_up = 0
        if is_local(self.options.listen):
            say("no worker is left: the run is saved and ends")
            self.on_signal(signal.SIGTERM, None)
        else:
            say("no worker of this host is left: the run goes on with workers of other hosts, until a signal ends it")

    def tell_holder(self, holder, code):
        found = sorted(checkpoints(self.options)) if self.options.checkpoints else []
        where = f"{self.options.checkpoints}/{found[-1][0]}" if found else None
        say(f"{holder.name} {describe(code)}, and its part of the parameters is gone: " +
            (f"--resume goes on from the last checkpoint, {where}" if where else "there is no checkpoint to resume from"))

    def killed(self):
        """Says that a second signal came. Returns the exit code."""
        say("a second signal ended the job at once")
        return 128 + (signal.SIGINT if self.stop == signal.SIGINT else signal.SIGTERM)

    def watch(self):
        """Watches until the run is over. Returns the exit code."""
        leader = self.holders[0]
        while True:
            self.pass_output(LOOK) or time.sleep(LOOK)
            if self.kill:
                return self.killed()
            for holder in self.holders:
                code = holder.ended()
                if code is not None and code < 0 or (code and holder is not leader and leader.ended() is None):
                    self.tell_holder(holder, code)
                    return FAILED
            if leader.ended() is not None:
                while leader.child.stdout and self.pass_output(LOOK):
                    pass
                return leader.ended()
            code = self.look_at_workers()
            if code is not None:
                return code

    def end(self, code):
        """Ends what is left: at once after a failure."""
        until = time.monotonic() + (0 if code or self.kill else GRACE)
        while time.monotonic() < until and any(p.ended() is None for p in self.all()):
            time.sleep(LOOK)
        for process in self.all():
            with contextlib.suppress(ProcessLookupError):
                process.child.kill() if process.ended() is None else None
            process.child.wait()

    def run(self):
        code = FAILED
        try:
            if self.start():
                code = self.watch()
            elif self.kill:
                code = self.killed()
            else:
                code = self.holders[0].child.wait()
                code = code if code >= 0 else FAILED
        finally:
            self.end(code)
        return code


def run(words, script):
    return Job(read_options(words, script)).run()
