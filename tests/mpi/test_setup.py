"""How ranks begin: with different arguments, late, or not at all."""
import os
import re
import shutil
import signal

from ranks import COMMAND, ENDLESS, MPIEXEC, RankTest, run

from cltrain_ranks import SETUP # ranks sets its path


class Alike(RankTest):
    def assert_differs(self, first, second, what):
        """Rank 0 prints one line, with the exit code for wrong use, whichever rank differs."""
        for a, b in ((first, second), (second, first)):
            err = self.wait(self.each(a, b), 2, 60)[1]
            self.assertEqual(err.count("\n"), 1, err)
            self.assertRegex(err, rf"^cltrain, rank 0: rank 1 has another {what}.*: start all ranks with the "
                             "same program, options and data")

    def test_options(self):
        words = self.words("--steps", "5")
        for more in (["--oversubscribe"], ["--rebalance"], ["--resume", "--checkpoint-dir", self.path("x")],
                     ["--checkpoint-dir", self.path("x")], ["--lr", "0.3"], ["--batch", "8"], ["--check-every", "3"],
                     ["--model", "mlp:7"], ["--steps", "6"], ["--normalize", "0.1,0.2"]):
            with self.subTest(more=more):
                other = self.words(*([] if "--steps" in more else ["--steps", "5"]), *more)
                self.assert_differs(words, other, f"option ({'|'.join(x for x in more if x[:2] == '--')}) ")
        bench = [COMMAND, "bench", "allreduce", "--devices", "pocl"]
        self.assert_differs([*bench, "1024"], [*bench, "2048"], "list of arguments ")

    def test_options_that_may_differ(self):
        """Options for paths and output may differ."""
        words, other = self.words("--steps", "2", "--metrics", self.path("a")), self.path("other")
        shutil.copytree(self.data, other)
        others = [w.replace(self.data, other).replace(self.path("a"), self.path("b")) for w in words]
        others[others.index("--tune") + 1] = "1"
        self.wait(self.each(words, [*others, "--quiet"]), 0)

    def test_initial_parameters(self):
        """Files of the same name with other parameters: each rank would train another model."""
        folders = [self.path(name) for name in ("first", "second")]
        for seed, folder in enumerate(folders):
            self.train("--steps", "1", "--seed", seed, "--checkpoint-dir", folder)
            shutil.copy(os.path.join(folder, "step-00000001", "model.safetensors"),
                        os.path.join(folder, "start.safetensors"))
        words = self.words("--steps", "3", "--init", "start.safetensors")
        err = self.wait(self.each(["-wdir", folders[0], *words], ["-wdir", folders[1], *words]), 1)[1]
        self.assertRegex(err, r"other bits on rank 1, device 0.* before the first step")
        self.wait(self.each(["-wdir", folders[0], *words], ["-wdir", folders[0], *words]), 0)

    def test_commands(self):
        words = self.words("--steps", "5")
        for other in (["eval", "--model", "mlp"], ["train", "--help"], ["devices"], ["--version"],
                      ["bench", "train", "--model", "mlp"], ["bench", "allreduce"]):
            with self.subTest(other=other):
                if other == ["devices"]: # this command is wrong by itself
                    err = self.wait(self.each(words, [COMMAND, *other]), 2, 60)[1]
                    self.assertEqual(err, "cltrain, rank 1: devices runs in one process, and mpiexec started "
                                     "2: start it without mpiexec\n")
                else:
                    self.assert_differs(words, [COMMAND, *other], r"command than rank 0 \(.*\)")

    def test_for_one_process(self):
        """Commands that do not support ranks refuse with one line, and texts are printed once."""
        for words in (["devices"], ["plan", "--model", "mlp"], ["bench", "gemm", "8", "8", "8"],
                      ["bench", "op"], ["tune"], ["plot", "x", "-o", "y"]):
            with self.subTest(words=words):
                out, err = self.wait(self.begin([MPIEXEC, "-n", 2, COMMAND, *words]), 2, 60)
                self.assertEqual(out, "")
                self.assertRegex(err, rf"\Acltrain, rank 0: {words[0]}.* runs in one process, and mpiexec "
                                 r"started 2: start it without mpiexec\n\Z")
        for words, text in ((["--version"], "cltrain "), (["models"], "lenet"), (["train", "--help"], "Usage: ")):
            out, err = self.wait(self.begin([MPIEXEC, "-n", 2, COMMAND, *words]), 0, 60)
            self.assertEqual((out.count(text), err), (1, ""), words)
        out = self.wait(self.begin([MPIEXEC, "-n", 1, COMMAND, "devices"]), 0, 60)[0]
        self.assertIn("platform", out)

    def test_early_mistakes(self):
        """Mistakes that are found before a command begins with its ranks."""
        for words, text in ((["bench", "allreduce", "0"], "bench allreduce 0: not a size"),
                            (["bench", "train", "--model", "mlp", "--steps", "2000000000"], "--steps and"),
                            (["bench", "nosuch"], "bench needs a subject"), (["trian"], "did you mean train?")):
            with self.subTest(words=words):
                err = self.wait(self.begin([MPIEXEC, "-n", 2, COMMAND, *words]), 2, 60)[1]
                self.assertEqual(err.count("\n"), 1, err)
                self.assertTrue(err.startswith("cltrain, rank 0: "), err)
                self.assertIn(text, err)


