"""What a kernel is, by its name, file and build options."""

# A matrix unit's instructions exist on some targets only. Emulated ones compile everywhere.
UNITS = {"-DUNIT_MMA": ("sm_80", "sm_90"), "-DUNIT_MFMA": ("gfx90a", "gfx940"), "-DUNIT_WMMA": ("gfx1100",)}


def kernel_class(file, kernel, chosen):
    """Returns the kernel's class. fma, matrix and memory have floors. Kernels that run only if a GPU's own
    variant declines must not spill."""
    if not chosen and "/gpu/" not in file:
        return "other"
    if "_matrix.cl" in file:
        return "matrix"
    if file.endswith("/matrix_probe.cl"):
        return "other"
    product = kernel.startswith(("attention", "gemm", "conv2d", "matmul")) and not kernel.endswith(("delta", "sum"))
    return "fma" if product else "memory"


def compiles_for(target, options):
    """Returns whether the target has the instructions that the options select."""
    words = options.split()
    return "-DUNIT_EMULATED" in words or all(target in has for unit, has in UNITS.items() if unit in words)
