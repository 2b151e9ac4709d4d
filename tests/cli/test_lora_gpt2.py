"""--lora on GPT-2 124M with random weights: what is trained, the optimizer's bytes, the loss, and the merged model."""
import array
import os
import random
import re
import zipfile

from command import CommandTest, get, main, put, records

WORDS, WIDTH, LAYERS, POSITIONS, RANK, LENGTH, STEPS = 50257, 768, 12, 1024, 8, 32, 100
MODEL = f"gpt2:124M,positions={POSITIONS}"
# Embeddings, and in each layer two norms, and the weights and biases of c_attn, c_proj, c_fc and c_proj; the last norm.
PLAIN = (WORDS + POSITIONS) * WIDTH + LAYERS * (12 * WIDTH * WIDTH + 13 * WIDTH) + 2 * WIDTH
ADAPTERS = LAYERS * RANK * (WIDTH + 3 * WIDTH)


class Gpt2(CommandTest):
    def setUp(self):
        super().setUp()
        self.tokens = self.path("tokens.bin")
        rng = random.Random(1)
        words = [rng.randrange(WORDS) for _ in range(40)]
        follow = {word: [rng.choice(words) for _ in range(2)] for word in words}
        chain = [words[0]]
        for _ in range(110 * LENGTH):
            chain.append(rng.choice(follow[chain[-1]]))
        put(self.tokens, array.array("H", chain).tobytes())

    def text(self):
        return "--data", "tokens:" + self.tokens, "--classes", WORDS, "--seq-len", LENGTH, "--devices", "pocl"

    def logits(self, *checkpoint):
        """Returns the model's outputs for the test text."""
        path = self.path("out.npz")
        self.run_command("predict", "--checkpoint", *checkpoint, *self.text(), "--batch", "1", "-o", path)
        found = array.array("f")
        with zipfile.ZipFile(path) as file:
            data = file.read("logits.npy")
        found.frombytes(data[10 + int.from_bytes(data[8:10], "little"):])
        self.assertGreaterEqual(len(found), LENGTH * WORDS)
        return found

    def test_whole_way(self):
        self.assertEqual(PLAIN, 124439808)
        self.assertLess(ADAPTERS, 0.01 * PLAIN)
        usual = ("--model", MODEL, *self.text(), "--batch", "1", "--optimizer", "adamw", "--lr", "0.003", "--steps", STEPS,
                 "--tune", "off", "--lora", f"h.*.attn.c_attn:{RANK}:16")
        run, metrics, merged = self.path("run"), self.path("metrics.jsonl"), self.path("merged.safetensors")
        said = self.run_command("train", *usual, "--checkpoint-dir", run, "--metrics", metrics).stdout
        self.assertIn(f"{PLAIN + ADAPTERS} parameters, of which {ADAPTERS} are trained (0.24 %)", said)
        losses = [r["loss"] for r in records(metrics)[0]]
        self.assertEqual(len(losses), STEPS)
        self.assertLess(sum(losses[-10:]), 0.8 * sum(losses[:10]))
        # The optimizer has two numbers of each element of the adapters, and no others.
        saved = get(os.path.join(run, sorted(n for n in os.listdir(run) if n.startswith("step-"))[-1], "optimizer.safetensors"))
        self.assertEqual(len(saved) - 8 - int.from_bytes(saved[:8], "little"), 2 * 4 * ADAPTERS)
        # The merged model computes the same.
        self.run_command("export", "--checkpoint", run, "--merge-lora", "-o", merged, "--devices", "pocl")
        adapted, plain = self.logits(run), self.logits(merged, "--model", MODEL)
        self.assertEqual(len(adapted), len(plain))
        largest, most = max(map(abs, adapted)), max(abs(a - b) for a, b in zip(adapted, plain))
        print(f"losses {losses[0]:.3f} to {losses[-1]:.3f}; logits up to {largest:.3g}, merged within {most / largest:.2g}")
        self.assertLess(most, 1e-5 * largest)
        self.assertGreater(most, 0)  # they are sums in another order

    def test_plan(self):
        said = self.run_command("plan", "--model", MODEL, *self.text(), "--batch", "1", "--optimizer", "adamw",
                                "--lora", f"h.*.attn.c_attn:{RANK}:16").stdout
        self.assertIn(f"{PLAIN + ADAPTERS} parameters, of which {ADAPTERS} are trained", said)
        self.assertEqual(re.findall(r"Optimizer's state of .*: (\d+) bytes", said), [str(2 * 4 * ADAPTERS)])


main()
