"""Files that are missing, damaged or of another kind: one line that names the file, exit 1."""
import gzip
import json
import os
import signal
import struct
import subprocess

from command import (CLASSES, COLUMNS, COMMAND, ROWS, TEST, TRAIN, CommandTest, get, idx, main, put,
                     write_data)

IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


class Data(CommandTest):
    def assert_refused(self, *says):
        put(self.path("old.jsonl"), b"old\n")
        os.makedirs(self.path("run"), exist_ok=True)
        self.assert_bad(*self.arguments("--metrics", self.path("old.jsonl"), "--checkpoint-dir",
                                        self.path("run")), code=1, says=says)

    def cut(self, name, keep):
        path = os.path.join(self.data, name)
        put(path, get(path)[:keep])

    def test_missing(self):
        os.remove(os.path.join(self.data, IMAGES))
        self.assert_refused(IMAGES)
        self.assert_bad("train", "--model", "mlp", "--data", "idx:" + self.path("nowhere"), code=1,
                        says=("nowhere",))
        write_data(self.data)
        os.remove(os.path.join(self.data, "t10k-labels-idx1-ubyte"))
        self.assert_refused("t10k-labels")

    def test_truncated(self):
        for keep in (0, 3, 10, 16, 100):
            with self.subTest(keep=keep):
                self.cut(IMAGES, keep)
                self.assert_refused(IMAGES)
                write_data(self.data)
        self.cut(LABELS, -1)
        self.assert_refused(LABELS)

    def test_header(self):
        pixels = bytes(TRAIN * ROWS * COLUMNS)
        for what, data in {"magic": b"PK\3\4" + pixels, "type": idx((TRAIN, ROWS, COLUMNS), pixels, 9),
                           "count": idx((0x7fffffff, ROWS, COLUMNS), pixels),
                           "image": idx((TRAIN, 0xffffffff, 0xffffffff), pixels),
                           "zero": idx((0, ROWS, COLUMNS), b""),
                           "trailing": idx((TRAIN, ROWS, COLUMNS), pixels + b"x")}.items():
            with self.subTest(what=what):
                put(os.path.join(self.data, IMAGES), data)
                self.assert_refused(IMAGES)

    def test_numbers_disagree(self):
        put(os.path.join(self.data, LABELS), idx((TRAIN - 1,), bytes(TRAIN - 1)))
        self.assert_refused(str(TRAIN), str(TRAIN - 1))

    def test_label_out_of_range(self):
        put(os.path.join(self.data, "t10k-labels-idx1-ubyte"), idx((TEST,), bytes([CLASSES] * TEST)))
        self.assert_refused("t10k-labels", str(CLASSES))

    def test_label_without_neighbours(self):
        """Training labels determine the number of classes, unless a label is far from all others."""
        path = os.path.join(self.data, LABELS)
        good = get(path)
        put(path, good[:-1] + bytes([255]))
        self.assert_refused(LABELS, "255", f"sample {TRAIN - 1}", "number of classes")
        self.assert_bad(*self.arguments("--classes", CLASSES), code=1, says=("255", "out of range"))
        put(path, good[:-1] + bytes([CLASSES + 1]))
        done = self.train("--classes", CLASSES + 2, "--steps", "1")
        self.assertIn(f"samples of {CLASSES + 2} classes", done.stdout)

    def test_corrupt_gzip(self):
        for name in os.listdir(self.data):
            os.remove(os.path.join(self.data, name))
        write_data(self.data, train=3000, packed=True)
        path = os.path.join(self.data, IMAGES + ".gz")
        good = get(path)
        middle = len(good) // 2
        flipped = good[:middle] + bytes([good[middle] ^ 0xff] * 4) + good[middle + 4:]
        for what, data in {"cut": good[:middle], "flipped": flipped, "text": b"not gzip at all",
                           "sum": good[:-8] + bytes(8), "empty": gzip.compress(b"")}.items():
            with self.subTest(what=what):
                put(path, data)
                self.assert_refused(IMAGES)


