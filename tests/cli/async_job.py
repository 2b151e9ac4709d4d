"""Starts the processes of asynchronous jobs, and reads their logs."""
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import command
from command import COMMAND, DEVICE, get, write_data

LAUNCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "tools",
                      "cltrain-launch")
SECRET = "the secret of the test"
PATIENCE = 240
SAMPLES, BATCH = 2000, 16


def read_events(path):
    """Returns the events of a log. A process that was killed may leave an incomplete last line."""
    events = []
    for line in get(path).decode().splitlines():
        try:
            events.append(json.loads(line))
        except ValueError:
            pass
    return events


class Log:
    """Reads the events of holder 0 again, and computes versions and staleness without the program's own numbers."""

    def __init__(self, path):
        self.events = read_events(path)
        self.applied, self.verdicts, self.staleness = [], collections.Counter(), []
        self.decided, self.repeated = set(), collections.Counter()
        version, pulled = 0, {}
        for e in self.events:
            name = e["event"]
            if name in ("begin", "resume"):
                version, pulled = e["version"], {}
                self.allowed, self.samples, self.holders = e["staleness"], e["samples"], e["holders"]
                # After a checkpoint what was applied behind it is undone.
                self.applied = [a for a in self.applied if a[0] < version]
            elif name == "pull": # more than one of a number, if answers were lost
                pulled.setdefault((e["who"], e["sequence"]), []).append(version)
                assert e["version"] == version, e
            elif name == "again":
                self.repeated[e["what"]] += 1
            elif name == "push":
                verdict = e["verdict"]
                self.verdicts[verdict] += 1
                assert e["version"] == version, e
                assert (e["who"], e["sequence"]) not in self.decided, e
                self.decided.add((e["who"], e["sequence"]))
                if verdict in ("applied", "discarded"):
                    # Other holders may have had an older version than holder 0 when they were asked.
                    versions = pulled[e["who"], e["sequence"]]
                    own = version - versions[-1]
                    stale = version - e["pulled"]
                    assert stale >= own and e["staleness"] == stale, e
                    assert self.holders > 1 or e["pulled"] in versions, e
                    assert (stale <= self.allowed) == (verdict == "applied"), e
                    self.staleness.append((stale, own))
                if verdict == "applied":
                    self.applied.append((version, e["epoch"], e["offset"], e["count"]))
                    version += 1
        self.version = version
        self.repeated["pull"] = sum(len(v) - 1 for v in pulled.values())

    def check_once(self, test, epochs):
        """Each sample of each epoch was applied exactly once."""
        for epoch in range(epochs):
            times = [0] * self.samples
            for _, at, offset, count in self.applied:
                for i in range(offset, offset + count) if at == epoch else ():
                    times[i] += 1
            test.assertEqual(set(times), {1}, f"epoch {epoch}: {collections.Counter(times)}")
        test.assertEqual({a[1] for a in self.applied}, set(range(epochs)))


class JobTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="cltrain-async-")
        cls.data = os.path.join(cls.folder, "data")
        write_data(cls.data, train=SAMPLES, test=100)
        cls.options = ["--model", "mlp", "--data", f"idx:{cls.data}", "--devices", DEVICE, "--batch", str(BATCH),
                       "--seed", "1", "--tune", "off"]

    def setUp(self):
        self.at = tempfile.mkdtemp(dir=self.folder)
        self.events = os.path.join(self.at, "events")

    def path(self, name):
        return os.path.join(self.at, name)

    def launch(self, workers, *arguments, own=(), variables=None, wait=True, **more):
        words = [sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", COMMAND, *own, "--", "train",
                 *self.options, "--events", self.events, *arguments]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, "CLTRAIN_SECRET": SECRET, **(variables or {})}, **more)
        self.addCleanup(child.kill)
        if not wait:
            return child
        return self.finish(child)

    def finish(self, child, code=0):
        output, _ = child.communicate(timeout=PATIENCE)
        self.assertEqual(child.returncode, code, output)
        return output

    def wait_for(self, event, count):
        """Waits until holder 0 has written so many events of a name."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if os.path.exists(self.events) and get(self.events).count(f'"event":"{event}"'.encode()) >= count:
                return
            time.sleep(0.05)
        self.fail(f"no {count} events {event}")

    def process(self, kind, number):
        """Finds a process of the job by its command line."""
        for name in os.listdir("/proc"):
            try:
                words = get(f"/proc/{name}/cmdline").split(b"\0") if name.isdigit() else []
            except OSError:
                continue
            if f"--{kind}".encode() in words and self.events.encode() in words and words[0].endswith(b"cltrain") and \
                    words[words.index(f"--{kind}".encode()) + 1] == str(number).encode():
                return int(name)
        self.fail(f"no {kind} {number}")

    def start_holder(self, *arguments):
        """Starts holder 0 by hand. Returns the process and its address."""
        child = subprocess.Popen([COMMAND, "train", *self.options, "--events", self.events, "--holder", "0", "--listen",
                                  "127.0.0.1:0", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                 text=True, env={**os.environ, "CLTRAIN_SECRET": SECRET})
        self.addCleanup(child.kill)
        for line in child.stdout:
            if found := re.match(r"holder 0 listens on port (\d+)", line):
                return child, int(found[1])
        self.fail("holder 0 does not listen")
        return None

    def begin_work(self, number, port, *arguments, variables=None):
        worker = subprocess.Popen([COMMAND, "train", *self.options, "--worker", str(number), "--join",
                                   f"127.0.0.1:{port}", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, env={**os.environ, "CLTRAIN_SECRET": SECRET, **(variables or {})})
        self.addCleanup(worker.kill)
        return worker

    def work(self, number, port, *arguments, secret=SECRET):
        return subprocess.run([COMMAND, "train", *self.options, "--worker", str(number), "--join", f"127.0.0.1:{port}",
                               *arguments], capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, "CLTRAIN_SECRET": secret})


def command_has_hooks():
    """Whether the library was built with the hooks of the tests."""
    return os.environ.get("CLT_TEST_HOOKS") == "1"


def main():
    run = subprocess.run([COMMAND, "train", "--model", "mlp", "--data", "idx:/", "--async", "0"], capture_output=True,
                         text=True, check=False)
    if "built without ZeroMQ" in run.stderr:
        sys.exit(77)
    command.main()
