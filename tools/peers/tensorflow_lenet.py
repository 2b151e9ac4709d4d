#!/usr/bin/env python3
"""Times TensorFlow on LeNet and Fashion-MNIST, as torch_lenet.py times PyTorch. Run by hand.

    tensorflow_lenet.py [--jit] [--threads 2] [--steps 30] [--runs 15]
    tensorflow_lenet.py --epochs 3 [--jit]

Prints one JSON object with the same fields. The whole set is in memory as f32, images with channels last. A step is
one tf.function of a batch's indices: gather, forward pass, gradients and the update of plain SGD. --jit compiles this
function with XLA. The loss is read once per stretch. --epochs times whole epochs instead: every batch, and the
accuracy on the test set after them.
"""

import argparse
import gzip
import json
import os
import resource
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402


def load_idx(folder, name):
    path = os.path.join(folder, name)
    with open(path, "rb") if os.path.exists(path) else gzip.open(path + ".gz", "rb") as file:
        data = file.read()
    rank = data[3]
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(np.frombuffer(data, ">i4", rank, 4))


def uniform(shape, fan_in):
    """Initialises weights and biases as PyTorch does."""
    return tf.Variable(tf.random.uniform(shape, -fan_in**-0.5, fan_in**-0.5))


class Trainer:
    def __init__(self, options):
        tf.random.set_seed(options.seed)
        self.options = options
        self.images, self.labels = self.load("train")
        self.random = np.random.default_rng(options.seed)
        self.parameters = [
            uniform([3, 3, 1, 20], 9), uniform([20], 9),
            uniform([5, 5, 20, 50], 500), uniform([50], 500),
            uniform([800, 128], 800), uniform([128], 800),
            uniform([128, 10], 128), uniform([10], 128),
        ]  # fmt: skip
        self.step = tf.function(self.train, jit_compile=options.jit)
        self.right = tf.function(self.count_right, jit_compile=options.jit)

    def load(self, part):
        images = load_idx(self.options.data, f"{part}-images-idx3-ubyte")
        labels = load_idx(self.options.data, f"{part}-labels-idx1-ubyte")
        return tf.constant(images[..., None].astype(np.float32) / 255), tf.constant(labels.astype(np.int32))

    def scores(self, x):
        w1, b1, w2, b2, w3, b3, w4, b4 = self.parameters
        x = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(x, w1, 1, "VALID") + b1), 2, 2, "VALID")
        x = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(x, w2, 1, "VALID") + b2), 2, 2, "VALID")
        x = tf.nn.relu(tf.reshape(x, [-1, 800]) @ w3 + b3)
        return x @ w4 + b4

    def loss(self, x, y):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, self.scores(x)))

    def count_right(self, x, y):
        return tf.reduce_sum(tf.cast(tf.argmax(self.scores(x), 1, tf.int32) == y, tf.int32))

    def train(self, index):
        x, y = tf.gather(self.images, index), tf.gather(self.labels, index)
        with tf.GradientTape() as tape:
            loss = self.loss(x, y)
        for parameter, gradient in zip(self.parameters, tape.gradient(loss, self.parameters)):
            parameter.assign_sub(self.options.lr * gradient)
        return loss

    def stretch(self, steps):
        """Returns images, seconds and processor seconds of `steps` steps of whole batches."""
        done, batch = 0, self.options.batch
        begin, cpu = time.perf_counter(), time.process_time()
        while done < steps:
            order = self.random.permutation(len(self.labels)).astype(np.int32)
            for at in range(0, min(len(order) - batch + 1, (steps - done) * batch), batch):
                loss = self.step(tf.constant(order[at : at + batch]))
                done += 1
        assert np.isfinite(loss.numpy())
        return done * batch, time.perf_counter() - begin, time.process_time() - cpu


    def epoch(self, images, labels):
        """Trains on every sample once. Returns the accuracy on other samples, a thousand at a time."""
        order = self.random.permutation(len(self.labels)).astype(np.int32)
        for at in range(0, len(order), self.options.batch):
            self.step(tf.constant(order[at : at + self.options.batch]))
        right = [self.right(images[at : at + 1000], labels[at : at + 1000]) for at in range(0, len(labels), 1000)]
        return sum(int(r.numpy()) for r in right) / len(labels)


def epochs(trainer, options):
    images, labels = trainer.load("t10k")
    seconds = []
    for _ in range(options.epochs):
        begin = time.perf_counter()
        accuracy = trainer.epoch(images, labels)
        seconds.append(round(time.perf_counter() - begin, 3))
    print(json.dumps({"what": "epochs", "tensorflow": tf.__version__, "jit": options.jit, "epoch_seconds": seconds,
                      "samples": len(trainer.labels), "test_accuracy": accuracy}))  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--jit", action="store_true")
    parser.add_argument("--epochs", type=int, default=0)
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    trainer = Trainer(options)
    if options.epochs:
        epochs(trainer, options)
        return
    begin = time.perf_counter()
    trainer.stretch(1)
    first = time.perf_counter() - begin
    trainer.stretch(20)
    rates, cpu_rates = [], []
    for _ in range(options.runs):
        images, seconds, cpu_seconds = trainer.stretch(options.steps)
        rates.append(images / seconds)
        cpu_rates.append(images / cpu_seconds)
    print(json.dumps({
        "what": "speed", "tensorflow": tf.__version__, "threads": options.threads, "batch": options.batch,
        "jit": options.jit, "images_per_s": round(statistics.median(rates)), "best": round(max(rates)),
        "images_per_cpu_s": round(statistics.median(cpu_rates)), "runs": [round(r) for r in rates],
        "first_step_s": round(first, 3),
        "peak_rss_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }))  # fmt: skip


if __name__ == "__main__":
    main()
