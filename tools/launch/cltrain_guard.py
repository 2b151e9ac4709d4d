"""Ends everything that is left of a job if cltrain-launch was killed."""
import contextlib
import os
import shutil
import signal
import time

from cltrain_ranks import Helper, belongs, find_helpers, find_helpers_of, find_processes

LOOK = 0.1  # seconds between looks
GRACE = 5.0  # seconds that a job has to end after a rank was killed
TOLD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1) # signals that ask a run to end


def put(file, data):
    """Writes without a buffer, because flushing it at the end could fail. The reader may be gone."""
    try:
        while data:
            data = data[os.write(file, data):]
    except OSError:
        pass


def say(text):
    put(2, f"cltrain-launch: {text}\n".encode())


def kill(pid, number):
    with contextlib.suppress(ProcessLookupError): # the process has just ended
        os.kill(pid, number)


def ignore_signals():
    for number in TOLD:
        signal.signal(number, signal.SIG_IGN)


class Guard:
    """A process that ends the rest of a job if this program was killed. The pipe between the two is
    closed then. The last line in the pipe names mpiexec and its known helpers. An empty line says
    that no job runs."""

    def __init__(self, folder, temporary):
        end, self.pipe = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self.pipe)
                self.watch(end, folder, temporary)
            finally:
                os._exit(0)
        os.close(end)

    def job(self, processes):
        """Says which processes the job has besides its ranks: Helpers, mpiexec first."""
        words = [f"{p.pid}:{p.born.decode()}" for p in processes if p.born is not None]
        put(self.pipe, f"{' '.join(words)}\n".encode())

    def close(self):
        os.close(self.pipe)
        os.waitpid(self.pid, 0)

    @staticmethod
    def watch(pipe, folder, temporary):
        os.setsid()
        ignore_signals()
        null = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(null, file)
        said = b""
        while data := os.read(pipe, 1 << 12):
            said = (said + data).splitlines(keepends=True)[-1]
        known = [Helper(int(pid), "mpiexec", born) for pid, _, born in (w.partition(b":") for w in said.split())]
        if not known:
            return
        mpiexec = known[0].pid
        begin = time.monotonic()
        end = begin + 6 * GRACE # long enough for a busy machine
        # mpiexec and the ranks may have ended already. A stopped helper then remains.
        helpers = known[1:] + find_helpers_of(find_processes(folder))
        helpers += find_helpers(mpiexec, folder)[0] if belongs(mpiexec, folder) else []
        # If asked to end, mpiexec ends the ranks on other nodes too.
        if belongs(mpiexec, folder):
            kill(mpiexec, signal.SIGTERM)
        while time.monotonic() < end:
            running = belongs(mpiexec, folder)  # asked once: mpiexec may end while the guard looks
            if time.monotonic() > begin + GRACE / 2 and running:
                kill(mpiexec, signal.SIGKILL)
            late = [h.pid for h in helpers if h.here() and not running]
            for process in [*find_processes(folder), *late]:
                kill(process, signal.SIGKILL)
            if not running and not find_processes(folder) and not late:
                break
            time.sleep(LOOK)
        if temporary:
            shutil.rmtree(temporary, ignore_errors=True)
