"""--lora: training adapters alone, their checkpoints in eval, predict, sample and resumed runs, and export."""
import json
import os
import random
import re

from command import CommandTest, get, main, put, records, tensors

LORA = ("--lora", "h.*.attn.c_attn:4:8")


class Lora(CommandTest):
    def setUp(self):
        super().setUp()
        rng = random.Random(2)
        self.text = self.path("text.txt")
        put(self.text, " ".join(rng.choice(("one", "two", "three", "four.\n")) for _ in range(1500)).encode())

    def arguments(self, *args, **names):
        usual = {"--data": "text:" + self.text, "--seq-len": "16"}
        more = [w for option in usual.items() if option[0] not in args for w in option]
        return super().arguments(*more, *args, **dict({"model": "gpt2:layers=2,heads=2,width=32", "batch": 8}, **names))

    def last(self, run, name="model.safetensors"):
        return os.path.join(run, sorted(n for n in os.listdir(run) if n.startswith("step-"))[-1], name)

    def fit(self, run, *more, steps="6", **names):
        run = self.path(run)
        done = self.train("--steps", steps, "--optimizer", "adamw", "--lr", "0.01", "--checkpoint-dir", run, *more, **names)
        return run, done.stdout

    def loss(self, checkpoint, *more):
        done = self.run_command("eval", "--checkpoint", checkpoint, "--data", "text:" + self.text, "--devices", "pocl",
                                "--json", *more)
        return json.loads(done.stdout)["test_loss"]

    def test_whole_way(self):
        base, _ = self.fit("base", steps="20")
        metrics = self.path("m.jsonl")
        run, said = self.fit("run", "--init", base, *LORA, "--metrics", metrics, steps="20")
        self.assertIn("missing: h.1.attn.c_attn.lora_B.weight", said)
        losses = [r["loss"] for r in records(metrics)[0]]
        self.assertLess(sum(losses[-5:]), 0.97 * sum(losses[:5]))
        # Everything but the adapters is as it was, and the optimizer keeps tensors of the adapters alone.
        before, after = tensors(self.last(base)), tensors(self.last(run))
        adapters = {name for name in after if ".lora_" in name}
        self.assertEqual(len(adapters), 4)
        for name, values in before.items():
            self.assertEqual(values, after[name], name)
        kept = tensors(self.last(run, "optimizer.safetensors"))
        self.assertEqual({name.rsplit(".", 1)[0] for name in kept}, adapters)
        # A run that was interrupted gives the same bits.
        broken, _ = self.fit("broken", "--init", base, *LORA, steps="9")
        self.fit("broken", *LORA, "--resume", steps="20")
        self.assertEqual(get(self.last(run)), get(self.last(broken)))
        # The checkpoint tells eval and sample about its adapters.
        loss = self.loss(run)
        self.assertLess(loss, self.loss(base))
        self.run_command("sample", "--checkpoint", run, "--prompt", "ab", "--tokens", "4", "--devices", "pocl")
        # The merged model is a plain one, with the same loss.
        merged, folder = self.path("merged.safetensors"), self.path("adapters")
        self.run_command("export", "--checkpoint", run, "--merge-lora", "-o", merged, "--devices", "pocl")
        self.assertEqual(set(tensors(merged)), set(before))
        self.assertAlmostEqual(self.loss(merged, "--model", "gpt2:layers=2,heads=2,width=32", "--seq-len", "16"), loss,
                               delta=1e-5)
        self.run_command("export", "--checkpoint", run, "--adapter", "-o", folder, "--devices", "pocl")
        alone = tensors(os.path.join(folder, "adapter_model.safetensors"))
        self.assertEqual({"base_model.model.transformer." + name: after[name] for name in adapters}, alone)
        config = json.loads(get(os.path.join(folder, "adapter_config.json")))
        self.assertEqual((config["r"], config["lora_alpha"], config["fan_in_fan_out"]), (4, 8, True))
        # Without either option the whole model, with its adapters.
        self.run_command("export", "--checkpoint", run, "-o", self.path("all.safetensors"), "--devices", "pocl")
        self.assertEqual(tensors(self.path("all.safetensors")), after)
        # Another run goes on from the adapters.
        again, said = self.fit("again", "--init", run, *LORA, steps="1")
        self.assertIn("32 of 32 tensors loaded", said)

    def test_images(self):
        """Layers of an MLP, two ranks and alphas, dropout, and predict."""
        words = ("--data", "idx:" + self.data, "--lora", "fc1:2", "--lora", "fc2:3:6", "--lora-dropout", "0.2")
        run = self.path("mlp")
        super().run_command(*super().arguments("--steps", "4", "--checkpoint-dir", run, *words, model="mlp"))
        found = tensors(self.last(run))
        self.assertEqual({len(found["fc2.lora_A.weight"]) % 3, len(found["fc1.lora_B.weight"]) % 2}, {0})
        self.run_command("export", "--checkpoint", run, "--adapter", "-o", self.path("adapters"), "--devices", "pocl")
        config = json.loads(get(self.path("adapters", "adapter_config.json")))
        self.assertEqual((config["r"], config["rank_pattern"], config["lora_dropout"]), (2, {"fc2": 3}, 0.2))
        self.run_command("predict", "--checkpoint", run, "--data", "idx:" + self.data, "-o", self.path("out.npz"),
                         "--devices", "pocl")

    def test_memory(self):
        """Plan counts gradients and the optimizer's tensors of the adapters alone."""
        def kept(*more, optimizer="adamw"):
            text = self.run_command("plan", "--model", "gpt2:layers=2,heads=4,width=256", "--data", "text:" + self.text,
                                    "--seq-len", "16", "--batch", "8", "--optimizer", optimizer,
                                    *(() if "--devices" in more else ("--devices", "pocl")), *more).stdout
            return (float(re.search(r"gradients and optimizer ([\d.]+)", text).group(1)),
                    list(map(int, re.findall(r"Optimizer's state of .*: (\d+) bytes", text))), text)
        (whole, state, text), (adapted, small, some) = kept(), kept("--lora", "*.c_attn:4")
        self.assertAlmostEqual(adapted, whole / 4, delta=0.05 * whole)
        # AdamW keeps two f32 of each parameter that is trained, momentum keeps one, and plain SGD none.
        adapters = 2 * 4 * (256 + 3 * 256)
        everything = int(re.search(r"(\d+) parameters; batch", text)[1])
        self.assertIn(f"{everything + adapters} parameters, of which {adapters} are trained", some)
        self.assertEqual((state, small), ([2 * 4 * everything], [2 * 4 * adapters]))
        self.assertEqual(kept("--lora", "*.c_attn:4", optimizer="momentum")[1], [4 * adapters])
        self.assertEqual(kept("--lora", "*.c_attn:4", optimizer="sgd")[1], [0])
        # Each of two devices has half of it, which plan prints once.
        self.assertEqual(kept("--lora", "*.c_attn:4", "--zero", "1", "--parallel", "dp=2", "--devices", "pocl/2")[1],
                         [4 * adapters])

    def test_refused(self):
        for more, says in ((("--lora", "h.*"), ("PATTERN:RANK",)), (("--lora", "nothing:4"), ("nothing",)),
                           (("--lora", ":4"), ("PATTERN:RANK",)), (("--lora", "*.c_attn:0"), ("PATTERN:RANK",)),
                           (("--lora", "*.c_attn:2.5"), ("PATTERN:RANK",)), (("--lora", "*.c_attn:4:0"), ("alpha",)),
                           (("--lora", "*.c_attn:99"), ("rank 99", "32 inputs")), (("--lora", "*:4"), ("wte.weight",)),
                           (("--lora-dropout", "0.1"), ("--lora",)),
                           ((*LORA, "--lora-dropout", "1"), ("--lora-dropout 1",))):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments(*more), code=2, says=says)
        run, _ = self.fit("run", steps="1")
        adapted, _ = self.fit("adapted", *LORA, steps="1")
        # A resumed run needs the adapters of its checkpoint, which other scales would make another model.
        resume = ("--resume", "--optimizer", "adamw", "--lr", "0.01", "--steps", "2", "--checkpoint-dir")
        for folder, more, says in ((adapted, (), ("--lora is missing", LORA[1])),
                                   (adapted, ("--lora", LORA[1] + "0"), (LORA[1] + "0", f"'{LORA[1]}'")),
                                   (adapted, ("--lora", "h.*.attn.c_attn:4"), (f"'{LORA[1]}'",)),
                                   (adapted, (*LORA, "--lora-dropout", "0.1"), ("--lora-dropout 0.1", "began with 0")),
                                   (run, LORA, ("without adapters", "--init"))):
            with self.subTest(more=more):
                self.assert_bad(*self.arguments(*resume, folder, *more), code=2, says=says)
        self.train(*resume, adapted, *LORA)
        # Trained adapters of another rank are not dropped, unless they are skipped by name.
        for lora in ("h.*.attn.c_attn:2", "h.0.attn.c_attn:4", "h.*.attn.c_*:4"):
            self.assert_bad(*self.arguments("--init", adapted, "--lora", lora), code=1,
                            says=("--lora " + lora, "--init-skip '*.lora_A.weight|*.lora_B.weight'"))
        said = self.train("--init", adapted, "--lora", "h.*.attn.c_attn:2", "--steps", "1", "--init-skip",
                          "*.lora_A.weight|*.lora_B.weight").stdout
        self.assertIn("skipped: h.0.attn.c_attn.lora_A.weight", said)
        # Another part may be left out too. It is never trained, which a warning says.
        done = self.train("--init", run, *LORA, "--steps", "1", "--init-skip", "h.1.ln_2.*")
        self.assertIn("missing: h.0.attn.c_attn.lora_A.weight", done.stdout)
        self.assertIn("warning: --init-skip h.1.ln_2.*: --lora trains adapters only", done.stderr)
        done = self.train("--init", run, *LORA, "--steps", "1", "--init-skip", "*.lora_A.weight|*.lora_B.weight")
        self.assertNotIn("--init-skip", done.stderr)
        for more, says in ((("--merge-lora",), ("no adapters",)), (("--merge-lora", "--adapter"), ("exclude",))):
            self.assert_bad("export", "--checkpoint", run, "-o", self.path("out"), "--devices", "pocl", *more, code=2,
                            says=says)
        self.assert_bad("export", "--checkpoint", run, "--devices", "pocl", code=2, says=("--output",))


main()
