"""Runs attempts of a job until one succeeds, and passes signals on."""
import signal
import time

from cltrain_checkpoints import checkpoints, tell_mesh
from cltrain_guard import GRACE, LOOK, say
from cltrain_job import Job

DONE, FAILED, USAGE = 0, 1, 2
AGAIN = 75 # of cltrain: saved, and goes on with another number of ranks
SAME_SIGNAL = 0.5 # seconds in which a signal that comes again is not a second one


class Launcher:
    def __init__(self, options):
        self.options, self.guard = options, None
        self.job = None # the attempt that runs, or that ran last
        self.stop = None # the signal that asked for the end
        self.asked = 0.0 # the time of that signal
        self.sent = self.early = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            signal.signal(number, self.on_signal)
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN: # nohup sets it to be ignored
            signal.signal(signal.SIGHUP, self.on_signal)

    def on_signal(self, number, _):
        # `timeout` sends its signal twice within a moment.
        again = self.stop and time.monotonic() - self.asked > SAME_SIGNAL
        if again and number not in (signal.SIGUSR1, signal.SIGHUP):
            self.sent = None # a second signal ends the job at once
        if not self.stop:
            self.stop, self.asked = number, time.monotonic()

    def pass_signal(self, job):
        """Passes the signal to a rank as soon as one has a file. Ranks without a file get it after
        a while: they have nothing to save."""
        number = signal.SIGTERM if self.stop == signal.SIGHUP else self.stop
        self.sent = self.sent or job.send(number)
        waited = time.monotonic() - self.asked
        if not self.sent and waited > GRACE and not self.early:
            self.early = True
            job.send_early(number)
        return self.sent or waited <= 2 * GRACE

    def watch(self, job):
        """Watches the job until everything has ended. Returns mpiexec's exit code."""
        while job.pass_output(LOOK) or job.child.poll() is None:
            if self.sent is None or (job.end_by and time.monotonic() > job.end_by):
                job.end()
            elif self.stop and not self.sent and not self.pass_signal(job):
                job.end()
            if job.child.poll() is not None:
                # mpiexec left a rank behind that still has the pipes open.
                job.end()
            known = len(job.helpers)
            job.look()
            if len(job.helpers) > known:
                self.guard.job(job.helpers)
            self.between(job)
        return job.child.wait()

    def between(self, job):
        """Called several times a second while a job runs."""

    def placement(self, ranks):
        """Returns words that tell mpiexec where the ranks run."""
        return []

    def stopped_code(self):
        return 128 + (signal.SIGINT if self.stop == signal.SIGINT else signal.SIGTERM)

    def attempt(self, ranks, resume):
        """Runs one attempt. Returns the exit code, and whether to try again."""
        self.job = job = Job(self.options, ranks, resume, self.placement(ranks))
        self.guard.job(job.helpers)
        code = self.watch(job)
        self.guard.job([])
        if self.sent is None:
            say("a second signal ended the job at once")
            return self.stopped_code(), False
        # Open MPI's mpiexec exits with 128 + N, as a rank that has saved does, if signal N killed a rank.
        killed = code > 128 and any(number for _, number in job.killed.values())
        if not job.line and code in (DONE, USAGE, AGAIN, 128 + signal.SIGINT, 128 + signal.SIGTERM) and not killed:
            return code, False
        if self.early and not job.line and not job.read_ranks():
            say(f"ended by {signal.Signals(self.stop).name} before the first step")
            return self.stopped_code(), False
        if not job.line:
            job.explain()
        job.close()
        return FAILED, job.again and not self.stop

    def run(self):
        ranks, resume, in_vain = self.options.ranks, False, False
        for restart in range(self.options.restarts + 1):
            before = checkpoints(self.options)
            code, again = self.attempt(ranks, resume)
            if not again or restart == self.options.restarts:
                if code == FAILED:
                    tell_mesh(self.options)
                return code
            now = checkpoints(self.options)
            saved = now - before
            if in_vain and not saved:
                ranks = max(ranks - 1, self.options.min_ranks)
            in_vain, resume = not saved, True
            # The ranks find damaged checkpoints, and report them.
            say(f"restarting from the {'newest intact checkpoint' if now else 'beginning'} on {ranks} "
                f"rank{'s' if ranks > 1 else ''} (restart {restart + 1} of {self.options.restarts})")
        return FAILED
