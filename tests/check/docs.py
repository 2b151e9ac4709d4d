"""Checks that the things which README and docs/ name exist: files, links, headings, subcommands,
options, functions and settings. Also checks that README's program is the example's."""
import fnmatch
import os
import re
import subprocess
import sys

import source

README_LINES = 130
PROGRAM = "models/examples/first.c"
FOLDERS = ("runtime/", "clkernels/", "comm/", "models/", "tests/", "tools/", "docs/", "cmake/")
# The page with a table of the public headers.
HEADERS = "docs/embedding.md"
INCLUDES = ("runtime/include/cltrain", "models/include/cltrain")
# Words of a path that are placeholders.
PLACES = re.compile(r"<\w+>|\b(FAMILY|DEVICE|NAME|OP|N)\b|\.\.\.")


def pages(root):
    """Returns every page except reports of measurements, which keep old names of files."""
    found = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "tools/peers/README.md", "tests/baseline/README.md"]
    found += [f"docs/{name}" for name in sorted(os.listdir(os.path.join(root, "docs"))) if name.endswith(".md")]
    return [page for page in found if os.path.exists(os.path.join(root, page))]


def blocks(text):
    """Returns the lines of code blocks. A line that ends in a backslash is joined with the next."""
    lines = [line[4:] for line in text.split("\n") if line.startswith("    ")]
    return re.sub(r"\\\n\s*", " ", "\n".join(lines)).split("\n")


def headings(text):
    """Returns the anchors that GitHub makes of the headings."""
    found = re.findall(r"^#+ (.*)$", text, re.M)
    return {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in found}


def example_files(root):
    """Returns the paths that the worked examples of CONTRIBUTING.md would add to the tree; see
    examples.py."""
    folder = os.path.join(root, "tests/check/examples")
    patches = [source.read(folder, name) for name in sorted(os.listdir(folder))]
    return {path for patch in patches for path in re.findall(r"^\+\+\+ b/(.*)$", patch, re.M)}


def exists(root, tree, path):
    return path in tree or path.rstrip("/") in tree or bool(fnmatch.filter(tree, path))


def check_paths(root, tree, page, text):
    """Checks paths of the tree in backticks and in code blocks."""
    problems = []
    code = "\n".join(blocks(text))
    for path in re.findall(r"`([\w./*-]+)`", text) + re.findall(r"(?<![\w/.~-])(?:[\w.*-]+/)+[\w.*-]*", code):
        if path.startswith(FOLDERS) and not PLACES.search(path) and not exists(root, tree, path):
            problems.append(f"{page}: {path} is not in the tree")
    endings = {"/".join(parts[i:]) for parts in (path.split("/") for path in tree) for i in range(len(parts))}
    return problems + [f"{page}: no file of the tree is {path}"
                       for path in re.findall(r"`([\w/]+\.(?:c|h|clh?|py))`", text) if path not in endings]


def words_of(text):
    """Returns names of C, CMake and the environment that begin with clt_ or CLT_, without
    unfinished names."""
    return set(re.findall(r"\b(?:clt|CLT)_\w*[a-zA-Z0-9]\b(?![<*])", text))


def check_words(page, text, known):
    return [f"{page}: there is no {word}" for word in sorted(words_of(text) - known)]


def check_links(root, page, text):
    problems = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        whole = os.path.normpath(os.path.join(root, os.path.dirname(page), path)) if path else os.path.join(root, page)
        if not os.path.exists(whole):
            problems.append(f"{page}: link to {target}, which does not exist")
        elif anchor and anchor not in headings(open(whole, encoding="utf-8").read()):
            problems.append(f"{page}: link to {target}, which has no such heading")
    return problems


def command_options(command):
    """Returns {subcommand: options}, read from the command's --help."""
    def help_of(*words):
        return subprocess.run([command, *words, "--help"], capture_output=True, text=True, check=True).stdout
    found = {"models": {"--help"}, "help": set()}
    for name in re.findall(r"^  (\w+) ", help_of(), re.M):
        if name not in found:
            found[name] = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", help_of(name), re.M))
    return found


def check_commands(page, text, options):
    """Checks lines that run the command."""
    problems = []
    for line in blocks(text):
        # Two spaces or more separate the command from its explanation.
        line = re.split(r"\s+# |(?<=\S)\s{3,}(?=[a-z])", line.strip())[0]
        found = re.search(r"(?:^|\s)(?:\S*/)?cltrain ([a-z]+)(.*)|cltrain-launch .*? -- (train)(.*)", line)
        if not found or line.startswith(("cc ", "#", "tests/", "make")):
            continue
        name, rest = found.group(1) or found.group(3), found.group(2) or found.group(4) or ""
        if name not in options:
            problems.append(f"{page}: `{line}`: there is no subcommand {name}")
            continue
        problems += [f"{page}: `{line}`: {name} has no option {option}"
                     for option in re.findall(r"(?<=\s)--[\w-]+", rest) if option not in options[name]]
    return problems


def check_readme(root):
    text = source.read(root, "README.md")
    problems = []
    lines = text.count("\n")
    if lines > README_LINES:
        problems.append(f"README.md: {lines} lines, {README_LINES} at most")
    program = re.search(r"^```c\n(.*?)^```$", text, re.M | re.S)
    if not program or program.group(1) != source.read(root, PROGRAM):
        problems.append(f"README.md: its program in C is not {PROGRAM}")
    return problems


def check_headers(page, text, headers):
    """Checks that the page's table of headers has each public header."""
    rows = re.findall(r"^\| (`\w+\.h`.*?) \|", text, re.M)
    named = set(re.findall(r"\w+\.h", " ".join(rows))) | {"cltrain.h", "unstable.h"}  # these two are in sentences
    return [f"{page}: {name} is not in its table" for name in sorted(set(headers) - named)]


def check_installed(root):
    """Checks the links of all pages below a folder."""
    found = [os.path.relpath(os.path.join(base, name), root)
             for base, _, names in os.walk(root) for name in names if name.endswith(".md")]
    problems = [problem for page in found for problem in check_links(root, page, source.read(root, page))]
    problems += [] if "README.md" in found else [f"{root}: no README.md"]
    return source.report("docs", problems, f"the links of {len(found)} installed pages lead somewhere")


def main(root, command):
    tree = set()
    for folder in FOLDERS:
        for base, folders, names in os.walk(os.path.join(root, folder)):
            folders[:] = [f for f in folders if not f.startswith((".", "__"))]
            tree |= {os.path.relpath(os.path.join(base, name), root) for name in folders + names}
    tree |= {folder.rstrip("/") for folder in FOLDERS} | example_files(root)
    options = command_options(command)
    headers = [name for folder in INCLUDES for name in os.listdir(os.path.join(root, folder)) if name.endswith(".h")]
    problems = check_readme(root) + check_headers(HEADERS, source.read(root, HEADERS), headers)
    checked = pages(root)
    sources = source.files(root, ".c", ".h", ".hpp", ".f90", ".cl", ".clh", ".cmake", ".txt", ".patch", ".sh") + \
        ["CMakeLists.txt"]
    known = set().union(*(words_of(source.read(root, path)) for path in sources))
    for page in checked:
        text = source.read(root, page)
        problems += check_paths(root, tree, page, text)
        problems += check_links(root, page, text)
        problems += check_words(page, text, known)
        problems += check_commands(page, text, options)
    return source.report("docs", problems, f"{len(checked)} pages name what is there")


if __name__ == "__main__":
    sys.exit(check_installed(sys.argv[2]) if sys.argv[1] == "--installed" else main(sys.argv[1], sys.argv[2]))
