"""Ctrl-C, fork, threads, and the end of the interpreter."""
import os
import threading

import numpy as np

import cltrain as clt
import support

BEGIN = """
import os, signal, sys, threading, time, gc
import numpy as np
import cltrain as clt
import support
x, y = support.numbers(64, 3), support.numbers(64, 1)
trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=16, lr=0.01)
float(trainer.step(x[:16], y[:16]))
"""


class Interrupt(support.Case):
    def interrupted(self, fit):
        program = BEGIN + """
class Kill(clt.Callback):
    def on_step(self, trainer, progress):
        if progress.step == 5:
            os.kill(os.getpid(), signal.SIGINT)
try:
    FIT
except KeyboardInterrupt:
    print("interrupted after", trainer.steps)
    float(trainer.step(x[:16], y[:16]))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
else:
    print("not interrupted")
""".replace("FIT", fit.replace("FOLDER", repr(os.path.join(self.folder, "run"))))
        result = support.run(program)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, "interrupted after [56789]\n")

    def test_fit(self):
        self.interrupted("trainer.fit((x, y), epochs=10**6, callbacks=[Kill()], checkpoint_dir=FOLDER)")
        self.assertTrue([name for name in os.listdir(os.path.join(self.folder, "run")) if name.startswith("step-")])

    def test_iterable(self):
        self.interrupted("trainer.fit([(x[:16], y[:16])], epochs=10**6, callbacks=[Kill()], checkpoint_dir=FOLDER)")
        self.assertTrue([name for name in os.listdir(os.path.join(self.folder, "run")) if name.startswith("step-")])

    def test_twice(self):
        """An iterable that waits for ever: a second Ctrl-C ends it."""
        program = BEGIN + """
def batches():
    yield x[:16], y[:16]
    for _ in range(2):
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        time.sleep(1.5)
    time.sleep(1000)
try:
    trainer.fit(batches, checkpoint_dir=FOLDER)
except KeyboardInterrupt:
    print("interrupted after", trainer.steps)
""".replace("FOLDER", repr(os.path.join(self.folder, "run")))
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "interrupted after 2\n"), result.stderr)
        self.assertIn("step-00000002", os.listdir(os.path.join(self.folder, "run")))

    def test_waiting(self):
        """A callback or policy that waits for ever: a second Ctrl-C ends it, and the checkpoint is written."""
        for place, base in (("on_step(self, trainer, progress)", "Callback"), ("on_epoch(self, trainer, progress)", "Callback"),
                            ("on_begin(self, trainer)", "Callback"), ("evaluated(self, run, metrics)", "Policy")):
            program = BEGIN + """
class Waits(clt.BASE):
    def PLACE:
        for _ in range(2):
            threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
            time.sleep(1.5)
        time.sleep(1000)
try:
    trainer.fit((x, y), epochs=2, LIST=[Waits()], checkpoint_dir=FOLDER)
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
float(trainer.step(x[:16], y[:16]))
""".replace("FOLDER", repr(os.path.join(self.folder, place[:5]))).replace("PLACE", place).replace("BASE", base).replace(
                "LIST", "policies" if base == "Policy" else "callbacks")
            with self.subTest(place=place):
                result = support.run(program)
                self.assertEqual((result.returncode, result.stdout, result.stderr), (0, "interrupted\n", ""))
                if place.startswith("on_step"):
                    self.assertTrue(os.listdir(os.path.join(self.folder, "on_st")))

    def test_reservoir(self):
        """Ctrl-C ends a loop of many steps on a reservoir."""
        program = BEGIN + """
cells = clt.Reservoir(100, {"x": ("f32", (3,)), "y": ("f32", (1,))})
cells.push(x=x, y=y)
trainer.set_reservoir(cells)
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    trainer.step_reservoir(10**12)
except KeyboardInterrupt:
    print("interrupted", trainer.steps > 5)
print(trainer.step_reservoir(2) > 0)
"""
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "interrupted True\nTrue\n"), result.stderr)

    def test_uncaught(self):
        """Without a handler the process ends as Python programs end by Ctrl-C."""
        program = BEGIN + """
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
trainer.fit((x, y), epochs=10**9)
"""
        result = support.run(program)
        self.assertEqual(result.returncode, -2)
        self.assertIn("KeyboardInterrupt", result.stderr)

    def test_own_handler(self):
        """A handler of the program's own stays in place."""
        program = BEGIN + """
signal.signal(signal.SIGINT, lambda *_: trainer.stop())
threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
trainer.fit((x, y), epochs=10**9)
print("stopped")
"""
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "stopped\n"), result.stderr)


