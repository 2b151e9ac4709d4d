"""Tests gpu-compile's counts of instructions, its tables and its predictions with numbers worked out
by hand. Usage: figures.py FOLDER, the folder of gpu-compile's modules."""
import pathlib
import sys
import tempfile
import types
import unittest

sys.path.insert(0, sys.argv.pop(1))

import gpus  # noqa: E402
import kernels  # noqa: E402
import mix  # noqa: E402
import table  # noqa: E402

AMD = """v_fma_f32 v0, v1, v2, v3
v_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[6:7]
v_fmac_f32_e32 v0, v1, v2
v_add_u32_e32 v0, 4, v0
s_add_u32 s0, s0, 16
s_waitcnt vmcnt(0)
ds_read_b128 v[0:3], v4
ds_read2_b64 v[0:3], v4 offset1:8
ds_write_b32 v4, v0
global_load_dwordx4 v[0:3], v[4:5], off
global_store_short v[4:5], v0, off
; a comment
.LBB0_1:""".splitlines()

PTX = """.reg .f32 %f<4>;
fma.rn.f32 %f1, %f2, %f3, %f1;
@%p1 fma.rn.f16x2 %r1, %r2, %r3, %r1;
add.s32 %r1, %r1, 4;
bar.sync 0;
ld.shared.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];
ld.global.nc.v2.f32 {%f1, %f2}, [%rd1];
st.global.u16 [%rd1], %rs1;
@%p1 bra $L__BB0_1;""".splitlines()


