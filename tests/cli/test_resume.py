"""Interrupted runs: the files after a signal, a kill, a full disk or a bad step, and resuming from them."""
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from command import COMMAND, CommandTest, cores, get, main, put, records, tensors, tree, write_data

CORES = cores()


class Resume(CommandTest):
    def last(self, run):
        return os.path.join(run, sorted(os.listdir(run))[-1])

    def straight_and_broken(self, devices, then, *more):
        """Trains 12 steps in one run. Another run trains 7 steps, to the middle of the second epoch, and
        resumes for 5."""
        straight, broken = self.path("straight"), self.path("broken")
        for folder in (straight, broken):
            shutil.rmtree(folder, ignore_errors=True)
        self.train("--steps", "12", "--checkpoint-dir", straight, "--metrics", straight + ".jsonl",
                   *more, devices=devices)
        self.train("--steps", "7", "--checkpoint-dir", broken, "--metrics", broken + ".jsonl",
                   *more, devices=devices)
        done = self.train("--steps", "12", "--checkpoint-dir", broken, "--resume", "--metrics",
                          broken + ".jsonl", *more, devices=then)
        self.assertIn("resumed after step 7", done.stdout)
        steps, epochs = records(broken + ".jsonl")
        self.assertEqual([r["step"] for r in steps], list(range(1, 13)))
        self.assertEqual([r["epoch"] for r in epochs], [1, 2])
        return self.last(straight), self.last(broken)

    def assert_same_bits(self, devices, *more):
        a, b = self.straight_and_broken(devices, devices, *more)
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(get(os.path.join(a, name)), get(os.path.join(b, name)), name)
        losses = [[r["loss"] for r in records(self.path(name + ".jsonl"))[0]]
                  for name in ("straight", "broken")]
        self.assertEqual(*losses)

    def test_one_device(self):
        # 60 s suffice to measure all shapes. Otherwise the second run would measure the rest.
        for more in (("--tune", "60"), ("--optimizer", "momentum", "--weight-decay", "0.01"),
                     ("--optimizer", "adamw", "--schedule", "step:4:0.5,warmup:3"),
                     ("--accumulate", "3")):
            with self.subTest(more=more):
                self.assert_same_bits("pocl", *more)

    def test_drop_last(self):
        """Seventy samples make four batches of 16 in an epoch, without the last six. Resumed runs do the
        same."""
        straight, broken = self.path("straight"), self.path("broken")
        arguments = "--epochs", "3", "--drop-last"
        done = self.train(*arguments, "--checkpoint-dir", straight, "--metrics", straight + ".jsonl")
        self.assertIn("done: 12 steps", done.stdout)
        self.train("--drop-last", "--steps", "6", "--checkpoint-dir", broken, "--metrics", broken + ".jsonl")
        done = self.train(*arguments, "--checkpoint-dir", broken, "--metrics", broken + ".jsonl", "--resume")
        self.assertIn("done: 12 steps", done.stdout)
        for path in straight, broken:
            steps, epochs = records(path + ".jsonl")
            self.assertEqual([(r["epoch"], r["samples"]) for r in steps], [(e, 16) for e in (1, 2, 3) for _ in range(4)])
            self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])
        for name in "model.safetensors", "optimizer.safetensors":
            self.assertEqual(get(os.path.join(self.last(straight), name)), get(os.path.join(self.last(broken), name)))
        done = self.train("--epochs", "4", "--checkpoint-dir", broken, "--resume", code=1)  # would read other samples
        self.assert_message(done.stderr, "partial last batch")
        self.assert_bad(*self.arguments("--drop-last", batch=71), code=2, says=("--batch is 71", "70 samples"))

    def test_two_devices(self):
        if CORES < 2:
            self.skipTest("one core")
        self.assert_same_bits("pocl/2", "--optimizer", "adam", "--split", "equal")
        self.assert_same_bits("pocl/2", "--clip-norm", "0.1", "--split", "equal")

    def test_split(self):
        """A resumed run divides batches as its checkpoint says. On other devices it measures."""
        if CORES < 2:
            self.skipTest("one core")
        straight, broken = self.path("straight"), self.path("broken")
        self.train("--steps", "9", "--checkpoint-dir", straight, "--split", "3,1", devices="pocl/2")
        self.train("--steps", "5", "--checkpoint-dir", broken, "--split", "3,1", devices="pocl/2")
        done = self.train("--steps", "9", "--checkpoint-dir", broken, "--resume", devices="pocl/2")
        self.assertNotIn("predicted", done.stdout)
        for name in ("model.safetensors", "optimizer.safetensors"):
            files = [os.path.join(self.last(run), name) for run in (straight, broken)]
            self.assertEqual(*(get(file) for file in files))
        done = self.train("--steps", "10", "--checkpoint-dir", broken, "--resume",
                          devices="pocl@1,pocl@1,pocl@1")
        self.assertIn("of other devices", done.stdout)
        self.assertIn("predicted", done.stdout)

    def test_late_records(self):
        """Records of the steps that are repeated are dropped, and none of earlier steps behind them."""
        path, folder = self.path("late.jsonl"), self.path("late")
        self.train("--steps", "5", "--checkpoint-dir", folder, "--metrics", path)
        late = '{"epoch":2,"step":5,"test_loss":1.25}\n'
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"step":6,"loss":9}\n' + late + '{"step":7,"loss":9}\n{"step":8')
        self.train("--steps", "7", "--checkpoint-dir", folder, "--metrics", path, "--resume")
        with open(path, encoding="utf-8") as file:
            lines = [line for line in file if "loss_scale" not in line]
        found = [json.loads(line) for line in lines]
        self.assertEqual([r["step"] for r in found if "loss" in r], [1, 2, 3, 4, 5, 6, 7])
        self.assertNotIn(9, [r.get("loss") for r in found])
        self.assertEqual(lines.count(late), 1)

    def test_replay(self):
        """--replay repeats a run with the divisions of batches from its metrics."""
        if CORES < 2:
            self.skipTest("one core")
        path, first, second = (self.path(name) for name in ("m.jsonl", "first", "second"))
        self.train("--steps", "40", "--rebalance", "--split", "1,2", "--metrics", path,
                   "--checkpoint-dir", first, devices="pocl/2", batch=64)
        steps = records(path)[0]
        self.assertEqual((steps[0]["split"], steps[0]["quantum"]), ([1, 2], 1))
        self.train("--steps", "40", "--replay", path, "--checkpoint-dir", second, "--metrics",
                   self.path("n.jsonl"), devices="pocl/2", batch=64)
        self.assertEqual([{k: r.get(k) for k in ("step", "loss", "split", "quantum")} for r in steps],
                         [{k: r.get(k) for k in ("step", "loss", "split", "quantum")}
                          for r in records(self.path("n.jsonl"))[0]])
        for name in ("model.safetensors", "optimizer.safetensors"):
            files = [os.path.join(self.last(run), name) for run in (first, second)]
            self.assertEqual(*(get(file) for file in files))
        done = self.train("--steps", "1", "--replay", path, devices="pocl", code=2)
        self.assert_message(done.stderr, "2 devices, not 1")
        lines = [json.loads(line) for line in get(path).splitlines()]
        lost = next(i for i, r in enumerate(lines) if r.get("step") == 20 and "loss" in r)
        lines[lost].update(split=[1], quantum=1, bucket_bytes=lines[0]["bucket_bytes"])
        put(self.path("lost.jsonl"), "".join(json.dumps(x) + "\n" for x in lines).encode())
        done = self.train("--steps", "40", "--replay", self.path("lost.jsonl"), devices="pocl/2", batch=64, code=1)
        self.assert_message(done.stderr, f"line {lost + 1}: of 2 devices 1 were left at step 20")
        # A damaged line is refused. An incomplete last line, which a killed run leaves, is not.
        whole = get(path)
        put(self.path("damaged.jsonl"), whole.replace(b'{"', b'?"', 1))
        done = self.train("--steps", "2", "--replay", self.path("damaged.jsonl"), devices="pocl/2", batch=64,
                          code=1)
        self.assert_message(done.stderr, "damaged.jsonl, line 1: no JSON")
        put(self.path("torn.jsonl"), whole + b'{"step":41,"lo')
        self.train("--steps", "2", "--replay", self.path("torn.jsonl"), devices="pocl/2", batch=64)
        self.train("--steps", "2", "--metrics", path, devices="pocl")
        done = self.train("--steps", "2", "--replay", path, devices="pocl/2", code=1)
        self.assert_message(done.stderr, "without --rebalance")

    def test_buckets(self):
        """Clipped gradients depend on the buckets that the norm is computed in. Metrics and checkpoints have
        the bucket size, and replayed and resumed runs use it."""
        if CORES < 2:
            self.skipTest("one core")
        path, edited = self.path("m.jsonl"), self.path("edited.jsonl")
        more = ("--clip-norm", "0.01", "--lr", "0.5")
        models = {}
        self.train("--steps", "9", "--rebalance", "--split", "1,2", "--metrics", path, *more,
                   devices="pocl/2")
        self.assertEqual(records(path)[0][0]["bucket_bytes"], 25 << 20)
        for size in (25 << 20, 4096):
            put(edited, get(path).replace(b'"bucket_bytes":%d' % (25 << 20),
                                          b'"bucket_bytes":%d' % size))
            straight, broken = (self.path(f"{x}{size}") for x in ("straight", "broken"))
            for run, steps in ((straight, "9"), (broken, "5")):
                self.train("--steps", steps, "--replay", edited, "--checkpoint-dir", run,
                           "--metrics", run + ".jsonl", *more, devices="pocl/2")
            self.train("--steps", "9", "--resume", "--checkpoint-dir", broken, "--metrics",
                       broken + ".jsonl", *more, devices="pocl/2")
            for run in (straight, broken):
                found = {r["bucket_bytes"] for r in records(run + ".jsonl")[0] if "split" in r}
                self.assertEqual(found, {size})
            files = [get(os.path.join(self.last(run), "model.safetensors"))
                     for run in (straight, broken)]
            self.assertEqual(*files)
            models[size] = files[0]
        self.assertEqual(len(models), 2)
        # Metrics of a version without the bucket size.
        put(edited, re.sub(rb',"bucket_bytes":\d+', b"", get(path)))
        self.train("--steps", "9", "--replay", edited, "--checkpoint-dir", self.path("old"), *more,
                   devices="pocl/2")
        old = get(os.path.join(self.last(self.path("old")), "model.safetensors"))
        self.assertEqual(old, models[25 << 20])
        put(edited, get(path).replace(b'"bucket_bytes":%d' % (25 << 20), b'"bucket_bytes":0'))
        done = self.train("--steps", "2", "--replay", edited, devices="pocl/2", code=1)
        self.assert_message(done.stderr, "line 1: \"bucket_bytes\" must be at least 1")

    def test_seed(self):
        """A resumed run keeps its seed, and refuses another."""
        run = self.path("run")
        self.train("--steps", "7", "--checkpoint-dir", run, "--seed", "5")
        before = tree(run)
        done = self.train("--steps", "8", "--checkpoint-dir", run, "--resume", "--seed", "6", code=1)
        self.assert_message(done.stderr, "seed 5", "not 6")
        self.assertEqual(tree(run), before)
        self.train("--steps", "8", "--checkpoint-dir", run, "--resume", "--seed", "5")
        self.train("--steps", "9", "--checkpoint-dir", run, "--resume")

    def test_other_data(self):
        """Resuming in the middle of an epoch with other data is refused."""
        run = self.path("run")
        self.train("--steps", "7", "--checkpoint-dir", run)
        before = tree(run)
        for more, says in ((("--shuffle", "off"), "in order"), (("--normalize", "0.3,0.5"), "0.3")):
            done = self.train("--steps", "8", "--checkpoint-dir", run, "--resume", *more, code=1)
            self.assert_message(done.stderr, "shuffled", says)
        write_data(self.data, train=50)
        done = self.train("--steps", "8", "--checkpoint-dir", run, "--resume", code=1)
        self.assert_message(done.stderr, "50 samples")
        self.assertEqual(tree(run), before)

    def test_other_number_of_devices(self):
        if CORES < 2:
            self.skipTest("one core")
        for devices, then in (("pocl", "pocl/2"), ("pocl/2", "pocl")):
            a, b = self.straight_and_broken(devices, then, "--optimizer", "momentum")
            a, b = (tensors(os.path.join(x, "model.safetensors")) for x in (a, b))
            self.assertEqual(set(a), set(b))
            for name, values in a.items():
                largest = max(map(abs, values))
                self.assertLess(max(abs(x - y) for x, y in zip(values, b[name])), 1e-5 * largest)

    def test_metrics_after_the_checkpoint_go(self):
        """A killed run may have records beyond its last checkpoint. The resumed run replaces them."""
        run, path = self.path("run"), self.path("m.jsonl")
        self.train("--steps", "9", "--checkpoint-dir", run, "--checkpoint-every", "4", "--keep",
                   "0", "--metrics", path)
        whole = records(path)[0]
        shutil.rmtree(os.path.join(run, "step-00000009"))
        put(path, get(path) + b'{"step":10,"epo')
        self.train("--steps", "12", "--checkpoint-dir", run, "--resume", "--metrics", path)
        steps, epochs = records(path)
        self.assertEqual([r["step"] for r in steps], list(range(1, 13)))
        self.assertEqual([r["epoch"] for r in epochs], [1, 2])
        self.assertEqual([r["loss"] for r in steps[:9]], [r["loss"] for r in whole])

    def test_nothing_left(self):
        run = self.path("run")
        arguments = ("--steps", "4", "--checkpoint-dir", run, "--resume")
        self.train(*arguments)
        before = get(os.path.join(self.last(run), "model.safetensors"))
        done = self.train(*arguments)
        self.assertIn("nothing to do", done.stdout)
        self.assertEqual(get(os.path.join(self.last(run), "model.safetensors")), before)

    def test_other_batch(self):
        """--epochs counts epochs, however many steps the earlier ones had. Schedules end with the run."""
        for before, then, steps in (("16", "8", 10 + 9), ("8", "16", 18 + 5)):
            run, metrics = self.path("run" + then), self.path(then + ".jsonl")
            self.train("--epochs", "2", "--batch", before, "--checkpoint-dir", run, "--metrics", metrics)
            done = self.train("--epochs", "3", "--batch", then, "--checkpoint-dir", run, "--metrics", metrics,
                              "--resume", "--schedule", "cosine:0.01")
            self.assertIn(f"{steps} steps of {then} on", done.stdout)
            made, epochs = records(metrics)
            self.assertEqual([r["step"] for r in made], list(range(1, steps + 1)))
            self.assertEqual([r["epoch"] for r in epochs], [1, 2, 3])
            self.assertGreater(made[-1]["lr"], 0.01)
            self.assertLess(made[-1]["lr"], 0.02)

    def test_keep(self):
        run = self.path("run")
        self.train("--epochs", "4", "--checkpoint-dir", run, "--checkpoint-every", "epoch",
                   "--keep", "2")
        self.assertEqual(sorted(os.listdir(run)), ["step-00000015", "step-00000020"])


class Stopped(CommandTest):
    def begin(self, *args, **options):
        """Starts a long run and waits until it has done some steps."""
        self.metrics = self.path("m.jsonl")
        child = self.start("--steps", "100000000", "--metrics", self.metrics, *args, **options)
        deadline = time.monotonic() + 60
        while not os.path.exists(self.metrics) or get(self.metrics).count(b"\n") < 5:
            self.assertIsNone(child.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        return child

    def assert_stops(self, number, devices):
        run = self.path(f"run{number}")
        child = self.begin("--checkpoint-dir", run, devices=devices)
        child.send_signal(number)
        _, message = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 130 if number == signal.SIGINT else 143)
        self.assert_message(message, signal.Signals(number).name, run)
        step = int(re.search(r"after step (\d+)", message)[1])
        self.assertEqual(os.listdir(run), [f"step-{step:08}"])
        self.assertEqual([r["step"] for r in records(self.metrics)[0]], list(range(1, step + 1)))
        self.train("--steps", step + 2, "--checkpoint-dir", run, "--resume", devices=devices)
        os.remove(self.metrics)

    def test_signals(self):
        self.assert_stops(signal.SIGINT, "pocl")
        self.assert_stops(signal.SIGTERM, "pocl/2" if CORES > 1 else "pocl")

    def test_hangup(self):
        """SIGHUP ends a run when the terminal is closed, but not under nohup."""
        self.assert_stops(signal.SIGHUP, "pocl")
        child = self.begin(preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        child.send_signal(signal.SIGHUP)
        steps = get(self.metrics).count(b"\n")
        deadline = time.monotonic() + 60
        while get(self.metrics).count(b"\n") < steps + 100:
            self.assertIsNone(child.poll())
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        child.kill()

    def test_nobody_reads(self):
        """Saves and ends when the reader of its output has ended, as in `cltrain train | head -1`."""
        run = self.path("run")
        child = self.begin("--checkpoint-dir", run)
        child.stdout.close()
        self.assertEqual(child.wait(timeout=60), 143)
        message = child.stderr.read()
        self.assert_message(message, "nobody reads standard output", "saved in", run)
        self.train("--steps", int(re.search(r"after step (\d+)", message)[1]) + 2, "--checkpoint-dir",
                   run, "--resume")

    def test_without_a_folder(self):
        child = self.begin()
        child.send_signal(signal.SIGTERM)
        _, message = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143)
        self.assert_message(message, "nothing saved")

    def test_second_signal(self):
        """The second signal does not wait for the end of a long step."""
        write_data(self.data, train=20000, rows=28, columns=28)
        child = self.start("--epochs", "1000", batch=20000)
        child.stdout.readline()
        # Wait until a step runs. The first step takes a while, and a stop is reported only after it.
        time.sleep(1)
        child.send_signal(signal.SIGINT)
        time.sleep(0.6)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
        self.assertIn(child.returncode, (-signal.SIGINT, 128 + signal.SIGINT))

    def test_doubled_signal(self):
        """`timeout` sends its signal twice within a moment. The run still saves."""
        run = self.path("run")
        child = self.begin("--checkpoint-dir", run)
        for _ in range(20):
            child.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        _, message = child.communicate(timeout=60)
        self.assertEqual(child.returncode, 143)
        self.assert_message(message, "SIGTERM", "saved in", run)
        self.assertEqual(len(os.listdir(run)), 1)

    def test_killed_while_saving(self):
        """kill -9 at any time in a save leaves a whole checkpoint."""
        run = self.path("run")
        hits = 0
        for _ in range(6):
            child = self.start("--steps", "100000000", "--checkpoint-dir", run,
                               "--checkpoint-every", "1", "--resume")
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                names = os.listdir(run) if os.path.isdir(run) else []
                if any(n.startswith(".tmp-") for n in names) and any(n[:5] == "step-" for n in names):
                    hits += 1
                    break
            child.kill()
            child.communicate(timeout=60)
            self.run_command("eval", "--model", "mlp", "--data", "idx:" + self.data, "--checkpoint",
                             run)
        self.assertGreater(hits, 3)
        last = int(sorted(n for n in os.listdir(run) if n[:5] == "step-")[-1][5:])
        self.train("--steps", last + 1, "--checkpoint-dir", run, "--resume")
        self.assertFalse([n for n in os.listdir(run) if n.startswith(".tmp-")])

    def test_stopped_while_measuring(self):
        """A signal also ends the measuring of kernels."""
        write_data(self.data, rows=28, columns=28)
        child = self.start("--steps", "5", "--tune", "600", "--cache-dir", self.cache_folder(),
                           "--checkpoint-dir", self.path("run"), model="lenet")
        while "measuring" not in child.stdout.readline():
            self.assertIsNone(child.poll())
        child.send_signal(signal.SIGINT)
        output = child.communicate(timeout=200)[1]
        self.assertEqual(child.returncode, 130, output)
        self.assert_message(output, "before the first step")

    def test_killed_metrics(self):
        """Records that were written half a second before a kill are in the file."""
        child = self.begin("--quiet") # nobody reads the output, and a full pipe would block the run
        time.sleep(0.2)
        before = get(self.metrics).count(b"\n")
        time.sleep(1)
        child.kill()
        child.communicate(timeout=60)
        steps, epochs = records(self.metrics)
        self.assertGreater(len(steps) + len(epochs), before)
        self.assertTrue(get(self.metrics).endswith(b"\n"))
        self.assertEqual([r["step"] for r in steps], list(range(1, len(steps) + 1)))


class Failed(CommandTest):
    def limited(self, size, *args):
        """Simulates a full disk: files end at `size` bytes. Kernels are compiled before, from source and from
        our cache, since LLVM ends a process that cannot write compiled code."""
        for i in range(3):
            self.train("--steps", "6", "--checkpoint-dir", self.path(f"warm{i}"), "--resume")
            shutil.rmtree(self.path(f"warm{i}"))

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

        done = subprocess.run([COMMAND, *map(str, self.arguments(*args))], capture_output=True,
                              text=True, timeout=120, preexec_fn=limit, restore_signals=False,
                              check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        return done.stderr

    def test_full_disk(self):
        """Training continues after a failed save. Only a failure of the last save is an error."""
        run = self.path("run")
        self.train("--steps", "4", "--checkpoint-dir", run)
        before = tree(run)
        message = self.limited(20000, "--steps", "12", "--checkpoint-dir", run, "--resume",
                               "--checkpoint-every", "2")
        lines = message.splitlines()
        self.assertEqual(len(lines), 4, message) # steps 6, 8, 10, and the end
        for line, step in zip(lines, (6, 8, 10)):
            self.assertRegex(line, f"^cltrain: warning: no checkpoint of step {step}, training goes")
            self.assertIn("safetensors", line)
        self.assert_message(lines[-1] + "\n", "safetensors", "step-00000012")
        after = tree(run)
        self.assertEqual({name: after.get(name) for name in before}, before)
        self.train("--steps", "6", "--checkpoint-dir", run, "--resume")

    def test_full_disk_of_metrics(self):
        run, path = self.path("run"), self.path("m.jsonl")
        self.train("--steps", "1", "--merge-launches", "on") # compiles what a long run needs
        message = self.limited(60000, "--steps", "100000", "--checkpoint-dir", run, "--metrics",
                               path)
        self.assert_message(message, "m.jsonl")
        # The training state is saved.
        self.run_command("eval", "--model", "mlp", "--data", "idx:" + self.data, "--checkpoint", run)

    def test_not_finite(self):
        """The message names the step and the tensor. The weights are those of the last good step."""
        for devices in ("pocl", "pocl/2")[:CORES]:
            with self.subTest(devices=devices):
                run, path, good = self.path("run"), self.path("m.jsonl"), self.path("good")
                arguments = ("--lr", "1e30", "--seed", "3", "--tune", "off", "--split", "equal")
                done = self.train("--epochs", "3", "--checkpoint-dir", run, "--metrics", path,
                                  *arguments, code=1, devices=devices)
                self.assert_message(done.stderr, "not finite", "a lower --lr or --clip-norm may help", "--no-guard")
                step = int(re.search(r"step (\d+)", done.stderr)[1])
                self.assertRegex(done.stderr, r"node \w+|gradient of \w+|parameter \w+")
                self.assertGreater(step, 1)
                self.assertEqual([r["step"] for r in records(path)[0]], list(range(1, step)))
                self.assertEqual(os.listdir(run), [f"step-{step - 1:08}"])
                self.train("--steps", step - 1, "--checkpoint-dir", good, *arguments,
                           devices=devices)
                name = os.path.join(f"step-{step - 1:08}", "model.safetensors")
                self.assertEqual(get(os.path.join(run, name)), get(os.path.join(good, name)))
                shutil.rmtree(run)
                shutil.rmtree(good)


if __name__ == "__main__":
    main()
