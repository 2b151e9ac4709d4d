"""Ranks that are stopped, killed, told to end, or started with different arguments."""
import os
import re
import resource
import shutil
import signal
import struct
import time
import zlib

from launches import LaunchTest
from ranks import (COMMAND, DEVICE, ENDLESS, MPIEXEC, OPEN_MPI, RankTest, get, manager, put, records, run,
                   write_data)


def grey(size, level):
    """Returns a PNG of one grey level."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    rows = (b"\0" + bytes([level % 256] * size)) * size
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">2I5B", size, size, 8, 0, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


class Lost(LaunchTest):
    def outlive_mpiexec(self):
        """Open MPI ends ranks itself a second after mpiexec has ended, unless this variable asks it to wait."""
        os.environ["OMPI_MCA_mpi_abort_delay"] = "30"
        self.addCleanup(os.environ.pop, "OMPI_MCA_mpi_abort_delay", None)

    def test_stopped_rank(self):
        """One rank stands still. The others name it within the deadline."""
        for number in (0, 1):
            with self.subTest(rank=number):
                child = self.ranks(2, *ENDLESS, "--comm-timeout", "2")
                rank = self.at_step(number, 20, child)
                os.kill(rank.pid, signal.SIGSTOP)
                err = self.wait(child, 1, 60)[1]
                other = 1 - number
                line = next(x for x in err.splitlines() if x.startswith(f"cltrain, rank {other}: "))
                found = re.search(rf"rank {other}: (?:evaluation after )?step (\d+): comm: collective \d+ \((losses|bucket 0 "
                                  rf"\(\S+ and 3 more\)|checksums of the parameters)\): rank "
                                  rf"{other} \(.*\) waited 2 s for rank {number}: stopped, or much slower\?", line)
                self.assertTrue(found, err)
                self.assertLessEqual(abs(int(found[1]) - self.rank(number).step), 1)

    def test_rank_of_a_mesh(self):
        """The message names the axis that needs all ranks, and the last checkpoint."""
        saved = self.path("run")
        mesh = (*ENDLESS, "--parallel", "tp=2", "--oversubscribe", "--checkpoint-dir", saved, "--checkpoint-every", "7")
        child = self.ranks(2, *mesh, "--comm-timeout", "2", devices="pocl@1")
        os.kill(self.at_step(1, 20, child).pid, signal.SIGSTOP)
        err = self.wait(child, 1, 60)[1]
        self.assertRegex(err, "cltrain, rank 0: .* waited 2 s for rank 1: .*; the model is divided along tp of the "
                              "mesh, which needs all ranks; resume from the last checkpoint, "
                              f"{saved}/{self.saved(saved)[-1]}\n")
        child = self.launch(2, (), *mesh, "--resume", "--devices", "pocl@1")
        os.kill(self.at_step(1, int(self.saved(saved)[-1][5:]) + 20, child).pid, signal.SIGKILL)
        err = self.wait(child, 1, 60)[1]
        self.assertIn("cltrain-launch: the mesh tp=2 needs all its ranks; resume from the last checkpoint, "
                      f"{saved}/{self.saved(saved)[-1]}\n", err)

    def test_killed_rank(self):
        """The job ends, and the last checkpoint is whole."""
        for number in (0, 1):
            with self.subTest(rank=number):
                saved = self.path(f"run{number}")
                child = self.ranks(2, *ENDLESS, "--checkpoint-dir", saved, "--checkpoint-every", "7")
                rank = self.at_step(number, 20, child)
                os.kill(rank.pid, signal.SIGKILL)
                self.assertNotEqual(child.wait(10), 0)
                last = int(self.saved(saved)[-1][5:])
                self.assertEqual(last % 7, 0)
                alone = shutil.copytree(saved, self.path(f"alone{number}"))
                for count, folder in ((2, saved), (1, alone)):
                    out = self.run_ranks(count, "--steps", last + 3, "--checkpoint-dir", folder,
                                         "--resume")[0]
                    self.assertIn(f"resumed after step {last}", out)
                    self.assertEqual(self.saved(folder)[-1], f"step-{last + 3:08}")

    def test_orphaned(self):
        """mpiexec's helper (Open MPI: mpiexec) is killed. All ranks save after the same step and end, also if a script started
        them."""
        self.outlive_mpiexec()
        for script in ((), ("sh", "-c", '"$0" "$@"; true')):
            with self.subTest(script=script):
                saved, said = self.path(f"run{len(script)}"), self.path("said")
                words = self.words(*ENDLESS, "--checkpoint-dir", saved)
                child = self.begin([MPIEXEC, "-n", 2, "sh", "-c", f'exec "$0" "$@" 2>>{said}', *script, *words])
                ranks = [self.at_step(r, 20, child) for r in (0, 1)]
                os.kill(manager(ranks[0].pid).pid, signal.SIGKILL)
                self.until(lambda: all(r.process_state() in ("", "Z") for r in ranks), seconds=60)
                lines = [x for x in get(said).decode().splitlines() if x.startswith("cltrain")]
                # Open MPI's mpiexec also read the output. A rank may notice this first.
                why = "the process manager that started this rank has ended" + (
                    "|nobody reads standard output any more" if OPEN_MPI else "")
                said_so = [re.fullmatch(rf"cltrain, rank [01]: (?:{why}): stopped after step (\d+); saved in {saved}, "
                                        "--resume goes on", x) for x in lines]
                self.assertTrue(all(said_so), lines)
                steps = {found[1] for found in said_so}
                # A rank may learn of the stop from the other rank first. Then it says nothing.
                self.assertIn(len(lines), (1, 2), lines)
                self.assertEqual(len(steps), 1, lines)
                self.assertEqual(self.saved(saved), [f"step-{int(steps.pop()):08}"])
                os.remove(said)
                child.kill()

    def test_orphaned_and_hanging(self):
        """A rank that cannot save ends after three times --comm-timeout."""
        self.outlive_mpiexec()
        said = self.path("said")
        program = self.hanging(1)
        child = self.begin([MPIEXEC, "-n", 2, "sh", "-c", f'exec "$0" "$@" 2>>{said}', program,
                            *self.words(*ENDLESS, "--comm-timeout", "1")[1:]])
        found = self.until(lambda: [p for p in self.processes().values() if p.rank == 1], child)[0]
        self.until(lambda: self.rank(0) or len(os.listdir(f"/proc/{found.pid}/task")) > 1, child)
        time.sleep(10) # MPI has started by then
        os.kill(manager(found.pid).pid, signal.SIGKILL)
        self.until(lambda: not self.processes(), seconds=60)
        self.assertIn("cltrain, rank 1: the process manager that started this rank has ended, and the rank could not "
                      "save and end within 3 s\n", get(said).decode())
        child.kill()

    def test_told_to_end(self):
        """SIGTERM or a scheduler's signal to one rank. All ranks stop after the same step, and resume with
        the same bits."""
        for number, name in ((0, "SIGTERM"), (1, "SIGTERM"), (0, "SIGUSR1"), (1, "SIGUSR1")):
            with self.subTest(rank=number, signal=name):
                saved, whole, metrics = (self.path(f"{x}-{name}-{number}") for x in
                                         ("run", "whole", "metrics"))
                options = ("--optimizer", "momentum", "--metrics", metrics, "--split", "equal",
                           "--tune", "off")
                child = self.ranks(2, *ENDLESS, "--checkpoint-dir", saved, *options)
                os.kill(self.at_step(number, 20, child).pid, getattr(signal, name))
                err = self.wait(child, 143, 60)[1]
                self.assertEqual(err.count("\n"), 1, err)
                self.assertTrue(err.startswith(f"cltrain, rank {number}: {name}: stopped after"), err)
                step = int(re.search(r"after step (\d+)", err)[1])
                self.assertEqual(self.saved(saved), [f"step-{step:08}"])
                self.assertEqual([self.rank(r).step for r in (0, 1)], [step, step])
                for folder, more in ((saved, ("--resume",)), (whole, ())):
                    self.run_ranks(2, "--steps", step + 4, "--checkpoint-dir", folder, *options, *more)
                    steps = [r["step"] for r in records(metrics)[0]]
                    self.assertEqual(steps, list(range(1, step + 5)))
                self.assert_same_bits(*(os.path.join(x, f"step-{step + 4:08}") for x in (saved, whole)))


    def test_lost_device(self):
        """One of a rank's devices fails, and all ranks go on without it. If no device is left, all ranks end."""
        words = self.words("--steps", "30", "--oversubscribe", "--split", "equal", devices=DEVICE + "/2")
        files = {n: self.path(f"{n}.jsonl") for n in ("whole", "less")}
        self.wait(self.each(*2 * [[*words, "--metrics", files["whole"]]]), 0)
        failing = ["env", "CLT_TESTING_LOSE=#1=7"]
        for number in (0, 1):
            with self.subTest(rank=number):
                ranks = [[*words, "--metrics", files["less"], "--check-every", "1"] for _ in range(2)]
                ranks[number] = failing + ranks[number]
                err = self.wait(self.each(*ranks), 0)[1]
                self.assertIn(f"cltrain, rank {number}: warning: ", err)
                self.assertIn("#1 (", err)
                self.assertIn("training goes on with 1 device after step 7", err)
                whole, less = (records(files[n])[0] for n in ("whole", "less"))
                self.assertEqual([r["step"] for r in less], list(range(1, 31)))
                for a, b in zip(whole, less):
                    self.assertAlmostEqual(a["loss"], b["loss"], delta=1e-3)
        # On a mesh the other rank drops the device that has the same samples.
        mesh = ("--parallel", "tp=2,dp=2", "--check-every", "1")
        err = self.wait(self.each([*words, *mesh], [*failing, *words, *mesh, "--metrics", files["less"]]), 0)[1]
        self.assertIn("training goes on with 1 device after step 7", err)
        self.assertRegex(err, r"rank 0: warning: .*#1 \(.*is left out: the mesh has 1 place of dp instead of 2")
        alone = self.words("--steps", "30", "--split", "equal") # with --split measured it would fail while it is measured
        err = self.wait(self.each(*2 * [["env", "CLT_TESTING_LOSE=(=7", *alone]]), 1)[1]
        for number in (0, 1):
            self.assertTrue(any(x.startswith(f"cltrain, rank {number}: ") and "step 8: " in x and
                                "clEnqueueNDRangeKernel" in x for x in err.splitlines()), err)


    def test_idle_rank(self):
        """A rank's only device fails, and the other rank goes on with the bits of one process. Rank 0 prints and writes
        metrics, also if it is idle."""
        # A checkpoint has the measurements that its run used, of smaller parts here. So a resumed run lacks those of
        # other shapes, which a run that goes on finds if the user's cache has them.
        options = ("--oversubscribe", "--optimizer", "momentum", "--checkpoint-every", "epoch", "--cache-dir",
                   self.path("cache"))
        for number in (0, 1):
            with self.subTest(rank=number):
                saved, alone, metrics = (self.path(f"{x}-{number}") for x in ("run", "alone", "metrics"))
                words = self.words(*options, "--epochs", 3, "--checkpoint-dir", saved, "--metrics", metrics)
                ranks = [words, words]
                ranks[number] = ["env", "CLT_TESTING_LOSE=(=3", *words]
                out, err = self.wait(self.each(*ranks), 0)
                self.assertRegex(err, rf"^cltrain, rank {number}: warning: .* has failed, this rank has no device left and is "
                                      r"idle, training goes on with 1 device of other ranks after step 3: .*\n$")
                steps, epochs = records(metrics)
                self.assertEqual([r["step"] for r in steps], list(range(1, steps[-1]["step"] + 1)))
                self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])
                self.assertTrue(all(r["test_loss"] > 0 for r in epochs), epochs)
                # mpiexec of Open MPI is a terminal to the ranks, on which a line follows the progress that it erases.
                self.assertEqual(re.findall(r"(?:^|\x1b\[K)epoch (\d+)  step \d+  loss [\d.]+  test loss", out,
                                            re.MULTILINE), ["1", "2", "3"])
                self.assertTrue(out.endswith(f"\ndone: {steps[-1]['step']} steps; saved in {saved}\n"), out)
                self.assertEqual([self.rank(r).step for r in (0, 1)], 2 * [steps[-1]["step"]])
                # One process goes on from step 3 in the same way.
                self.run_ranks(2, *options, "--steps", 3, "--checkpoint-dir", alone)
                self.train(*options[1:], "--epochs", 3, "--checkpoint-dir", alone, "--resume")
                self.assertEqual(self.saved(saved), self.saved(alone)[-3:])
                self.assert_same_bits(*(os.path.join(x, self.saved(saved)[-1]) for x in (saved, alone)))
                # All ranks go on from the checkpoint together.
                self.assertIn("resumed after step ", self.run_ranks(
                    2, *options, "--epochs", 4, "--checkpoint-dir", saved, "--resume", "--metrics", metrics)[0])
                self.assertEqual([r["epoch"] for r in records(metrics)[1]], [1, 2, 3, 4])

    def test_idle_rank_is_told_to_end(self):
        """SIGTERM to a rank stops all after the same step, if it is idle or another rank is."""
        for number in (0, 1):
            with self.subTest(rank=number):
                saved = self.path(f"run-{number}")
                words = self.words(*ENDLESS, "--oversubscribe", "--checkpoint-dir", saved)
                child = self.each(["env", "CLT_TESTING_LOSE=(=7", *words], words)
                self.at_step(0, 20, child) # idle, and told of later steps
                os.kill(self.at_step(number, 20, child).pid, signal.SIGTERM)
                err = self.wait(child, 143, 60)[1]
                self.assertRegex(err, rf"cltrain, rank {number}: SIGTERM: stopped after step \d+; saved in ")
                self.assertEqual(len(self.saved(saved)), 1)

    def test_lost_part(self):
        """A device is lost that had parts of the model. The message names the axis, and from where to go on."""
        for mesh, more in (("tp=2", ()), ("pp=2", ("--accumulate", "2"))):
            for every in (3, 5):
                with self.subTest(mesh=mesh, every=every):
                    saved = self.path(f"{mesh}-{every}")
                    words = self.words("--steps", "6", "--parallel", mesh, *more, "--checkpoint-dir", saved,
                                       "--checkpoint-every", every, model="mlp:16", devices=DEVICE + "/2")
                    err = self.wait(self.begin(["env", "CLT_TESTING_LOSE=#1=4", *words]), 1)[1]
                    where = f"resume from the last checkpoint, {saved}/step-00000003" if every == 3 else \
                        f"there is no checkpoint in {saved} to resume from"
                    self.assertIn(f"divided along {mesh[:2]} of the mesh; {where}\n", err)


