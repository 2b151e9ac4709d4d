"""docs/operators.md is what operators_page writes from the schema of the operators."""
import subprocess
import sys

import source


def main(root, program):
    written = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    stale = written != source.read(root, "docs/operators.md")
    problems = ["docs/operators.md is not what the schema says: operators_page >docs/operators.md"] if stale else []
    return source.report("operators", problems, f"{written.count(chr(10))} lines")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
