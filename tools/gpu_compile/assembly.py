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


def flow(lines):
    """For each line those that may follow it."""
    labels = {}
    for i, line in enumerate(lines):
        label = re.match(r"([.$]?\w+):", line)
        if label:
            labels[label.group(1)] = i
    follows = []
    for i, line in enumerate(lines):
        branch = re.search(r"\b(s_c?branch\w*|bra(?:\.uni)?)\s+([.$]?\w+)", line)
        always = not line.startswith("@") and not line.startswith("s_cbranch")
        to = [i + 1] if i + 1 < len(lines) else []
        if branch and branch.group(2) in labels:
            to = [labels[branch.group(2)]] + ([] if always else to)
        elif always and re.match(r"(ret;|exit;|trap;|s_endpgm)", line):
            to = []
        follows.append(to)
    return follows


def blocks(lines):
    """[(first, last line, those that may follow)] of what runs as one, in the order of the lines."""
    follows = flow(lines)
    starts = {0}
    for i, to in enumerate(follows):
        if to != [i + 1]:
            starts |= {i + 1, *to}
    order = sorted(i for i in starts if i < len(lines))
    number = {first: n for n, first in enumerate(order)}
    lasts = [first - 1 for first in order[1:]] + [len(lines) - 1]
    return [(first, last, [number[i] for i in follows[last]]) for first, last in zip(order, lasts)]


def dominators(follows):
    """For each block the set, as bits, of those that every way from the first one to it goes through; 0: none does."""
    before = [[] for _ in follows]
    for n, to in enumerate(follows):
        for other in to:
            before[other].append(n)
    everything = (1 << len(follows)) - 1
    known = [1] + [everything] * (len(follows) - 1)
    changed = True
    while changed:
        changed = False
        for n in range(1, len(follows)):
            through = everything
            for other in before[n]:
                through &= known[other]
            through = through | 1 << n if before[n] else 0
            changed |= through != known[n]
            known[n] = through
    return before, known


def loops(lines):
    """Of each loop its lines, in order. Compilers put what seldom runs behind the rest, and branch back from there:
    only a branch to what every way to it has passed makes a loop."""
    if not lines:
        return []
    parts = blocks(lines)
    before, known = dominators([to for _, _, to in parts])
    found = {}
    for n, (_, _, to) in enumerate(parts):
        for head in to:
            if not known[n] >> head & 1:
                continue
            body, left = found.setdefault(head, {head}), [n]
            while left:
                at = left.pop()
                if at not in body:
                    body.add(at)
                    left += before[at]
    return [[i for n in sorted(body) for i in range(parts[n][0], parts[n][1] + 1)] for body in found.values()]


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

    Loads count where they are: in the innermost loop around them. Where a loop loads, what stands around it does
    not count, in another loop either, since it runs once."""
    every, bytes_of = [set(loop) for loop in loops(lines)], {}
    for i, line in enumerate(lines):
        count = loaded(line, vendor)
        if count:
            around = min(((len(loop), n) for n, loop in enumerate(every) if i in loop), default=None)
            of = bytes_of.setdefault(around, [0, 0])
            of[0 if count >= WIDE else 1] += count
    outside = bytes_of.pop(None, [0, 0])
    for (_, n), (wide, rest) in bytes_of.items():
        if wide <= rest and not any(every[other] < every[n] for _, other in bytes_of):
            return "a loop"
    return "outside of loops" if not bytes_of and outside[0] <= outside[1] else None


class Inner:
    """The loop with most FMAs that has no other in it, and where loads are narrow."""

    def __init__(self, lines, vendor):
        fma = AMD_FMA if vendor == "amd" else PTX_FMA
        self.fma = self.all = 0
        self.narrow = narrow(lines, vendor)
        every = [set(loop) for loop in loops(lines)]
        for loop in every:
            if any(other < loop for other in every):
                continue
            words = [w for w in (instruction(lines[i], vendor) for i in sorted(loop)) if w]
            # A packed one counts as the two that it is.
            packed = sum(w.startswith("v_pk_fma") for w in words)
            count = sum(bool(fma.match(w)) for w in words) + packed
            if count > self.fma:
                self.fma, self.all = count, len(words) + packed

    def share(self):
        return self.fma / self.all if self.all else None
