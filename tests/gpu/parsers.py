"""Tests gpu-compile's parsers with excerpts of output of clang 16 and ptxas 12, and the keys of its
cache. Usage: parsers.py FOLDER, the folder of gpu-compile's modules."""
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, sys.argv.pop(1))

import assembly  # noqa: E402
import cache  # noqa: E402
import mix  # noqa: E402
import targets  # noqa: E402

REMARKS = """k.cl:2:1: remark: Function Name: prologue [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     SGPRs: 16 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     VGPRs: 7 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     AGPRs: 2 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     ScratchSize [bytes/lane]: 16 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     Occupancy [waves/SIMD]: 4 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     SGPRs Spill: 3 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     VGPRs Spill: 5 [-Rpass-analysis=kernel-resource-usage]
k.cl:2:1: remark:     LDS Size [bytes/block]: 1024 [-Rpass-analysis=kernel-resource-usage]
"""

# A vector load before a loop of single floats.
AMD = """prologue:                               ; @prologue
	s_load_dwordx4 s[0:3], s[6:7], 0x0
	global_load_dwordx4 v[2:5], v[2:3], off
	s_and_saveexec_b64 s[2:3], vcc
	s_cbranch_execz .LBB0_4
.LBB0_2:                                ; =>This Inner Loop Header: Depth=1
	global_load_dword v6, v[2:3], off
	v_add_co_u32_e32 v2, vcc, 0x400, v2
	s_waitcnt vmcnt(0)
	v_fma_f32 v4, v4, v6, v6
	s_andn2_b64 exec, exec, s[0:1]
	s_cbranch_execnz .LBB0_2
.LBB0_4:
	global_store_dword v[0:1], v4, off
	s_endpgm
	.section	.rodata
	.amdhsa_kernel prologue
"""

PTXAS = """ptxas info    : Compiling entry function 'prologue' for 'sm_80'
ptxas info    : Function properties for prologue
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers, 2048 bytes smem, 380 bytes cmem[0]
"""

PTX = """.visible .entry prologue(
	.param .u64 prologue_param_0
)
{
	.reg .b32 	%r<9>;
	ld.param.u64 	%rd7, [prologue_param_0];
	ld.global.v4.f32 	{%f5, %f6, %f7, %f8}, [%rd11];
	@%p1 bra 	$L__BB0_3;
$L__BB0_2:
	.pragma "nounroll";
	ld.global.f32 	%f11, [%rd15];
	fma.rn.f32 	%f13, %f13, %f11, %f11;
	add.s32 	%r8, %r8, 256;
	setp.lt.s32 	%p2, %r8, %r4;
	@%p2 bra 	$L__BB0_2;
$L__BB0_3:
	st.global.f32 	[%rd14], %f13;
	ret;
}
"""


def narrow(text, vendor):
    return assembly.narrow(assembly.bodies(text, vendor)["prologue"], vendor)


