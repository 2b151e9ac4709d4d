"""Finds the command cltrain for cltrain-launch."""
import os
import shutil

NAME = "cltrain"
# Build folders of a clone, which the pages name.
BUILDS = ("build", "build-quickstart", "build-test")
HELP = f"the command {NAME} (default: beside this program; in a clone in {', '.join(BUILDS)}; on the path)"


def builds(here):
    """Returns the folders in which builds of a clone put the command. `here` is the folder of the launcher."""
    clone = os.path.dirname(here)
    return [os.path.join(clone, build, "bin") for build in BUILDS] if os.path.exists(os.path.join(clone, "CMakeLists.txt")) else []


def find_program(parser, asked, here):
    """Returns the command: `asked` by --program, or the first that is found. In a clone, a folder lies beside the launcher
    that has the command's name."""
    if asked:
        return asked if shutil.which(asked) else parser.error(f"{asked} is not a program: name one with --program")
    places = [here, *builds(here)]
    found = shutil.which(NAME, path=os.pathsep.join(places)) or shutil.which(NAME)
    return found or parser.error(f"the command {NAME} is neither in {', '.join(places)} nor on the path: build it, or name "
                                 "it with --program")
