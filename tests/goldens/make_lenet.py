#!/usr/bin/env python3
"""Writes the goldens of LeNet's parity with PyTorch: snapshots and trajectories. Format and rules: README.md beside.

    make_lenet.py [--data DIR] [--out DIR] [--file NAME | --check | --strays] [--only PATTERN]

--check recomputes every stored f64 number from the stored weights and compares instead of writing. --strays runs PyTorch
in f32 three more times for each trajectory, with each batch in a random order, and prints how much of the allowed
deviation it uses.
"""

import argparse
import fnmatch
import json
import os
import sys

import numpy as np
import torch

from lenet import LeNet, PARAMETERS, batch_of, load_fashion_mnist, loss_and_gradient, mask_labels, versions
from optimizers import Lion, Muon
from safetensors_file import load, save

SEED = 1
SNAPSHOT_STEPS = [0, 20, 60, 150, 400]
# Gradients with an odd batch and ignored labels are stored for these snapshots only, to keep the folder small.
SNAPSHOT_IGNORE_STEPS = [20, 150]
CASES = {"b256": (256, False), "b257": (257, False), "b257i": (257, True)}
MUON = dict(lr=0.02, momentum=0.95, adamw_lr=1e-3, betas=(0.9, 0.95), eps=1e-10)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, dict(lr=0.2)),
    "momentum": (torch.optim.SGD, dict(lr=0.02, momentum=0.9, weight_decay=5e-4)),
    "adamw": (torch.optim.AdamW, dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)),
    "rmsprop": (torch.optim.RMSprop, dict(lr=1e-4, alpha=0.99, eps=1e-8)),
    "rmsprop-centered": (torch.optim.RMSprop, dict(lr=1e-4, alpha=0.95, eps=1e-3, momentum=0.9, weight_decay=5e-4, centered=True)),
    "adagrad": (torch.optim.Adagrad, dict(lr=0.004, eps=1e-10, lr_decay=0.01, weight_decay=5e-4)),
    "lion": (Lion, dict(lr=3e-4, betas=(0.9, 0.99), weight_decay=0.1)),
    "muon": (Muon, MUON),
    "muon-match": (Muon, dict(MUON, lr=2e-3, weight_decay=0.1, match=True)),
}  # fmt: skip
# The runs of each file, and the most steps of a run.
TRAJECTORIES = {
    "lenet_trajectories": [f"{name}.{case}" for name in ("sgd", "momentum", "adamw") for case in CASES],
    "lenet_optimizers": ["rmsprop.b256", "rmsprop-centered.b257i", "adagrad.b257", "lion.b256", "muon.b256",
                         "muon-match.b257i"],
}  # fmt: skip
MOST_STEPS = {"lenet_trajectories": 150, "lenet_optimizers": 40}
# The numbers of RUN.hyper; the first six in lenet_trajectories.
HYPER = ["lr", "momentum", "weight_decay", "beta1", "beta2", "eps", "alpha", "centered", "lr_decay",
         "initial_accumulator_value", "adamw_lr", "match"]  # fmt: skip
SPLITS = [1, 2, 4]
THREADS = [1, 2]
KINK_MARGIN = 8
CANDIDATES = 2000
ENVELOPE_END = 1e-3
MIN_STEPS = 20
# Runs from moved weights. Six do not show how far PyTorch strays from muon.b256 (README.md).
ULP_RUNS = 6
MORE_ULP_RUNS = {"muon.b256": 38}


def make_model(weights, dtype):
    model = LeNet().to(dtype)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.as_tensor(np.array(weights[name])))
    return model


def make_optimizer(name, model):
    kind, settings = OPTIMIZERS[name]
    if kind is Lion:
        return kind(model.parameters(), **settings)
    if kind is Muon:
        # The last matrix gets AdamW, as the page of Muon says.
        last = [model.fc2.weight]
        others = [p for p in model.parameters() if p is not last[0]]
        return kind([dict(params=others), dict(params=last, adamw=True)], **settings)
    # One tensor at a time: the arithmetic of PyTorch's documentation without fused kernels.
    return kind(model.parameters(), foreach=False, **settings)


def initial_weights():
    torch.manual_seed(SEED)
    return {name: p.detach().numpy().copy() for name, p in LeNet().named_parameters()}


