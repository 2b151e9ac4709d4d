"""Writes Fortran source: indentation, long lines, comments, names of types."""

import re

# C's scalars in Fortran: the type that programs see, and the type in interfaces.
SCALARS = {
    "int": ("integer(c_int)", "integer(c_int)"),
    "int32_t": ("integer(c_int32_t)", "integer(c_int32_t)"),
    "int64_t": ("integer(c_int64_t)", "integer(c_int64_t)"),
    "uint64_t": ("integer(c_int64_t)", "integer(c_int64_t)"),
    "size_t": ("integer(c_int64_t)", "integer(c_size_t)"),
    "double": ("real(c_double)", "real(c_double)"),
    "float": ("real(c_float)", "real(c_float)"),
}
WIDE = ("int64_t", "uint64_t", "size_t")


class Source:
    """A source file under construction."""

    def __init__(self, text):
        self.lines = []
        self.depth = 0
        self.note(text)

    def put(self, *lines):
        for line in lines:
            self.lines += split(" " * (2 * self.depth) + line if line else "")

    def note(self, text):
        """Writes a comment."""
        for line in text.splitlines():
            self.put(("! " + line).rstrip())

    def open(self, line):
        self.put(line)
        self.depth += 1

    def close(self, line):
        self.depth -= 1
        self.put(line)

    def text(self):
        return "\n".join(self.lines) + "\n"


def split(line, width=120):
    """Returns a line in pieces of at most `width` characters, joined by &."""
    if len(line) <= width or line.lstrip().startswith("!"):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 4)
    pieces = []
    while len(line) > width:
        places = [m.end() for m in re.finditer(r", |; |\.or\. |\.and\. |// ", line[:width - 2])
                  if line[:m.end()].count("'") % 2 == 0 and m.end() > len(indent)]
        if not places:
            raise ValueError("no place to cut: " + line)
        pieces.append(line[:places[-1]].rstrip() + " &")
        line = indent + line[places[-1]:]
    return pieces + [line]


def scalar(item, side=0):
    """Returns the Fortran type of a scalar or enum: for programs, or in interfaces (side 1)."""
    return "integer(c_int)" if item["kind"] == "enum" else SCALARS[item["type"]][side]


def to_c(item, text):
    """Returns an expression of the type in interfaces."""
    return f"int({text}, c_size_t)" if item["type"] == "size_t" else text


def from_c(item, text):
    return f"int({text}, c_int64_t)" if item["type"] == "size_t" else text


def literal(value):
    """Returns an integer constant of the smallest usual kind."""
    if -2**31 < value < 2**31:
        return "integer(c_int)", str(value)
    if value == -2**63:
        return "integer(c_int64_t)", "-huge(0_c_int64_t) - 1_c_int64_t"
    return "integer(c_int64_t)", f"{value}_c_int64_t"
