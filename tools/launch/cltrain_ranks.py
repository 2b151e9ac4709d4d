"""Reads facts about the ranks of a job from their heartbeat files (<cltrain/heartbeat.h>), and
about processes of this node from /proc."""
import os
import re
import socket
import struct

SETUP, TRAINING, EVALUATING, SAVING, FAILURE, ENDED, WAITING = range(1, 8)
HEADER, TEXT, VERSION = struct.Struct("=8s4i6q4i256s256s"), 256, 1
HELPER = "hydra_pmi_proxy"  # MPICH's helper: starts and ends the ranks of a node for mpiexec

# The variable with a rank's number: of Hydra and other PMI, Open MPI, PMIx, PALS.
NUMBER = re.compile(rb"(?:^|\0)(?:PMI_RANK|OMPI_COMM_WORLD_RANK|PMIX_RANK|PALS_RANKID)=(\d+)")


def read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


class Process:
    """A rank's process on this node, with or without a heartbeat file."""

    def __init__(self, rank, pid):
        self.rank, self.pid = rank, pid
        self.name = f"rank {rank} (process {pid} on {socket.gethostname()})"
        self.state = None # unknown: only heartbeat files tell the state

    def where(self):
        return "before it wrote its heartbeat file"


def stat(pid):
    """Returns the words of /proc/PID/stat behind the name: state, parent...; none if there is no
    such process."""
    return read(f"/proc/{pid}/stat").rpartition(b")")[2].split()


def process_state(pid):
    """Returns the state's letter of /proc/PID/stat (T: stopped) and the clock ticks used; "" if
    there is no such process here."""
    words = stat(pid)
    return (words[0].decode(), int(words[11]) + int(words[12])) if words else ("", 0)


def parent(pid):
    words = stat(pid)
    return int(words[1]) if words else 0


class Helper:
    """One of mpiexec's processes on this node, or mpiexec itself."""
    state = None

    def __init__(self, pid, name, born=None):
        self.pid, self.born = pid, born or self.birth(pid)
        self.name = f"{name} (process {pid} on {socket.gethostname()})"

    @staticmethod
    def birth(pid):
        """Returns the process' start time, which distinguishes it from a later process with the
        same number; None: it is gone."""
        words = stat(pid)
        return words[19] if words and words[0] not in (b"Z", b"X") else None

    def here(self):
        return self.born is not None and self.birth(self.pid) == self.born

    def where(self):
        return "and ranks cannot end without it"


def belongs(pid, folder):
    return folder.encode() in read(f"/proc/{pid}/cmdline").split(b"\0")


def find_processes(folder):
    """Returns the job's ranks on this node: processes that were given its folder and a number."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and belongs(name, folder):
            number = NUMBER.search(read(f"/proc/{name}/environ"))
            if number:
                found[int(name)] = Process(int(number[1]), int(name))
    return found


def all_near(environment):
    """Returns whether Open MPI says that as many ranks are on this rank's node as there are."""
    ranks, near = (re.search(rb"(?:^|\0)OMPI_COMM_WORLD_" + name + rb"=(\d+)", environment) for name in
                   (b"SIZE", b"LOCAL_SIZE"))
    return bool(ranks and near) and ranks[1] == near[1]


def find_helpers(mpiexec, folder):
    """Returns Hydra's processes on this node, and whether all ranks are on this node, which is true
    if mpiexec started nothing else. Open MPI has no such process: mpiexec starts the ranks of its node."""
    found, others, near = [], 0, False
    for name in os.listdir("/proc"):
        if name.isdigit() and parent(name) == mpiexec:
            if read(f"/proc/{name}/comm").strip() == HELPER.encode():
                found.append(Helper(int(name), HELPER))
            elif belongs(name, folder):
                near |= all_near(read(f"/proc/{name}/environ"))
            else:
                others += 1
    return found, bool(found or near) and not others


def find_helpers_of(ranks):
    """Returns Hydra's processes that started these ranks, also if scripts are in between."""
    found = set()
    for pid in ranks:
        while pid > 1 and read(f"/proc/{pid}/comm").strip() != HELPER.encode():
            pid = parent(pid)
        if pid > 1:
            found.add(pid)
    return [Helper(pid, HELPER) for pid in found]


class Rank:
    """The content of a heartbeat file."""

    def __init__(self, data):
        (magic, self.version, self.state, self.rank, self.ranks, self.pid, self.beats, self.time, self.step,
         self.starts, self.completes, self.started, self.completed, self.status, labels, host,
         message) = HEADER.unpack_from(data)
        if magic != b"cltbeat\0" or self.version != VERSION:
            raise ValueError
        self.host, self.message = self.text(host), self.text(message)
        self.labels = [self.text(data[at:at + TEXT]) for at in
                       range(HEADER.size, HEADER.size + labels * TEXT, TEXT)]

    @staticmethod
    def text(data):
        return data.split(b"\0", 1)[0].decode(errors="replace")

    @property
    def name(self):
        return f"rank {self.rank} (process {self.pid} on {self.host})"

    @property
    def progress(self):
        return self.step, self.starts, self.completes

    @property
    def near(self):
        return self.host == socket.gethostname()

    def where(self):
        if not self.step:
            return "before the first step"
        text = f"in step {self.step}"
        if self.state in (EVALUATING, SAVING):
            text = f"{'evaluating' if self.state == EVALUATING else 'saving'} after step {self.step}"
        if self.state == WAITING:
            return f"waiting for the replicas of other ranks after step {self.step}"
        if self.started < 0:
            return text
        began, ended = self.labels[self.started], self.labels[max(self.completed, 0)]
        if self.starts == self.completes:
            return f"{text}, {ended} reduced last"
        if self.completed in (-1, self.started):
            return f"{text}, {began} not reduced yet"
        return f"{text}, {began} begun last, {ended} reduced last"

    def process_state(self):
        return process_state(self.pid)[0]
