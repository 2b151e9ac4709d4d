#!/usr/bin/env python3
"""Times TensorFlow's MirroredStrategy over logical CPU devices. Run by hand; compare_devices.py runs it too.

    tensorflow_mirrored.py [--model lenet|mlp] [--devices 2] [--batch 256] [--steps 30] [--runs 9]

The batch is the global batch; each replica has an equal part. The whole step, with strategy.run, is one tf.function.
Prints one JSON object.
"""

import argparse
import json
import os
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from tensorflow_lenet import load_idx, uniform  # noqa: E402


def lenet(x, p):
    x = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(x, p[0], 1, "VALID") + p[1]), 2, 2, "VALID")
    x = tf.nn.avg_pool2d(tf.nn.relu(tf.nn.conv2d(x, p[2], 1, "VALID") + p[3]), 2, 2, "VALID")
    return tf.nn.relu(tf.reshape(x, [-1, 800]) @ p[4] + p[5]) @ p[6] + p[7]


def mlp(x, p):
    x = tf.nn.relu(tf.reshape(x, [-1, 784]) @ p[0] + p[1])
    return tf.nn.relu(x @ p[2] + p[3]) @ p[4] + p[5]


MODELS = {
    "lenet": (lenet, [([3, 3, 1, 20], 9), ([20], 9), ([5, 5, 20, 50], 500), ([50], 500), ([800, 128], 800), ([128], 800),
                      ([128, 10], 128), ([10], 128)]),
    "mlp": (mlp, [([784, 4096], 784), ([4096], 784), ([4096, 4096], 4096), ([4096], 4096), ([4096, 10], 4096),
                  ([10], 4096)]),
}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=sorted(MODELS), default="lenet")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--runs", type=int, default=9)
    options = parser.parse_args()
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * options.devices)
    strategy = tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(options.devices)])
    forward, shapes = MODELS[options.model]
    with strategy.scope():
        parameters = [uniform(shape, fan_in) for shape, fan_in in shapes]
    images = load_idx(options.data, "train-images-idx3-ubyte")[..., None].astype(np.float32) / 255
    labels = load_idx(options.data, "train-labels-idx1-ubyte").astype(np.int32)
    part = options.batch // options.devices

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(y, forward(x, parameters))) / options.batch
        gradients = tape.gradient(loss, parameters)
        gradients = tf.distribute.get_replica_context().all_reduce("sum", gradients)
        for parameter, gradient in zip(parameters, gradients):
            parameter.assign_sub(0.1 * gradient)
        return loss

    @tf.function
    def step(x, y):
        return strategy.reduce("sum", strategy.run(replica, (x, y)), axis=None)

    random = np.random.default_rng(0)

    def stretch(steps):
        begin = time.perf_counter()
        order = random.permutation(len(labels))
        for at in range(0, steps * options.batch, options.batch):
            index = order[at : at + options.batch]
            parts = [index[i * part : (i + 1) * part] for i in range(options.devices)]
            x = strategy.experimental_distribute_values_from_function(
                lambda c: tf.constant(images[parts[c.replica_id_in_sync_group]])
            )
            y = strategy.experimental_distribute_values_from_function(
                lambda c: tf.constant(labels[parts[c.replica_id_in_sync_group]])
            )
            loss = step(x, y)
        assert np.isfinite(float(loss))
        return steps * options.batch / (time.perf_counter() - begin)

    stretch(min(10, options.steps))
    rates = [stretch(options.steps) for _ in range(options.runs)]
    print(json.dumps({"model": options.model, "tensorflow": tf.__version__, "devices": options.devices,
                      "images_per_s": round(statistics.median(rates)), "runs": [round(r) for r in rates]}))  # fmt: skip


if __name__ == "__main__":
    main()
