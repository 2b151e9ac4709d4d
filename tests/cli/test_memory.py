"""--recompute and --memory: what plan prints about them, and what they refuse."""
import os
import re

from command import CommandTest, get, main, records

MODEL = "mlp:64,64,64,64,64,64,64,64"
NUMBER = r"(\d+(?:\.\d+)?)"


class Memory(CommandTest):
    def plan(self, *more, code=0):
        return self.run_command("plan", "--model", MODEL, "--data", "synthetic:1x8x8:10", "--devices",
                                "pocl", "--batch", "4096", *more, code=code)

    def all_memory(self, text):
        found = re.search(rf"All memory of a device: {NUMBER} MiB \(parameters, gradients and "
                          rf"optimizer {NUMBER}, intermediates {NUMBER}, inputs and the rest "
                          rf"{NUMBER}\)", text)
        numbers = [float(number) for number in found.groups()]
        self.assertLess(abs(numbers[0] - sum(numbers[1:])), 0.3)
        return numbers[0], numbers[2]

    def test_plan(self):
        plain = self.plan().stdout
        total, intermediates = self.all_memory(plain)
        largest = re.search(r"Largest batch that fits: about (\d+); where backward computes again "
                            r"\(recompute\): about (\d+)\n", plain)
        self.assertLess(int(largest[1]), int(largest[2]))
        self.assertNotIn(".recomputed ", plain)
        least = self.plan("--recompute").stdout
        self.assertRegex(least, r"Backward recomputes \d+ nodes .* of [\d.]+ [KM]iB of "
                                r"intermediates less, for [\d.]+ % of forward's arithmetic\n")
        self.assertIn(".recomputed ", least)
        total_least, intermediates_least = self.all_memory(least)
        self.assertLess(intermediates_least, 0.7 * intermediates)
        # A limit between the two: recompute only as much as needed.
        limit = (total + total_least) / 2
        within = self.plan("--memory", f"{limit}MiB").stdout
        self.assertLessEqual(self.all_memory(within)[0], limit)
        self.assertLess(within.count(".recomputed "), least.count(".recomputed "))
        fits = int(re.search(r"Largest batch that fits: about (\d+)\n", within)[1])
        self.assertGreaterEqual(fits, 4096)
        self.assertLess(fits, 1.6 * 4096)
        # A limit that is too low: the plan is still printed, with a warning.
        least_of_all = self.plan("--memory", f"{total_least / 3}MiB").stdout
        self.assertRegex(least_of_all, r"This batch does not fit: a batch of 4096 needs at least ")

    def test_same_bits(self):
        files = {}
        ways = {"plain": (), "again": ("--recompute",), "limit": ("--memory", "1GB")}
        for name, more in ways.items():
            folder, metrics = self.path(name), self.path(name + ".jsonl")
            self.train("--steps", "7", "--optimizer", "adam", "--tune", "off", "--metrics", metrics,
                       "--checkpoint-dir", folder, *more, model=MODEL)
            steps = [r["loss"] for r in records(metrics)[0]]
            last = sorted(n for n in os.listdir(folder) if os.path.isdir(os.path.join(folder, n)))[-1]
            files[name] = (steps, get(os.path.join(folder, last, "model.safetensors")))
        self.assertEqual(files["plain"], files["again"])
        self.assertEqual(files["plain"], files["limit"])
        # A run without recomputation is resumed with it, and the other way round.
        for name, more in {"plain": (), "again": ("--recompute",)}.items():
            metrics = self.path(name + ".jsonl")
            self.train("--steps", "11", "--optimizer", "adam", "--tune", "off", "--metrics", metrics,
                       "--checkpoint-dir", self.path("plain" if name == "again" else "again"),
                       "--resume", *more, model=MODEL)
            files[name] = [r["loss"] for r in records(metrics)[0]]
        self.assertEqual(files["plain"][-4:], files["again"][-4:])

    def test_refused(self):
        for size in ("much", "8XB", "-1GB", "0", "1e30GB", "GB"):
            self.assert_bad(*self.arguments("--steps", "1", "--memory", size), code=2,
                            says=("--memory", "8GB or 512MiB"))
        self.assert_bad(*self.arguments("--steps", "1", "--memory", "30KB"), code=1,
                        says=("needs at least", "no batch fits"))


if __name__ == "__main__":
    main()
