"""The file of --hosts, which is read again when it changes, and whether its hosts answer."""
import os
import re
import subprocess
import time

from cltrain_guard import say

PROBE, ANSWER = 10.0, 20.0 # seconds between questions to a host that is out, and for its answer
LINE = re.compile(r"([^\s:#]+)(?::(\d+)|\s+slots=(\d+))?\s*(?:#.*)?")


class HostsError(Exception):
    """The file cannot be read, or a line is no host."""


def read_hosts(path):
    """Reads lines NAME, NAME:SLOTS or NAME slots=SLOTS. Returns {name: slots} in the order of the file."""
    hosts = {}
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise HostsError(f"--hosts {path}: {getattr(error, 'strerror', None) or error}") from error
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        found = LINE.fullmatch(line)
        slots = int(found[2] or found[3] or 1) if found else 0
        if not 1 <= slots <= 4096 or found[1] in hosts:
            raise HostsError(f"--hosts {path}, line {number}: must be NAME, NAME:SLOTS or NAME slots=SLOTS, each name "
                             "once")
        hosts[found[1]] = slots
    return hosts


class Hosts:
    def __init__(self, path, mpiexec):
        self.path, self.mpiexec = path, mpiexec
        self.hosts, self.stamp, self.complained = read_hosts(path), self.changed(), ""
        self.out = {}    # host that does not answer: when it was asked last
        self.used = {}   # host: ranks that run there
        self.asking = {} # host: process that asks it, and when it began
        said = subprocess.run([mpiexec[0], "--version"], capture_output=True, text=True, check=False).stdout
        self.option = "--host" if re.search("Open MPI|OpenRTE", said) else "-hosts"

    def changed(self):
        try:
            found = os.stat(self.path)
            return found.st_mtime_ns, found.st_size, found.st_ino
        except OSError:
            return None

    def slots(self):
        return sum(slots for host, slots in self.hosts.items() if host not in self.out)

    def words(self, ranks):
        """Returns the words that tell mpiexec where so many ranks run."""
        self.used = {}
        for host, slots in self.hosts.items():
            taken = min(slots, ranks) if host not in self.out else 0
            ranks -= taken
            self.used |= {host: taken} if taken else {}
        return [self.option, ",".join(f"{host}:{taken}" for host, taken in self.used.items())]

    def taken_out(self):
        """Returns the hosts that run more ranks than the file now allows."""
        return [host for host, taken in self.used.items() if taken > self.hosts.get(host, 0)]

    def poll(self):
        """Reads the file again if it has changed, and asks hosts that are out."""
        stamp = self.changed()
        if stamp != self.stamp:
            self.stamp = stamp
            try:
                self.hosts, self.complained = read_hosts(self.path), ""
            except HostsError as error: # for example, half of the file is written
                if str(error) != self.complained:
                    say(f"{error}; the hosts stay as they are")
                self.complained = str(error)
        now = time.monotonic()
        self.out = {host: at for host, at in self.out.items() if host in self.hosts}
        for host, at in self.out.items():
            if host not in self.asking and now - at > PROBE:
                self.ask(host)
        self.collect()

    def ask(self, host):
        """Starts a program on a host, as the ranks are started."""
        words = [*self.mpiexec, self.option, f"{host}:1", "-n", "1", "true"]
        self.asking[host] = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                             stderr=subprocess.DEVNULL, start_new_session=True), time.monotonic()

    def collect(self):
        for host, (child, began) in list(self.asking.items()):
            if child.poll() is None and time.monotonic() - began > ANSWER:
                child.kill()
                child.wait()
            if child.returncode is None:
                continue
            del self.asking[host]
            if child.returncode:
                if host in self.hosts and host not in self.out:
                    say(f"host {host} does not answer: it is left out until it does")
                self.out[host] = time.monotonic()
            elif self.out.pop(host, None) is not None and host in self.hosts:
                say(f"host {host} answers again")

    def ask_all(self, stopped):
        """Asks all hosts after a failure, and waits for their answers, or until `stopped` says so."""
        for host in self.hosts:
            if host not in self.asking:
                self.ask(host)
        while self.asking and not stopped():
            self.collect()
            time.sleep(0.05)

    def close(self):
        for child, _ in self.asking.values():
            child.kill()
            child.wait()
