"""--parallel auto, and plan --simulate of meshes."""
import hashlib
import os
import re

from command import CommandTest, get, main

MODEL = "mlp:16"


class Auto(CommandTest):
    def test_train_chooses(self):
        done = self.train("--steps", "2", "--parallel", "auto", model=MODEL, devices="pocl/2")
        rows = re.findall(r"^ +(\d+)  (\S+=\d+\S*)(?: zero \d)?(?: accumulate \d+)? +([\d.]+) ", done.stdout,
                          re.M)
        self.assertGreater(len(rows), 3)
        self.assertEqual([int(r[0]) for r in rows], list(range(1, len(rows) + 1)))
        chosen = re.search(r"^trains on (\S+): --parallel (\S+)", done.stdout, re.M)
        self.assertEqual(chosen[1], rows[0][1])
        self.assertEqual(chosen[2], rows[0][1])
        self.assertRegex(done.stdout, r"not possible: space: the model has nothing that it divides")
        self.assertIn("done: 2 steps", done.stdout)

    def test_gradients_in_16_bits(self):
        done = self.train("--steps", "2", "--parallel", "auto", "--wire", "bf16", model=MODEL, devices="pocl/2")
        self.assertRegex(done.stdout, r"not possible: dp=2 zero 3: wire bf16 does not work with zero 3")
        self.assertRegex(done.stdout, r"wire bf16 does not work with the axes tp and pp")
        self.assertRegex(done.stdout, r"(?m)^trains on dp=2")
        self.assertIn("done: 2 steps", done.stdout)

    def trained(self, name, *more):
        """Returns the hash of the trained model, and what was printed."""
        done = self.train("--steps", "3", "--virtual-shards", "4", "--checkpoint-dir", self.path(name), *more,
                          model=MODEL, devices="pocl/2")
        last = os.path.join(self.path(name), sorted(os.listdir(self.path(name)))[-1], "model.safetensors")
        return hashlib.sha256(get(last)).hexdigest(), done.stdout

    def test_virtual_shards(self):
        """Only dp can have them, and the model file is that of dp."""
        chosen, out = self.trained("chosen", "--parallel", "auto")
        self.assertRegex(out, r"(?m)^ +2  dp=2")
        self.assertRegex(out, r"not possible: tp=2 and \d more: virtual shards need a mesh that has no other axis")
        self.assertRegex(out, r"not possible: dp=2 zero 3: virtual shards do not work with zero 3")
        self.assertRegex(out, r"(?m)^trains on dp=2: --parallel dp=2( --zero 1)? does the same$")
        self.assertEqual(chosen, self.trained("dp", "--parallel", "dp=2")[0])
        self.assertEqual(chosen, self.trained("zero", "--parallel", "dp=2", "--zero", "1")[0])
        self.assertEqual(chosen, self.trained("plain")[0])
        self.assert_bad(*self.arguments("--steps", "1", "--virtual-shards", "1", "--parallel", "auto", model=MODEL,
                                        devices="pocl/2"), code=2, says=("1 virtual shards", "the 2 devices"))
        self.assert_bad(*self.arguments("--steps", "1", "--virtual-shards", "4", "--parallel", "auto",
                                        "--accumulate", "2", model=MODEL, devices="pocl/2"), code=2,
                        says=("--virtual-shards does not work with --accumulate",))

    def test_virtual_shards_of_machines_that_are_not_there(self):
        plan = ("plan", "--model", MODEL, "--data", "idx:" + self.data, "--devices", "pocl@1", "--link",
                "25GB/s,5us", "--inter", "1GB/s,30us", "--virtual-shards", "16", "--per-node", "4")
        done = self.run_command(*plan, "--simulate", "4,12")
        self.assertRegex(done.stdout, r"(?m)^16 virtual shards$")
        for devices in (4, 12):
            self.assertRegex(done.stdout, rf"(?m)^{devices} devices, batch {devices * 256}: 2 meshes are possible")
            self.assertRegex(done.stdout, rf"(?m)^ +1  dp={devices}")
        self.assertRegex(done.stdout, r"not possible: axes other than dp, local, and wire bf16")
        self.assert_bad(*plan, "--simulate", "4,32", code=2, says=("--virtual-shards 16", "32 devices"))
        self.assert_bad(*plan, "--simulate", "4", "--sync-every", "4", code=2,
                        says=("--sync-every and --virtual-shards",))

    def test_plan(self):
        done = self.run_command("plan", "--model", MODEL, "--data", "idx:" + self.data, "--devices",
                                "pocl/2", "--parallel", "auto")
        self.assertRegex(done.stdout, r"trains on \S+: --parallel")
        self.assertIn("All memory of", done.stdout)

    def test_machines_that_are_not_there(self):
        plan = ("plan", "--model", MODEL, "--data", "idx:" + self.data, "--devices", "pocl@1", "--link",
                "25GB/s,5us")
        done = self.run_command(*plan, "--simulate", "4,16", "--inter", "1GB/s,30us", "--per-node", "4",
                                "--sync-every", "16")
        self.assertRegex(done.stdout, r"average every 16 steps")
        self.assertRegex(done.stdout, r"(?m)^4 devices, batch 1024: \d+ meshes are possible")
        self.assertRegex(done.stdout, r"(?m)^16 devices, batch 4096: \d+ meshes are possible")
        self.assertRegex(done.stdout, r"local=\d+")
        self.assertRegex(done.stdout, r"wire bf16")

    def test_too_few_machines(self):
        with open(self.path("text.txt"), "w", encoding="utf-8") as file:
            file.write("the quick brown fox jumps over the lazy dog. " * 50)
        plan = ("plan", "--model", "gpt2:nano", "--data", "text:" + self.path("text.txt"), "--seq-len", "32", "--batch",
                "4", "--optimizer", "adamw", "--devices", "pocl@1", "--link", "25GB/s,5us", "--inter", "1GB/s,30us")
        done = self.run_command(*plan, "--simulate", "1,4", "--memory", "8MiB")
        self.assertRegex(done.stdout, r"(?m)^no mesh of 1 devices can train this model: ")
        self.assertRegex(done.stdout, r"(?m)^4 devices, batch 16: \d+ meshes are possible")
        done = self.run_command(*plan, "--simulate", "1,2", "--memory", "1MiB", code=2)
        self.assertRegex(done.stdout, r"(?m)^no mesh of 1 devices can train this model: ")
        self.assert_message(done.stderr, "no mesh of 2 devices can train this model: ")

    def test_refused(self):
        both = self.arguments("--steps", "1", model=MODEL, devices="pocl/2")
        for mesh in ("auto,tp=2", "dp=2,auto", "auto=2"):
            self.assert_bad(*both, "--parallel", mesh, code=2,
                            says=("--parallel " + mesh, "auto chooses all axes"))
        for option in (("--zero", "1"), ("--stages", "measured"), ("--in-flight", "1"),
                       ("--offload", "optimizer"), ("--split", "2,1"), ("--rebalance",)):
            self.assert_bad(*both, "--parallel", "auto", *option, code=2,
                            says=("--parallel auto and " + option[0], "exclude each other"))
        self.assert_bad(*both, "--parallel", "auto", "--async", "1", code=2,
                        says=("--async and --parallel exclude each other",))
        self.assert_bad("eval", "--data", "idx:" + self.data, "--checkpoint", "x", "--parallel", "auto",
                        says=("x",), code=1)
        plan = ("plan", "--model", MODEL, "--data", "idx:" + self.data)
        links = ("--link", "25GB/s,5us", "--inter", "1GB/s,30us")
        self.assert_bad(*plan, "--inter", "1GB/s,30us", code=2, says=("--inter needs --simulate",))
        self.assert_bad(*plan, "--simulate", "4", "--link", "25GB/s,5us", "--per-node", "4", code=2,
                        says=("--per-node needs --inter",))
        self.assert_bad(*plan, "--simulate", "4", *links, "--parallel", "auto", code=2,
                        says=("--inter and --parallel exclude each other",))
        self.assert_bad(*plan, "--simulate", "4", *links, "--zero", "3", code=2,
                        says=("--inter and --zero exclude each other",))
        self.assert_bad(*plan, "--simulate", "4", "--link", "25GB/s,5us", "--inter", "fast", code=2,
                        says=("--inter", "fast"))
        self.assert_bad(*plan, "--simulate", "4", *links, "--sync-every", "2s", code=2,
                        says=("--sync-every 2s", "a number of steps"))


main()
