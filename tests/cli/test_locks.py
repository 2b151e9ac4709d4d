"""Two runs that would write to the same checkpoint folder or metrics file."""
import json
import os
import signal
import subprocess
import threading
import time

from command import COMMAND, CommandTest, get, main, put, records


class Locks(CommandTest):
    def running(self, *args):
        """Starts a run and waits until it has written a checkpoint or a record."""
        child = self.start("--steps", "100000000", *args, "--quiet")
        end = time.monotonic() + 240
        while not self.written():
            self.assertIsNone(child.poll())
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        return child

    def written(self):
        run, metrics = self.path("run"), self.path("m.jsonl")
        return (os.path.isdir(run) and any(n.startswith("step-") for n in os.listdir(run))) or (
            os.path.exists(metrics) and get(metrics).count(b"\n") > 3)

    def refused(self, *args):
        done = self.train(*args, code=1)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        return done.stderr

    def test_folder(self):
        run = self.path("run")
        child = self.running("--checkpoint-dir", run, "--checkpoint-every", "1")
        said = self.refused("--steps", "3", "--checkpoint-dir", run)
        self.assertIn(f"the checkpoint folder {run} is in use: process {child.pid} on {os.uname().nodename} since ",
                      said)
        # Reading needs no lock.
        self.run_command("eval", "--data", "idx:" + self.data, "--devices", "pocl", "--checkpoint", run)
        child.send_signal(signal.SIGTERM)
        child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143)
        self.assertNotIn(".lock", os.listdir(run))

    def test_resumed_after_a_kill(self):
        """The killed process may not have ended yet. This test stops it, and kills it 2 s later."""
        run = self.path("run")
        child = self.running("--checkpoint-dir", run, "--checkpoint-every", "1")
        child.send_signal(signal.SIGSTOP)
        killer = threading.Timer(2, child.kill)
        killer.start()
        steps = max(int(n[5:]) for n in os.listdir(run) if n.startswith("step-")) + 1
        done = self.train("--steps", str(steps), "--checkpoint-dir", run, "--resume", "--checkpoint-every", "1")
        killer.join()
        child.communicate(timeout=60)
        self.assertIn(f"process {child.pid} on", done.stderr)
        self.assertIn("Trying again for 30 s", done.stderr)
        self.assertIn(f"done: {steps} steps", done.stdout)

    def test_told_to_end_while_it_waits(self):
        run = self.path("run")
        self.running("--checkpoint-dir", run, "--checkpoint-every", "1")
        waiting = self.start("--steps", "3", "--checkpoint-dir", run, "--resume")
        self.assertIn("Trying again", waiting.stderr.readline())
        waiting.send_signal(signal.SIGTERM)
        waiting.communicate(timeout=20)
        self.assertEqual(waiting.returncode, 143)

    def test_metrics(self):
        path = self.path("m.jsonl")
        child = self.running("--metrics", path)
        other = self.path("link.jsonl")
        os.symlink(path, other)
        for name in (path, other):
            said = self.refused("--steps", "3", "--metrics", name)
            self.assertIn(f"the metrics file {name} is in use: process {child.pid} of this host, begun ", said)
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=60)
        self.train("--steps", "3", "--metrics", path)
        self.assertEqual([r["step"] for r in records(path)[0]], [1, 2, 3])

    def test_metrics_that_are_no_file(self):
        """Pipes, standard output and devices are not locked, so several runs may share them."""
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        reader = subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE, text=True)
        self.train("--steps", "3", "--metrics", pipe)
        self.assertEqual([json.loads(x)["step"] for x in reader.communicate(timeout=60)[0].splitlines()], [1, 2, 3])
        done = self.train("--steps", "3", "--quiet", "--metrics", "/dev/stdout")
        self.assertEqual([json.loads(x)["step"] for x in done.stdout.splitlines() if x.startswith("{")], [1, 2, 3])
        self.train("--steps", "3", "--metrics", "/dev/null")
        # Standard output may be a file.
        log = self.path("log")
        with open(log, "wb") as file:
            subprocess.run([COMMAND, *map(str, self.arguments("--steps", "3", "--quiet", "--metrics", "/dev/stdout"))],
                           stdout=file, check=True, timeout=240)
        self.assertEqual([r["step"] for r in records(log)[0]], [1, 2, 3])

    def test_reader_ends(self):
        """Saves and ends when the reader of the metrics has ended. Without a reader, a run does not begin."""
        pipe, run = self.path("pipe"), self.path("run")
        os.mkfifo(pipe)
        reader = subprocess.Popen(["head", "-n", "5", pipe], stdout=subprocess.DEVNULL)
        child = self.start("--steps", "100000000", "--metrics", pipe, "--checkpoint-dir", run)
        _, message = child.communicate(timeout=60)
        self.assertEqual((child.returncode, reader.wait(timeout=60)), (1, 0))
        self.assert_message(message, f"cannot write the metrics file {pipe}: nobody reads this pipe")
        self.assertEqual(len(os.listdir(run)), 1)
        child = self.start("--steps", "3", "--metrics", pipe)
        time.sleep(1)
        child.send_signal(signal.SIGTERM)
        _, message = child.communicate(timeout=20)
        self.assertEqual(child.returncode, 143)
        self.assert_message(message, "nobody reads this pipe")

    def test_nothing_is_left(self):
        """A wrong command leaves nothing behind in a folder that exists."""
        os.mkdir(self.path("run"))
        put(self.path("m.jsonl"), b"old\n")
        self.assert_bad("train", "--model", "mlp", "--data", "idx:" + self.data, "--devices", "pocl", "--batch", "0",
                        "--checkpoint-dir", self.path("run"), "--metrics", self.path("m.jsonl"), code=2)
        self.assert_bad(*map(str, self.arguments("--init", self.path("none"), "--checkpoint-dir", self.path("run"))),
                        code=1)


if __name__ == "__main__":
    main()