def snapshot_weights(data):
    """Weights at SNAPSHOT_STEPS of an f32 run: sgd, lr 0.2, batch 256, file order, wrapping after 234 whole batches."""
    torch.set_num_threads(1)
    model = make_model(initial_weights(), torch.float32)
    optimizer = make_optimizer("sgd", model)
    found = {}
    for step in range(SNAPSHOT_STEPS[-1] + 1):
        if step in SNAPSHOT_STEPS:
            found[step] = {n: p.detach().numpy().copy() for n, p in model.named_parameters()}
        loss_and_gradient(model, *batch_of(data, step % 234 * 256, 256, False, torch.float32))
        optimizer.step()
    return found


def away_from_kinks(weights, images):
    """Indices of the images with no ReLU input so near zero that f32 rounding could switch it.

    One switched element of conv1 changes that gradient by 1e-4: a comparison at 1e-5 would be a lottery. The margin is
    KINK_MARGIN times the largest f32 error seen in that layer.
    """
    wide, narrow = (make_model(weights, dtype).relu_inputs(images.to(dtype) / 255)
                    for dtype in (torch.float64, torch.float32))  # fmt: skip
    good = torch.ones(len(images), dtype=torch.bool)
    for exact, rounded in zip(wide, narrow):
        margin = KINK_MARGIN * (exact - rounded).abs().max()
        good &= exact.abs().flatten(1).amin(1) > margin
    return torch.nonzero(good).flatten()


def snapshot_case(weights, images, labels):
    """f64 loss and gradients, and the relative L2 error of PyTorch's own f32 gradients (worst of 1 and 2 threads)."""
    model = make_model(weights, torch.float64)
    loss = loss_and_gradient(model, images.to(torch.float64) / 255, labels)
    golden = {n: p.grad.numpy().copy() for n, p in model.named_parameters()}
    error = dict.fromkeys(PARAMETERS, 0.0)
    loss_error = 0.0
    for threads in THREADS:
        torch.set_num_threads(threads)
        model = make_model(weights, torch.float32)
        single = loss_and_gradient(model, images.to(torch.float32) / 255, labels)
        loss_error = max(loss_error, abs(single - loss) / loss)
        for name, p in model.named_parameters():
            difference = np.linalg.norm(p.grad.numpy().astype(np.float64) - golden[name])
            error[name] = max(error[name], difference / np.linalg.norm(golden[name]))
    torch.set_num_threads(THREADS[-1])
    return loss, loss_error, golden, error


def make_snapshot(data, step, weights):
    first = step % 234 * 256
    pool = data[0][first : first + CANDIDATES]
    chosen = away_from_kinks(weights, pool)[:257]
    assert len(chosen) == 257, "too few images away from kinks"
    images, labels = pool[chosen], data[1][first + chosen]
    tensors = {"param." + n: weights[n] for n in PARAMETERS}
    tensors["samples"] = (first + chosen).numpy().astype(np.int32)
    tensors["images"] = images.numpy()
    for case in ["b256"] + (["b257i"] if step in SNAPSHOT_IGNORE_STEPS else []):
        count, ignore = CASES[case]
        y = mask_labels(labels[:count]) if ignore else labels[:count]
        loss, loss_error, golden, error = snapshot_case(weights, images[:count], y)
        tensors[case + ".labels"] = y.numpy().astype(np.int32)
        tensors[case + ".loss"] = np.array([loss])
        tensors[case + ".loss_error"] = np.array([loss_error])
        tensors[case + ".grad_error"] = np.array([error[n] for n in PARAMETERS])
        for name in PARAMETERS:
            tensors[case + ".grad." + name] = golden[name].astype(np.float32)
        print(f"snapshot {step} {case}: last sample {int(chosen[-1])} of {CANDIDATES}, loss {loss:.9f} "
              f"+- {loss_error:.1e}, PyTorch f32 gradient error {max(error.values()):.1e}")
    return tensors


