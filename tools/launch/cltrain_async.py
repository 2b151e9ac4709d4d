"""Runs an asynchronous job: holders of the parameters and workers, which are connected by sockets. Starts workers that
end early again, and follows the hosts of --hosts."""
import contextlib
import ctypes
import os
import secrets
import select
import signal
import subprocess
import time

from cltrain_async_options import is_asynchronous, read_options
from cltrain_checkpoints import checkpoints
from cltrain_guard import put, say
from cltrain_remote import SECRET, UNREACHED, Places, is_here, remote_command

DONE, FAILED, USAGE = 0, 1, 2
SAVED = 75 # of holder 0: it was asked by SIGUSR2 to save and end
LOOK = 0.1 # seconds between looks
GRACE = 30.0 # seconds that a process has to end by itself
FOLLOWS = 15.0 # seconds in which holder 0 ends after the others if it ended them, or if it misses one
AGAIN, PROBE = 0.5, 10.0 # seconds before a worker is started again, and before a host that does not answer is tried again
SAME_SIGNAL = 0.5 # seconds in which a signal that comes again is not a second one
PR_SET_PDEATHSIG = 1
__all__ = ["is_asynchronous", "run"]


def describe(code):
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"


class Process:
    """A holder or a worker."""

    def __init__(self, job, kind, number, words, environment=None, cores=None, place=(None, 0), **pipes):
        self.kind, self.number, self.restarts, self.place = kind, number, 0, place
        self.leaving = False
        host, slot = place
        self.remote = host is not None and not is_here(host)
        self.name = f"{kind} {number}" + (f" on {host}" if self.remote else "")
        marks = {"{worker}": str(number if kind == "worker" else 0), "{slot}": str(slot)}
        command = [job.options.program]
        for argument in job.options.arguments:
            for mark, value in marks.items():
                argument = argument.replace(mark, value)
            command.append(argument)
        command += [f"--{kind}", str(number), *words]
        variables = {**job.environment, **(environment or {})}
        if self.remote:
            command = remote_command(job.options.remote, host, [os.path.abspath(command[0]), *command[1:]]
                                     if os.sep in command[0] else command,
                                     1 if job.options.no_bind else job.places.slots(host))
            secret = variables.pop(SECRET)

        def begin():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if cores:
                os.sched_setaffinity(0, cores)
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE if self.remote else subprocess.DEVNULL, env=variables,
                                      preexec_fn=begin, start_new_session=True, **pipes)
        if self.remote:
            with contextlib.suppress(BrokenPipeError): # it has ended already
                self.child.stdin.write(secret.encode() + b"\n")
                self.child.stdin.flush()

    def leave(self):
        """Ends a worker whose place is gone. A remote one ends when its input does."""
        self.leaving = True
        if self.remote:
            self.child.stdin.close()
        else:
            self.send(signal.SIGTERM)

    def ended(self):
        return self.child.poll()

    def send(self, number):
        if self.child.poll() is None:
            self.child.send_signal(number)


