"""Runs the command on several ranks. The program's arguments are the command, mpiexec, and the launcher."""
import os
import re
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))

from command import (COMMAND, DEVICE, TRAIN, CommandTest, cores, get, main, put, records,
                     write_data)

MPIEXEC = sys.argv.pop(1) if len(sys.argv) > 1 else "mpiexec"
LAUNCHER = os.path.abspath(sys.argv.pop(1) if len(sys.argv) > 1 else "cltrain-launch")

sys.path.insert(0, os.path.join(os.path.dirname(LAUNCHER), "launch")) # the launcher's modules

from cltrain_mpiexec import passed_on
from cltrain_ranks import NUMBER, Helper, Rank, find_processes, parent, read

OPEN_MPI = re.search("Open MPI|OpenRTE", subprocess.run([MPIEXEC, "--version"], capture_output=True, text=True,
                                                        check=False).stdout)

# Open MPI's mpiexec writes about every rank that exits with another code than 0.
MPIEXEC_SAYS = re.compile(r"^-{74}\n(?:Primary job |mpiexec |MPI_ABORT )(?:(?!-{74}\n).*\n)*-{74}\n|"
                          r"^\[\S+:\d+\] (?:\d+ more process|Set MCA parameter).*\n", re.MULTILINE)

ENDLESS = ("--steps", "100000000")


def two_cores():
    """Limits a child to two cores, before it runs."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def manager(pid):
    """Returns the process that started a rank and that its end concerns: MPICH's helper, or Open MPI's mpiexec."""
    while pid > 1 and NUMBER.search(read(f"/proc/{pid}/environ")): # a script between the two has the number too
        pid = parent(pid)
    return Helper(pid, "mpiexec") if pid > 1 else None


class RankTest(CommandTest):
    def setUp(self):
        super().setUp()
        self.beats = self.path("beats")
        os.mkdir(self.beats)

    def arguments(self, *args, **names):
        # Measuring a division takes longer than most of these runs.
        split = () if {"--split", "--replay", "auto"} & set(args) else ("--split", "equal")
        return super().arguments(*split, *args, **names)

    def words(self, *args, **names):
        return [COMMAND, *map(str, self.arguments(*args, "--heartbeat", self.beats, **names))]

    def begin(self, command, prepare=two_cores, **options):
        for name in os.listdir(self.beats):
            os.remove(os.path.join(self.beats, name))
        words = [str(word) for word in command]
        child = subprocess.Popen(passed_on(words) if words[0] == MPIEXEC else words, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 preexec_fn=prepare, **options)
        self.addCleanup(self.end, child)
        return child

    def end(self, child):
        """Ends all processes of a test, also after a failure."""
        for number in range(8):
            rank = self.rank(number)
            if rank and rank.process_state():
                os.kill(rank.pid, signal.SIGKILL)
        child.kill()
        child.wait()
        child.stdout.close()
        child.stderr.close()

    def ranks(self, count, *args, **names):
        """Starts `count` ranks."""
        return self.begin([MPIEXEC, "-n", count, *self.words(*args, **names)])

    def each(self, *lists):
        """Starts a rank for each list of words."""
        command = [MPIEXEC]
        for words in lists:
            command += [*([":"] if len(command) > 1 else []), "-n", "1", *words]
        return self.begin(command)

    def wait(self, child, code, seconds=120):
        """Returns both outputs, without what mpiexec itself says. `code` may be a tuple of allowed exit codes."""
        out, err = child.communicate(timeout=seconds)
        self.assertIn(child.returncode, code if isinstance(code, tuple) else (code,), out + err)
        return out, MPIEXEC_SAYS.sub("", err) if OPEN_MPI else err

    def run_ranks(self, count, *args, code=0, **names):
        return self.wait(self.ranks(count, *args, **names), code)

    def rank(self, number):
        try:
            return Rank(get(os.path.join(self.beats, f"rank-{number}")))
        except (OSError, ValueError, struct.error):
            return None

    def until(self, condition, child=None, seconds=240):
        """Waits for a condition and returns its value."""
        end = time.monotonic() + seconds
        while True:
            value = condition()
            if value:
                return value
            if child and child.poll() is not None:
                self.fail(f"ended with {child.returncode}: {child.communicate()}")
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def at_step(self, number, step, child, than=0):
        """Waits until a rank is beyond a step, in another process than `than`. Returns the rank."""
        def there():
            rank = self.rank(number)
            return rank if rank and rank.step > step and rank.pid != than else None
        return self.until(there, child)

    def saved(self, run):
        return sorted(n for n in os.listdir(run) if n.startswith("step-")) if os.path.isdir(run) else []

    def assert_same_bits(self, a, b):
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(get(os.path.join(a, name)), get(os.path.join(b, name)), name)


def run():
    if cores() < 2:
        print("less than two cores: skipped")
        sys.exit(77)
    main()