def run(data, weights, name, case, dtype, splits, steps, stop=None, memory_format=torch.contiguous_format,
        shuffle=None):  # fmt: skip
    """Losses before each update; stop(step, loss) ends the run early; shuffle: a generator that orders each batch."""
    count, ignore = CASES[case]
    model = make_model(weights, dtype).to(memory_format=memory_format)
    optimizer = make_optimizer(name, model)
    losses = []
    for step in range(steps):
        x, y = batch_of(data, step * count, count, ignore, dtype)
        if shuffle:
            order = torch.randperm(count, generator=shuffle)
            x, y = x[order], y[order]
        losses.append(loss_and_gradient(model, x.contiguous(memory_format=memory_format), y, splits))
        optimizer.step()
        if stop and stop(step, losses[-1]):
            break
    return np.array(losses)


def find_envelope(data, weights, name, case, golden):
    """Running maximum of |f32 loss - f64 loss| over splits and threads, until it passes ENVELOPE_END."""
    end = len(golden)
    envelope = np.zeros(end)

    def past(step, loss):
        envelope[step] = max(envelope[step], abs(loss - golden[step]))
        return step + 1 >= end

    for threads in THREADS:
        torch.set_num_threads(threads)
        for splits in SPLITS:
            run(data, weights, name, case, torch.float32, splits, end, past)
            above = np.nonzero(np.maximum.accumulate(envelope[:end]) > ENVELOPE_END)[0]
            if len(above):
                # Steps after the first one above are not compared, so later runs need not go further.
                end = max(int(above[0]) + 1, MIN_STEPS)
    return np.maximum.accumulate(envelope[:end])


def moved_by_an_ulp(weights, seed):
    """Each number moved to a neighbouring float or left, at random: what one rounding does."""
    rng = np.random.default_rng(seed)
    steps = {n: rng.integers(-1, 2, w.shape) for n, w in weights.items()}
    return {n: np.where(steps[n] == 0, w, np.nextafter(w, np.where(steps[n] > 0, np.inf, -np.inf).astype(np.float32)))
            .astype(np.float32) for n, w in weights.items()}  # fmt: skip


def find_kernel_envelope(data, weights, name, case, golden, envelope):
    """The same with more runs added: channels last, PyTorch's own convolution kernels instead of oneDNN's, and runs
    from weights moved by at most one unit in the last place. Training is chaotic: runs with the same kernels round
    alike, and stray from each other much later than from any other program."""
    end = len(envelope)
    deviation = envelope
    for onednn, memory_format in ((True, torch.channels_last), (False, torch.contiguous_format)):
        with torch.backends.mkldnn.flags(enabled=onednn):
            losses = run(data, weights, name, case, torch.float32, 1, end, None, memory_format)
        deviation = np.maximum(deviation, np.abs(losses - golden[:end]))
    for seed in range(MORE_ULP_RUNS.get(f"{name}.{case}", ULP_RUNS)):
        losses = run(data, moved_by_an_ulp(weights, seed), name, case, torch.float32, 1, end)
        deviation = np.maximum(deviation, np.abs(losses - golden[:end]))
    return np.maximum.accumulate(deviation)


def make_trajectory(data, weights, name, case, numbers, steps):
    golden = run(data, weights, name, case, torch.float64, 1, steps)
    envelope = find_envelope(data, weights, name, case, golden)
    kernel_envelope = find_kernel_envelope(data, weights, name, case, golden, envelope)
    end = len(envelope)
    settings = dict(OPTIMIZERS[name][1])
    settings["beta1"], settings["beta2"] = settings.get("betas", (0.0, 0.0))
    hyper = [float(settings.get(key, 0.0)) for key in numbers]
    count, ignore = CASES[case]
    print(f"trajectory {name} {case}: {end} steps, loss {golden[0]:.6f} -> {golden[end - 1]:.6f}, envelope (kernels') "
          f"at steps 1, 10, 19, {end - 1}: "
          + ", ".join(f"{envelope[s]:.1e} ({kernel_envelope[s]:.1e})" for s in (1, 10, 19, end - 1)), flush=True)
    return {
        "loss": golden[:end],
        "envelope": envelope,
        "kernel_envelope": kernel_envelope,
        "hyper": np.array(hyper, np.float64),
        "batch": np.array([0, count, int(ignore)], np.int32),
    }


