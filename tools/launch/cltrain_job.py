"""One attempt to run a job: mpiexec, its output, and the ranks' files."""
import os
import re
import select
import selectors
import signal
import struct
import subprocess
import time

from cltrain_causes import Causes
from cltrain_closed import Closed
from cltrain_guard import put, say
from cltrain_looks import Looks
from cltrain_mpiexec import endings, passed_on
from cltrain_ranks import ENDED, FAILURE, Helper, Rank, belongs, find_processes


class Job(Looks, Causes):
    """One attempt to run the job: mpiexec, its output, and the ranks' files."""

    def __init__(self, options, ranks, resume, placement=()):
        self.options, self.ranks = options, ranks
        self.folder = options.heartbeat
        for name in os.listdir(self.folder):
            if re.fullmatch(r"rank-\d+", name):
                os.remove(os.path.join(self.folder, name))
        self.closed = Closed(self.folder)
        command = [*options.mpiexec, *placement, "-n", str(ranks), options.program, *passed_on(options.arguments),
                   "--heartbeat", self.folder]
        if resume:
            command.append("--resume-intact")
        # mpiexec gets its own session, so that a terminal's Ctrl-C reaches only this program. This
        # program passes the signal to one rank.
        self.child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.PIPE, start_new_session=True)
        self.output = selectors.DefaultSelector()
        for pipe, to in ((self.child.stdout, 1), (self.child.stderr, 2)):
            self.output.register(pipe, selectors.EVENT_READ, to)
        self.tail = {self.child.stdout: b"", self.child.stderr: b""}
        self.killed = {}   # (rank or None, pid or None): (what happened, signal), as mpiexec says
        self.changed = {}  # rank: (beats, seconds since the number of beats last grew)
        self.processes, self.seen = {}, {} # pid: Process; found by the last search, and by all searches
        # mpiexec, its helpers on this node (MPICH), and whether all ranks are on this node.
        self.helpers, self.local = [Helper(self.child.pid, "mpiexec")], False
        self.exits, self.open = select.epoll(), {} # file: pid of a running process without a heartbeat file
        self.ended = []    # pids in the order in which the processes ended
        self.absent = {}   # rank: seconds without a file and a process
        self.orphaned = 0.0 # seconds for which ranks continued without mpiexec's helper
        self.cut = False   # whether this program killed mpiexec
        self.stopped = {}  # pid: seconds for which it was stopped
        self.idle = {}     # pid: (clock ticks, seconds since they last grew)
        self.began = self.looked = self.searched = time.monotonic()
        self.passed = 0.0  # seconds since the beginning, while the machine did not sleep
        self.line = None   # the line printed about the failure
        self.again = False # whether another attempt may succeed
        self.end_by = None
        self.lost = 0      # ranks that caused the failure
        self.asked = False # whether the ranks were asked to save and end, for another number of ranks
        self.forwarded = False # whether mpiexec was asked to tell them
        self.trained = 0, 0.0 # the step that was begun last, and when it showed progress last: seconds since 1970

    def read_ranks(self):
        found = []
        for rank in range(self.ranks):
            try:
                with open(os.path.join(self.folder, f"rank-{rank}"), "rb") as file:
                    found.append(Rank(file.read()))
            except (OSError, ValueError, struct.error):
                continue
            found[-1].rank = rank # until replicas have met, each writes that it is rank 0
        return found

    def pass_output(self, seconds):
        """Copies the job's output for `seconds`. Returns whether there may be more."""
        for key, _ in self.output.select(seconds):
            data = os.read(key.fd, 1 << 16)
            if not data:
                self.output.unregister(key.fileobj)
                continue
            put(key.data, data)
            self.tail[key.fileobj] = (self.tail[key.fileobj] + data)[-(1 << 14):]
            for rank, pid, what, number in endings(self.tail[key.fileobj]):
                self.killed[rank, pid] = what, number
        return bool(self.output.get_map())

    def own(self, rank):
        """Returns whether the process is on this node and still belongs to this job."""
        if isinstance(rank, Helper):
            return rank.here()
        return getattr(rank, "near", True) and belongs(rank.pid, self.folder)

    def without_file(self, ranks):
        """Returns the processes of ranks that have no file."""
        known = {r.rank for r in ranks}
        return [p for p in self.processes.values() if p.rank not in known]

    def send(self, number):
        """Sends a signal to one rank, which tells the others. Returns whether there was a rank."""
        for rank in self.read_ranks():
            if rank.state not in (FAILURE, ENDED) and self.own(rank):
                os.kill(rank.pid, number)
                return True
        return False

    def send_early(self, number):
        """Sends a signal to all ranks that have no file."""
        for process in find_processes(self.folder).values():
            if self.own(process):
                os.kill(process.pid, number)

    def kill(self, ranks):
        for rank in ranks:
            if self.own(rank):
                os.kill(rank.pid, signal.SIGKILL)

    def end(self):
        """Kills all remaining processes of the job."""
        self.kill(self.read_ranks())
        self.kill(find_processes(self.folder).values())
        self.kill(self.helpers[1:]) # a stopped helper would keep the pipes open
        if self.child.poll() is None:
            self.cut = True
            os.killpg(self.child.pid, signal.SIGKILL)

    def close(self):
        for file in self.open:
            os.close(file)
        self.exits.close()
        self.closed.close()
        self.output.close()

    def tell(self, text):
        self.line = text
        say(text)
