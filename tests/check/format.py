"""Checks that clang-format would not change any .c, .h, .cpp and .hpp file. It does not know OpenCL C well
enough."""
import subprocess
import sys

import source


def main(root, clang_format):
    paths = source.files(root, ".c", ".h", ".cpp", ".hpp")
    run = subprocess.run([clang_format, "--dry-run", "-Werror", "--style=file"] + paths, cwd=root,
                         capture_output=True, text=True)
    wrong = sorted({line.split(":")[0] for line in run.stderr.splitlines() if ": error:" in line})
    if run.returncode and not wrong:
        wrong = [run.stderr.strip()]
    problems = [f"{path}: clang-format -i {path}" for path in wrong]
    return source.report("format", problems, f"{len(paths)} files")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
