"""Tables of figures that are in the repository, one for each target: writes them, and compares new
figures with them."""
import re

REGISTERS, REGISTERS_SHARE, OCCUPANCY, SHARE = 2, 0.05, 0.005, 0.03  # tolerances
HEAD = """# Figures of GPU kernels on {target}, compiled offline by {compiler}.
# `tools/gpu-compile BUILD --renew` writes this file, and the test gpu.compile compares with it.
# reg: registers of a work-item; spill: registers (AMD) or bytes (NVIDIA) spilled; scr: bytes of scratch;
# local: bytes of local memory; occ: percent of the most waves; loop, arith: percent of products (FMA or matrix
# instructions) among the instructions and among the vector arithmetic of the innermost loop with most products;
# all: among all instructions of the kernel. A line with BODY=* has the worst figures of all such kernels.
#reg spill   scr local occ loop arith all  kernel file options
"""
LINE = re.compile(r"\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s+(\d+)" + 3 * r"\s+(\d+|-)" + r"\s+(\w+) (\S+)(?: (.*))?$")


def percent(share):
    return None if share is None else round(100 * share)


class Row:
    """One line's figures. merged: the worst of several kernels."""

    def __init__(self, numbers, merged=False):
        self.registers, self.spills, self.scratch, self.local, self.occupancy = numbers[:5]
        self.loop, self.arithmetic, self.kernel = numbers[5:]
        self.merged = merged

    def numbers(self):
        return [self.registers, self.spills, self.scratch, self.local, self.occupancy,
                self.loop, self.arithmetic, self.kernel]  # fmt: skip

    def text(self):
        return "{:>4} {:>5} {:>5} {:>5} {:>3} {:>4} {:>5} {:>3}".format(*("-" if n is None else n for n in self.numbers()))

    def worst(self, other):
        """Returns the worse of each figure."""
        worse = [max(a, b) for a, b in zip(self.numbers()[:4], other.numbers())]
        for a, b in zip(self.numbers()[4:], other.numbers()[4:]):
            worse.append(min((n for n in (a, b) if n is not None), default=None))
        return Row(worse, True)


def row_of(figures):
    inner = figures.inner
    return Row([figures.registers, figures.spills, figures.scratch, figures.local, percent(figures.occupancy),
                percent(inner.share()), percent(inner.loop and inner.loop.arithmetic_share()),
                percent(inner.kernel.share())])  # fmt: skip


def key_of(file, kernel, options):
    """Returns the key of a launch. Element-wise expressions are left out: there are hundreds, and
    every model brings its own."""
    return kernel, file, re.sub(r"(-D\w+)=\S*\(\S*", r"\1=*", options)


def add(rows, key, figures):
    row = row_of(figures)
    rows[key] = rows[key].worst(row) if key in rows else row
    rows[key].merged |= "=*" in key[2]


def write(path, target, compiler, rows):
    lines = [f"{row.text()}  {' '.join(word for word in key if word)}\n" for key, row in sorted(rows.items())]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEAD.format(target=target, compiler=compiler) + "".join(lines))


def read(path):
    """Returns (the compiler of the table, its rows)."""
    rows, compiler = {}, None
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            named = re.search(r"compiled offline by (.*)\.$", line)
            compiler = named.group(1) if named else compiler
            continue
        match = LINE.match(line)
        if not match:
            raise ValueError(f"no row of figures: {line}")
        numbers = [None if n == "-" else int(n) for n in match.groups()[:8]]
        kernel, file, options = match.group(9), match.group(10), match.group(11) or ""
        rows[kernel, file, options] = Row(numbers, "=*" in options)
    return compiler, rows


def worse(old, new, known):
    """Yields what is worse in the new row. known: the old row is of this launch. Otherwise it is
    the worst of the same kernel's launches."""
    single = known and not old.merged
    allowed = max(REGISTERS, REGISTERS_SHARE * old.registers)
    if single and new.registers > old.registers + allowed:
        yield f"{new.registers} registers, {old.registers} before"
    if new.spills > old.spills:
        yield f"{new.spills} spilled, {old.spills} before"
    if new.scratch > old.scratch:
        yield f"{new.scratch} bytes of scratch, {old.scratch} before"
    if new.occupancy < old.occupancy - 100 * OCCUPANCY:
        yield f"occupancy {new.occupancy} %, {old.occupancy} % before"
    names = ("loop", "the inner loop's instructions"), ("arithmetic", "the inner loop's arithmetic"), ("kernel", "all instructions")
    for name, where in names if single else ():
        a, b = getattr(old, name), getattr(new, name)
        if a is not None and (b or 0) < a - 100 * SHARE:
            yield f"products are {b or 0} % of {where}, {a} % before"


def compare(old, new):
    """Returns ([(key, problem)], [keys without a row]). A launch without a row is compared with the
    worst of its kernel's rows, and a kernel without any row is compared with nothing."""
    problems, unknown, worst = [], [], {}
    for (kernel, file, _), row in old.items():
        worst[kernel, file] = worst[kernel, file].worst(row) if (kernel, file) in worst else row
    for key, row in sorted(new.items()):
        known = key in old
        before = old[key] if known else worst.get(key[:2])
        if not known:
            unknown.append(key)
        if before:
            problems += [(key, why) for why in worse(before, row, known)]
    return problems, unknown
