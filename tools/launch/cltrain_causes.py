"""Explains why a job failed: names the first cause, and says whether another attempt may succeed."""
from cltrain_guard import GRACE, TOLD
from cltrain_mpiexec import LOST_HELPER
from cltrain_ranks import ENDED, FAILURE, Rank

OPENCL, ABORTED, TIMEOUT, DEVICE_LOST, MPI = 9, 15, 16, 17, 20  # values of clt_status


class Causes:
    """The part of a job that explains its end."""

    def find_killed(self, ranks):
        """Returns texts about ranks that were killed, according to mpiexec, and whether they may
        succeed the next time."""
        said, again = [], False
        numbers = {**{pid: p.rank for pid, p in self.seen.items()}, **{r.pid: r.rank for r in ranks}}
        by_number = {r.rank: r for r in ranks}
        early = {p.rank: p for p in self.seen.values()}
        for (named, pid), (what, number) in self.killed.items():
            rank = by_number.get(numbers.get(pid) if named is None else named) or (
                self.seen.get(pid) if named is None else early.get(named))
            if rank and rank.state in (FAILURE, ENDED):
                continue
            if isinstance(rank, Rank):
                said.append(self.tell_first(rank, by_number) + f"{rank.name} {what}, {rank.where()}")
            elif len(ranks) < self.ranks and named is not None:
                said.append(f"{rank.name if rank else f'rank {named}'} {what}, before it wrote its heartbeat file")
            elif len(ranks) < self.ranks:
                said.append(self.tell_early(pid, rank, what))
            if rank or len(ranks) < self.ranks:
                again |= isinstance(rank, Rank) or number not in (TOLD if named is not None else (0, *TOLD))
        return "; ".join(said), again

    def find_first(self, by_number):
        """Returns the rank that ended first, as far as this node knows."""
        closed = [n for n in self.closed.order() if n in by_number]
        if closed:
            return by_number[closed[0]]
        seen = self.seen.get(self.ended[0]) if self.ended else None
        return by_number.get(seen.rank) if seen else None

    def tell_first(self, rank, by_number):
        """Names the rank that ended first if it is another one. Hydra sometimes names only a rank
        that it killed itself after the real cause."""
        first = self.find_first(by_number)
        named = {x for both in self.killed for x in ((both[0], None), (None, both[1]))}
        if not first or first.rank == rank.rank or first.host != rank.host or first.state in (FAILURE, ENDED) or \
                named & {(first.rank, None), (None, first.pid)}:
            return ""
        return f"{first.name} ended first, {first.where()}; then "

    def tell_early(self, pid, rank, what):
        """Describes a rank that has not called MPI. Hydra sometimes names a rank that it killed
        itself, after the real cause."""
        first = self.seen.get(self.ended[0]) if self.ended else None
        known = {p.rank for p in self.seen.values()}
        unknown = [n for n in range(self.ranks) if n not in known] if self.local else []
        early = "before it wrote its heartbeat file"
        if rank and unknown:
            return f"{rank.name} {what}, {early}; perhaps rank {unknown[0]} ended first: its process was never seen"
        if rank and first and first.rank != rank.rank:
            return f"{first.name} ended first, {early}; then {rank.name} {what}"
        return f"{rank.name if rank else f'a rank (process {pid})'} {what}, {early}"

    def find_lost(self):
        """Returns a text that names the helper that mpiexec lost, or says that mpiexec was killed."""
        if self.orphaned > 1 or LOST_HELPER.search(self.tail[self.child.stderr]):
            gone = next((f"{h.name}, mpiexec's helper," for h in self.helpers[1:] if not h.here()), "mpiexec's helper")
            return f"{gone} ended before the ranks"
        code = self.child.returncode
        return f"mpiexec was killed by signal {-code}" if code < 0 and not self.cut else ""

    def explain(self):
        """Explains why the job failed: names the first cause."""
        ranks = self.read_ranks()
        self.note_exits()
        open_ = [r for r in ranks if r.state not in (FAILURE, ENDED)]
        failed = [r for r in ranks if r.state == FAILURE]
        causes = [r for r in failed if r.status != ABORTED] or failed
        early = [p for p in self.seen.values() if p.rank not in {r.rank for r in ranks}]
        stopped = [r for r in open_ + early if self.stopped.get(r.pid, 0) > GRACE]
        killed, again = self.find_killed(ranks)
        lost = self.find_lost()
        first = min(open_, key=lambda r: (r.progress, r.time), default=None)
        step = max((r.step for r in ranks), default=0)
        without = f"the job ended after step {step}, and no rank reported a failure" if step else \
            "the job ended before its first step"
        if killed:
            self.again, self.lost = again, 1
            self.tell(killed)
        elif causes:
            self.lost = len(stopped) or int(causes[0].status in (OPENCL, DEVICE_LOST))
            self.again = causes[0].status in (OPENCL, ABORTED, TIMEOUT, DEVICE_LOST, MPI)
            self.tell(f"{causes[0].name} failed, {causes[0].where()}: {causes[0].message}")
        elif lost:
            self.again = True
            self.tell(f"{lost}; " + (f"{first.name} was {first.where()}" if first else without))
        elif stopped:
            self.again, self.lost = True, len(stopped)
            self.tell("; ".join(f"{r.name} was stopped for {self.stopped[r.pid]:.0f} s, {r.where()}"
                                for r in stopped))
        elif first and any(r.step for r in open_):
            self.again, self.lost = True, 1
            self.tell(f"{first.name} ended without a message, {first.where()}")
        else:
            self.tell(f"the job of {self.ranks} ranks failed " +
                      (f"after step {step}" if step else "before its first step"))
