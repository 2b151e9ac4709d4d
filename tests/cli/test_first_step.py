"""The way to the first step: processes that compile, its report, and when kernels are measured."""
import os
import re

from command import CommandTest, get, main, records, write_data

SHORT = "too short to repay measuring"


class FirstStep(CommandTest):
    def run_with(self, caches, *args):
        """Trains with these caches only. Returns the output, the losses and the compiled kernels in PoCL's cache."""
        cache, metrics = self.path(caches), self.path("m.jsonl")
        pocl = os.path.join(cache, "pocl")
        os.makedirs(pocl, exist_ok=True)
        done = self.run_command("train", "--model", "lenet", "--data", "idx:" + self.data, "--batch", "16", "--steps", "3",
                                "--seed", "7", "--devices", "pocl", "--metrics", metrics, "--first-step", *args,
                                env=dict(os.environ, XDG_CACHE_HOME=cache, POCL_CACHE_DIR=pocl))  # fmt: skip
        steps, ends = records(metrics)
        # Kernels for any size (0-0-0) are those of programs that were stored at the end, as far as there was time.
        found = {os.path.relpath(os.path.join(base, name), pocl) for base, _, names in os.walk(pocl) for name in names
                 if name.endswith(".so") and "/0-0-0" not in base}  # fmt: skip
        return done.stdout, [r["loss"] for r in steps] + [r["test_loss"] for r in ends], found

    def numbers(self, out):
        """Returns the programs and kernels in the line of --first-step."""
        line = re.search(r"^first step ended after [\d.]+ s: .*?(\d+) programs .*first launches of (\d+) kernels.*$", out, re.M)
        self.assertIsNotNone(line, out)
        return int(line[1]), int(line[2]), line[0]

    def test_processes(self):
        """Kernels that other processes compiled are those that this process compiles, and it compiles none again."""
        write_data(self.data, rows=28, columns=28)
        alone, want, own = self.run_with("alone", "--compile-processes", "0", "--tune", "off")
        out, losses, found = self.run_with("several", "--compile-processes", "2", "--tune", "off")
        programs, kernels, line = self.numbers(out)
        self.assertEqual(losses, want)
        self.assertIn("; 2 compile processes", line)
        self.assertNotIn("processes", self.numbers(alone)[2])
        self.assertEqual((programs, kernels), self.numbers(alone)[:2])
        self.assertLessEqual(programs, 16)
        self.assertGreaterEqual(len(own), 20)
        self.assertLessEqual(own, found)
        folder = self.path("several", "cltrain", "compiled")
        lines = [line for name in os.listdir(folder) for line in get(os.path.join(folder, name)).decode().splitlines()]
        self.assertTrue(all(re.fullmatch(r"\w+ [123] \d+ \d+ \d+ [01]", line) for line in lines), lines)
        # A second run finds everything, so the processes get no work.
        stamps = {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)}
        _, losses, later = self.run_with("several", "--compile-processes", "2", "--tune", "off")
        self.assertEqual(losses, want)
        self.assertEqual(later, found)
        self.assertEqual(stamps, {name: os.stat(os.path.join(folder, name)).st_mtime_ns for name in os.listdir(folder)})

    def test_every_program(self):
        """No process fails, which would only show in the time: not for numbers in vectors, and not for merged kernels."""
        write_data(self.data, rows=28, columns=28)
        for name, more in (("packed", ("--variant", "linear=gemm_cpu,linear_weight_grad=gemm_cpu", "--merge-launches", "off")),
                           ("merged", ("--merge-launches", "on"))):  # fmt: skip
            out, _, _ = self.run_with(name, "--compile-processes", "2", "--tune", "off", *more)
            programs, _, line = self.numbers(out)
            self.assertEqual(len(os.listdir(self.path(name, "cltrain", "compiled"))), programs, line)

    def test_lost_cache(self):
        """PoCL's cache was removed since: its kernels are compiled again."""
        write_data(self.data, rows=28, columns=28)
        _, want, found = self.run_with("one", "--compile-processes", "1", "--tune", "off")
        os.rename(self.path("one", "pocl"), self.path("removed"))
        _, losses, again = self.run_with("one", "--compile-processes", "1", "--tune", "off")
        self.assertEqual(losses, want)
        self.assertLessEqual(found, again)

    def test_decision(self):
        out = self.run_command(*self.arguments_of_train()).stdout
        self.assertIn(SHORT, out)
        for tune in ("off", "0"):
            self.assertNotIn(SHORT, self.run_command(*self.arguments_of_train(), "--tune", tune).stdout)

    def arguments_of_train(self):
        return ("train", "--model", "softmax", "--data", "idx:" + self.data, "--batch", "16", "--steps", "2", "--devices", "pocl",
                "--cache-dir", os.path.join(self.path(), "own"))  # fmt: skip

    def test_refused(self):
        self.assert_bad("train", "--model", "softmax", "--data", "idx:" + self.data, "--compile-processes", "17", code=2,
                        says=("--compile-processes 17", "at most 16"))


if __name__ == "__main__":
    main()