class Job:
    def __init__(self, options):
        self.options, self.stop, self.asked, self.kill = options, None, 0.0, False
        self.environment = {**os.environ, SECRET: os.environ.get(SECRET) or secrets.token_hex(32)}
        self.holders, self.workers, self.waiting, self.places = [], {}, [], Places(options)
        self.output = b""
        self.given_up, self.done = None, False # how the last worker ended that is not started again; whether one is done
        self.alone = False # whether the run ends because no worker is left
        self.ended = {} # holder that ended with a failure: when this was seen
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

    def cores_of(self, place):
        """Returns the cores of a worker of this host, and the variables by which PoCL learns their number."""
        cores, here = sorted(os.sched_getaffinity(0)), [p for p in self.places.wanted() if p[0] is None or is_here(p[0])]
        if self.options.no_bind or len(here) < 2 or place not in here:
            return None, {}
        worker = here.index(place)
        begin, end = (len(cores) * k // len(here) for k in (worker, worker + 1))
        own = cores[begin:end] or [cores[worker % len(cores)]]
        count = str(len(own))
        return own, {"POCL_MAX_PTHREAD_COUNT": count, "POCL_CPU_MAX_CU_COUNT": count}

    def start_worker(self, number, place, restarts=0):
        cores, variables = self.cores_of(place)
        far = place[0] is not None and not is_here(place[0])
        self.workers[number] = Process(self, "worker", number, ["--join", self.join_far if far else self.join], variables,
                                       cores, place)
        self.workers[number].restarts = restarts

    def follow_hosts(self):
        """Begins and ends workers so that all places have one. Their numbers are those that nobody has."""
        wanted = self.places.wanted()
        for worker in self.workers.values():
            if worker.place not in wanted and not worker.leaving:
                say(f"{worker.name} leaves the job: its place is no longer in --hosts")
                worker.leave()
        self.waiting = [entry for entry in self.waiting if entry[3] in wanted]
        taken = {w.place for w in self.workers.values() if not w.leaving} | {entry[3] for entry in self.waiting}
        for place in wanted:
            if place not in taken:
                used = {*self.workers, *(entry[1] for entry in self.waiting)}
                self.start_worker(next(n for n in range(len(used) + 1) if n not in used), place)

    def start(self):
        """Starts the processes. Returns whether holder 0 listens."""
        address = self.options.listen.rpartition(":")[0]
        reach = ["--reach", self.options.reach] if self.options.reach else []
        self.holders = [Process(self, "holder", 0, ["--listen", self.options.listen, *reach], stdout=subprocess.PIPE)]
        port = self.read_port()
        if port is None:
            return False
        self.join = f"{'127.0.0.1' if address in ('0.0.0.0', '*', '') else address}:{port}"
        self.join_far = f"{self.options.reach or address}:{port}"
        for number in range(1, self.options.holders):
            self.holders.append(Process(self, "holder", number, ["--listen", f"{address}:0", *reach, "--join", self.join],
                                        stdout=subprocess.DEVNULL))
        self.follow_hosts()
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
            if code == DONE or self.stop or worker.leaving:
                continue
            if code == USAGE:
                say(f"{worker.name} {describe(code)}: it would only happen again")
                return USAGE
            lost = worker.remote and code == UNREACHED
            if lost:
                say(f"host {worker.place[0]} does not answer: {self.options.remote[0]} ended with code {code}")
            if worker.restarts < self.options.restarts:
                say(f"{worker.name} {describe(code)}; it is started again (restart {worker.restarts + 1} of "
                    f"{self.options.restarts}), the others go on")
                self.waiting.append((now + (PROBE if lost else AGAIN), number, worker.restarts + 1, worker.place))
            else:
                self.given_up = f"{worker.name} {describe(code)}"
                others = self.workers or self.waiting
                say(f"{self.given_up}; it is not started again" + (", the others go on" if others else ""))
        for entry in [e for e in self.waiting if e[0] <= now]:
            self.waiting.remove(entry)
            if self.holders[0].ended() is None:
                self.start_worker(entry[1], entry[3], entry[2])
        if not self.workers and not self.waiting and self.given_up and not self.done and not self.stop:
            self.lose_all()
        return None

    def lose_all(self):
        """No worker of this host is left. Workers of other hosts may go on."""
        cause, self.given_up = self.given_up, None
        if not self.options.keeps_on:
            self.alone = True
            say(f"no worker is left (the last one, {cause}; --restarts {self.options.restarts}): the run "
                f"{'is saved and ' if self.options.checkpoints else ''}ends with code {FAILED}")
            self.holders[0].send(signal.SIGUSR2)
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

    def is_cause(self, holder):
        """Whether the job ends because of this holder. A failure of the run is holder 0's: it tells the others, which end
        before it does. So another holder that ends with a code counts only if holder 0 goes on."""
        code, leader = holder.ended(), self.holders[0]
        if not code or code < 0:
            return bool(code)
        if holder is leader or leader.ended() is not None:
            return False
        return time.monotonic() - self.ended.setdefault(holder, time.monotonic()) > FOLLOWS

    def watch(self):
        """Watches until the run is over. Returns the exit code."""
        leader = self.holders[0]
        while True:
            self.pass_output(LOOK) or time.sleep(LOOK)
            if self.kill:
                return self.killed()
            for holder in self.holders:
                if self.is_cause(holder):
                    self.tell_holder(holder, holder.ended())
                    return FAILED
            if leader.ended() is not None:
                while leader.child.stdout and self.pass_output(LOOK):
                    pass
                return FAILED if self.alone and leader.ended() == SAVED else leader.ended()
            code = self.look_at_workers()
            if code is not None:
                return code
            if not self.stop and not self.alone and self.places.poll():
                self.follow_hosts()

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
