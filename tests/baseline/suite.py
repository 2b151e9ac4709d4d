"""Runs the tests of a build folder, as CTest knows them, one at a time, with limits and an account
of core-seconds."""
import json
import os
import re
import resource
import signal
import subprocess
import tempfile
import time

MEMORY = 8 << 30  # a mutant may ask for any amount
FAILED = b"[  FAILED  ]"  # cmocka prints this when a function of a test program fails


class Test:
    def __init__(self, row):
        properties = {p["name"]: p["value"] for p in row.get("properties", [])}
        self.name = row["name"]
        self.command = row.get("command", [])
        if self.command and os.path.basename(self.command[0]) == "account":
            self.command = self.command[3:]
        self.environment = dict(e.split("=", 1) for e in properties.get("ENVIRONMENT", []))
        self.labels = properties.get("LABELS", [])
        self.disabled = properties.get("DISABLED", False)
        self.skip = properties.get("SKIP_RETURN_CODE")
        self.wanted = properties.get("PASS_REGULAR_EXPRESSION", [])
        self.folder = properties.get("WORKING_DIRECTORY")

    def base(self):
        """Returns the name of the test that runs the same program on PoCL."""
        name = re.sub(r"^(vendor|oclgrind)\.", "", self.name)
        return re.sub(r"\.mixed$", "", name)


def load(build):
    """Returns {name: Test} of all tests that are not disabled."""
    out = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                         text=True).stdout  # fmt: skip
    tests = [Test(row) for row in json.loads(out)["tests"]]
    return {t.name: t for t in tests if not t.disabled and t.command}


def targets(build, test, known):
    """Returns the targets that ninja must build for a test. `known` is known_targets(build)."""
    inside = [os.path.relpath(word, build) for word in test.command if word.startswith(build + os.sep)]
    return [t for t in inside if t in known]


def known_targets(build):
    out = subprocess.run(["ninja", "-C", build, "-t", "targets", "all"], check=True, capture_output=True,
                         text=True).stdout  # fmt: skip
    return {line.split(": ")[0] for line in out.splitlines()}


def lower():
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def end_group(pid):
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def run(test, environment, limit, to_the_end=True):
    """Returns (pass | fail | skip | timeout, wall-clock seconds, core-seconds, output). Without
    `to_the_end`, a cmocka program ends when its first function fails."""
    begin = time.monotonic()
    with tempfile.TemporaryFile() as log:
        child = subprocess.Popen(test.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=test.folder,
                                 env={**os.environ, **test.environment, **environment}, preexec_fn=lower)  # fmt: skip
        late, failed, status, seen = False, False, 0, 0
        while True:
            pid, status, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                break
            if not late and time.monotonic() - begin > limit:
                late = True
                end_group(child.pid)
            if not to_the_end and not failed:
                data = os.pread(log.fileno(), 1 << 20, seen)
                failed = FAILED in data
                seen += max(0, len(data) - len(FAILED))  # the end of the data may be a part of the word
                if failed:
                    end_group(child.pid)
            time.sleep(0.02)
        child.returncode = 0
        end_group(child.pid)
        log.seek(0)
        output = log.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(status)
    good = code == 0
    if test.wanted:
        good = any(re.search(w, output) for w in test.wanted)
    outcome = "timeout" if late else "pass" if good else "skip" if code == test.skip else "fail"
    if failed:
        outcome = "fail"
    elif code < 0:
        output += f"\nended by signal {-code}"
    return outcome, time.monotonic() - begin, used.ru_utime + used.ru_stime, output