class Missing(RankTest):
    def stopping(self, words):
        """Returns words for a rank that stops before it begins."""
        return ["sh", "-c", 'kill -STOP $$; exec "$@"', "sh", *words]

    def hanging(self, words):
        """Returns words for a rank that hangs when it opens its data."""
        other = self.path("other")
        if not os.path.isdir(other):
            shutil.copytree(self.data, other)
            os.remove(os.path.join(other, "train-images-idx3-ubyte"))
            os.mkfifo(os.path.join(other, "train-images-idx3-ubyte"))
        return ["env", "CLT_TESTING_PIPES=1"] + [w.replace(self.data, other) for w in words]

    def pair(self, number, words, other):
        lists = [words, words]
        lists[number] = other
        return self.each(*lists)

    def test_before_mpi(self):
        words = self.words(*ENDLESS, "--comm-timeout", "2")
        for number in (0, 1):
            with self.subTest(rank=number):
                # mpiexec ends the stopped rank with SIGKILL, and exits with the code of either rank
                err = self.wait(self.pair(number, words, self.stopping(words)), (1, 9), 60)[1]
                self.assertRegex(err, rf"(?m)^cltrain: MPI_Init has not returned for 2 s: rank {number} "
                                 r"\(process \d+\) is stopped$")
        words += ["--setup-timeout", "4"]
        err = self.wait(self.pair(1, words, ["sleep", "60"]), (1, 9), 60)[1]
        self.assertIn("MPI_Init has not returned for 4 s: another rank was not started", err)

    def test_stopped(self):
        """A rank is stopped while kernels are measured and compiled."""
        for number in (0, 1):
            with self.subTest(rank=number):
                child = self.ranks(2, *ENDLESS, "--split", "equal", "--comm-timeout", "2")
                rank = self.until(lambda n=number: self.rank(n), child)
                os.kill(rank.pid, signal.SIGSTOP)
                self.assertEqual(self.rank(number).state, SETUP)
                err = self.wait(child, 1, 90)[1]
                self.assertRegex(err, rf"(?m)^cltrain, rank {1 - number}: .*rank {number} \(process "
                                 rf"{rank.pid} on \S+\) is stopped; rank {1 - number} waits, for the "
                                 "trainer to be made")

    def test_hanging(self):
        words = self.words(*ENDLESS, "--setup-timeout", "3")
        for number in (0, 1):
            with self.subTest(rank=number):
                err = self.wait(self.pair(number, words, self.hanging(words)), 1, 60)[1]
                self.assertRegex(err, rf"(?m)^cltrain, rank {1 - number}: rank {1 - number} waited 3 s for rank "
                                 rf"{number} \(process \d+ on \S+\), for the data and the model to be read: ")

    def test_told_to_end(self):
        """SIGTERM to a rank that waits for a rank that never comes."""
        words = self.words(*ENDLESS)
        for number, name in ((0, "SIGTERM"), (1, "SIGUSR1")):
            with self.subTest(rank=number, signal=name):
                ready = self.path(f"ready-{number}")
                waiting = ["sh", "-c", f'echo $$ >{ready}.new; mv {ready}.new {ready}; exec "$@"', "sh", *words]
                lists = [waiting, waiting]
                lists[1 - number] = self.hanging(words)
                child = self.each(*lists)
                self.until(lambda r=ready: os.path.exists(r), child)
                with open(ready, encoding="ascii") as file:
                    pid = int(file.read())
                self.until(lambda p=pid: self.threads(p), child)
                os.kill(pid, getattr(signal, name))
                err = self.wait(child, 143, 30)[1]
                self.assertRegex(err, rf"(?m)^cltrain, rank {number}: told to end while rank {number} waited for "
                                 rf"rank {1 - number} ")

    def threads(self, pid):
        """Returns whether a process has loaded its OpenCL driver, so it is at its data."""
        folder = f"/proc/{pid}/fd"
        try:
            names = [os.readlink(os.path.join(folder, name)) for name in os.listdir(folder)]
            with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
                return "libpocl" in file.read() or any("pocl" in n for n in names)
        except OSError:
            return False


if __name__ == "__main__":
    run()
