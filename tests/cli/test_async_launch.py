"""The launcher of asynchronous jobs, with a script in place of the command."""
import os
import signal
import subprocess
import sys
import textwrap
import time

import async_job
from async_job import LAUNCH, JobTest


class AsyncLaunchTest(JobTest):
    def pretend(self, script, workers, *own, wait=True):
        """Launches a script in place of the command. It has a role, a number, and a file to remember in."""
        program = self.path("program")
        with open(program, "w", encoding="utf-8") as file:
            file.write(f"#!{sys.executable}\nimport os, signal, sys, time\n"
                       "role = 'holder' if '--holder' in sys.argv else 'worker'\n"
                       "number = int(sys.argv[sys.argv.index('--' + role) + 1])\n"
                       f"memory = {self.path('memory')!r}\n" + textwrap.dedent(script))
        os.chmod(program, 0o755)
        child = subprocess.Popen([sys.executable, "-B", LAUNCH, "-n", str(workers), "--program", program, *own, "--",
                                  "train", "--async", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
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
                signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
                print('holder 0 listens on port 1', flush=True)
                time.sleep(3)
            else:
                sys.exit(1)
            """
        child = self.pretend(script, 1, "--restarts", "0", wait=False)
        self.assertIn("no worker is left: the run is saved and ends", self.finish(child, 143))
        output = self.pretend(script, 1, "--restarts", "0", "--listen", "0.0.0.0:0", "--reach", "here")
        self.assertIn("the run goes on with workers of other hosts", output)

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


if __name__ == "__main__":
    async_job.main()
