"""Builds the clone that this file is in:

    spack repo add tools/spack
    spack install cltrain
"""
import os

try:
    from spack_repo.builtin.build_systems.cmake import CMakePackage

    COMPILERS = ("c",)
except ImportError:  # before Spack 1.0, spack.package has it, and compilers are no dependencies
    COMPILERS = ()
from spack.package import *

CLONE = os.path.realpath(os.path.join(os.path.dirname(os.path.realpath(__file__)), *[".."] * 4))


class Cltrain(CMakePackage):
    """Training of neural networks on OpenCL devices of several vendors, and on ranks of MPI. Spack has no
    libcsv, so this build refuses data sets of csv:FILE."""

    homepage = "file://" + CLONE
    git = "file://" + CLONE
    license("MIT")

    version("main", branch="main")

    variant("mpi", default=True, description="ranks of MPI")
    variant("images", default=True, description="data sets of JPEG and PNG files")
    variant("hdf5", default=True, description="data sets in HDF5 files")
    variant("npz", default=True, description="data sets of NumPy")
    variant("async", default=True, description="asynchronous training")
    variant("tensorboard", default=True, description="event files for TensorBoard")
    variant("tokenizer", default=True, description="the tokenizer of GPT-2")
    variant("plot", default=False, description="pictures of losses, with gnuplot")
    variant("cxx", default=True, description="the header for C++17")
    variant("fortran", default=True, description="sources of the Fortran modules, which programs compile")
    variant("python", default=False, description="the Python package")

    for compiler in COMPILERS:
        depends_on(compiler, type="build")
    depends_on("cmake@3.18:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.8:", type=("build", "run"))
    depends_on("ocl-icd@2.3: +headers")
    depends_on("zlib-api")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("popt")
    depends_on("yajl")
    depends_on("mpi@3:", when="+mpi")
    depends_on("libjpeg-turbo", when="+images")
    depends_on("libpng", when="+images")
    depends_on("hdf5", when="+hdf5")
    depends_on("libzip", when="+npz")
    depends_on("libzmq", when="+async")
    depends_on("libsodium", when="+async")
    depends_on("protobuf-c", when="+tensorboard")
    depends_on("isa-l", when="+tensorboard")
    depends_on("pcre2", when="+tokenizer")
    depends_on("gnuplot", type="run", when="+plot")
    for language in ("cxx", "fortran", "python"):
        depends_on("py-pycparser", type="build", when="+" + language)
    extends("python@3.9:", when="+python")
    depends_on("py-numpy@1.22:", type="run", when="+python")

    generator("ninja")

    def cmake_args(self):
        languages = ("cxx", "fortran", "python")
        # Spack sets python_platlib: the folder where this Python, or its virtual environment, looks.
        folder = os.path.relpath(python_platlib, self.prefix) if "+python" in self.spec else ""
        return [
            self.define("CLT_BUILD_TESTS", False),
            self.define_from_variant("CLT_MPI", "mpi"),
            self.define_from_variant("CLT_TURBOJPEG", "images"),
            self.define_from_variant("CLT_PNG", "images"),
            self.define_from_variant("CLT_HDF5", "hdf5"),
            self.define_from_variant("CLT_LIBZIP", "npz"),
            self.define_from_variant("CLT_ZMQ", "async"),
            self.define_from_variant("CLT_SODIUM", "async"),
            self.define_from_variant("CLT_PROTOBUF_C", "tensorboard"),
            self.define_from_variant("CLT_ISAL", "tensorboard"),
            self.define_from_variant("CLT_PCRE2", "tokenizer"),
            self.define("CLT_CSV", False),  # a libcsv of the system would not be in the hash of the build
            self.define("CLT_BUILD_BINDINGS", any("+" + name in self.spec for name in languages)),
            self.define_from_variant("CLT_BUILD_CPP", "cxx"),
            self.define_from_variant("CLT_BUILD_FORTRAN", "fortran"),
            self.define_from_variant("CLT_BUILD_PYTHON", "python"),
            self.define("CLT_INSTALL_PYTHONDIR", folder),
        ]
