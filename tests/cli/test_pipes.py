"""Files of other users: named pipes, names that a terminal would obey, a cache folder that others may write.
"""
import json
import os
import subprocess

from command import COMMAND, CommandTest, get, main, put

LINES = b'{"step": 1, "epoch": 1, "loss": 2.5}\n{"epoch": 1, "test_loss": 2, "test_accuracy": 0.5}\n'
NET = json.dumps({"nodes": [{"op": "flatten", "in": ["image"], "name": "flat"},
                            {"op": "linear", "in": ["flat"], "out": 4, "name": "logits"}],
                  "losses": [{"op": "cross_entropy", "in": ["logits", "label"]}]}).encode()


class Pipes(CommandTest):
    """A named pipe has no writer, so whoever opens it would wait for ever."""

    def refused(self, *args, code=1):
        done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, code, done.stderr)
        self.assert_message(done.stderr, "is not a regular file but a pipe")

    def pipe(self, name):
        os.mkfifo(self.path(name))
        return self.path(name)

    def test_weights(self):
        self.refused(*self.arguments("--steps", "1", "--init", self.pipe("w.safetensors")))

    def test_model(self):
        self.refused("inspect", "--model", self.pipe("net.json"))

    def test_curves(self):
        self.refused("plot", self.pipe("m.jsonl"), "-o", self.path("m.png"))

    def test_divisions(self):
        self.refused(*self.arguments("--steps", "1", "--replay", self.pipe("m.jsonl")))

    def test_text(self):
        self.refused("data", "tokenize", "--tokenizer", "bytes", "-o", self.path("o.bin"), self.pipe("t.txt"))

    def test_vocabulary(self):
        os.mkdir(self.path("bpe"))
        self.pipe("bpe/vocab.json")
        put(self.path("t.txt"), b"text")
        done = self.run_command("data", "tokenize", "--tokenizer", "gpt2:" + self.path("bpe"), "-o",
                                self.path("o.bin"), self.path("t.txt"), code=1)
        if "PCRE2" not in done.stderr:
            self.assert_message(done.stderr, "vocab.json: is not a regular file but a pipe")

    def test_data(self):
        for kind, name in (("npz", "a.npz"), ("hdf5", "a.h5"), ("tokens", "a.bin")):
            done = self.run_command("data", "inspect", f"{kind}:{self.pipe(name)}", code=1)
            if "no HDF5" not in done.stderr:
                self.assert_message(done.stderr, "is not a regular file")

    def test_pipes_of_the_shell(self):
        """An open pipe of the process has a writer, so text may come from it."""
        put(self.path("t.txt"), b"some text")
        out = self.path("o.bin")
        shell = 'exec "$0" data tokenize --tokenizer bytes -o "$1" <(cat "$2"; echo more) /dev/stdin'
        done = subprocess.run(["bash", "-c", shell, COMMAND, out, self.path("t.txt")], input="and the rest",
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = get(out)[-2 * 26:] if len(get(out)) > 2 * 26 else get(out)
        self.assertEqual(text[::2], b"some textmore\nand the rest"[-len(text) // 2:])


class Terminal(CommandTest):
    """Output has no control character but newlines, whatever names and files contain."""

    BAD = "\x1b]0;owned\x07\x1b[31m\u009b\u202e"

    def clean(self, *args):
        """Checks both outputs of a command, which may fail."""
        done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True, timeout=240)
        for text in (done.stdout, done.stderr):
            for letter in text:
                self.assertTrue(letter == "\n" or letter.isprintable(), repr(text))
        return done.stdout + done.stderr

    def test_names_of_files(self):
        for args in (("inspect", "--model", self.path(self.BAD + ".json")),
                     ("plot", self.path(self.BAD), "-o", self.path("o.png")),
                     ("data", "inspect", "npz:" + self.path(self.BAD)),
                     ("eval", "--data", "idx:" + self.data, "--checkpoint", self.path(self.BAD))):
            self.assertIn("\\x1b]0;owned\\x07", self.clean(*args))
        self.assertIn("\\x1b]0", self.clean(self.BAD))

    def test_text_of_a_model_file(self):
        bad = json.loads(NET)
        bad["nodes"][0]["name"] = bad["nodes"][1]["in"][0] = "flat" + self.BAD
        put(self.path("net.json"), json.dumps(bad).encode())
        self.assertIn("another control character", self.clean("inspect", "--model", self.path("net.json"), "--data",
                                                              "idx:" + self.data))
        bad = json.loads(NET)
        bad["nodes"][1]["op"] = "linea\u202e"  # turns the text that follows; not in ASCII
        put(self.path("net.json"), json.dumps(bad).encode())
        self.assertIn("linea\\xe2\\x80\\xae", self.clean("inspect", "--model", self.path("net.json"), "--data",
                                                          "idx:" + self.data))

    def test_names_of_classes(self):
        folder = self.path("cifar")
        os.mkdir(folder)
        for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
            put(os.path.join(folder, name), (b"\1" + bytes(3072)) * 2)
        put(os.path.join(folder, "batches.meta.txt"), "".join(f"{self.BAD}{i}\n" for i in range(10)).encode())
        self.assertIn("\\x1b]0;owned", self.clean("data", "inspect", "cifar10:" + folder))


class Folder(CommandTest):
    """PoCL executes code from the command's cache folder."""

    def test_others_may_write(self):
        cache = self.path("cache")
        environment = {k: v for k, v in os.environ.items() if k != "POCL_CACHE_DIR"}
        environment["XDG_CACHE_HOME"] = self.path("own")
        self.run_command("devices", "--cache-dir", cache, env=environment)
        self.assertEqual(os.stat(cache).st_mode & 0o777, 0o700)
        self.assertTrue(os.path.isdir(os.path.join(cache, "pocl")))
        os.chmod(cache, 0o777)
        done = self.run_command("devices", "--cache-dir", cache, env=environment)
        self.assertIn(f"warning: cache folder {cache}: compiled kernels in it are not used", done.stderr)


if __name__ == "__main__":
    main()
