"""Compiles every file of the build with clang's front end. Warnings are errors. The flags are those
of the build, and a file that mentions the tests' hooks is compiled again without them. The build
itself has warnings as errors: tools/test builds in Release, whose optimiser finds more than others.

Files without a warning are remembered in ~/.cache/cltrain/compiler-warnings under a hash of
everything that clang reads: its version, the flags, and the texts of the file and of its includes,
without comments. Ninja knows the includes of a file. Builds by other generators remember
nothing."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

import source

DROP_NEXT = ("-o", "-MF", "-MT", "-MQ")
HOOKS = "-DCLT_TESTING"
DROP = ("-c", "-MD", "-MMD")
KEPT_DAYS = 30
TOGETHER = 8  # files
# Strings come first, because they may contain comment marks.
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)


def without_comments(text):
    """Removes comments, empty lines and insignificant spaces."""
    text = COMMENT.sub(lambda found: found[0] if found[0][0] in "\"'" else " ", text)
    return "\n".join(" ".join(line.split()) for line in text.splitlines() if line.strip())


def clang_command(clang, entry):
    words = shlex.split(entry["command"])[1:]
    command = [clang]
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in DROP_NEXT:
            skip = True
        elif word not in DROP and not word.startswith("-fsanitize"):
            command.append(word)
    command.remove(entry["file"])
    return command + ["-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"]


def dependencies(build):
    """Returns {source: the files that its object was made of}, as far as Ninja knows."""
    try:
        run = subprocess.run(["ninja", "-t", "deps"], cwd=build, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    found = {}
    for block in run.stdout.split("\n\n"):
        head, *lines = block.split("\n")
        if "(VALID)" in head and lines:
            paths = [os.path.normpath(os.path.join(build, line.strip())) for line in lines if line.strip()]
            # A file that several targets compile may have other includes in each.
            found.setdefault(paths[0], set()).update(paths)
    return found


class Memory:
    """Remembers files that had no warning."""

    def __init__(self, build, clang):
        home = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
        self.folder = pathlib.Path(home) / "cltrain" / "compiler-warnings"
        self.build, self.known = build, dependencies(build)
        self.version = subprocess.run([clang, "--version"], capture_output=True, text=True, check=True).stdout
        self.texts, self.words, self.asked, self.hits = {}, {}, 0, 0

    def text(self, path, root):
        """Returns the file's identity: for files of the project a hash of the text, for files of
        the system size and time, which packages keep."""
        if path not in self.texts:
            try:
                stat = os.stat(path)
                self.texts[path] = [stat.st_size, stat.st_mtime]
                if path.startswith(root + os.sep):
                    text = without_comments(pathlib.Path(path).read_text(encoding="utf-8"))
                    self.texts[path] = hashlib.sha256(text.encode()).hexdigest()
            except OSError:
                self.texts[path] = time.time()  # a time that no earlier run had
        return self.texts[path]

    def mentions(self, word, file):
        """Whether the file, or a file of the project that it includes, has the word. True if the
        includes are unknown."""
        for path in self.known.get(file, ()):
            if path not in self.words:
                with open(path, encoding="utf-8", errors="replace") as text:
                    self.words[path] = not path.startswith("/usr") and word in text.read()
        return file not in self.known or any(self.words[path] for path in self.known[file])

    def place(self, words, file, root):
        """Returns the path that exists if the file had no warning with these words; None if the
        includes are unknown."""
        if file not in self.known:
            return None
        relative = [word.replace(self.build, "BUILD").replace(root, "ROOT") for word in [*words, file]]
        read = [(path.replace(root, "ROOT"), self.text(path, root)) for path in sorted(self.known[file])]
        return self.folder / hashlib.sha256(json.dumps([self.version, relative, read]).encode()).hexdigest()

    def has(self, place):
        """Whether the path exists. Also marks it as used, so that trim keeps it."""
        self.asked += 1
        try:
            os.utime(place)
        except (OSError, TypeError):
            return False
        self.hits += 1
        return True

    def keep(self, place):
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            place.touch()
        except (OSError, AttributeError):
            pass  # the next run compiles the file again

    def trim(self):
        for path in self.folder.glob("*"):
            if time.time() - path.stat().st_mtime > KEPT_DAYS * 86400:
                path.unlink(missing_ok=True)


def main(build, clang):
    build = os.path.abspath(build)
    root = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = {e["file"]: e for e in json.load(file) if not e["file"].startswith(build)}
    memory = Memory(build, clang)

    groups = {}  # (folder, words): files to compile with these words
    for file, entry in entries.items():
        command = clang_command(clang, entry)
        twice = HOOKS in command and memory.mentions(HOOKS[2:], file)
        for words in [command] + [[w for w in command if w != HOOKS]] * twice:
            if not memory.has(memory.place(words, file, root)):
                groups.setdefault((entry["directory"], tuple(words)), []).append(file)

    def check(job):
        (folder, words), files = job
        run = subprocess.run([*words, *files], cwd=folder, capture_output=True, text=True)
        # -Werror does not turn messages of #pragma into errors.
        if run.returncode or run.stderr:
            return run.stderr.strip()
        for file in files:
            memory.keep(memory.place(list(words), file, root))
        return None

    # Clang takes a third of its time to begin, so several files share a process.
    jobs = [(key, files[i:i + TOGETHER]) for key, files in groups.items() for i in range(0, len(files), TOGETHER)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [message for message in pool.map(check, jobs) if message]
    memory.trim()
    return source.report("clang", problems, f"{len(entries)} files without a warning, "
                         f"{memory.hits} of {memory.asked} checks known from earlier runs")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
