"""Published limits of GPUs, and the time that they set for a launch."""

KIB, TERA = 1 << 10, 1e12
LATENCY = 600e-9  # seconds until a busy memory answers: our assumption, the same for all


class Gpu:
    """vendor, target: who compiles for it.
    units, clock: compute units (multiprocessors), Hz
    lanes: work-items whose vector instruction a unit begins in a clock
    waves: most waves (warps) of a unit; width: their work-items
    f32, matrix: peaks of f32 arithmetic and of f16 and bf16 matrix instructions, operations a second
    memory, cache, local: bytes a second of memory, of the L2 cache, and of all local memories"""

    def __init__(self, name, vendor, target, **limits):
        self.name, self.vendor, self.target = name, vendor, target
        self.__dict__.update(limits)
        self.local = self.units * 128 * self.clock
        self.issue = self.units * self.lanes * self.clock


GPUS = (
    Gpu("H200", "nvidia", "sm_90", units=132, clock=1.98e9, lanes=128, waves=64, width=32, f32=67.0 * TERA,
        matrix=989.5 * TERA, memory=4.8 * TERA, cache=5120 * 1.98e9),
    Gpu("MI300X", "amd", "gfx940", units=304, clock=2.1e9, lanes=64, waves=32, width=64, f32=163.4 * TERA,
        matrix=1307.4 * TERA, memory=5.3 * TERA, cache=8 * 2 * KIB * 2.1e9),
    Gpu("MI210", "amd", "gfx90a", units=104, clock=1.7e9, lanes=64, waves=32, width=64, f32=45.3 * TERA,
        matrix=181.0 * TERA, memory=1.638 * TERA, cache=4 * KIB * 1.7e9),
)  # fmt: skip


class Launch:
    """A launch's work: work-items, work-items of a group, operations, bytes of its buffers."""

    def __init__(self, items, group, flops, moved):
        self.items, self.group, self.flops, self.moved = items, group, flops, moved


class Prediction:
    """seconds, what limits (`bound`), the time of the plain roofline (`roof`), operations or bytes
    a second."""

    def __init__(self, launch, times, roof):
        self.bound = max(times, key=times.get)
        self.seconds, self.roof = times[self.bound], roof
        self.flops, self.bytes = launch.flops / self.seconds, launch.moved / self.seconds

    def share(self):
        return self.roof / self.seconds


def begun(mix, gpu):
    """Returns the instructions that take turns at the vector arithmetic. A multiprocessor of NVIDIA
    begins one instruction of any kind a clock. AMD's scalar, memory and matrix instructions begin
    beside the vector arithmetic, and a packed instruction counts once."""
    return mix.all if gpu.vendor == "nvidia" else mix.fma - mix.packed + mix.vector


def balance(launch, gpu):
    """Returns the share of the units that work on average, if each has equal groups one by one."""
    groups = -(-launch.items // launch.group)
    return groups / (-(-groups // gpu.units) * gpu.units)


def bandwidth(launch, figures, mix, gpu):
    """Returns the bytes a second for which enough loads are on the way (Little's law)."""
    resident = min(launch.items, figures.occupancy * gpu.waves * gpu.width * gpu.units)
    return min(gpu.memory, resident * mix.load_bytes / LATENCY) if mix.load_bytes else gpu.memory


def predict(launch, figures, gpu):
    """Returns the prediction for a launch. launch.flops is 0 for kernels that are no products.
    Instructions outside of the loop that does most are left out."""
    inner, times = figures.inner, {}
    if launch.flops and inner.loop:
        loop = inner.loop
        rounds = launch.flops / loop.flops()
    else:
        loop = inner.reading or inner.kernel
        rounds = launch.moved / loop.load_bytes if inner.reading else launch.items
    busy = balance(launch, gpu)
    times["issue"] = rounds * begun(loop, gpu) / gpu.issue / busy
    times["matrix"] = rounds * loop.matrix_flops / gpu.matrix / busy
    times["local"] = rounds * loop.local_bytes / gpu.local / busy
    times["cache"] = rounds * loop.load_bytes / gpu.cache
    times["memory"] = launch.moved / gpu.memory
    enough = bandwidth(launch, figures, inner.reading or inner.kernel, gpu)
    if enough < gpu.memory:
        times["latency"] = launch.moved / enough
    peak = gpu.matrix if loop.matrix else gpu.f32
    return Prediction(launch, times, max(launch.flops / peak, launch.moved / gpu.memory))
