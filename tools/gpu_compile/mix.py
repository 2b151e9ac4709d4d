"""Counts the instructions of assembly by what they do. All counts are those of one work-item."""
import re

# Instructions that multiply and add. A packed one does so twice.
AMD_FMA = re.compile(r"v_(pk_)?(?:fma|fmac|mac|mad)(?:_legacy|_mix|_mixlo|_mixhi|ak|mk|aak|amk)?_f(?:16|32|64)|v_dot2\w*_f32")
PTX_FMA = re.compile(r"fma\.r[nzmp](?:\.ftz)?(?:\.sat)?\.(?:f16|f32|f64|bf16)(x2)?\b")
AMD_MATRIX = re.compile(r"v_(?:s?mfmac?|wmma)_\w+?_(\d+)x(\d+)x(\d+)_?(\d+b_)?([a-z]+\d+(?:_1k)?)")
PTX_MATRIX = re.compile(r"(?:w|wg)?mma\.(?:sync|mma|m)\S*?\bm(\d+)n(\d+)k(\d+)")
# With these types and K, MFMA multiplies several pairs of matrices at once: 4 of 16 rows or 2 of 32 rows. gfx940
# writes the number of pairs into the name.
SEVERAL = {("f32", 1), ("f16", 4), ("bf16", 2), ("bf16_1k", 4)}
AMD_LOAD = re.compile(r"(?:global|flat|buffer)_load_(?:dwordx([234])|(dword)|[su](byte|short)|(short))")
PTX_LOAD = re.compile(r"ld(?:\.volatile)?\.global(?:\.nc)?(?:\.v([24]))?\.[busf](8|16|32|64)")
AMD_STORE = re.compile(r"(?:global|flat|buffer)_store_(?:dwordx([234])|(dword)|(byte)|(short))")
PTX_STORE = re.compile(r"st(?:\.volatile)?\.global(?:\.v([24]))?\.[busf](8|16|32|64)")
AMD_LOCAL = re.compile(r"ds_(?:read|load|write|store)(2)?(?:st64)?_[biu](8|16|32|64|96|128)")
PTX_LOCAL = re.compile(r"(?:ld|st)(?:\.volatile)?\.shared(?:\.v([24]))?\.[busf](8|16|32|64)")
AMD_CONTROL = re.compile(r"s_(?:waitcnt|barrier|c?branch|endpgm|nop|clause|delay|sleep)")
PTX_CONTROL = re.compile(r"(?:bra|ret|exit|trap|bar|barrier|membar|fence|call)\b")


def instruction(line, vendor):
    """Returns the instruction of a line, or None."""
    if vendor == "amd":
        match = re.match(r"((v|s|ds|global|flat|buffer|scratch|exp)_\w+)", line)
        return match and match.group(1)
    if not line.endswith(";") or line.startswith((".", "//")):
        return None
    return re.sub(r"^@!?%\w+\s+", "", line)


def amd_bytes(match):
    """Returns the bytes of a load or store of global memory."""
    if not match:
        return 0
    if match.group(1) or match.group(2):
        return 4 * int(match.group(1) or 1)
    return 1 if match.group(3) == "byte" else 2


def ptx_bytes(match):
    return int(match.group(1) or 1) * int(match.group(2)) // 8 if match else 0


def loaded(line, vendor):
    """Returns the bytes that the line loads from global memory for a work-item; 0: it is no such
    load."""
    return amd_bytes(AMD_LOAD.match(line)) if vendor == "amd" else ptx_bytes(PTX_LOAD.search(line))


def matrix_operations(word, vendor):
    """Returns the floating-point operations of a matrix unit's instruction for one work-item."""
    match = (AMD_MATRIX if vendor == "amd" else PTX_MATRIX).match(word)
    if not match:
        return 0
    m, n, k = (int(match.group(i)) for i in (1, 2, 3))
    if vendor == "nvidia":
        return 2 * m * n * k // (128 if word.startswith("wgmma") else 32)
    if word.startswith("v_wmma"):
        return 2 * m * n * k // 32
    if match.group(4):
        pairs = int(match.group(4)[:-2])
    else:
        pairs = 16 if m == 4 else 64 // m if (match.group(5), k) in SEVERAL else 1
    return 2 * m * n * k * pairs // 64


class Mix:
    """Counts of one piece of assembly.
    fma, packed: multiplications with addition, and how many instructions did two of them
    matrix, matrix_flops: instructions of matrix units, and their operations
    vector, scalar, control: other arithmetic and moves, AMD's scalar unit, waits and branches
    local, local_bytes; loads, load_bytes; stores, store_bytes: instructions and bytes
    all: every instruction, a packed one as two"""

    NAMES = ("fma", "packed", "matrix", "matrix_flops", "vector", "scalar", "control", "local", "local_bytes",
             "loads", "load_bytes", "stores", "store_bytes", "all")  # fmt: skip

    def __init__(self, lines=(), vendor=None):
        for name in self.NAMES:
            setattr(self, name, 0)
        for line in lines:
            word = instruction(line, vendor)
            if word:
                self.add(line, word, vendor)

    def add(self, line, word, vendor):
        amd = vendor == "amd"
        fma = (AMD_FMA if amd else PTX_FMA).match(word)
        flops = matrix_operations(word, vendor)
        local = (AMD_LOCAL if amd else PTX_LOCAL).match(word)
        load = loaded(line, vendor)
        store = amd_bytes(AMD_STORE.match(word)) if amd else ptx_bytes(PTX_STORE.match(word))
        self.all += 1
        if flops:
            self.matrix += 1
            self.matrix_flops += flops
        elif fma:
            self.fma += 1
            if fma.group(1):  # as two instructions
                self.fma += 1
                self.all += 1
                self.packed += 1
        elif local:
            self.local += 1
            self.local_bytes += int(local.group(1) or 1) * int(local.group(2)) // 8
        elif load:
            self.loads += 1
            self.load_bytes += load
        elif store:
            self.stores += 1
            self.store_bytes += store
        elif (AMD_CONTROL if amd else PTX_CONTROL).match(word):
            self.control += 1
        elif amd and not word.startswith("v_"):
            self.scalar += 1
        else:
            self.vector += 1

    def products(self):
        """Returns the instructions that multiply and add, those of matrix units too."""
        return self.fma + self.matrix

    def flops(self):
        return 2 * self.fma + self.matrix_flops

    def share(self):
        """Returns the share of products among all instructions, or None if there is no product."""
        return self.products() / self.all if self.products() else None

    def arithmetic_share(self):
        """Returns the share of products among vector arithmetic, or None."""
        return self.products() / (self.products() + self.vector) if self.products() else None