class Fork(support.Case):
    def test_child(self):
        """A child that touches a handle gets an error; it ends with its own code, without the drivers' handlers."""
        program = BEGIN + """
import atexit
pid = os.fork()
if pid == 0:
    atexit.register(lambda: print("child's exit function", flush=True))
    for call in (lambda: trainer.step(x[:16], y[:16]), lambda: trainer.store["fc.weight"], lambda: trainer.fit((x, y)),
                 lambda: clt.Devices(), lambda: clt.Trainer(support.line(), batch=4), lambda: trainer.wait()):
        try:
            call()
            print("no error")
        except clt.StateError as error:
            assert "fork" in str(error), error
    del trainer
    gc.collect()
    print("child is done")
    sys.exit(7)
deadline = time.time() + 120
while True:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    if time.time() > deadline:
        os.kill(pid, 9)
        sys.exit("the child hangs")
    time.sleep(0.01)
print("child ended with", os.waitstatus_to_exitcode(status), flush=True)
print("parent goes on", float(trainer.step(x[:16], y[:16])) > 0)
"""
        result = support.run(program)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.splitlines(), ["child is done", "child's exit function", "child ended with 7",
                                                      "parent goes on True"])

    def test_while_training(self):
        """A thread trains, and holds locks, when the process forks."""
        program = BEGIN + """
thread = threading.Thread(target=lambda: trainer.fit((x, y), epochs=10**9))
thread.start()
time.sleep(0.3)
ends = []
for _ in range(5):
    pid = os.fork()
    if pid == 0:
        try:
            trainer.step(x[:16], y[:16])
        except clt.StateError:
            sys.exit(7)
        sys.exit(1)
    deadline = time.time() + 60
    while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.time() < deadline:
        time.sleep(0.01)
    if not done[0]:
        os.kill(pid, 9)
    ends.append(os.waitstatus_to_exitcode(done[1]) if done[0] else "hangs")
trainer.stop()
thread.join()
print(ends)
"""
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "[7, 7, 7, 7, 7]\n"), result.stderr)

    def children(self, rest):
        """Runs a program that forks in the middle of fit. Its children must end by themselves."""
        result = support.run(BEGIN + """
def ended(pid):
    deadline = time.time() + 60
    while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.time() < deadline:
        time.sleep(0.01)
    if not done[0]:
        os.kill(pid, 9)
    return os.waitstatus_to_exitcode(done[1]) if done[0] else "hangs"
""" + rest)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    LEAVE = """
import atexit
def leave(how):
    pid = os.fork()
    if pid:
        print(how, ended(pid), flush=True)
        return
    if how == "exit":
        atexit.register(lambda: print("atexit", flush=True))
        sys.exit(7)
    if how == "raise":
        raise KeyError("of the child")
"""

    def test_in_callback(self):
        """A child that leaves a callback of fit cannot go on in C, where it would wait for ever. It ends."""
        for train in ("(x, y)", "[(x[:16], y[:16])]"):
            for how, wanted in (("exit", ["atexit", "exit 7"]), ("return", ["return 1"]), ("raise", ["raise 1"])):
                for hook in ("on_step", "on_epoch"):
                    result = self.children(self.LEAVE + f"""
class Fork(clt.Callback):
    def {hook}(self, trainer, progress):
        if progress.step == trainer.steps and progress.epoch == 1 and not done:
            done.append(1)
            leave({how!r})
done = []
trainer.fit({train}, epochs=2, callbacks=[Fork()])
print("parent", float(trainer.step(x[:16], y[:16])) > 0)
""")
                    self.assertEqual(result.stdout.splitlines(), wanted + ["parent True"], (train, how, hook, result.stderr))
                    if how == "raise":
                        self.assertIn("KeyError: 'of the child'", result.stderr)
                    if how == "return":
                        self.assertIn("fork", result.stderr)

    def test_in_generator(self):
        """A child that leaves a generator of batches, or the function of a data set."""
        result = self.children(self.LEAVE + """
def batches():
    yield x[:16], y[:16]
    leave("exit")
    yield x[:16], y[:16]
trainer.fit(batches, epochs=1)
def fill(numbers, arrays):
    arrays["x"][:], arrays["y"][:] = x[numbers], y[numbers]
    if 0 in numbers and not done:
        done.append(1)
        leave("exit")
done = []
trainer.fit(clt.Dataset.callback(64, {"x": ("f32", (3,)), "y": ("f32", (1,))}, fill), epochs=1)
print("parent", float(trainer.step(x[:16], y[:16])) > 0)
""")
        self.assertEqual(result.stdout.splitlines(), ["atexit", "exit 7", "atexit", "exit 7", "parent True"], result.stderr)

    def test_workers(self):
        """Processes that make data: fork and spawn."""
        program = """
import multiprocessing, sys
import numpy as np
def work(seed):
    return np.random.default_rng(seed).standard_normal((16, 4)).astype(np.float32)
if __name__ == "__main__":
    import cltrain as clt
    import support
    x, y = support.numbers(16, 3), support.numbers(16, 1)
    trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=16)
    float(trainer.step(x, y))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        trainer.fit(({"x": b[:, :3], "y": b[:, 3:]} for b in pool.imap(work, range(20))), epochs=1)
    print(trainer.steps)
"""
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "21\n"), result.stderr)


