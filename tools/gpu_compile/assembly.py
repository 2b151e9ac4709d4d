"""Finds loops and instructions in amdgcn assembly and PTX."""
import re

AMD_FMA = re.compile(r"v_(pk_)?(fma|fmac|mac|mad)(_legacy)?_f32")
PTX_FMA = re.compile(r"fma\.rn(\.ftz)?\.f32")
AMD_MATRIX = re.compile(r"v_(mfma|wmma)_f32_16x16x16_?b?f16")
PTX_MATRIX = re.compile(r"mma\.sync\.aligned\.m16n8k16\.row\.col\.f32\.b?f16")
AMD_LOAD = re.compile(r"(?:global|flat|buffer)_load_(?:dwordx([234])|(dword)|[su](byte|short)|(short))")
PTX_LOAD = re.compile(r"ld(?:\.volatile)?\.global(?:\.nc)?(?:\.v([24]))?\.[busf](8|16|32|64)")
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


def instruction(line, vendor):
    """Returns the instruction of a line, or None."""
    if vendor == "amd":
        match = re.match(r"((v|s|ds|global|flat|buffer|scratch|exp)_\w+)", line)
        return match and match.group(1)
    if not line.endswith(";") or line.startswith((".", "//")):
        return None
    return re.sub(r"^@!?%\w+\s+", "", line)


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


def loaded(line, vendor):
    """Returns the bytes that the line loads from global memory for a work-item; 0: it is no such
    load."""
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
    """The innermost loop with most FMAs, the smallest loop with most instructions of matrix units, and the place with
    narrow loads."""

    def __init__(self, lines, vendor):
        fma = AMD_FMA if vendor == "amd" else PTX_FMA
        matrix = AMD_MATRIX if vendor == "amd" else PTX_MATRIX
        self.fma = self.all = self.matrix = self.beside = 0
        self.narrow = narrow(lines, vendor)
        every = [set(loop) for loop in loops(lines)]
        for loop in every:
            words = [w for w in (instruction(lines[i], vendor) for i in loop) if w]
            products = sum(bool(matrix.match(w)) for w in words)
            if products and (-products, len(words) - products) < (-self.matrix, self.beside):
                self.matrix, self.beside = products, len(words) - products
        for loop in every:
            if any(other < loop for other in every):
                continue
            words = [w for w in (instruction(lines[i], vendor) for i in sorted(loop)) if w]
            # A packed instruction counts as two.
            packed = sum(w.startswith("v_pk_fma") for w in words)
            count = sum(bool(fma.match(w)) for w in words) + packed
            if count > self.fma:
                self.fma, self.all = count, len(words) + packed

    def share(self):
        return self.fma / self.all if self.all else None