def make_trajectories(data, start, metadata, file, out):
    tensors = {}
    numbers = HYPER[:6] if file == "lenet_trajectories" else HYPER
    for which in TRAJECTORIES[file]:
        for key, array in make_trajectory(data, start, *which.split("."), numbers, MOST_STEPS[file]).items():
            tensors[f"{which}.{key}"] = array
    about = dict(metadata, start="lenet_snapshot_000.safetensors",
                 splits=str(SPLITS), threads=str(THREADS), envelope="absolute, running maximum")  # fmt: skip
    save(os.path.join(out, file + ".safetensors"), tensors, about)


def check_close(what, got, want, limit):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    if not error <= limit:
        sys.exit(f"{what}: relative difference {error:.2e} is more than {limit:.0e}")


def check(data, out, only):
    """Recomputes the f64 numbers from the stored weights; f32 errors and envelopes depend on the machine."""
    for step in SNAPSHOT_STEPS:
        file = f"lenet_snapshot_{step:03d}.safetensors"
        tensors, _ = load(os.path.join(out, file))
        weights = {n: tensors["param." + n] for n in PARAMETERS}
        images = torch.from_numpy(tensors["images"].copy())
        for case in CASES:
            if case + ".loss" not in tensors:
                continue
            labels = torch.from_numpy(tensors[case + ".labels"].astype(np.int64))
            loss, _, golden, _ = snapshot_case(weights, images[: len(labels)], labels)
            check_close(f"{file} {case}.loss", loss, tensors[case + ".loss"], 1e-12)
            for name in PARAMETERS:
                check_close(f"{file} {case}.grad.{name}", golden[name], tensors[case + ".grad." + name], 1e-7)
        if step == 0:
            start = weights
    for file, runs in TRAJECTORIES.items():
        tensors, _ = load(os.path.join(out, file + ".safetensors"))
        for which in fnmatch.filter(runs, only):
            want = tensors[which + ".loss"]
            got = run(data, start, *which.split("."), torch.float64, 1, len(want))
            check_close(which + ".loss", got, want, 1e-9)
    print("every stored f64 number was found again")


def strays(data, out, only):
    """How much of 1e-5 + 4 x envelope other f32 runs use: oneDNN, channels last, PyTorch's own kernels."""
    tensors, _ = load(os.path.join(out, "lenet_snapshot_000.safetensors"))
    start = {n: tensors["param." + n] for n in PARAMETERS}
    for file, runs in TRAJECTORIES.items():
        tensors, _ = load(os.path.join(out, file + ".safetensors"))
        for which in fnmatch.filter(runs, only):
            name, case = which.split(".")
            golden, narrow, wide = (tensors[f"{which}.{k}"] for k in ("loss", "envelope", "kernel_envelope"))
            for seed, kind in enumerate(("oneDNN", "channels last", "own kernels")):
                memory_format = torch.channels_last if kind == "channels last" else torch.contiguous_format
                with torch.backends.mkldnn.flags(enabled=kind != "own kernels"):
                    losses = run(data, start, name, case, torch.float32, 1, len(golden), None, memory_format,
                                 torch.Generator().manual_seed(seed))  # fmt: skip
                used = [(np.abs(losses - golden) / (1e-5 + 4 * e)).max() for e in (narrow, wide)]
                print(f"{name}.{case}, {kind}: {used[0]:.2f} of envelope's, {used[1]:.2f} of kernel_envelope's",
                      flush=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--out", default=here)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--strays", action="store_true")
    parser.add_argument("--only", default="*", help="trajectories to check, for example sgd.*")
    parser.add_argument("--file", choices=TRAJECTORIES, help="makes only these trajectories")
    options = parser.parse_args()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(THREADS[-1])
    data = load_fashion_mnist(options.data)
    if options.check:
        check(data, options.out, options.only)
        return
    if options.strays:
        strays(data, options.out, options.only)
        return
    metadata = versions()
    metadata["parameters"] = json.dumps(PARAMETERS)
    start = initial_weights()
    if options.file:
        make_trajectories(data, start, metadata, options.file, options.out)
        return
    for step, weights in snapshot_weights(data).items():
        about = dict(metadata, step=str(step), run="sgd lr 0.2 batch 256 in file order, f32")
        save(os.path.join(options.out, f"lenet_snapshot_{step:03d}.safetensors"),
             make_snapshot(data, step, weights), about)  # fmt: skip
    for file in TRAJECTORIES:
        make_trajectories(data, start, metadata, file, options.out)


if __name__ == "__main__":
    main()
