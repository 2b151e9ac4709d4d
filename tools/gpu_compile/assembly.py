"""Loops and instructions of amdgcn assembly and PTX."""
import re

AMD_FMA = re.compile(r"v_(pk_)?(fma|fmac|mac|mad)(_legacy)?_f32")
PTX_FMA = re.compile(r"fma\.rn(\.ftz)?\.f32")
AMD_LOAD = re.compile(r"(?:global|flat|buffer)_load_(?:dwordx([234])|(dword)|[su](byte|short)|(short))")
PTX_LOAD = re.compile(r"ld(?:\.volatile)?\.global(?:\.nc)?(?:\.v([24]))?\.[busf](8|16|32|64)")
WIDE = 8 # bytes of a work-item that a vector load brings at least


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


def ends(lines, at):
    """Whether the kernel ends behind line `at` without a branch."""
    for line in lines[at + 1:]:
        if re.match(r"(ret;|s_endpgm)", line):
            return True
        if re.search(r"\b(s_c?branch\w*|bra(\.uni)?)\s", line):
            return False
    return True


def loops(lines, vendor):
    """(first, last) line of each loop: from a label to the branch back to it."""
    labels, found = {}, []
    for i, line in enumerate(lines):
        label = re.match(r"([.$]?\w+):", line)
        if label:
            labels[label.group(1)] = i
        branch = re.search(r"\b(?:s_c?branch\w*|bra(?:\.uni)?)\s+([.$]?\w+)", line)
        # A way out may stand before the branch to it.
        if branch and branch.group(1) in labels and not ends(lines, labels[branch.group(1)]):
            found.append((labels[branch.group(1)], i))
    return found


def loaded(line, vendor):
    """Bytes that the line loads from global memory for a work-item; 0: it is no such load."""
    if vendor == "amd":
        match = AMD_LOAD.match(line)
        if not match:
            return 0
        if match.group(1) or match.group(2):
            return 4 * int(match.group(1) or 1)
        return 1 if match.group(3) == "byte" else 2
    match = PTX_LOAD.search(line)
    return int(match.group(1) or 1) * int(match.group(2)) // 8 if match else 0


def narrow(lines, vendor):
    """Where most of what is loaded comes by loads that are no vectors: "a loop", "outside of loops" or None.

    Loads count where they are: in the innermost loop around them. Where loops load, what stands outside of them
    does not count, since it runs once."""
    every, bytes_of = loops(lines, vendor), {}
    for i, line in enumerate(lines):
        count = loaded(line, vendor)
        if count:
            around = min(((b - a, a) for a, b in every if a <= i <= b), default=None)
            of = bytes_of.setdefault(around, [0, 0])
            of[0 if count >= WIDE else 1] += count
    outside = bytes_of.pop(None, [0, 0])
    for wide, rest in bytes_of.values():
        if wide <= rest:
            return "a loop"
    return "outside of loops" if not bytes_of and outside[0] <= outside[1] else None


class Inner:
    """The loop with most FMAs that has no other in it, and where loads are narrow."""

    def __init__(self, lines, vendor):
        fma = AMD_FMA if vendor == "amd" else PTX_FMA
        self.fma = self.all = 0
        self.narrow = narrow(lines, vendor)
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