class Unlike(RankTest):
    """Ranks that were started with different arguments or data end together with a message."""

    def assert_ends(self, code, first, second, *says):
        err = self.wait(self.each(first, second), code, 60)[1]
        for part in says:
            self.assertIn(part, err)
        return err

    def test_data(self):
        other = self.path("other")
        shutil.copytree(self.data, other)
        words = self.words("--steps", "5")
        others = [w.replace(self.data, other) for w in words]
        name = os.path.join(other, "train-images-idx3-ubyte")
        data = get(name)
        with open(name, "r+b") as file:
            file.truncate(len(data) - 5)
        self.assert_ends(1, words, others, "cltrain, rank 1: " + name)
        os.remove(name)
        self.assert_ends(1, others, words, "cltrain, rank 0: " + name)

    def test_other_data_of_equal_size(self):
        other, words = self.path("other"), self.words("--steps", "5")
        others = [w.replace(self.data, other) for w in words]
        for name, at, what in (("train-images-idx3-ubyte", 16, "training"), ("train-labels-idx1-ubyte", -1, "training"),
                               ("t10k-images-idx3-ubyte", -1, "test")):
            for a, b in ((words, others), (others, words)):
                with self.subTest(name=name):
                    shutil.rmtree(other, ignore_errors=True)
                    shutil.copytree(self.data, other)
                    path = os.path.join(other, name)
                    data = bytearray(get(path))
                    data[at] ^= 1
                    with open(path, "wb") as file:
                        file.write(data)
                    self.assert_ends(1, a, b, f"rank 1 has another content of the {what} data than rank 0")

    def test_damage_found_on_the_way(self):
        """The samples of one rank are found to be damaged when they are read."""
        other = self.path("other")
        write_data(other, packed=True)
        words = self.words("--steps", "100000")
        name = os.path.join(other, "train-images-idx3-ubyte.gz")
        data = bytearray(get(name))
        data[-8] ^= 1
        with open(name, "wb") as file:
            file.write(data)
        self.assert_ends(1, words, [w.replace(self.data, other) for w in words],
                         "cltrain, rank 1: ", name)

    def test_unreadable_sample(self):
        """A sample of either rank cannot be read in the middle of training. All ranks save, name the file and
        end."""
        images, files = self.path("images"), [f"train/{name}/{n}.png" for name in "ab" for n in range(10)]
        for file in [*files, "val/a/0.png", "val/b/0.png"]:
            os.makedirs(os.path.dirname(os.path.join(images, file)), exist_ok=True)
            put(os.path.join(images, file), grey(8, sum(file.encode()) * 7))
        usual = ("--data", "images:" + images, "--batch", "4", "--epochs", "2", "--tune", "off", "--split", "equal",
                 "--shuffle", "off", "--optimizer", "adam", "--image-size", "8")
        for bad, more in ((13, ()), (14, ()), (9, ("--no-guard",)), (18, ("--precision", "f16"))):
            with self.subTest(sample=bad, more=more):
                whole, run = self.path(f"whole{bad}"), self.path(f"run{bad}")
                self.run_ranks(2, *usual, *more, "--checkpoint-dir", whole)
                path = os.path.join(images, files[bad])
                data = get(path)
                put(path, b"x")
                err = self.run_ranks(2, *usual, *more, "--checkpoint-dir", run, code=1)[1]
                for rank in (0, 1):
                    found = [x for x in err.splitlines() if x.startswith(f"cltrain, rank {rank}: ")]
                    self.assertEqual(len(found), 1, err)
                    self.assertIn(f"{path}: is neither", found[0])
                self.assertEqual(self.saved(run), [f"step-{bad // 4:08}"])
                put(path, data)
                self.run_ranks(2, *usual, *more, "--checkpoint-dir", run, "--resume")
                self.assert_same_bits(*(os.path.join(x, self.saved(x)[-1]) for x in (whole, run)))

        for name in "ab":
            with self.subTest(evaluated=name):
                path, run = os.path.join(images, f"val/{name}/0.png"), self.path("run" + name)
                data = get(path)
                put(path, b"x")
                err = self.run_ranks(2, *usual, "--checkpoint-dir", run, code=1)[1]
                self.assertIn(f"{path}: is neither", err)
                self.assertEqual(self.saved(run), ["step-00000005"])
                put(path, data)

    def test_usage_is_printed_once(self):
        words = self.words("--steps", "5")
        for more, says in ((("--steps", "0"), "--steps 0"), (("--shuffle", "x"), "--shuffle x"),
                           (("--model", "mpl"), "mpl"), (("--devices", "nosuch"), "nosuch"),
                           (("--variant", "matmul=x"), "matmul=x"), (("--optimzer", "x"), "--optimizer?")):
            with self.subTest(more=more):
                wrong = self.words(*(() if "--steps" in more else ("--steps", "5")), *more)
                err = self.assert_ends(2, wrong, wrong)
                self.assert_rank_line(err, 0, says)
        err = self.assert_ends(2, words, [*words, "--keep", "-1"])
        self.assert_rank_line(err, 1, "--keep -1")
        for words, code, says in ((["bench", "train", "--model", "mlp", "--step", "3"], 2, "--steps?"),
                                  (["eval", "--model", "mlp", "--data", "x:y"], 2, "--checkpoint")):
            self.assert_rank_line(self.wait(self.each(*2 * [[COMMAND, *words]]), code, 60)[1], 0, says)
        self.assertEqual(os.listdir(self.beats), [])

    def assert_rank_line(self, text, number, part):
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith(f"cltrain, rank {number}: "), text)
        self.assertIn(part, text)

    def test_more_ranks_than_cores(self):
        err = self.run_ranks(4, "--steps", "5", code=1)[1]
        self.assert_rank_line(err, 0, "4 ranks on this node share 1 device and too few cores")
        self.assertIn("--oversubscribe", err)
        self.run_ranks(4, "--steps", "5", "--oversubscribe")