class Reading(unittest.TestCase):
    def test_amd(self):
        f = targets.read_amd(REMARKS, AMD, "gfx90a")["prologue"]
        self.assertEqual((f.registers, f.spills, f.scratch, f.local, f.waves, f.occupancy), (9, 8, 16, 1024, 4, 0.5))
        self.assertEqual((f.inner.loop.fma, f.inner.loop.all, f.inner.narrow), (1, 6, "a loop"))

    def test_nvidia(self):
        f = targets.read_nvidia(PTXAS, PTX, "sm_80", {"prologue": 256})["prologue"]
        self.assertEqual((f.registers, f.spills, f.scratch, f.local), (14, 16, 8, 2048))
        # The registers would allow 2048 warps; 64 warps are 8 groups of 8.
        self.assertEqual((f.occupancy, f.waves), (1, 16))
        self.assertEqual((f.inner.loop.fma, f.inner.loop.all), (1, 5))

    def test_amd_occupancy(self):
        figures = targets.Figures()
        figures.waves, figures.local = 4, 0
        self.assertEqual(targets.amd_occupancy("gfx90a", figures, 64), 4 / 8)
        # Three groups: three waves for four SIMDs, or six waves of 32 for two.
        figures.local = 20 << 10
        self.assertEqual(targets.amd_occupancy("gfx90a", figures, 64), 3 / 4 / 8)
        self.assertEqual(targets.amd_occupancy("gfx1030", figures, 64), 6 / 2 / 16)

    def test_occupancy(self):
        figures = targets.Figures()
        figures.registers, figures.local = 128, 0
        self.assertEqual(targets.nvidia_occupancy("sm_80", figures, 256), 0.25)
        figures.registers, figures.local = 32, 100 << 10
        self.assertEqual(targets.nvidia_occupancy("sm_80", figures, 256), 8 / 64)

    def test_what_is_missing_fails(self):
        for line in REMARKS.splitlines()[2:]:
            if "AGPRs" in line:
                continue
            with self.assertRaises(targets.Failure, msg=line):
                targets.read_amd(REMARKS.replace(line + "\n", "").replace("     AGPRs: 2", "     Other: 2"), AMD, "gfx90a")
        for lost in ("8 bytes stack frame", "Used 14 registers"):
            with self.assertRaises(targets.Failure, msg=lost):
                targets.read_nvidia(PTXAS.replace(lost, ""), PTX, "sm_80", {"prologue": 256})
        with self.assertRaises(targets.Failure):
            targets.read_nvidia(PTXAS, PTX.replace("entry prologue", "entry other"), "sm_80", {"prologue": 256})
        with self.assertRaises(targets.Failure):
            targets.read_amd(REMARKS, AMD.replace("prologue:", "other:"), "gfx90a")


