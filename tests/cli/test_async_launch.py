"""The launcher of asynchronous jobs: with a script in place of the command, and with a script in place of ssh."""
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import async_job
from async_job import LAUNCH, SECRET, JobTest, Log
from command import COMMAND, get, put


class AsyncLaunchTest(JobTest):
    def pretend(self, script, workers, *own, wait=True, holders=1):
        """Launches a script in place of the command. It has a role, a number, and a file to remember in."""
        program = self.path("program")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport os, signal, sys, time\n"
                       "role = 'holder' if '--holder' in sys.argv else 'worker'\n"
                       "number = int(sys.argv[sys.argv.index('--' + role) + 1])\n"
                       f"memory = {self.path('memory')!r}\n" + textwrap.dedent(script))
        os.chmod(program, 0o755)
        child = subprocess.Popen([sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", program, *own, "--",
                                  "train", "--async", "0", "--servers", str(holders)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(child.kill)
        return self.finish(child) if wait else child

    def test_a_worker_that_came_back_and_ended_well_is_not_lost(self):
        """Holder 0 still saves when the last worker has ended."""
        output = self.pretend("""
            if role == 'holder':
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
                print('holder 0 listens on port 1', flush=True)
                while not os.path.exists(memory + '.done'):
                    time.sleep(0.05)
                time.sleep(1)
            elif not os.path.exists(memory):
                open(memory, 'w').close()
                sys.exit(1)
            else:
                open(memory + '.done', 'w').close()
            """, 1)
        self.assertIn("it is started again", output)
        self.assertNotIn("no worker is left", output)

    def test_without_workers_the_run_ends_unless_other_hosts_have_some(self):
        script = """
            if role == 'holder':
                signal.signal(signal.SIGUSR2, lambda *_: sys.exit(75))
                print('holder 0 listens on port 1', flush=True)
                time.sleep(3)
            else:
                sys.exit(1)
            """
        output = self.finish(self.pretend(script, 1, "--restarts", "0", wait=False), 1)
        self.assertIn("worker 0 ended with code 1; it is not started again\n", output)
        self.assertIn("no worker is left (the last one, worker 0 ended with code 1; --restarts 0): the run ends with code 1",
                      output)
        output = self.pretend(script, 1, "--restarts", "0", "--listen", "0.0.0.0:0", "--reach", "here")
        self.assertIn("the run goes on with workers of other hosts", output)

    def test_a_run_whose_workers_were_all_killed_is_saved_and_failed(self):
        """Nobody sent it a signal: its code is that of a failure, and it goes on from what was saved."""
        where = self.path("run")
        child = self.launch(1, "--epochs", "40", "--async", "8", "--checkpoint-dir", where, own=["--restarts", "0"],
                            wait=False)
        self.wait_for("push", 20)
        os.kill(self.process("worker", 0), signal.SIGKILL)
        output = self.finish(child, 1)
        self.assertIn("no worker is left (the last one, worker 0 was killed by SIGKILL; --restarts 0): the run is saved and "
                      "ends with code 1", output)
        self.assertNotIn("SIGTERM", output)
        step = int(re.search(r"asked to save and end \(SIGUSR2\): stopped after step (\d+); saved in", output)[1])
        self.launch(1, "--steps", str(step + 5), "--async", "8", "--checkpoint-dir", where, "--resume")
        self.assertEqual(Log(self.events).version, step + 5)

    def test_the_holder_that_ends_the_run_is_the_cause(self):
        """Holder 0 tells the others of its failure, and ends after them. A holder that fails alone is named."""
        script = """
            if role == 'worker':
                time.sleep(600)
            if number:
                open(memory, 'w').close()
                sys.exit(1)
            print('holder 0 listens on port 1', flush=True)
            while not os.path.exists(memory):
                time.sleep(0.05)
            time.sleep({seconds})
            print('the gradient was not finite', flush=True)
            sys.exit(1)
            """
        output = self.finish(self.pretend(script.replace("{seconds}", "1"), 1, holders=2, wait=False), 1)
        self.assertIn("the gradient was not finite", output)
        self.assertNotIn("cltrain-launch:", output)
        os.remove(self.path("memory"))
        output = self.finish(self.pretend(script.replace("{seconds}", "600"), 1, holders=2, wait=False), 1)
        self.assertIn("holder 1 ended with code 1, and its part of the parameters is gone: there is no checkpoint", output)

    def test_a_second_signal_ends_a_job_whose_holder_sets_up(self):
        child = self.pretend("""
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            open(memory, 'w').close()
            time.sleep(100)
            """, 1, wait=False)
        while not os.path.exists(self.path("memory")):
            time.sleep(0.05)
        child.send_signal(signal.SIGTERM)
        time.sleep(1) # signals that come at once count as one
        child.send_signal(signal.SIGTERM)
        self.assertIn("a second signal ended the job at once", self.finish(child, 143))

    # --- other hosts --------------------------------------------------------------------------------------

    def write_hosts(self, text):
        put(self.path("hosts.new"), text.encode())
        os.replace(self.path("hosts.new"), self.path("hosts"))

    def make_remote(self):
        """Makes a program that starts everything on this host, as ssh does, but does not reach hosts that are down. It
        remembers what it was asked, and what its environment has."""
        put(self.path("remote"), textwrap.dedent(f"""\
            #!/bin/sh
            cat /proc/$$/cmdline | tr '\\0' ' ' >>{self.path("asked")}
            env >>{self.path("asked")}
            host=$1; shift
            [ -e {self.path("down")}-$host ] && exit 255
            REMOTE_HOST=$host; export REMOTE_HOST
            cd /
            exec sh -c "$*"
            """).encode())
        os.chmod(self.path("remote"), 0o755)

    def launch_remotely(self, *arguments, own=(), hosts="hosts"):
        words = [sys.executable, "-B", LAUNCH, "--hosts", self.path(hosts), "--remote", self.path("remote"), "--program",
                 COMMAND, *own, "--", "train", *self.options, "--events", self.events, *arguments]
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 env={**os.environ, "CLTRAIN_SECRET": SECRET, "CLTRAIN_PASSED": "it's here"})
        self.addCleanup(child.kill)
        return child

    @staticmethod
    def remote_workers(events):
        """Returns {host: process ids} of workers that the program in place of ssh has started."""
        found = {}
        for name in os.listdir("/proc"):
            try:
                words = get(f"/proc/{name}/cmdline").split(b"\0") if name.isdigit() else []
                if b"--worker" in words and events.encode() in words and words[0].endswith(b"cltrain"):
                    host = re.search(rb"\0REMOTE_HOST=(\w+)", get(f"/proc/{name}/environ"))
                    passed = b"\0CLTRAIN_PASSED=it's here\0" in get(f"/proc/{name}/environ")
                    if host and passed:
                        found.setdefault(host[1].decode(), []).append(int(name))
            except OSError:
                continue
        return found

    def wait_until(self, condition, what):
        end = time.monotonic() + async_job.PATIENCE
        while not condition():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.05)

    def test_workers_run_on_the_hosts_of_a_file(self):
        """Hosts come and go while the job runs, and a killed worker comes back. No command line or environment of the
        program in place of ssh has the secret."""
        self.write_hosts("localhost\nalpha:1\nbeta slots=2\n")
        self.make_remote()
        child = self.launch_remotely("--epochs", "400", "--async", "16", "--servers", "2", own=["--reach", "127.0.0.1"])
        self.wait_for("join", 4)
        self.wait_until(lambda: {h: len(p) for h, p in self.remote_workers(self.events).items()} == {"alpha": 1, "beta": 2},
                        "alpha and beta have workers")
        os.kill(self.remote_workers(self.events)["alpha"][0], signal.SIGKILL)
        self.wait_for("join", 5)
        beta = self.remote_workers(self.events)["beta"]
        self.write_hosts("localhost\nalpha:1\ngamma\n")
        self.wait_for("join", 6)
        self.wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in beta), "beta's workers end")
        child.send_signal(signal.SIGTERM)
        output = self.finish(child, 143)
        self.assertRegex(output, r"worker \d on alpha ended with code 137; it is started again")
        self.assertEqual(len(re.findall(r"worker \d on beta leaves the job: its place is no longer in --hosts", output)), 2)
        log = Log(self.events) # each gradient once, staleness as it says
        self.assertGreater(log.verdicts["applied"], 0)
        self.assertEqual(self.remote_workers(self.events), {})
        asked = get(self.path("asked"))
        self.assertNotIn(SECRET.encode(), asked)
        for host in (b"alpha", b"beta", b"gamma"):
            self.assertIn(host + b" exec sh -c", asked)

    def test_remote_workers_finish_the_job(self):
        self.write_hosts("alpha\nbeta\ngamma\n")
        self.make_remote()
        put(self.path("down-gamma"), b"")
        output = self.finish(self.launch_remotely("--epochs", "8", "--async", "16",
                                                  own=["--reach", "127.0.0.1", "--restarts", "0"]))
        log = Log(self.events)
        log.check_once(self, 8)
        self.assertEqual({e["worker"] for e in log.events if e["event"] == "join"}, {0, 1})
        self.assertIn("host gamma does not answer", output)

    def test_remote_workers_end_with_the_launcher(self):
        self.write_hosts("alpha\nbeta\n")
        self.make_remote()
        child = self.launch_remotely("--epochs", "4000", "--async", "16", own=["--reach", "127.0.0.1"])
        self.wait_for("push", 20)
        child.kill()
        child.wait()
        self.wait_until(lambda: not self.remote_workers(self.events), "all workers end")

    # --- wrong use ----------------------------------------------------------------------------------------

    def test_wrong_use_is_one_line(self):
        self.write_hosts("alpha\n")
        put(self.path("wrong"), b"alpha:x\n")
        put(self.path("none"), b"# nobody\n")
        hosts = ["--hosts", self.path("hosts")]
        for words, text in ((["--ranks", "1:4"], "--ranks with --async: workers of --async come and go while the job runs"),
                            (["-n", "2", "--global-batch", "scaled"], "--global-batch with --async: it is for synchronous"),
                            (["-n", "2", "--mpiexec=x"], "--mpiexec with --async: processes of --async are not started by"),
                            (["--resize", "2"], "--resize with --async: it asks a job of --ranks"),
                            (["-n", "1000000"], "-n 1000000: more than"),
                            ([], "-n N is missing, the number of workers, or --hosts FILE"),
                            (["-n", "2", *hosts], "has 1 slots"),
                            ([*hosts, "--listen", "127.0.0.1:0"], "alpha of --hosts cannot reach this address"),
                            (["--hosts", self.path("wrong")], "line 1: must be NAME, NAME:SLOTS or NAME slots=SLOTS"),
                            (["--hosts", self.path("none")], "the file has no host"),
                            (["--hosts", self.path("no")], "No such file or directory")):
            run = subprocess.run([sys.executable, "-B", LAUNCH, "--program", COMMAND, *words, "--", "train", "--async", "2"],
                                 capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(run.returncode, 2, (words, run.stderr))
            self.assertIn(text, run.stderr.splitlines()[-1])


if __name__ == "__main__":
    async_job.main()
