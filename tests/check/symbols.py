"""Checks that a shared library exports exactly the functions and variables that its public headers
declare: symbols.py ROOT LIBRARY NM [FOLDER OF HEADERS]."""
import re
import subprocess
import sys

import source

DECLARED = re.compile(r"\bCLT_API\b([^;{]*?)\b(\w+)\s*\(", re.DOTALL)
VARIABLE = re.compile(r"\bCLT_API\s+extern\b[^;(]*?\b(\w+)\s*(?:\[[^\]]*\])?\s*;", re.DOTALL)


def declared(text):
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", "", source.blank(text), flags=re.MULTILINE)
    names = {match.group(2) for match in DECLARED.finditer(code)}
    return names | {match.group(1) for match in VARIABLE.finditer(code)}


def dynamic_symbols(nm, which, library):
    run = subprocess.run([nm, "--dynamic", which, "--format=posix", library],
                         capture_output=True, text=True, check=True)
    return {line.split()[0].split("@")[0] for line in run.stdout.splitlines() if line.strip()}


def main(root, library, nm, headers="runtime/include/"):
    exported = dynamic_symbols(nm, "--defined-only", library)
    unresolved = dynamic_symbols(nm, "--undefined-only", library)
    public = {}
    for path in source.files(root, ".h"):
        if path.startswith(headers) and not path.endswith("/mpi.h"):
            for name in declared(source.read(root, path)):
                public[name] = path
    problems = [f"{name}: exported, but no public header declares it with CLT_API"
                for name in sorted(exported - set(public))]
    problems += [f"{name}: exported without the prefix clt_"
                 for name in sorted(exported) if not name.startswith("clt_")]
    problems += [f"{public[name]}: {name} is declared but not defined in the library"
                 for name in sorted(set(public) - exported)]
    problems += [f"{name}: used in the library, but nowhere defined"
                 for name in sorted(unresolved) if name.startswith("clt_") and headers.startswith("runtime/")]
    return source.report("symbols", problems, f"{len(exported)} exported, all declared")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
