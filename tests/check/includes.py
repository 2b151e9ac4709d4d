"""Checks include directions, and where OpenCL and MPI may be called."""
import re
import sys

import source

# Folder of the library -> other folders whose internal headers it may include.
MAY = {
    "base": (),
    "device": ("base",),
    "graph": ("base",),
    "data": ("base",),
    "checkpoint": ("base",),
    "comm": ("base", "device"),
    "ops": ("base", "graph"),
    "passes": ("base", "graph", "ops"),
    "plan": ("base", "graph", "ops", "passes"),
    "exec": ("base", "graph", "ops", "plan", "device"),
    "tune": ("base", "graph", "ops", "passes", "plan", "device", "exec"),
    "train": ("base", "graph", "ops", "passes", "plan", "device", "exec", "tune", "data",
              "checkpoint", "comm"),
}
# Folders of the command, in tools/cltrain/.
COMMAND = ("text", "options", "devices", "ranks", "datasets", "job", "saved", "output", "bench", "commands")
# Folders whose files may include <cltrain/unstable.h>: those that define a part of it, and the
# command. Models and their examples show what users write, so they use the stable API only.
UNSTABLE = ("graph", "ops", "plan", "device", "tune", "train", "tools")
OPENCL_FOLDERS = ("device", "exec", "tune", "comm")
OPENCL_HEADERS = ("cltrain/opencl.h", "cltrain/comm.h")

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"\n]+)[>"]', re.MULTILINE)
OPENCL_CALL = re.compile(r"\b(cl[A-Z]\w*)\s*\(")
MPI_NAME = re.compile(r"\bP?MPI_\w+")
MPI_INIT = re.compile(r"\bMPI_Init(_thread)?\b")


def folder_of(path):
    """Returns 'ops' for runtime/ops/..., 'public' for public headers, otherwise the top-level
    folder."""
    parts = path.split("/")
    if path.startswith(("runtime/include/", "models/include/")):
        return "public"
    if parts[0] == "runtime":
        return parts[1]
    return parts[0]


def check_include(path, quote, name):
    """Returns the problem of an include line, or None."""
    folder = folder_of(path)
    top = name.split("/")[0]
    if name == "cltrain/unstable.h" and folder in (*MAY, "models", "public") and folder not in UNSTABLE:
        return f"<cltrain/unstable.h> is for {', '.join(UNSTABLE)}"
    opencl = top in ("CL", "OpenCL") or name in OPENCL_HEADERS
    mpi = name in ("mpi.h", "cltrain/mpi.h")
    if folder == "public":
        if quote == '"':
            return "public headers include <cltrain/...> only"
        own = path[len("runtime/include/"):]
        if opencl and own not in OPENCL_HEADERS and not (own == "cltrain/mpi.h" and name == "cltrain/comm.h"):
            return "only <cltrain/opencl.h> and <cltrain/comm.h> may need OpenCL headers"
        if mpi and path != "runtime/include/cltrain/mpi.h":
            return "only <cltrain/mpi.h> may need MPI's header"
        return None
    if folder in ("models", "tools", "bindings"):
        own = folder == "tools" and top in COMMAND
        if quote == '"' and "/" in name and not own:
            return f"{folder} uses public headers only"
        if top in MAY:
            return f"{folder} uses public headers only"
        if opencl and not path.startswith("models/examples/") and folder != "bindings":
            return f"OpenCL is not used in {folder}"
        return None
    if folder not in MAY:
        return None
    # train makes the communicator. It needs OpenCL's types in the header, but calls nothing of
    # OpenCL.
    connects = folder == "train" and name == "cltrain/comm.h"
    if opencl and folder not in OPENCL_FOLDERS and not connects:
        return f"OpenCL belongs to {', '.join(OPENCL_FOLDERS)}"
    if mpi and not path.startswith("comm/mpi/"):
        return "MPI belongs to comm/mpi"
    if quote == '"' and top != folder and top not in MAY[folder]:
        allowed = ", ".join((folder,) + MAY[folder])
        return f"{folder} may include from: {allowed}"
    return None


def check_file(path, text):
    problems = []
    code = source.uncomment(text)
    for match in INCLUDE.finditer(code):
        complaint = check_include(path, match.group(1), match.group(2))
        if complaint:
            line = source.line_of(code, match.start(1))
            problems.append(f"{path}:{line}: includes {match.group(2)}: {complaint}")
    folder = folder_of(path)
    library = folder in MAY or folder == "public" or path.startswith("models/")
    example = path.startswith("models/examples/")
    code = source.blank(text)
    if library and not example and folder not in OPENCL_FOLDERS:
        for match in OPENCL_CALL.finditer(code):
            problems.append(f"{path}:{source.line_of(code, match.start())}: {match.group(1)}: "
                            f"OpenCL is called in {', '.join(OPENCL_FOLDERS)} alone")
    mpi_place = path.startswith("comm/mpi/") or path == "runtime/include/cltrain/mpi.h"
    if library and not example and not mpi_place:
        for match in MPI_NAME.finditer(code):
            problems.append(f"{path}:{source.line_of(code, match.start())}: {match.group(0)}: "
                            "MPI is called in comm/mpi alone")
    if library and not example:
        for match in MPI_INIT.finditer(code):
            problems.append(f"{path}:{source.line_of(code, match.start())}: {match.group(0)}: "
                            "the library never initialises MPI")
    return problems


def main(root):
    paths = source.files(root, ".c", ".h", ".def")
    problems = []
    for path in paths:
        problems += check_file(path, source.read(root, path))
    return source.report("include directions", problems, f"{len(paths)} files keep to the layout")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
