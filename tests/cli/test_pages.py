"""Runs the command lines of the pages in a shell, in their order, on small data. Only models, steps and batches are
smaller than on the page (page_command.py)."""
import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib

from command import COMMAND, CommandTest, main, put

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PAGES = ["README.md"] + [f"docs/{name}" for name in sorted(os.listdir(os.path.join(ROOT, "docs"))) if name.endswith(".md")]
# Lines that cannot run here: a part of the line, and why.
LEFT_OUT = {
    "gpu,pocl": "needs a GPU",
    "--parallel MESH": "MESH stands for each mesh of a table",
    "OPTIONS": "stands for options of other lines",
    "/shared/beats": "needs a second shell",
    "--checkpoint model.safetensors": "needs the weights of GPT-2",
}


def lines_of(page):
    """Returns the lines of a page's indented blocks that run the command, without their explanations."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = re.sub(r"^```.*?^```$", "", file.read(), flags=re.M | re.S)
    block = "\n".join(line[4:] if line.startswith("    ") else "" for line in text.split("\n"))
    found = []
    for line in re.sub(r"\\\n\s*", "", block).split("\n"):
        # Two spaces or more separate the command from its explanation.
        line = re.split(r"\s+# |(?<=\S)\s{2,}(?=[a-z])", line.strip())[0]
        if re.search(r"(^|\s)cltrain(-launch)?\s", line) and not line.startswith(("cc ", "c++ ", "gfortran ", "spack ")):
            found.append(line)
    return found


def png(width, height, rng):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + rng.randbytes(3 * width) for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Pages(CommandTest):
    def setUp(self):
        super().setUp()
        self.keep_measurements()
        rng = random.Random(1)
        for folder, classes in (("BIRDS", ("crane", "wren", "tern")), ("BOATS", ("barge", "yawl", "punt", "scow"))):
            for name in classes:
                for split, count in (("train", 20), ("val", 4)):
                    os.makedirs(self.path(folder, split, name))
                    for i in range(count):
                        put(self.path(folder, split, name, f"{i}.png"), png(40, 36, rng))
        os.mkdir(self.path("photos"))
        for name in ("photos/a.jpg", "photos/b.jpg", "photo.png", "scan.jpg"):
            put(self.path(name), png(28, 28, rng))
        put(self.path("book.txt"), b"In the beginning there was a text. " * 400)
        shutil.copy(self.path("book.txt"), self.path("bible.txt"))
        rows = "".join(f"{i},{rng.random():.3f},{'ab'[i % 2]},{3 * i}\n" for i in range(100))
        put(self.path("houses.csv"), ("id,area,street,price\n" + rows).encode())
        put(self.path("new.csv"), b"area,street\n0.5,a\n0.25,b\n")
        rows = "".join(f"{rng.random():.3f},{'yes' if i % 4 == 0 else 'no'}\n" for i in range(80))
        put(self.path("claims.csv"), ("amount,paid\n" + rows).encode())
        shutil.copytree(os.path.join(ROOT, "tests", "goldens", "tokenizer"), self.path("DIR"))
        # Published weights, whose vocabulary is that of the tokenizer in DIR.
        self.run_command("data", "tokenize", "--tokenizer", "gpt2:" + self.path("DIR"), "-o", self.path("published.bin"),
                         self.path("book.txt"))
        self.run_command("train", "--model", "gpt2:nano", "--data", "tokens:" + self.path("published.bin"), "--seq-len", "16",
                         "--batch", "4", "--steps", "1", "--tune", "off", "--checkpoint-dir", self.path("start"))
        shutil.copy(self.path("start", os.listdir(self.path("start"))[0], "model.safetensors"), self.folder)
        with zipfile.ZipFile(self.path("in.npz"), "w") as file:
            head = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 28, 28), }".ljust(117) + "\n"
            file.writestr("image.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode()
                          + bytes(4 * 3 * 28 * 28))
        os.mkdir(self.path("bin"))
        for name, words in (("cltrain", [sys.executable, os.path.join(HERE, "page_command.py"), os.path.abspath(COMMAND)]),
                            ("cltrain-launch", [os.path.join(ROOT, "tools/cltrain-launch"), "--program",
                                                self.path("bin", "cltrain")])):
            put(self.path("bin", name), f"#!/bin/sh\nexec {' '.join(words)} \"$@\"\n".encode())
            os.chmod(self.path("bin", name), 0o755)

    def test_left_out(self):
        lines = "\n".join(line for page in PAGES for line in lines_of(page))
        for part in LEFT_OUT:
            self.assertTrue(part in lines, f"no page has a line with {part}")

    def run_page(self, page):
        environment = dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"])
        lines = lines_of(page)
        self.assertTrue(lines, page)
        for line in lines:
            if any(part in line for part in LEFT_OUT):
                continue
            with self.subTest(page=page, line=line):
                done = subprocess.run(["bash", "-euc", line], cwd=self.folder, env=environment, capture_output=True,
                                      text=True, timeout=300, check=False)
                self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


    def test_model_files(self):
        """The model of docs/models.md, with each addition that the page shows."""
        with open(os.path.join(ROOT, "docs", "models.md"), encoding="utf-8") as file:
            text = file.read()
        model = json.loads(re.search(r"^    {\n.*?^    }\n", text, re.M | re.S)[0])
        parts = [json.loads("{" + row + "}") for row in re.findall(r'^    ("\w+": \[.*\])$', text, re.M)]
        self.assertEqual([list(part) for part in parts], [["tp"], ["inputs"], ["pp"]])
        for part, mesh in zip(parts, ("tp=2", "space=2", "pp=2")):
            with self.subTest(part=part):
                whole = {**model, **part}
                whole["inputs"] = part.get("inputs", []) + model["inputs"][len(part.get("inputs", [])):]
                put(self.path("net.json"), json.dumps(whole).encode())
                data = "synthetic:3x64x64" if mesh == "space=2" else "synthetic:1x28x28"
                self.run_command("plan", "--model", self.path("net.json"), "--data", data, "--batch", "16", "--devices",
                                 "pocl/2", "--parallel", mesh, *(["--accumulate", "2"] if mesh == "pp=2" else []))


def of_page(page):
    return lambda self: self.run_page(page)


for path in PAGES:
    if lines_of(path):
        setattr(Pages, "test_" + os.path.basename(path)[:-3].lower(), of_page(path))


main()