class Counts(unittest.TestCase):
    def check(self, found, **wanted):
        self.assertEqual({name: getattr(found, name) for name in wanted}, wanted)

    def test_amd(self):
        found = mix.Mix(AMD, "amd")
        self.check(found, fma=4, packed=1, vector=1, scalar=1, control=1, local=3, local_bytes=36, loads=1, load_bytes=16,
                   stores=1, store_bytes=2, matrix=0, all=12)  # fmt: skip
        self.assertEqual((found.share(), found.arithmetic_share(), found.flops()), (4 / 12, 4 / 5, 8))

    def test_nvidia(self):
        found = mix.Mix(PTX, "nvidia")
        self.check(found, fma=3, packed=1, vector=1, control=2, local=1, local_bytes=16, loads=1, load_bytes=8, stores=1,
                   store_bytes=2, all=9)  # fmt: skip

    def test_matrix_instructions(self):
        # Operations of all work-items: 2 M N K, times the pairs of matrices of one instruction.
        for vendor, lanes, line, operations in (
            ("amd", 64, "v_mfma_f32_16x16x16f16 a[0:3], v[0:1], v[2:3], a[0:3]", 2 * 16 * 16 * 16),
            ("amd", 64, "v_mfma_f32_32x32x8bf16_1k a[0:15], v[0:1], v[2:3], a[0:15]", 2 * 32 * 32 * 8),
            ("amd", 64, "v_mfma_f32_32x32x4bf16_1k a[0:31], v[0:1], v[2:3], a[0:31]", 2 * 32 * 32 * 4 * 2),
            ("amd", 64, "v_mfma_f32_32x32x4_2b_f16 a[0:31], v[0:1], v[2:3], a[0:31]", 2 * 32 * 32 * 4 * 2),
            ("amd", 64, "v_mfma_f32_16x16x16_bf16 a[0:3], v[0:1], v[2:3], a[0:3]", 2 * 16 * 16 * 16),
            ("amd", 64, "v_mfma_f32_4x4x4f16 a[0:3], v[0:1], v[2:3], a[0:3]", 2 * 4 * 4 * 4 * 16),
            ("amd", 32, "v_wmma_f32_16x16x16_f16 v[0:7], v[8:15], v[16:23], v[0:7]", 2 * 16 * 16 * 16),
            ("nvidia", 32, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1}, {%r1}, {%r2}, {%f1};", 2 * 16 * 8 * 16),
            ("nvidia", 32, "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%f1}, {%r1}, {%r2}, {%f1};", 2 * 16 * 16 * 16),
        ):
            found = mix.Mix([line], vendor)
            self.check(found, matrix=1, matrix_flops=operations // lanes, fma=0, vector=0, all=1)
            self.assertEqual((found.share(), found.arithmetic_share()), (1, 1))


def row(registers=64, spills=0, scratch=0, local=1024, occupancy=50, loop=80, arithmetic=95, kernel=60, merged=False):
    return table.Row([registers, spills, scratch, local, occupancy, loop, arithmetic, kernel], merged)


KEY = ("gemm", "matmul/gpu/gemm.cl", "-DTM=64 -DTN=64")


class Tables(unittest.TestCase):
    def test_written_and_read(self):
        rows = {KEY: row(), ("flat", "elementwise/gpu/elementwise.cl", "-DBODY=*"): row(loop=None, arithmetic=None, merged=True),
                ("checksum", "train/gpu/checksum.cl", ""): row(kernel=None)}  # fmt: skip
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "new" / "gfx90a.txt"
            table.write(path, "gfx90a", "clang 16.0.6, ptxas 13.5.37", rows)
            compiler, found = table.read(path)
        self.assertEqual(compiler, "clang 16.0.6, ptxas 13.5.37")
        self.assertEqual({k: (r.numbers(), r.merged) for k, r in found.items()}, {k: (r.numbers(), r.merged) for k, r in rows.items()})

    def test_expressions_share_a_line(self):
        keys = {table.key_of("e.cl", "flat", f"-DN_IN=2 -DBODY=OUT({x}) -DKIND_a=b") for x in ("a+b", "exp(a)*b")}
        self.assertEqual(keys, {("flat", "e.cl", "-DN_IN=2 -DBODY=* -DKIND_a=b")})

    def test_the_worst_counts(self):
        worst = row(64, 0, 0, 8, 50, 80, None, 60).worst(row(32, 2, 4, 16, 75, 70, 90, 65))
        self.assertEqual(worst.numbers(), [64, 2, 4, 16, 50, 70, 90, 60])

    def compare(self, new, old=None, key=KEY):
        return [why for _, why in table.compare({KEY: old or row()}, {key: new})[0]]

    def test_the_same_and_the_better_pass(self):
        for new in (row(), row(registers=66), row(registers=32, occupancy=75, loop=90), row(loop=78, local=4096)):
            self.assertEqual(self.compare(new), [])

    def test_the_worse_fails(self):
        for new, why in ((row(registers=72), "72 registers, 64 before"), (row(spills=1), "1 spilled, 0 before"),
                         (row(scratch=4), "4 bytes of scratch, 0 before"), (row(occupancy=38), "occupancy 38 %, 50 % before"),
                         (row(loop=70), "products are 70 % of the inner loop's instructions, 80 % before"),
                         (row(arithmetic=None), "products are 0 % of the inner loop's arithmetic, 95 % before"),
                         (row(kernel=50), "products are 50 % of all instructions, 60 % before")):  # fmt: skip
            self.assertEqual(self.compare(new), [why])

    def test_a_line_of_several_kernels_has_no_registers_to_compare(self):
        self.assertEqual(self.compare(row(registers=200, loop=10), row(merged=True)), [])
        self.assertEqual(len(self.compare(row(spills=1), row(merged=True))), 1)

    def test_a_new_launch_is_compared_with_its_kernel(self):
        other = KEY[:2] + ("-DTM=128",)
        self.assertEqual(self.compare(row(registers=200, loop=10), key=other), [])
        self.assertEqual(self.compare(row(occupancy=25), key=other), ["occupancy 25 %, 50 % before"])
        self.assertEqual(table.compare({KEY: row()}, {other: row()})[1], [other])
        self.assertEqual(table.compare({}, {KEY: row(spills=99)}), ([], [KEY]))


class Instructions(unittest.TestCase):
    def test_targets(self):
        for target, options, wanted in (("sm_80", "-DUNIT_MMA -DUNIT_T=h", True), ("gfx90a", "-DUNIT_MFMA", True),
                                        ("gfx906", "-DUNIT_MFMA", False), ("gfx1030", "-DUNIT_WMMA -DUNIT_EMULATED", True),
                                        ("gfx906", "-DTM=64", True)):  # fmt: skip
            self.assertEqual(kernels.compiles_for(target, options), wanted, (target, options))


class Predictions(unittest.TestCase):
    """A GPU of 10 units, 100 lanes and 1 GHz: 1e12 instructions a second."""

    GPU = gpus.Gpu("test", "amd", "gfx90a", units=10, clock=1e9, lanes=100, waves=32, width=64, f32=2e12, matrix=16e12,
                   memory=1e12, cache=4e12)  # fmt: skip

    def figures(self, occupancy=1, reading=None, **loop):
        def counts(given):
            found = mix.Mix()
            found.__dict__.update(given)
            return found

        inner = types.SimpleNamespace(loop=counts(loop), kernel=counts({"load_bytes": 1}), reading=reading and counts(reading))
        return types.SimpleNamespace(occupancy=occupancy, inner=inner)

    def predict(self, flops, moved, groups=10, **more):
        launch = gpus.Launch(groups * 100, 100, flops, moved)
        found = gpus.predict(launch, self.figures(**more), self.GPU)
        return found.bound, found.seconds, found.share()

    def same(self, found, wanted):
        self.assertEqual(found[0], wanted[0])
        for a, b in zip(found[1:], wanted[1:]):
            self.assertAlmostEqual(a, b)

    def test_issue(self):
        # 1e12 operations are 5e11 FMAs, with as many other instructions: a second, where 2 Tflop/s need half of it.
        self.same(self.predict(1e12, 8, fma=10, vector=10), ("issue", 1, 0.5))
        self.same(self.predict(1e12, 8, fma=10, packed=5), ("issue", 0.25, 2))

    def test_idle_units(self):
        self.same(self.predict(1e12, 8, groups=15, fma=10, vector=10), ("issue", 20 / 15, 0.5 * 15 / 20))
        self.same(self.predict(1e12, 8, groups=5, fma=10, vector=10), ("issue", 2, 0.25))

    def test_local_memory_and_cache(self):
        # 10 units read 1.28e12 bytes a second; 1 byte a flop.
        self.same(self.predict(1e12, 8, fma=10, local_bytes=20), ("local", 1 / 1.28, 0.5 * 1.28))
        self.same(self.predict(1e12, 8, fma=10, load_bytes=80), ("cache", 1, 0.5))

    def test_matrix(self):
        self.same(self.predict(16e12, 8, matrix=1, matrix_flops=512), ("matrix", 1, 1))

    def test_memory(self):
        # 1000 work-items with a load of 600 bytes each have 1e12 bytes a second on the way.
        self.same(self.predict(0, 1e12, reading={"load_bytes": 1200, "vector": 1}), ("memory", 1, 1))
        self.same(self.predict(0, 1e12, reading={"load_bytes": 300, "vector": 1}), ("latency", 2, 0.5))
        # The occupancy allows 32 x 64 x 10 x 1/40 = 512 work-items.
        self.same(self.predict(0, 1e12, occupancy=1 / 40, reading={"load_bytes": 600, "vector": 1}), ("latency", 1000 / 512, 0.512))


unittest.main()
