"""The program's own OpenCL objects, by their addresses. With pyopencl the same, if it is installed."""
import unittest

import numpy as np

import cltrain as clt
import opencl
import support

try:
    import pyopencl
except ImportError:
    pyopencl = None


WAITS = """
import threading
import cltrain as clt
import opencl
import support
setup = opencl.Setup()
net = support.line()
trainer = clt.Trainer(net, devices=clt.Devices.adopt(setup.context, setup.device, setup.queue), batch=16, lr=0.1)
x, y = support.numbers(16, 3), support.numbers(16, 1)
predictor = clt.Predictor(net, trainer.store, batch=16)
predictor(x)
float(trainer.step(x, y))
for wait in (lambda: float(trainer.step(x, y)), lambda: (trainer.step(x, y), trainer.wait()),
             lambda: trainer.store["fc.weight"], lambda: predictor(x), lambda: trainer.evaluate((x, y)),
             lambda: trainer.fit((x, y), epochs=1)):
    event, waiting = setup.hold(), threading.Event()

    def release():  # the only one that lets the queue go on
        waiting.wait()
        setup.complete(event)
        released.append(trainer.closed)

    released = []
    thread = threading.Thread(target=release)
    thread.start()
    waiting.set()
    wait()
    thread.join()
    assert released == [False]
print("done")
"""


class Waits(support.Case):
    def test_gil(self):
        """Waits for a queue that only another thread of Python lets go on would last for ever with the GIL. The interpreter
        takes the GIL from no thread here, so the calls themselves give it away."""
        program = "import sys\nsys.setswitchinterval(1e6)\n" + WAITS
        result = support.run(program)
        self.assertEqual((result.returncode, result.stdout), (0, "done\n"), result.stderr)


class Buffers(support.Case):
    def setUp(self):
        super().setUp()
        self.cl = opencl.Setup()
        self.devices = clt.Devices.adopt(self.cl.context, self.cl.device, self.cl.queue)
        self.net = support.line()
        self.trainer = clt.Trainer(self.net, devices=self.devices, batch=16, lr=0.1)
        self.x, self.y = support.numbers(16, 3), support.numbers(16, 1)

    def test_steps(self):
        reference = support.Line(self.trainer.store, 0.1)
        x, y = self.cl.buffer(self.x), self.cl.buffer(self.y)
        self.assert_close(float(self.trainer.step(x=x, y=y, count=16)), reference.step(self.x, self.y))
        views = {"x": clt.Buffer(x, np.float32, (16, 3)), "y": clt.Buffer(y, np.float32, (16, 1))}
        self.assert_close(float(self.trainer.step(views)), reference.step(self.x, self.y))
        self.assert_close(float(self.trainer.step(x=views["x"], y=self.y)), reference.step(self.x, self.y))
        half = {"x": clt.Buffer(x, "f4", (8, 3), offset=96), "y": clt.Buffer(y, "f4", (8, 1), offset=32)}
        self.assert_close(float(self.trainer.step(half)), reference.step(self.x[8:], self.y[8:]))
        self.assert_close(self.trainer.store["fc.weight"], reference.w)

    def test_predict(self):
        out = self.cl.buffer(np.zeros((16, 1), np.float32))
        predictor = clt.Predictor(self.net, self.trainer.store, batch=16)
        predictor(x=clt.Buffer(self.cl.buffer(self.x), "f4", (16, 3)), out={"output": clt.Buffer(out, "f4", (16, 1))})
        self.assert_close(self.cl.read(out, (16, 1)), predictor(self.x))

    def test_dataset(self):
        data = clt.Dataset.arrays(x=clt.Buffer(self.cl.buffer(self.x), "f4", (16, 3)),
                                  y=clt.Buffer(self.cl.buffer(self.y), "f4", (16, 1)))
        other = clt.Trainer(support.line(), devices=support.DEVICES, batch=16, lr=0.1)
        self.assert_close(self.trainer.fit(data, epochs=3, shuffle=False)["loss"],
                          other.fit((self.x, self.y), epochs=3, shuffle=False)["loss"])

    def test_store(self):
        self.trainer.store["fc.weight"] = clt.Buffer(self.cl.buffer(np.full((1, 3), 2.5, np.float32)), "f4", (1, 3))
        self.assert_same(self.trainer.store["fc.weight"], np.full((1, 3), 2.5))

    def test_refused(self):
        x, y = self.cl.buffer(self.x), self.cl.buffer(self.y)
        elsewhere = opencl.Setup().buffer(self.x)
        gone = opencl.Object(1)
        gone.int_ptr = 0
        cases = [
            (lambda: self.trainer.step(x=x, y=y), "count"), (lambda: self.trainer.step(x=y, y=x, count=16), "x"),
            (lambda: self.trainer.step(x=elsewhere, y=y, count=16), "context"),
            (lambda: self.trainer.step(x=gone, y=y, count=16), "int_ptr"),
            (lambda: self.trainer.step(x=clt.Buffer(x, "i4", (16, 3)), y=y), "x"),
            (lambda: clt.Dataset.arrays(x=clt.Buffer(x, "f4", (16, 3)), y=self.y), "in host memory: y"),
            (lambda: clt.Buffer(x, "zz", (1,)), "dtype is 'zz'"), (lambda: clt.Buffer(x, "f4", 3), "shape is 3"),
            (lambda: clt.Buffer(x, "f4", (1.5,)), "a size of the shape is 1.5"),
            (lambda: clt.Buffer(x, "f4", (1,), -4), "offset is -4"), (lambda: clt.Buffer(x, "f4", (1,), "a"), "offset is 'a'"),
            (lambda: clt.Buffer(object(), "f4", (1,)), "int_ptr"), (lambda: clt.Devices.adopt(5, 5), "int_ptr"),
        ]
        for call, words in cases:
            with self.assertRaises(clt.Error) as caught:
                call()
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))
        self.assertGreater(float(self.trainer.step(x=x, y=y, count=16)), 0)

    @unittest.skipUnless(pyopencl, "pyopencl is not installed (Debian: python3-pyopencl)")
    def test_pyopencl(self):
        import pyopencl.array
        platform = [p for p in pyopencl.get_platforms() if "Portable" in p.name][0]
        context = pyopencl.Context(platform.get_devices())
        queue = pyopencl.CommandQueue(context)
        trainer = clt.Trainer(support.line(), devices=clt.Devices.adopt(context, queue=queue), batch=16, lr=0.1)
        reference = support.Line(trainer.store, 0.1)
        x, y = pyopencl.array.to_device(queue, self.x), pyopencl.array.to_device(queue, self.y)
        self.assert_close(float(trainer.step(x=x, y=y)), reference.step(self.x, self.y))
        self.assert_close(float(trainer.step(x=x.data, y=y.data, count=16)), reference.step(self.x, self.y))
        self.assert_close(float(trainer.step(x=x[8:], y=y[8:])), reference.step(self.x[8:], self.y[8:]))
        with self.assertRaises(clt.Error):
            trainer.step(x=x[:, ::2], y=y)


if __name__ == "__main__":
    support.main()
