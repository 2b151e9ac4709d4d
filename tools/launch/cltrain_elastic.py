"""A job that grows and shrinks: --ranks MIN:MAX.

The user asks for another number of ranks (cltrain_control), or the file of --hosts changes (cltrain_hosts). The ranks
then save, end with the code AGAIN, and the job goes on from that checkpoint with another number. If a rank is lost, the
job goes on from its newest intact checkpoint with the others.
"""
import contextlib
import json
import os
import re
import signal
import time

from cltrain_checkpoints import argument, checkpoints
from cltrain_control import Control
from cltrain_guard import LOOK, say
from cltrain_hosts import Hosts
from cltrain_launcher import AGAIN, DONE, FAILED, USAGE, Launcher


def count(ranks):
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def mesh_unit(mesh):
    """Returns the product of the axes of --parallel whose size is given."""
    unit = 1
    for size in re.findall(r"=(\d+)", mesh or ""):
        unit *= int(size)
    return unit


class Elastic(Launcher):
    def __init__(self, options):
        super().__init__(options)
        self.low, self.high = options.low, options.high
        self.hosts = Hosts(options.hosts, options.mpiexec) if options.hosts else None
        self.wish = options.ranks or self.high # what the user wants, less the ranks that were lost
        self.ranks = 0      # of the attempt that runs, or that ran last
        self.before = None  # what change.json tells the next attempt
        self.short = False  # whether the lack of hosts was told
        self.vain = 0       # failures since the last new checkpoint
        self.unit = mesh_unit(argument(options.arguments, "--parallel"))
        self.control = Control(options.heartbeat) # refuses a folder that another launcher uses
        self.forget()

    # --- which numbers are possible ---

    def path(self, name):
        return os.path.join(self.options.heartbeat, name)

    def forget(self):
        for name in ("change.json", "job.json"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(self.path(name))

    def devices(self, ranks):
        """Returns how many devices so many ranks have; 0: unknown. The ranks of a node share its devices out. If
        there are too few, each rank gets one."""
        try:
            with open(self.path("job.json"), encoding="utf-8") as file:
                job = json.load(file)
        except (OSError, ValueError):
            return 0
        if not self.hosts and job["devices"] > job["ranks"]:
            return max(job["devices"], ranks)
        return ranks * job["devices"] // job["ranks"]

    def fits(self, ranks):
        return self.devices(ranks) % self.unit == 0

    def limit(self):
        return min(self.high, self.hosts.slots()) if self.hosts else self.high

    def target(self):
        """Returns the largest possible number of ranks up to the one wanted; 0: there is none."""
        most = min(self.wish, self.limit())
        return next((n for n in range(most, self.low - 1, -1) if self.fits(n)), 0)

    # --- requests ---

    def answer(self, asked):
        """Answers --resize. Returns a code and a line."""
        text = str(asked)
        if not re.fullmatch(r"[+-]?\d{1,9}", text):
            return USAGE, f"--resize {text[:40]}: must be N, +K or -K"
        now = min(self.wish, self.limit())
        ranks = now + int(text) if text[0] in "+-" else int(text)
        what = f"--resize {text}: "
        if not self.low <= ranks <= self.high:
            return USAGE, (f"{what}the job runs on {self.low} to {self.high} ranks (--ranks), not on {ranks}; nothing "
                           "changes")
        if ranks > self.limit():
            return USAGE, f"{what}the hosts that answer have {self.limit()} slots (--hosts); nothing changes"
        if not self.fits(ranks):
            return USAGE, (f"{what}{count(ranks)} would have {self.devices(ranks)} devices, and the mesh "
                           f"{argument(self.options.arguments, '--parallel')} needs a multiple of {self.unit}; nothing "
                           "changes")
        self.wish = ranks
        return 0, (f"the job has {count(ranks)} already" if ranks == self.ranks else
                   f"the job goes on with {count(ranks)} after its next checkpoint, which it saves now")

    def between(self, job):
        """Looks, several times a second, whether the job should change. Asks a rank to save if so."""
        self.listen()
        ranks = self.target()
        if self.hosts and not ranks and not self.short:
            say(f"the hosts that answer have {self.hosts.slots()} slots, fewer than --ranks allows: the job stays on "
                f"{count(job.ranks)}")
        self.short = not ranks
        moves = ranks != job.ranks or (self.hosts and self.hosts.taken_out())
        if ranks and moves and not job.asked and not self.stop and not job.line:
            job.asked = job.send(signal.SIGUSR2) or self.forward(job)

    @staticmethod
    def forward(job):
        """If no rank is on this node, mpiexec passes a signal on, once all ranks can take it. MPICH's passes SIGUSR1
        on, but not SIGUSR2."""
        ranks = job.read_ranks()
        if len(ranks) < job.ranks or any(r.near for r in ranks) or job.child.poll() is not None:
            return False
        os.kill(job.child.pid, signal.SIGUSR1)
        job.forwarded = True
        return True

    def listen(self):
        self.control.serve(self.answer)
        if self.hosts:
            self.hosts.poll()

    # --- attempts ---

    def placement(self, ranks):
        return self.hosts.words(ranks) if self.hosts else []

    def leave_word(self, cause):
        """Tells the next attempt about the ranks before. `cause` is "asked", "lost" or "refused"."""
        step, stopped = self.job.trained
        if step:
            begun = [r.step for r in self.job.read_ranks()] or [step]
            self.before = {"ranks": self.ranks, "step": step, "mean_step": sum(begun) // len(begun), "stopped": stopped}
        if self.before:
            self.before["cause"] = cause
        if self.before:
            with open(self.path("change.json"), "w", encoding="utf-8") as file:
                json.dump(self.before, file)

    def end(self, code):
        names = sorted(name for name, _ in checkpoints(self.options))
        say(f"resume from the last checkpoint, {os.path.join(self.options.checkpoints, names[-1])} (--resume)"
            if names else "there is no checkpoint to resume from")
        return code

    def wait(self):
        """Waits until enough ranks are possible. Returns their number, or 0."""
        ranks, began = self.target(), time.monotonic()
        if not ranks:
            have = min(self.wish, self.limit())
            say(f"{count(have)} remain{'s' if have == 1 else ''}, and --ranks needs {self.low}" +
                (f" in multiples that the mesh of --parallel can have ({self.unit} devices)" if self.unit > 1 else "") +
                f": waiting up to {self.options.wait:g} s for " + ("hosts" if self.hosts else
                f"cltrain-launch --resize N --job {self.options.heartbeat}"))
        while not ranks and not self.stop and time.monotonic() - began < self.options.wait:
            self.listen()
            ranks = self.target()
            time.sleep(LOOK)
        return ranks

    def lose(self):
        """Takes the ranks that were lost out of the job."""
        if self.hosts: # which of them answer decides
            self.hosts.ask_all(lambda: self.stop)
            return
        # Without a known culprit all ranks try once more, then one less.
        lost = self.job.lost or (1 if self.vain > 1 else 0)
        self.wish = max(min(self.wish, self.ranks) - lost, 0)

    def resized(self):
        ranks = self.wait()
        if ranks and ranks != self.ranks:
            say(f"going on with {count(ranks)} instead of {self.ranks}")
        elif ranks and self.hosts and (left := self.hosts.taken_out()):
            say(f"going on with {count(ranks)} on other hosts than {', '.join(left)}")
        return ranks

    def restarted(self, saved):
        """Returns the number of ranks after a failure; 0: the job ends."""
        self.vain = 0 if saved else self.vain + 1
        if self.vain > self.options.restarts:
            say(f"{self.vain} failures in a row without a new checkpoint (--restarts {self.options.restarts})")
            return 0
        before = self.ranks
        self.lose()
        ranks = self.wait()
        if not ranks:
            return 0
        found = checkpoints(self.options)
        say(f"restarting from the {'newest intact checkpoint' if found else 'beginning'} on {count(ranks)}" +
            (f" instead of {before}" if ranks != before else ""))
        return ranks

    def run(self):
        try:
            return self.run_all()
        finally:
            self.control.close()
            if self.hosts:
                self.hosts.close()

    def run_all(self):
        ranks, resume, good = self.wait(), False, 0
        if ranks:
            say(f"{count(ranks)} of {self.low} to {self.high}; cltrain-launch --resize N --job "
                f"{self.options.heartbeat} changes their number")
        while ranks:
            before = checkpoints(self.options)
            self.ranks = ranks
            code, again = self.attempt(ranks, resume)
            # MPICH's mpiexec sometimes ends with 0 after it passed a signal on. If the run was done, the next attempt
            # ends at once.
            if self.job.forwarded and code in (DONE, 128 + signal.SIGTERM):
                code = AGAIN
            saved, resume, trained = checkpoints(self.options) - before, True, self.job.trained[0]
            if code not in (AGAIN, FAILED, USAGE) or (code == AGAIN and self.stop):
                return self.stopped_code() if code == AGAIN else code
            self.leave_word("asked" if code == AGAIN else "lost" if again else "refused")
            if code == AGAIN:
                good, self.vain, ranks = ranks if trained else good, 0, self.resized()
            elif again:
                good, ranks = 0, self.restarted(saved)
            elif good and good != ranks and not trained and not self.stop and good <= self.limit():
                say(f"the job cannot run on {count(ranks)}: back to {good}")
                ranks = self.wish = good
                good = 0
            else:
                return self.end(code) if code == FAILED else code
        if self.stop:
            say(f"ended by {signal.Signals(self.stop).name} while no ranks ran")
            return self.stopped_code()
        return self.end(FAILED)
