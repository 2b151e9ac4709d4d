"""Finds loops and instructions in amdgcn assembly and PTX."""
import re

from mix import Mix, loaded

WIDE = 8 # least bytes per work-item of a vector load


def bodies(text, vendor):
    """Returns {kernel: its lines}, from label to end."""
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


def flow(lines):
    """Returns for each line the lines that may follow it."""
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
    """Returns [(first line, last line, blocks that may follow)] of basic blocks, in the order of
    the lines."""
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
    """Returns for each block its dominators as a bit set: the blocks that every path from the first
    block to it passes. 0: no path reaches the block."""
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
    """Returns the lines of each loop, in order. Compilers put rarely executed code behind the rest
    and branch back from there. So a backward branch makes a loop only if its target dominates
    it."""
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


def narrow(lines, vendor):
    """Returns the place at which most bytes are loaded by loads that are no vectors: "a loop",
    "outside of loops" or None. A load counts in the innermost loop around it. If a loop loads, code
    around it does not count, even in another loop, because it runs rarely."""
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
    """What a kernel's instructions do: `kernel` counts all of them, `loop` those of the innermost
    loop with most products, `reading` those of the innermost loop that loads most bytes (None: no
    loop has any). matrix, beside: instructions of matrix units, and the others, of the smallest loop
    with most of them. `narrow` is the place with narrow loads."""

    def __init__(self, lines, vendor):
        self.matrix = self.beside = 0
        self.narrow = narrow(lines, vendor)
        self.kernel, self.loop, self.reading = Mix(lines, vendor), None, None
        every = [set(loop) for loop in loops(lines)]
        for loop in every:
            mix = Mix([lines[i] for i in sorted(loop)], vendor)
            if mix.matrix and (-mix.matrix, mix.all - mix.matrix) < (-self.matrix, self.beside):
                self.matrix, self.beside = mix.matrix, mix.all - mix.matrix
        for loop in every:
            if any(other < loop for other in every):
                continue
            mix = Mix([lines[i] for i in sorted(loop)], vendor)
            if mix.load_bytes > (self.reading.load_bytes if self.reading else 0):
                self.reading = mix
            if mix.flops() > (self.loop.flops() if self.loop else 0):
                self.loop = mix

    def share(self):
        return self.loop.share() if self.loop else None
