"""Runs the command, and makes small data sets for it. The program's first argument is the path of the
command."""
import array
import gzip
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 else "cltrain"
DEVICE = "pocl"
TRAIN, TEST, ROWS, COLUMNS, CLASSES = 70, 20, 6, 5, 4


def idx(dims, data, kind=8):
    """Returns the bytes of an IDX file of u8."""
    return struct.pack(f">HBB{len(dims)}I", 0, kind, len(dims), *dims) + bytes(data)


def images(labels, rows, columns, rng):
    """Returns noise images, each with one bright row whose number is the label."""
    data = bytearray()
    dark = bytes(byte % 64 for byte in range(256))
    for label in labels:
        pixels = bytearray(rng.randbytes(rows * columns).translate(dark))
        pixels[label * columns:(label + 1) * columns] = bytes([255] * columns)
        data += pixels
    return data


def write_data(folder, train=TRAIN, test=TEST, rows=ROWS, columns=COLUMNS, packed=False):
    """Writes the four files of an idx: data set."""
    rng = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    for prefix, count in (("train", train), ("t10k", test)):
        labels = [i % CLASSES for i in range(count)]
        rng.shuffle(labels)
        files = {f"{prefix}-images-idx3-ubyte": idx((count, rows, columns),
                                                    images(labels, rows, columns, rng)),
                 f"{prefix}-labels-idx1-ubyte": idx((count,), labels)}
        for name, data in files.items():
            put(os.path.join(folder, name + (".gz" if packed else "")),
                gzip.compress(data) if packed else data)


def put(path, data):
    with open(path, "wb") as file:
        file.write(data)


def get(path):
    with open(path, "rb") as file:
        return file.read()


def tree(folder):
    """Returns every file below a folder with its bytes."""
    found = {}
    for base, folders, names in os.walk(folder):
        for name in names:
            found[os.path.join(base, name)] = get(os.path.join(base, name))
        for name in folders:
            found[os.path.join(base, name)] = None
    return found


def tensors(path):
    """Returns the tensors of a safetensors file as lists of floats."""
    data = get(path)
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    found = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            found[name] = array.array("f", data[8 + length + begin:8 + length + end])
    return found


def records(path):
    """Returns the objects of a metrics file: those of steps, then those of epochs."""
    lines = [json.loads(line) for line in get(path).decode().splitlines()]
    return [r for r in lines if "step" in r], [r for r in lines if "step" not in r]


class CommandTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.data = self.path("data")
        write_data(self.data)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def cache_folder(self):
        """Makes a cache folder without measurements, whose compiled kernels are those of the usual folders."""
        folder = self.path("cache")
        usual = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        os.mkdir(folder)
        for name, place in (("programs", os.path.join(usual, "cltrain", "programs")),
                            ("pocl", os.environ.get("POCL_CACHE_DIR") or os.path.join(usual, "pocl", "kcache"))):
            os.makedirs(place, exist_ok=True)
            os.symlink(place, os.path.join(folder, name))
        return folder

    def keep_measurements(self):
        """Makes commands that name no cache folder read and write measurements of this test only. Other tests compare
        bits of runs, which must not change kernels between them."""
        folder = self.cache_folder()
        os.mkdir(self.path("home"))
        os.symlink(folder, self.path("home", "cltrain"))
        own = mock.patch.dict(os.environ, XDG_CACHE_HOME=self.path("home"), POCL_CACHE_DIR=os.path.join(folder, "pocl"))
        own.start()
        self.addCleanup(own.stop)

    def run_command(self, *args, code=0, **options):
        done = subprocess.run([COMMAND, *map(str, args)], capture_output=True, text=True,
                              timeout=240, **options)
        self.assertEqual(done.returncode, code, f"{args}\n{done.stdout}\n{done.stderr}")
        return done

    def arguments(self, *args, model="mlp", batch=16, devices=DEVICE):
        # Kernels are measured by tests of measuring only: measuring compiles many more.
        usual = {"--model": model, "--data": "idx:" + self.data, "--devices": devices, "--batch": batch,
                 "--tune": "off"}
        return ["train", *(word for option in usual.items() if option[0] not in args for word in option), *args]

    def train(self, *args, code=0, **options):
        names = {k: options.pop(k) for k in ("model", "batch", "devices") if k in options}
        return self.run_command(*self.arguments(*args, **names), code=code, **options)

    def start(self, *args, **options):
        names = {k: options.pop(k) for k in ("model", "batch", "devices") if k in options}
        child = subprocess.Popen([COMMAND, *map(str, self.arguments(*args, **names))],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                 **options)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child

    def assert_message(self, text, *parts):
        """Checks that standard error has a single line with all these parts."""
        self.assertTrue(text.startswith("cltrain: "), text)
        self.assertEqual(text.count("\n"), 1, text)
        for part in parts:
            self.assertIn(part, text)

    def assert_bad(self, *args, code, says=(), **options):
        """Checks that the command fails with one line and changes no file of the test."""
        before = tree(self.folder)
        done = self.run_command(*args, code=code, **options)
        self.assert_message(done.stderr, *says)
        self.assertEqual(tree(self.folder), before)
        return done


def cores():
    """Returns the compute units of the device that tests use, or 0 if there is none."""
    done = subprocess.run([COMMAND, "devices", "--json"], capture_output=True, text=True,
                          timeout=120, check=True)
    units = [d["compute_units"] for d in json.loads(done.stdout)["devices"]
             if d["suffix"] == DEVICE and d["usable"]]
    return max(units, default=0)


def main():
    if not cores():
        print("no PoCL device: skipped")
        sys.exit(77)
    unittest.main(module="__main__")