class Exit(support.Case):
    def ends(self, rest, code=0):
        result = support.run(BEGIN + rest)
        self.assertEqual((result.returncode, result.stderr), (code, ""))
        return result.stdout

    def test_alive(self):
        self.ends("keep = trainer.step(x[:16], y[:16])\ndata = clt.Dataset.arrays(x=x, y=y)")

    def test_cycle(self):
        self.ends("""
store = trainer.store
store.devices.cycle = trainer, store
predictor = clt.Predictor(trainer.model, store)
predictor.cycle = trainer
del predictor, trainer
""")

    def test_exit_in_callback(self):
        self.ends("""
def leave(progress):
    sys.exit(3)
trainer.fit((x, y), epochs=5, callbacks=[leave])
""", 3)

    def test_daemon(self):
        """A thread that nobody waits for is in fit when the program ends."""
        self.ends("""
thread = threading.Thread(target=lambda: trainer.fit((x, y), epochs=10**9), daemon=True)
thread.start()
time.sleep(0.5)
print("end")
""")

    def test_daemon_in_generator(self):
        """A thread that nobody waits for is in a generator that never goes on."""
        self.ends("""
sys.modules["cltrain._handles"]._EXIT_WAIT = 1
def batches():
    yield x[:16], y[:16]
    time.sleep(1000)
thread = threading.Thread(target=lambda: trainer.fit(batches), daemon=True)
thread.start()
time.sleep(0.5)
""")

    def test_log(self):
        self.ends("clt.set_log(lambda level, line: None, 'debug')\nfloat(trainer.step(x[:16], y[:16]))")


class Handles(support.Case):
    def test_close(self):
        """Closing closes what depends on it; a closed handle says so; nothing is freed twice."""
        net = support.line()
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=4)
        store, devices = trainer.store, trainer.store.devices
        predictor = clt.Predictor(net, store)
        with devices:
            pass
        for handle in (devices, store, trainer, predictor):
            self.assertTrue(handle.closed)
            handle.close()
        for call in (lambda: trainer.step(support.numbers(4, 3), support.numbers(4, 1)), lambda: store["fc.weight"],
                     lambda: predictor(support.numbers(4, 3)), lambda: trainer.fit(([[1.0]], [[1.0]])),
                     lambda: clt.Trainer(net, devices=devices, batch=4), lambda: trainer.steps):
            with self.assertRaises(clt.StateError) as caught:
                call()
            self.assertIn("closed", str(caught.exception))
        self.assertIn("closed", repr(trainer) + repr(store))
        with clt.Graph() as g:
            value = g.input("x", (3,))
        with self.assertRaises(clt.StateError):
            value.shape

    def test_order(self):
        """Whoever Python drops first: a store lives as long as its trainer."""
        net = support.line()
        trainer = clt.Trainer(net, devices=support.DEVICES, batch=4)
        core = trainer.store._core
        trainer.store._finalizer()  # as if the store had been collected first
        self.assertIsNotNone(core.ptr)
        float(trainer.step(support.numbers(4, 3), support.numbers(4, 1)))
        trainer.close()
        self.assertIsNone(core.ptr)

    def test_threads(self):
        """Threads share a trainer: one at a time is in the library."""
        trainer = clt.Trainer(support.line(), devices=support.DEVICES, batch=16, lr=1e-4)
        x, y = support.numbers(16, 3), support.numbers(16, 1)
        failures = []

        def work():
            try:
                for _ in range(50):
                    float(trainer.step(x, y))
                    trainer.store["fc.weight"]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(trainer.steps, 400)

    def test_gil(self):
        """Other threads of Python run while fit trains."""
        trainer = clt.Trainer(support.mlp(64, 512, 10), devices=support.DEVICES, batch=256, lr=1e-4)
        x, y = support.numbers(4096, 64), np.arange(4096) % 10
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1

        thread = threading.Thread(target=count)
        thread.start()
        trainer.fit((x, y), epochs=2)
        done.set()
        thread.join()
        self.assertGreater(counted[0], 1000)


if __name__ == "__main__":
    support.main()