class FullDisk(RankTest):
    def test_full_disk(self):
        """Rank 0 cannot save any more. Training continues, and only the failure of the last checkpoint ends
        all ranks with an error."""
        saved = self.path("run")

        # The ranks ignore SIGXFSZ. Open MPI's mpiexec would not pass this on to them.
        child = self.begin([MPIEXEC, "-n", 2, "sh", "-c", 'trap "" XFSZ; exec "$0" "$@"',
                            *self.words("--steps", "900", "--checkpoint-dir", saved,
                                        "--checkpoint-every", "150", "-q", model="mlp:1024,512")])
        rank = self.at_step(0, 10, child)
        # Less than a checkpoint, but more than any compiled kernel: PoCL ends the process if it cannot write
        # a kernel.
        resource.prlimit(rank.pid, resource.RLIMIT_FSIZE, (1000000, 1000000))
        begun = self.rank(0).step
        self.assertLess(begun, 870)
        err = self.wait(child, 1, 120)[1].splitlines()
        warnings = [x for x in err if x.startswith("cltrain, rank 0: warning: no checkpoint of step ")]
        self.assertGreaterEqual(len(warnings), (899 - begun) // 150, err)
        self.assertIn("training goes on", warnings[-1])
        for number, says in ((0, "step-00000900"), (1, "rank 0 failed: ")):
            line = [x for x in err if x.startswith(f"cltrain, rank {number}: ") and x not in warnings]
            self.assertEqual(len(line), 1, err)
            self.assertIn(says, line[0])
            self.assertIn("safetensors", line[0])
        self.assertEqual([self.rank(r).state for r in (0, 1)], [5, 5])


if __name__ == "__main__":
    run()
