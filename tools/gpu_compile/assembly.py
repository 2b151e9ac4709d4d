"""Loops and instructions of amdgcn assembly and PTX."""
import re

AMD_FMA = re.compile(r"v_(pk_)?(fma|fmac|mac|mad)(_legacy)?_f32")
PTX_FMA = re.compile(r"fma\.rn(\.ftz)?\.f32")
AMD_WIDE = re.compile(r"(global|flat|buffer)_load_dwordx[24]")
PTX_WIDE = re.compile(r"ld\.global(\.nc)?\.v[24]")


def bodies(text, vendor):
    """{kernel: its lines}, from label to end."""
    found, name = {}, None
    for line in text.splitlines():
        if vendor == "amd":
            begin = re.match(r"(\w+):\s+; @", line)
            end = line.startswith("\t.section") or line.startswith(".Lfunc_end")
        else:
            begin = re.match(r"(?:\.visible )?\.entry (\w+)\(", line)
            end = line.startswith("}")
        if begin:
            name = begin.group(1)
            found[name] = []
        elif end:
            name = None
        elif name:
            found[name].append(line.strip())
    return found


def instruction(line, vendor):
    """The instruction of a line, or None."""
    if vendor == "amd":
        match = re.match(r"((v|s|ds|global|flat|buffer|scratch|exp)_\w+)", line)
        return match and match.group(1)
    if not line.endswith(";") or line.startswith("."):
        return None
    return re.sub(r"^@!?%\w+\s+", "", line)


def loops(lines, vendor):
    """(first, last) line of each loop: from a label to the branch back to it."""
    labels, found = {}, []
    for i, line in enumerate(lines):
        label = re.match(r"([.$]?\w+):", line)
        if label:
            labels[label.group(1)] = i
        branch = re.search(r"\b(?:s_c?branch\w*|bra(?:\.uni)?)\s+([.$]?\w+)", line)
        if branch and branch.group(1) in labels:
            found.append((labels[branch.group(1)], i))
    return found


class Inner:
    """The loop with most FMAs that has no other in it."""

    def __init__(self, lines, vendor):
        fma = AMD_FMA if vendor == "amd" else PTX_FMA
        wide = AMD_WIDE if vendor == "amd" else PTX_WIDE
        self.fma = self.all = 0
        self.wide = any(wide.search(line) for line in lines)
        every = loops(lines, vendor)
        for first, last in every:
            if any(a >= first and b <= last and (a, b) != (first, last) for a, b in every):
                continue
            words = [w for w in (instruction(line, vendor) for line in lines[first:last + 1]) if w]
            # A packed one counts as the two that it is.
            packed = sum(w.startswith("v_pk_fma") for w in words)
            count = sum(bool(fma.match(w)) for w in words) + packed
            if count > self.fma:
                self.fma, self.all = count, len(words) + packed

    def share(self):
        return self.fma / self.all if self.all else None
