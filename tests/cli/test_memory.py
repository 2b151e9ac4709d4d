"""--recompute and --memory: what plan prints about them, what they refuse, and models that are larger than
a device."""
import os
import re

from command import CommandTest, get, main, put, records

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
        # A limit that is too low: the plan is still printed, and the exit code is that of train.
        low = self.plan("--memory", f"{total_least / 3}MiB", code=1)
        self.assertRegex(low.stdout, r"This batch does not fit: a batch of 4096 needs at least ")
        self.assertIn("Prediction\n", low.stdout)
        self.assert_message(low.stderr, "a batch of 4096 needs at least")

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

    def meshes(self, middle):
        """Returns meshes of two devices, with further options. Stages are divided at layer `middle`."""
        return {"tp": ("--parallel", "tp=2"), "zero": ("--parallel", "dp=2", "--zero", "3"),
                "pp": ("--parallel", "pp=2", "--accumulate", "2", "--stages", f"h.{middle}.*")}

    def needs(self, *more, code=0):
        """Returns the most memory of a device in bytes, and that without intermediates and inputs."""
        text = self.run_command("plan", "--batch", "4", "--optimizer", "adamw", "--devices",
                                "pocl/2", *more, code=code).stdout
        self.assertEqual("This batch does not fit" in text, code != 0)
        found = re.findall(rf"All memory of .*?: {NUMBER} MiB \(parameters, gradients and optimizer {NUMBER},", text)
        return tuple(max(map(float, n)) * 2**20 for n in zip(*found))

    def test_model_larger_than_a_device(self):
        """GPT-2 124M with AdamW under 1.8 GB: two replicas do not fit, and the parts of all meshes do."""
        own = ("--model", "gpt2:124M", "--data", "synthetic", "--seq-len", "64", "--memory", "1.8GB")
        self.assertGreater(self.needs(*own, "--parallel", "dp=2", code=1)[0], 1.8e9)
        for name, more in self.meshes(6).items():
            self.assertLessEqual(self.needs(*own, *more)[0], 1.8e9, name)

    def test_trains_within_the_memory(self):
        """A small GPT-2 trains on meshes where two replicas do not fit, with the losses of one device."""
        text = self.path("text")
        put(text, bytes(i * i % 251 for i in range(4000)))
        own = ("--model", "gpt2:layers=4,heads=2,width=64", "--data", "text:" + text, "--seq-len", "8")
        meshes = self.meshes(2)
        most = max(self.needs(*own, *more)[0] for more in meshes.values())
        least = self.needs(*own, "--parallel", "dp=2")[1]
        self.assertLess(most, least)
        own += ("--batch", "4", "--optimizer", "adamw", "--seed", "3", "--steps", "2")
        limit = ("--devices", "pocl/2", "--memory", f"{(most + least) / 2**21}MiB")
        self.assert_bad(*self.arguments(*own, *limit, "--parallel", "dp=2"), code=1, says=("needs at least",))
        losses = {}
        for name, more in {**meshes, "one": ("--devices", "pocl@1")}.items():
            metrics = self.path(name + ".jsonl")
            self.train(*own, *more, *(() if name == "one" else limit), "--metrics", metrics)
            losses[name] = [r["loss"] for r in records(metrics)[0]]
            self.assertEqual(len(losses[name]), 2)
        for name in meshes:
            for a, b in zip(losses[name], losses["one"]):
                self.assertAlmostEqual(a, b, delta=1e-4 * b, msg=name)


if __name__ == "__main__":
    main()