class Tensors(CommandTest):
    def evaluate(self, path, *says, code=1):
        return self.assert_bad("eval", "--model", "mlp", "--data", "idx:" + self.data, "--devices",
                               "pocl", "--checkpoint", path, code=code, says=says)

    def init(self, path, *says):
        self.assert_bad(*self.arguments("--init", path, "--metrics", self.path("new.jsonl")), code=1,
                        says=says)

    def test_header(self):
        path = self.path("model.safetensors")
        for what, data in {"huge": struct.pack("<Q", 1 << 60) + b"{}",
                           "longer": struct.pack("<Q", 100) + b"{}", "empty": b"",
                           "text": struct.pack("<Q", 4) + b"abcd"}.items():
            with self.subTest(what=what):
                put(path, data)
                self.init(path, "model.safetensors")
                self.evaluate(path, "model.safetensors")

    def test_not_finite(self):
        self.train("--checkpoint-dir", self.path("run"), "--steps", "1")
        step = os.path.join(self.path("run"), os.listdir(self.path("run"))[0])
        data = bytearray(get(os.path.join(step, "model.safetensors")))
        data[-4:] = struct.pack("<f", float("nan"))
        put(self.path("nan.safetensors"), data)
        self.evaluate(self.path("nan.safetensors"), "not finite", "nan.safetensors")

    def test_missing(self):
        self.init(self.path("none.safetensors"), "none.safetensors")
        self.evaluate(self.path("none"), "none")

    def test_other_model(self):
        self.train("--checkpoint-dir", self.path("soft"), model="softmax")
        step = os.path.join(self.path("soft"), os.listdir(self.path("soft"))[0])
        self.init(os.path.join(step, "model.safetensors"), "fc1.weight")
        self.evaluate(self.path("soft"), "fc1.weight")
        self.assert_bad(*self.arguments("--checkpoint-dir", self.path("soft"), "--resume",
                                        "--epochs", "2"), code=1, says=("fc1.weight",))

    def test_other_optimizer(self):
        self.train("--checkpoint-dir", self.path("run"))
        self.assert_bad(*self.arguments("--checkpoint-dir", self.path("run"), "--resume",
                                        "--epochs", "2", "--optimizer", "adam"), code=1,
                        says=("adam", "sgd"))

    def test_damaged_checkpoint(self):
        run = self.path("run")
        self.train("--checkpoint-dir", run, "--checkpoint-every", "2", "--steps", "4")
        self.assertEqual(sorted(os.listdir(run)), ["step-00000002", "step-00000004"])
        for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
            path = os.path.join(run, "step-00000004", name)
            good = get(path)
            for bad in (good[:len(good) // 2], good[:len(good) // 2] + b"\0" + good[len(good) // 2 + 1:], b""):
                put(path, bad)
                with self.subTest(name=name, length=len(bad)):
                    self.assert_bad(*self.arguments("--checkpoint-dir", run, "--resume", "--steps",
                                                    "6"), code=1, says=(name, "step-00000002"))
            put(path, good)
        # The checkpoint that the message offers is valid.
        self.run_command("eval", "--model", "mlp", "--data", "idx:" + self.data, "--checkpoint",
                         os.path.join(run, "step-00000002"))

    def test_resume_intact(self):
        """Resumes from the newest intact checkpoint, with the bits of a run without a break. Later saves
        replace the damaged checkpoint."""
        run, whole = self.path("run"), self.path("whole")
        self.train("--checkpoint-dir", run, "--checkpoint-every", "2", "--steps", "4")
        put(os.path.join(run, "step-00000004", "model.safetensors"), b"")
        done = self.train("--checkpoint-dir", run, "--checkpoint-every", "2", "--resume-intact", "--steps", "6")
        self.assertIn("resumed after step 2", done.stdout)
        self.assertRegex(done.stderr, r"\Acltrain: warning: checkpoint \S+step-00000004 is damaged: model\.saf.*; "
                         r"the newest intact one before it is \S+step-00000002: .*; --resume-intact does so\n\Z")
        self.train("--checkpoint-dir", whole, "--checkpoint-every", "2", "--steps", "6")
        for step in (4, 6):
            for name in ("model.safetensors", "optimizer.safetensors"):
                self.assertEqual(*(get(os.path.join(r, f"step-{step:08}", name)) for r in (run, whole)))
        # Without damage the option acts as --resume, also without a checkpoint.
        done = self.train("--checkpoint-dir", run, "--resume-intact", "--steps", "8")
        self.assertIn("resumed after step 6", done.stdout)
        self.train("--checkpoint-dir", self.path("new"), "--resume-intact", "--steps", "2")
        self.assert_bad(*self.arguments("--resume-intact"), code=2, says=("--resume-intact needs",))
        for name in os.listdir(run):
            put(os.path.join(run, name, "state.json"), b"")
        self.assert_bad(*self.arguments("--checkpoint-dir", run, "--resume-intact", "--steps", "9"), code=1,
                        says=("no checkpoint is intact", "state.json"))


class Places(CommandTest):
    def test_unwritable(self):
        """Found before the first step, and before anything is printed."""
        put(self.path("file"), b"x")
        for arguments in (("--checkpoint-dir", self.path("file", "run")),
                          ("--metrics", self.path("none", "m.jsonl")),
                          ("--metrics", self.data)):
            with self.subTest(arguments=arguments):
                done = self.assert_bad(*self.arguments(*arguments), code=1, says=arguments[1:])
                self.assertEqual(done.stdout, "")

    def test_read_only_folder(self):
        if os.geteuid() == 0:
            self.skipTest("root may write everywhere")
        os.makedirs(self.path("shut"), mode=0o555)
        done = self.assert_bad(*self.arguments("--checkpoint-dir", self.path("shut")), code=1,
                               says=("shut",))
        self.assertEqual(done.stdout, "")

    def test_no_platform(self):
        os.makedirs(self.path("vendors"))
        environment = dict(os.environ, OCL_ICD_VENDORS=self.path("vendors"))
        self.assert_bad(*self.arguments(devices="all"), code=1, env=environment)
        done = self.run_command("devices", "--json", env=environment)
        found = json.loads(done.stdout)
        self.assertEqual(found["devices"], [])
        self.assertTrue(found["remark"])

    def test_full_disk_of_drivers_cache(self):
        """PoCL, or LLVM in it, ends the process if it cannot write compiled kernels. A warning comes first.
        """
        cache = self.path("pocl")
        os.mkdir(cache)
        environment = dict(os.environ, POCL_CACHE_DIR=cache)
        words = [COMMAND, *map(str, self.arguments("--steps", "2", "--tune", "off"))]
        script = 'mount -t tmpfs -o size=600k none "$0" && exec "$@"'
        alone = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
        if subprocess.run([*alone, script, cache, "true"], capture_output=True, check=False).returncode:
            self.skipTest("no file systems of one's own")
        done = subprocess.run([*alone, script, cache, *words], capture_output=True, text=True, timeout=240,
                              env=environment, check=False)
        self.assertIn(done.returncode, (1, -signal.SIGABRT))
        self.assertRegex(done.stderr, rf"\Acltrain: warning: the disk of PoCL's cache folder {cache} is full \(\d+ KB "
                         "are left\): .* ends the process\. Make room, or name another folder ")

    def test_full_disk_of_output(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "wb") as full:
            done = subprocess.run([COMMAND, "devices"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assert_message(done.stderr, "standard output")


if __name__ == "__main__":
    main()
