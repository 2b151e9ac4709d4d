"""hdf5:FILE: a helper process reads the file first, so a crash in libhdf5 becomes one line."""
import os
import random
import subprocess

from command import COMMAND, CommandTest, get, main, put

ARRAYS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "goldens", "arrays")


class Hdf5(CommandTest):
    def setUp(self):
        super().setUp()
        done = self.inspect(os.path.join(ARRAYS, "split.h5"))
        if "no HDF5" in done.stderr:
            self.skipTest("built without HDF5")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")

    def inspect(self, path, **environment):
        return subprocess.run([COMMAND, "data", "inspect", "hdf5:" + path], capture_output=True, text=True,
                              timeout=120, env={**os.environ, **environment})

    def test_crash(self):
        """A test hook crashes the helper where libhdf5 would crash."""
        path = os.path.join(ARRAYS, "split.h5")
        # AddressSanitizer would turn the signal into an exit code.
        done = self.inspect(path, CLT_TESTING_TRIAL="crash", ASAN_OPTIONS="handle_segv=0:handle_abort=0")
        if done.returncode == 0:
            self.skipTest("built without CLT_TESTING")
        self.assertEqual(done.returncode, 1)
        self.assert_message(done.stderr, "split.h5: is damaged: libhdf5 crashes when it reads the file")

    def test_endless(self):
        path = os.path.join(ARRAYS, "split.h5")
        done = self.inspect(path, CLT_TESTING_TRIAL="endless", CLT_TESTING_TRIAL_SECONDS="1")
        if done.returncode == 0:
            self.skipTest("built without CLT_TESTING")
        self.assertEqual(done.returncode, 1)
        self.assert_message(done.stderr, "split.h5: is damaged: libhdf5 does not end reading it within 1 s")

    def test_damage(self):
        """Any damaged file is read or refused with one line. CLT_TEST_ALL=1 tries some thousand files."""
        cases = 4000 if os.environ.get("CLT_TEST_ALL") == "1" else 40
        names = ("wide.h5", "narrow.h5", "split.h5", "counts.h5", "text.h5")
        for seed in range(cases):
            rng = random.Random(seed)
            data = bytearray(get(os.path.join(ARRAYS, rng.choice(names))))
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(data) - 8)
                what = rng.randrange(4)
                if what == 0:
                    data[at:at + 8] = b"\xff" * 8
                elif what == 1:
                    other = rng.randrange(len(data) - 8)
                    data[at:at + 8] = data[other:other + 8]
                elif what == 2:
                    data[at] ^= 1 << rng.randrange(8)
                else:
                    data[at] = rng.randrange(256)
            put(self.path("a.h5"), bytes(data))
            done = self.inspect(self.path("a.h5"))
            with self.subTest(seed=seed):
                self.assertIn(done.returncode, (0, 1, 2), done.stderr)
                if done.returncode:
                    self.assert_message(done.stderr)


if __name__ == "__main__":
    main()
