"""The measurements and reports of `cltrain bench`."""
import json
import math
import os
import re

from command import CommandTest, cores, main

CORES = cores()


class Bench(CommandTest):
    def setUp(self):
        super().setUp()
        self.keep_measurements()

    def test_bench(self):
        arguments = ("bench", "train", "--model", "mlp", "--data", "idx:" + self.data, "--batch",
                     "16", "--steps", "4", "--blocks", "3", "--warmup", "2", "--tune", "1", "--devices", "pocl")
        found = json.loads(self.run_command(*arguments, "--json").stdout)
        rate, step = found["samples_per_s"], found["step_seconds"]
        self.assertTrue(0 < rate["min"] <= rate["median"] <= rate["max"])
        self.assertTrue(0 < step["min"] <= step["median"] <= step["max"])
        self.assertEqual((found["blocks"], found["steps_per_block"]), (3, 4))
        self.assertEqual(len(found["devices"]), 1)
        # At least the forward pass and the gradients of the weights.
        self.assertGreater(found["flops_per_sample"], 2 * 2 * 30 * 4)
        self.assertAlmostEqual(found["flops_per_s"], found["flops_per_sample"] * rate["median"],
                               delta=1e-3 * found["flops_per_s"])
        self.assertAlmostEqual(found["of_limit"], found["flops_per_s"] / found["limit_flops_per_s"],
                               delta=1e-3 * found["of_limit"])
        table = self.run_command(*arguments).stdout
        self.assertIn("samples/s", table)
        self.assertRegex(table, r"compute +[\d.]+ GFLOP/s, [\d.]+ MFLOP a sample.*of the [\d.]+ "
                                r"GFLOP/s of 1 device\n")
        done = self.run_command(*arguments, "--variant", "conv2d=portable,linear=gemm_gpu")
        self.assertRegex(done.stderr, r"declined gemm_gpu: asked for, but \w")
        self.assertIn("conv2d=portable: asked for, but no node of the plan is conv2d\n", done.stderr)

    def test_bench_by_node(self):
        done = self.run_command("bench", "train", "--model", "mlp", "--data", "idx:" + self.data,
                                "--batch", "16", "--steps", "4", "--warmup", "2", "--tune", "off",
                                "--devices", "pocl", "--by-node")
        for part in ("of limit", "linear_weight_grad", "sgd", "download"):
            self.assertIn(part, done.stdout)
        self.assertRegex(done.stdout, r"pocl.*limits of this device: [\d.]+ GFLOP/s in registers, "
                                      r"[\d.]+ GB/s copying")
        # An update has no figure for arithmetic, but one for memory.
        self.assertRegex(done.stdout, r"\nsgd .*% +- +[\d.]+ +[\d.]+\n")
        found = json.loads(self.run_command("bench", "train", "--model", "mlp", "--data",
                                            "idx:" + self.data, "--batch", "16", "--steps", "4",
                                            "--tune", "off", "--devices", "pocl", "--by-node",
                                            "--json").stdout)
        self.assertIn("linear_weight_grad", {n["operator"] for n in found["nodes"]})
        self.assertIn("pocl", found["device"])
        self.assertGreaterEqual(found["step_seconds"], max(n["seconds"] for n in found["nodes"]))
        for node in found["nodes"]:
            self.assertNotEqual(0, node["flops_per_s"])
            if node["node"] in ("sgd", "square_sum", "step_status"):
                self.assertIsNone(node["flops_per_s"])
                self.assertGreater(node["bytes_per_s"], 0)
                self.assertGreater(node["of_limit"], 0)
        times = [n["seconds"] for n in found["nodes"]]
        self.assertEqual(times, sorted(times, reverse=True))

    def assert_rows(self, found, names):
        """Checks that the report has rows of these names, and that their figures are consistent."""
        self.assertGreater(found["limit_flops_per_s"], 1e8)
        self.assertGreater(found["limit_copy_bytes_per_s"], 1e8)
        self.assertEqual([row["name"] for row in found["rows"]], names)
        for row in found["rows"]:
            self.assertTrue(0 < row["min_seconds"] <= row["median_seconds"] <= row["max_seconds"])
            # With one block, the share is that of the limit measured beside it.
            share = row["flops_per_s" if row["bound"] == "flops" else "bytes_per_s"] / row["limit_per_s"]
            self.assertAlmostEqual(row["of_limit"], share, delta=1e-4 * share)
            self.assertGreater(row["limit_per_s"], 1e6)

    def test_bench_kernels(self):
        found = json.loads(self.run_command("bench", "gemm", 48, 32, 40, "--blocks", "1", "--json",
                                            "--devices", "pocl").stdout)
        self.assert_rows(found, [f"gemm 48x32x40 {trans}" for trans in ("NN", "NT", "TN")])
        for row in found["rows"]:
            self.assertAlmostEqual(row["flops_per_s"] * row["median_seconds"], 2 * 48 * 32 * 40,
                                   delta=10)
        found = json.loads(self.run_command("bench", "gemm", 48, 32, 40, "--blocks", "1", "--json",
                                            "--trans", "TT", "--variant", "matmul=portable",
                                            "--devices", "pocl").stdout)
        self.assert_rows(found, ["gemm 48x32x40 TT"])
        self.assertEqual(found["rows"][0]["variant"], "portable")
        # Values of samples have 16 bits, weights and their gradients 32. Other nodes have no rows.
        for precision in ("bf16", "f16"):
            found = json.loads(self.run_command("bench", "gemm", 48, 32, 40, "--blocks", "1", "--json",
                                                "--precision", precision, "--devices", "pocl").stdout)
            self.assert_rows(found, [f"gemm 48x32x40 {trans}" for trans in ("NN", "NT", "TN")])
            for row, widths in zip(found["rows"], ((2, 4, 2), (2, 4, 2), (2, 2, 4))):
                a, b, c = widths
                self.assertAlmostEqual(row["bytes_per_s"] * row["median_seconds"], a * 48 * 40 + b * 40 * 32 + c * 48 * 32,
                                       delta=10)
        for option, value, says in (("--trans", "TT", "no layer has this product"), ("--compare", None, "OpenBLAS multiplies f32")):
            self.assert_bad("bench", "gemm", 8, 8, 8, "--precision", "bf16", option, *([value] if value else []), code=2,
                            says=(says, "leave out --precision bf16"))
        self.assert_bad("bench", "gemm", 8, 8, 8, "--precision", "bf17", code=2,
                        says=("--precision bf17: must be f32, bf16 or f16",))
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--trans", "NN", "--variant",
                                "matmul=gemm_gpu", "--devices", "pocl")
        self.assertRegex(done.stderr, r"declined gemm_gpu: asked for, but \w")
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--variant",
                                "matmul=gemm_gpu", "--devices", "pocl")
        self.assertEqual(done.stderr.count("asked for, but"), 1)
        done = self.run_command("bench", "conv", "2x3x9x9", "4x3x3", "--dilation", 2, "--blocks", "1", "--variant",
                                "conv2d=portable,linear=portable", "--devices", "pocl")
        self.assertEqual(done.stderr, "cltrain: linear=portable: asked for, but no node of the plan is linear\n")
        # With several graphs, only an operator that all of them lack is reported.
        done = self.run_command("bench", "op", "relu", "max_rows", "--blocks", "1", "--variant",
                                "max=portable,linear=portable", "--devices", "pocl")
        self.assertEqual(done.stderr,
                         "cltrain: linear=portable: asked for, but no node of the plan is linear\n")
        self.assertRegex(done.stdout, r"max_rows: max +portable ")
        done = self.assert_bad("bench", "gemm", 10 ** 6, 10 ** 6, 1, "--devices", "pocl", code=1,
                               says=("MiB",))
        self.assertEqual(done.stdout, "")
        self.assertNotIn("gemm_gpu", done.stdout)
        found = json.loads(self.run_command("bench", "conv", "4x3x9x9", "5x3x3", "--padding", "1",
                                            "--blocks", "1", "--json", "--devices",
                                            "pocl").stdout)
        convolutions = [row for row in found["rows"] if row["name"] != "layout"]
        self.assertEqual(sorted(row["name"] for row in convolutions),
                         ["conv2d", "conv2d_data_grad", "conv2d_weight_grad"])
        forward = next(row for row in convolutions if row["name"] == "conv2d")
        self.assertAlmostEqual(forward["flops_per_s"] * forward["median_seconds"],
                               2 * 4 * 5 * 81 * 27, delta=10)

    def test_bench_compare(self):
        """Compares OpenBLAS with our product. A build without OpenBLAS says what to install."""
        arguments = ("bench", "gemm", 96, 64, 80, "--blocks", "1", "--json", "--compare", "--devices",
                     "pocl")
        if not int(os.environ["CLT_TEST_OPENBLAS"]):
            self.assert_message(self.run_command(*arguments, code=1).stderr, "libopenblas-dev")
            return
        found = json.loads(self.run_command(*arguments).stdout)
        self.assert_rows(found, [f"gemm 96x64x80 {trans}" for trans in ("NN", "NT", "TN")])
        self.assertRegex(found["other"], r"^OpenBLAS \d.* for \w")
        for row in found["rows"]:
            self.assertGreater(row["other_flops_per_s"], 0)
            self.assertAlmostEqual(row["ratio"], row["flops_per_s"] / row["other_flops_per_s"],
                                   delta=1e-3 * row["ratio"])
        table = self.run_command(*(a for a in arguments if a != "--json"), "--trans", "TT").stdout
        self.assertRegex(table, r"(?s)OpenBLAS.*ratio\n.*96x64x80 TT")
        self.assert_bad("bench", "gemm", 10 ** 7, 10 ** 7, 1, "--compare", "--devices", "pocl",
                        code=1, says=("--compare", "MiB"))

    def test_bench_scaling(self):
        if CORES < 2:
            self.skipTest("one core")
        found = json.loads(self.run_command("bench", "scaling", "gemm", "softmax", "--blocks", "1",
                                            "--json", "--devices", "pocl/2").stdout)
        self.assertEqual(len(found["devices"]), 2)
        self.assert_bad("tune", "--model", "mlp", "--devices", "pocl/2", "--export",
                        self.path("two.json"), code=2, says=("--export", "one device"))
        done = self.run_command("bench", "gemm", 8, 8, 8, "--blocks", "1", "--devices", "pocl/2")
        self.assert_message(done.stderr, "of 2 devices the first is measured")
        names = [row["name"] for row in found["rows"]]
        for name in ("limit: registers", "gemm: matmul", "softmax: softmax_grad"):
            self.assertIn(name, names)
        for row in found["rows"]:
            self.assertGreater(row["alone"], 0)
            self.assertAlmostEqual(row["ratio"], row["together"] / row["alone"],
                                   delta=1e-3 * row["ratio"])

    def test_bench_meshes(self):
        if CORES < 2:
            self.skipTest("one core")
        bench = ("bench", "meshes", "dp=1", "dp=2,zero=1,accumulate=2", "tp=2", "--model",
                 "mlp:16", "--data", "synthetic:1x8x8", "--batch", "8", "--blocks", "2", "--steps",
                 "2", "--tune", "off", "--devices", "pocl/2")
        found = json.loads(self.run_command(*bench, "--json").stdout)
        self.assertEqual([(row["mesh"], row["devices"]) for row in found["rows"]],
                         [("dp=1", 1), ("dp=2,zero=1,accumulate=2", 2), ("tp=2", 2)])
        self.assertEqual((found["steps_per_block"], found["blocks"], found["batch"]), (2, 2, 8))
        for row in found["rows"]:
            for key in ("samples_per_s", "ratio"):
                self.assertGreater(row[key]["min"], 0)
                self.assertLessEqual(row[key]["min"], row[key]["median"])
                self.assertLessEqual(row[key]["median"], row[key]["max"])
        self.assertEqual(found["rows"][0]["ratio"]["median"], 1)
        self.assertRegex(self.run_command(*bench).stdout, r"(?m)by turns\n.*ratio.*\ndp=1 ")
        for mesh, said in (("tp", "AXIS=N"), ("zero=1", "names no axis"), ("tp=3", "needs 3 devices"),
                           ("dp=0", "dp"), ("width=2", "width")):
            self.assert_bad(*(mesh if a == "tp=2" else a for a in bench), code=2, says=(said,))

    def test_bench_load(self):
        """Reads samples as training does: bytes as f32, and a label."""
        arguments = "bench", "load", "--data", "idx:" + self.data, "--batch", "8", "--blocks", "2"
        found = json.loads(self.run_command(*arguments, "--json").stdout)
        inspected = json.loads(self.run_command("data", "inspect", "idx:" + self.data, "--json").stdout)["splits"][0]
        elements = [math.prod(field["shape"]) for field in inspected["fields"]]
        self.assertEqual(found["sample_bytes"], 4 * sum(elements))
        self.assertEqual((found["samples"], found["batch"], found["blocks"]), (inspected["samples"], 8, 2))
        rate = found["samples_per_s"]
        self.assertTrue(0 < rate["min"] <= rate["median"] <= rate["max"])
        self.assertTrue(1 <= found["threads"] <= CORES)
        said = self.run_command(*arguments, "--augment", "crop,flip", "--normalize", "0.5,0.2").stdout
        self.assertRegex(said, r"samples/s +\d+  \(\d+ to \d+\)\nwritten +[\d.]+ MB/s, \d+ bytes a sample\nthreads +\d+\n")
        self.assert_bad("bench", "load", code=2, says=("--data is missing",))
        self.assert_bad(*arguments, "--model", "mlp", code=2, says=("--model does not belong to bench load",))
        self.assert_bad("bench", "load", "--data", "images:/does/not/exist", code=1, says=("/does/not/exist",))

    def test_bench_allreduce(self):
        if CORES < 2:
            self.skipTest("one core")
        for options, taken, declined in (
                ((), "in-queue",
                 ("peer", "devices share the host's memory; set the path to peer to have them copy")),
                (("--staged",), "staged", ("mapped", "the path 'staged' was asked for; set it to auto")),
                (("--peer", "--share-context"), "peer",
                 ("shared memory", "there is one process; start ranks with mpiexec"))):
            found = json.loads(self.run_command("bench", "allreduce", 4096, "100KB", "--blocks", "2",
                                                "--json", "--devices", "pocl/2", *options).stdout)
            self.assertEqual(len(found["devices"]), 2)
            self.assertEqual([row["bytes"] for row in found["rows"]], [4096, 102400])
            for row in found["rows"]:
                # The result of each device in each call: two blocks and one to warm up.
                self.assertEqual(row["verified"], 2 * (2 * 24 + 1))
                self.assertLessEqual(row["min_seconds"], row["median_seconds"])
                for bound in (row["limit"], row["floor"]):
                    self.assertGreater(bound["min_seconds"], 0)
                    self.assertLessEqual(bound["min_seconds"], bound["median_seconds"])
                    self.assertLessEqual(bound["median_seconds"], bound["max_seconds"])
                    self.assertGreater(bound["ratio"], 0)
                self.assertNotIn("mpi", row)
                self.assertGreater(row["latency_seconds"], 0)
                lines = dict(re.split("  +", line.strip(), maxsplit=1) for line in
                             row["transports"].splitlines())
                self.assertEqual([name for name, why in lines.items() if why == "taken"], [taken])
                self.assertRegex(lines[declined[0]],
                                 r"^all-reduce of device 0 \(.+\): " + re.escape(declined[1]) + "$")
        table = self.run_command("bench", "allreduce", "1MB", "--blocks", "1", "--devices",
                                 "pocl/2").stdout
        self.assertIn("1 MB", table)
        self.assertIn("floor us", table)


if __name__ == "__main__":
    main()
