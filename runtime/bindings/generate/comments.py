"""Finds the comment of a declaration in a header's text: the one that ends on the line before it, and
the one behind it on its last line. Declarations that follow each other without a blank line share the
comment before the first."""
import re

TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def plain(comment):
    """Returns a comment's text without its delimiters and the stars of its lines."""
    if comment.startswith("//"):
        return comment[2:].strip()
    lines = comment[2:-2].split("\n")
    lines = [lines[0]] + [re.sub(r"^\s*\* ?", "", line) for line in lines[1:]]
    while lines and not lines[0].strip():
        lines.pop(0)
    while lines and not lines[-1].strip():
        lines.pop()
    if lines:
        lines[0] = lines[0].strip()
    return "\n".join(line.rstrip() for line in lines)


class Header:
    """A header's text, with the code and the comments of each line (numbered from 1)."""

    def __init__(self, text):
        self.code = [""] + text.split("\n")
        self.before = {}  # the line on which a comment of its own lines ends: its text
        self.behind = {}  # the line on which a comment behind code begins: its text
        blanked = list(text)
        for match in TOKEN.finditer(text):
            if match.group(0).startswith('"'):
                continue
            first = text.count("\n", 0, match.start()) + 1
            last = first + match.group(0).count("\n")
            begin = text.rfind("\n", 0, match.start()) + 1
            if text[begin:match.start()].strip():
                self.behind[first] = plain(match.group(0))
            else:
                self.before[last] = plain(match.group(0))
            for place in range(match.start(), match.end()):
                if text[place] != "\n":
                    blanked[place] = " "
        self.code = [""] + "".join(blanked).split("\n")
        self.commented = [""] + text.split("\n")

    def first_line(self, line, ends=";"):
        """Returns the line on which the declaration begins that has its name on `line`. `ends` are
        the characters that end such declarations."""
        while line > 1:
            above = self.code[line - 1].strip()
            if not above or above.endswith((";", "{", "}", *ends)) or above.startswith("#"):
                break
            if above in ("CLT_BEGIN_DECLS", "CLT_END_DECLS"):
                break
            line -= 1
        return line

    def last_line(self, line, ends=";"):
        if "\n" in ends:
            return line
        while line < len(self.code) - 1 and not any(end in self.code[line] for end in ends):
            line += 1
        return line

    def doc(self, line, ends=";", group=False):
        """Returns the doc of the declaration whose name is on `line` (1 is the first). With `group`,
        a comment behind a declaration adds to the comment that it shares."""
        first, last = self.first_line(line, ends), self.last_line(line, ends)
        behind = self.behind.get(last, "")
        above = first
        while above > 1:
            if above - 1 in self.before:
                return "\n".join(part for part in (self.before[above - 1], behind) if part)
            if behind and not group or not self.commented[above - 1].strip():
                break
            code = self.code[above - 1].strip()
            if not code.endswith(tuple(ends)) or code.startswith("#") or "}" in code:
                break
            above = self.first_line(above - 1, ends)
            if not group and self.behind.get(self.last_line(above, ends)):
                break
        return behind

    def head(self):
        """Returns the comment at the begin of the header."""
        return self.before[min(self.before)] if self.before else ""
