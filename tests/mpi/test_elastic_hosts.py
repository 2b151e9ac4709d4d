"""A job that grows and shrinks: hosts that come and go, and wrong options."""
import os
import signal

from elastics import ElasticTest, all_records
from ranks import MPIEXEC, put, run
from test_elastic import LONG


class Hosts(ElasticTest):
    def setUp(self):
        super().setUp()
        self.hosts = self.path("hosts")

    def write(self, text):
        put(self.hosts + ".new", text.encode())
        os.replace(self.hosts + ".new", self.hosts)

    def mpiexec(self):
        """Makes a program that starts all hosts' ranks here, as mpiexec does, but cannot reach hosts that are down."""
        path = self.path("mpiexec")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\ncase $1 in --version) exec {MPIEXEC} --version;; esac\n'
                       f'hosts=$2; shift 2\necho "$hosts" >>{self.path("asked")}\n'
                       f'for name in {self.path("down")}-*; do case ,$hosts in *,"${{name##*/down-}}":*) '
                       f'exit 9;; esac; done\nexec {MPIEXEC} "$@"\n')
        os.chmod(path, 0o755)
        return path

    def test_file_changes(self):
        self.write("# two hosts\nalpha:1\nbeta slots=1\n")
        metrics = self.path("m.jsonl")
        child = self.elastic(("--ranks", "1:4", "--hosts", self.hosts), *LONG, "--checkpoint-dir", self.path("run"),
                             "--metrics", metrics, mpiexec=self.mpiexec())
        self.on(2, child, 10)
        self.assertIn("the hosts that answer have 2 slots (--hosts); nothing changes", self.resize(3, 2))
        self.write("alpha:1\nbeta:2\n")
        self.on(3, child, 10)
        self.write("alpha:1\nbeta two\n")
        step = self.on(3, child, 10)[0].step
        self.on(3, child, step + 300)
        self.write("beta:1 # alpha is gone\n")
        step = self.on(1, child, 10)[0].step
        self.write("# none\n")
        self.on(1, child, step + 300)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        self.assertIn(f"--hosts {self.hosts}, line 2: must be NAME, NAME:SLOTS or NAME slots=SLOTS, each name once; the "
                      "hosts stay as they are\n", err)
        self.assertIn("the hosts that answer have 0 slots, fewer than --ranks allows: the job stays on 1 rank\n", err)
        self.assertEqual([c["ranks"] for c in all_records(metrics)[0]], [2, 3, 1])
        with open(self.path("asked"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["alpha:1,beta:1", "alpha:1,beta:2", "beta:1"])

    def test_host_is_replaced(self):
        """A host leaves the file, and the others have slots enough: the job leaves the host, too."""
        self.write("alpha:1\nbeta:1\ngamma:1\n")
        child = self.elastic(("--ranks", "1:2", "--hosts", self.hosts), *LONG, "--checkpoint-dir", self.path("run"),
                             mpiexec=self.mpiexec())
        first = self.on(2, child, 10)[0]
        self.write("beta:1\ngamma:1\n")
        self.until(lambda: (r := self.rank(0)) and r.pid != first.pid and r.step > first.step, child)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        self.assertIn("cltrain-launch: going on with 2 ranks on other hosts than alpha\n", err)
        with open(self.path("asked"), encoding="utf-8") as file:
            self.assertEqual(file.read().split(), ["alpha:1,beta:1", "beta:1,gamma:1"])

    def test_host_dies(self):
        """A rank is killed and its host does not answer: the job goes on without it, and with it again later. A rank
        that is killed on a host that answers comes back at once."""
        self.write("alpha:1\nbeta:1\n")
        child = self.elastic(("--ranks", "1:2", "--hosts", self.hosts), *LONG, "--checkpoint-dir", self.path("run"),
                             mpiexec=self.mpiexec())
        first = self.on(2, child, 250)
        os.kill(first[1].pid, signal.SIGKILL)
        second = self.until(lambda: (r := self.rank(1)) and r.pid != first[1].pid and r.step > 250 and r, child)
        put(self.path("down-beta"), b"")
        os.kill(second.pid, signal.SIGKILL)
        self.on(1, child, 250)
        os.remove(self.path("down-beta"))
        self.on(2, child, 250)
        child.send_signal(signal.SIGTERM)
        err = self.wait(child, 143)[1]
        for text in ("restarting from the newest intact checkpoint on 2 ranks\n",
                     "host beta does not answer: it is left out until it does\n",
                     "restarting from the newest intact checkpoint on 1 rank instead of 2\n",
                     "host beta answers again\n", "going on with 2 ranks instead of 1\n"):
            self.assertIn("cltrain-launch: " + text, err)


class Options(ElasticTest):
    def test_usage(self):
        saves = ("--checkpoint-dir", "x")
        for own, args, says in ((("--ranks", "3"), saves, "'3': must be MIN:MAX"),
                                (("--ranks", "4:2"), saves, "must be MIN:MAX"),
                                (("--ranks", "0:2"), saves, "must be MIN:MAX"),
                                (("--ranks", "1:2", "-n", "3"), saves, "-n 3 is not within --ranks 1:2"),
                                (("--ranks", "1:100000"), saves, "--ranks 1:100000: more than"),
                                (("-n", "100000"), (), "-n 100000: more than"),
                                (("--ranks", "1:2", "--min-ranks", "1"), saves, "MIN of --ranks takes its place"),
                                (("--ranks", "1:2"), (), "--ranks needs --checkpoint-dir"),
                                (("-n", "2", "--global-batch", "scaled"), saves, "--global-batch needs --ranks"),
                                (("-n", "2", "--hosts", "x"), saves, "--hosts needs --ranks"),
                                ((), saves, "-n N is missing, or --ranks MIN:MAX"),
                                (("--ranks", "1:2", "--global-batch", "grown"), saves, "invalid choice: 'grown'"),
                                (("--ranks", "1:2", "--global-batch", "fixed"), (*saves, "--global-batch", "fixed"),
                                 "--global-batch is given twice"),
                                (("--ranks", "2:4"), (*saves, "--parallel", "dp=2,tp=2"),
                                 "--parallel dp=2,tp=2 fixes the number of devices: write dp=*"),
                                (("--ranks", "1:2"), (*saves, "--parallel", "local=2"),
                                 "--parallel local=2 fixes the number of replicas: write local=*"),
                                (("--ranks", "1:2", "--wait", "-1"), saves, "--wait must be at least 0"),
                                (("--resize", "3"), (), "--resize needs --job DIR"),
                                (("--job", "x"), (), "--job belongs to --resize N"),
                                (("--resize", "3", "--job", "x"), (), "go alone"),
                                (("--ranks", "1:2", "--hosts", "no-such"), saves,
                                 "--hosts no-such: No such file or directory")):
            with self.subTest(own=own, args=args):
                err = self.wait(self.elastic(own, *args), 2)[1]
                self.assertIn(says, err.splitlines()[-1])

    def test_usage_of_train(self):
        text = self.path("text")
        put(text, b"some text\n" * 400)
        for args, says in ((("--global-batch", "big"), "--global-batch big: must be fixed or scaled"),
                           (("--global-batch", "scaled", "--data", "text:" + text, "--windows", "continued"),
                            "--windows continued keeps states for each row of the batch")):
            self.assert_bad(*self.arguments("--steps", "2", *args), code=2, says=(says,))
        folder = self.path("run")
        self.train("--steps", "2", "--global-batch", "scaled", "--checkpoint-dir", folder)
        self.train("--steps", "3", "--checkpoint-dir", folder, "--resume") # the next checkpoint tells the beginning too
        self.assert_bad(*self.arguments("--steps", "4", "--global-batch", "scaled", "--checkpoint-dir", folder,
                                        "--resume", batch=8), code=2,
                        says=("--batch 8: the run began with batches of 16 on 1 device",))
        for zero in "1", "3": # a job that has shrunk to one device
            done = self.train("--steps", "2", "--global-batch", "fixed", "--zero", zero)
            self.assertIn(f"so --zero {zero} divides nothing", done.stdout)


if __name__ == "__main__":
    run()
