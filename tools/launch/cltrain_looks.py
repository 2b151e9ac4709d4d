"""Looks again and again for ranks that ended, are stopped, or make no progress."""
import contextlib
import os
import select
import time

from cltrain_guard import GRACE, LOOK, say
from cltrain_ranks import ENDED, FAILURE, SAVING, SETUP, TRAINING, WAITING, Helper, find_helpers, find_processes, \
    parent, process_state

SEARCH = 1.0  # seconds between searches for processes
GONE = 10.0  # seconds without a process after which a rank counts as ended


class Looks:
    """The part of a job that watches its ranks."""

    def look(self):
        """Looks once for ranks that ended, are stopped, or make no progress."""
        now, ranks = time.monotonic(), self.read_ranks()
        # If the whole machine slept, no rank is to blame.
        passed, self.looked = min(now - self.looked, 1.0), now
        self.passed += passed
        for rank in ranks:
            beats, idle = self.changed.get(rank.rank, (None, 0))
            self.changed[rank.rank] = rank.beats, idle + passed if rank.beats == beats else 0
            # Beats of evaluating and saving come after the step.
            if rank.step > self.trained[0] or (rank.step == self.trained[0] > 0 and rank.state == TRAINING):
                since = time.monotonic() - rank.time / 1e9 if rank.near else 0.0
                self.trained = rank.step, max(time.time() - since, self.trained[1])
        self.search(now, ranks)
        self.note_exits()
        self.count_absent(passed, ranks)
        here = [r for r in ranks if r.near] + self.without_file(ranks) + self.helpers
        for rank in here:
            state, ticks = process_state(rank.pid)
            if state: # otherwise the last known state counts
                self.stopped[rank.pid] = self.stopped.get(rank.pid, 0) + passed if state in ("t", "T") else 0
            before, idle = self.idle.get(rank.pid, (None, 0))
            self.idle[rank.pid] = ticks, idle + passed if ticks == before else 0
        if not self.end_by:
            self.end_for(*(self.find_stopped(here) or self.find_gone(ranks) or self.find_late(ranks) or
                           self.find_unready(ranks, here) or ((), "")))

    def search(self, now, ranks):
        """Searches for processes. At the beginning every look searches, so that ranks and helpers that
        end soon are known."""
        begun = {p.rank for p in self.seen.values()} | {r.rank for r in ranks}
        complete = len(begun) == self.ranks and (self.helpers[1:] or self.local)
        if now - self.searched < (SEARCH if complete or self.passed > GRACE else LOOK):
            return
        if self.passed < (GONE if self.helpers[1:] else 60) and self.child.poll() is None:
            known = [h.pid for h in self.helpers]
            helpers, local = find_helpers(self.child.pid, self.folder)
            self.local = local if helpers or local else self.local
            self.helpers += [h for h in helpers if h.pid not in known]
        self.processes = find_processes(self.folder) if len(ranks) < self.ranks else {}
        # Processes that a rank itself starts may end at any time.
        for pid in (p for p in self.processes if p not in self.seen and parent(p) not in self.processes):
            with contextlib.suppress(AttributeError, OSError): # old systems lack pidfds; or the process has ended
                file = os.pidfd_open(pid)
                self.open[file] = pid
                self.exits.register(file, select.EPOLLIN | select.EPOLLONESHOT)
        self.seen.update(self.processes)
        self.searched = now

    def note_exits(self):
        """Notes ended processes. The system reports them in order, even if this function asks late."""
        for file, _ in self.exits.poll(0):
            self.ended.append(self.open.pop(file))
            os.close(file)

    def count_absent(self, passed, ranks):
        known = {r.rank for r in ranks} | {p.rank for p in self.processes.values()}
        seen = {p.rank for p in self.seen.values()}
        for n in range(self.ranks):
            gone = n not in known and (n in seen or (seen and self.local))
            self.absent[n] = self.absent.get(n, 0) + passed if gone else 0
        gone = [h for h in self.helpers[1:] if not h.here()]
        if gone and self.child.poll() is None and self.alive(ranks):
            before, self.orphaned = self.orphaned, self.orphaned + passed
            if before <= 1 < self.orphaned and not self.line:
                say(f"{gone[0].name}, mpiexec's helper, ended before the ranks: their output is lost")

    def alive(self, ranks):
        return any(self.own(r) for r in [*ranks, *self.processes.values()] if r.state not in (FAILURE, ENDED))

    def find_gone(self, ranks):
        """Finds ranks that ended by themselves before they called MPI. mpiexec does not end the other
        ranks, which wait for them."""
        gone = [n for n, seconds in self.absent.items() if seconds > GONE]
        if not gone or not self.alive(ranks):
            return None
        names = [next((p.name for p in self.seen.values() if p.rank == n), f"rank {n}") for n in gone]
        return (), "; ".join(f"{name} ended before it wrote its heartbeat file, and other ranks wait for it"
                             for name in names)

    def find_stopped(self, here):
        guilty = [r for r in here if self.stopped.get(r.pid, 0) > self.options.deadline]
        return (guilty, "; ".join(f"{r.name} is stopped and made no progress for {self.options.deadline:g} s, "
                                  f"{r.where()}" for r in guilty)) if guilty else None

    def find_late(self, ranks):
        """Finds ranks that have not beaten for longer than the deadline."""
        late = [r for r in ranks if self.changed[r.rank][1] > self.options.deadline and
                r.state not in (FAILURE, ENDED, WAITING)]
        # If a rank compiles kernels or writes a checkpoint, the others may have to wait for it. The
        # time at which a heartbeat of another node becomes visible here depends on that node's
        # system. If all are late because a rank or a helper is stopped, that one is found a moment later.
        if len(ranks) < self.ranks or any(r.state in (SETUP, SAVING) or not r.near for r in ranks) or \
                any(self.stopped.get(r.pid) for r in [*ranks, *self.helpers]):
            return None
        behind = min((r.progress for r in late), default=None)
        guilty = [r for r in late if r.progress == behind]
        return (guilty, "; ".join(f"{r.name} made no progress for {self.options.deadline:g} s, {r.where()}"
                                  for r in guilty)) if guilty else None

    def find_unready(self, ranks, here):
        """Finds ranks that have not reached the first step. If possible it finds those for which
        the others wait: they are further back, or have used no processor time for long."""
        limit = self.options.setup_deadline
        if not limit or self.passed < limit:
            return None
        waiting = [r for r in ranks if r.state == SETUP and not r.step]
        unready = self.without_file(ranks) or waiting
        absent = [f"rank {n}" for n in range(self.ranks) if n not in {r.rank for r in ranks + unready}]
        if not unready and not absent:
            return None
        idle = [r for r in unready if r in here and self.idle[r.pid][1] > limit / 2]
        guilty = idle or unready
        said = [f"{name} has no heartbeat file after {limit:g} s, and no process on this node" for name in absent]
        said += [f"{r.name} did not reach its first step in {limit:g} s" +
                 (f", and used no processor time for {self.idle[r.pid][1]:.0f} s" if r in idle else "")
                 for r in guilty]
        return guilty, "; ".join(said)

    def end_for(self, guilty, text):
        if not text:
            return
        self.again = True
        self.lost = sum(not isinstance(r, Helper) for r in guilty)
        self.tell(text)
        self.kill(guilty)
        self.end_by = time.monotonic() + (GRACE if guilty else 0)
