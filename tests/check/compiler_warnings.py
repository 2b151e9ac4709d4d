"""The other compiler's opinion: every file of the build through clang's front end, warnings as
errors, with the flags that it is built with, and once more without the tests' hooks. The build itself has
warnings as errors: tools/test builds as Release does, whose optimiser finds what lesser builds do not."""
import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

import source

DROP_NEXT = ("-o", "-MF", "-MT", "-MQ")
HOOKS = "-DCLT_TESTING"
DROP = ("-c", "-MD", "-MMD")


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
    return command + ["-fsyntax-only", "-Werror", "-Wno-unknown-warning-option"]


def main(build, clang):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = {e["file"]: e for e in json.load(file) if not e["file"].startswith(build)}
    def check(entry):
        command = clang_command(clang, entry)
        for words in [command] + [[w for w in command if w != HOOKS]] * (HOOKS in command):
            run = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
            # Messages of #pragma are warnings that -Werror leaves alone.
            if run.returncode or run.stderr:
                return run.stderr.strip()
        return None
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        problems = [message for message in pool.map(check, entries.values()) if message]
    return source.report("clang", problems, f"{len(entries)} files without a warning")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