class Loads(unittest.TestCase):
    def test_a_vector_before_a_loop_does_not_count(self):
        self.assertEqual((narrow(AMD, "amd"), narrow(PTX, "nvidia")), ("a loop", "a loop"))

    def test_vectors_in_the_loop_do(self):
        self.assertIsNone(narrow(AMD.replace("global_load_dword v6", "global_load_dwordx4 v[6:9]"), "amd"))
        self.assertIsNone(narrow(AMD.replace("global_load_dword v6", "global_load_dwordx2 v[6:7]"), "amd"))
        self.assertIsNone(narrow(PTX.replace("ld.global.f32", "ld.global.nc.v2.f32"), "nvidia"))

    def test_one_of_many_does_not(self):
        more = "\tglobal_load_dwordx2 v[6:7], v[2:3], off\n" + 2 * "\tglobal_load_dword v6, v[2:3], off\n"
        self.assertEqual(narrow(AMD.replace("\tglobal_load_dword v6, v[2:3], off\n", more), "amd"), "a loop")

    def test_without_a_loop(self):
        straight = AMD.replace("\ts_cbranch_execnz .LBB0_2\n", "")
        self.assertIsNone(narrow(straight, "amd"))
        scalar = straight.replace("global_load_dwordx4", "global_load_dword")
        self.assertEqual(narrow(scalar, "amd"), "outside of loops")
        nothing = scalar.replace("global_load", "ds_load")
        self.assertEqual(narrow(nothing, "amd"), "outside of loops")

    def test_a_way_out_that_stands_first_is_no_loop(self):
        out = PTX.replace("@%p2 bra 	$L__BB0_2;\n$L__BB0_3:\n", "bra 	$L__BB0_3;\n").replace(
            "$L__BB0_2:", "$L__BB0_3:\n\tret;\n$L__BB0_2:")
        self.assertEqual(assembly.loops(assembly.bodies(out, "nvidia")["prologue"]), [])

    def test_what_stands_behind_the_end_is_no_loop(self):
        # clang places rarely executed parts of a conversion behind ret, with a branch back.
        behind = PTX.replace("\tret;\n", "\tret;\n$L__BB0_4:\n\tmov.f32 \t%f13, 0f00000000;\n\tbra.uni \t$L__BB0_3;\n")
        straight = behind.replace("@%p2 bra \t$L__BB0_2", "@%p2 bra \t$L__BB0_4")
        self.assertEqual(assembly.loops(assembly.bodies(straight, "nvidia")["prologue"]), [])
        self.assertIsNone(narrow(straight, "nvidia"))
        self.assertEqual(narrow(behind.replace("@%p1 bra \t$L__BB0_3", "@%p1 bra \t$L__BB0_4"), "nvidia"), "a loop")

    def test_a_loop_has_what_stands_behind_it(self):
        # The loop's second half is behind ret.
        text = PTX.replace("\tadd.s32 \t%r8, %r8, 256;\n", "\tbra.uni \t$L__BB0_4;\n$L__BB0_5:\n").replace(
            "\tret;\n", "\tret;\n$L__BB0_4:\n\tfma.rn.f32 \t%f14, %f13, %f11, %f11;\n\tbra.uni \t$L__BB0_5;\n")
        inner = assembly.Inner(assembly.bodies(text, "nvidia")["prologue"], "nvidia")
        self.assertEqual((inner.loop.fma, inner.loop.all, inner.narrow), (2, 7, "a loop"))

    def test_an_inner_loop_is_found_in_another(self):
        text = PTX.replace("$L__BB0_2:\n", "$L__BB0_1:\n\tld.global.v4.f32 \t{%f1, %f2, %f3, %f4}, [%rd11];\n$L__BB0_2:\n").replace(
            "$L__BB0_3:\n", "\t@%p3 bra \t$L__BB0_1;\n$L__BB0_3:\n", 1)
        body = assembly.bodies(text, "nvidia")["prologue"]
        self.assertEqual(sorted(len(loop) for loop in assembly.loops(body)), [7, 10])
        self.assertEqual(assembly.narrow(body, "nvidia"), "a loop")
        turned = text.replace("v4.f32 \t{%f1, %f2, %f3, %f4}", "f32 \t%f1").replace("f32 \t%f11", "v2.f32 \t{%f11, %f12}")
        self.assertIsNone(narrow(turned, "nvidia"))
        self.assertEqual(assembly.Inner(body, "nvidia").loop.fma, 1)

    def test_bytes(self):
        for line, count in (("global_load_dwordx3 v[0:2]", 12), ("flat_load_ubyte v0", 1), ("buffer_load_sshort v0", 2),
                            ("s_load_dwordx4 s[0:3]", 0), ("ds_read_b128 v[0:3]", 0)):  # fmt: skip
            self.assertEqual(mix.loaded(line, "amd"), count, line)
        for line, count in (("ld.global.v4.u8 {%rs1}", 4), ("@%p1 ld.global.nc.v2.f64 {%fd1}", 16),
                            ("ld.shared.v4.f32 {%f1}", 0), ("ld.param.u64 %rd1", 0)):  # fmt: skip
            self.assertEqual(mix.loaded(line, "nvidia"), count, line)


class Cached(unittest.TestCase):
    def key(self, kernel="x", header="y", library="z", target="gfx906"):
        """Returns the key of a kernel in a new folder, with compilers there."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            texts = {"clkernels/gpu/k.cl": '#include "gpu/h.clh"\n' + kernel, "clkernels/gpu/h.clh": header,
                     "compilers/usr/bin/clang-16": "clang", "compilers/usr/lib/x86_64-linux-gnu/libLLVM-16.so.1": library}  # fmt: skip
            for name, text in texts.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            clang = str(root / "compilers/usr/bin/clang-16")
            compilers = types.SimpleNamespace(amd=None, clang=clang, libclc=None, ptxas=None, ocloc=None)
            return cache.Cache(compilers, root).path(target, "gpu/k.cl", "-DTM=1", {"k": 64})

    def test_key(self):
        """Any folder and any comment gives the same key; another text, target or compiler gives
        another key."""
        same = [self.key(kernel="/* why */x"), self.key(kernel="/* why */x"), self.key(kernel="/* because */x")]
        other = [self.key(kernel="w"), self.key(header="w"), self.key(library="longer"), self.key(target="sm_80")]
        self.assertEqual(len(set(same)), 1)
        self.assertEqual(len(set(same + other)), 1 + len(other))


unittest.main()
