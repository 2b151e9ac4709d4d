#!/usr/bin/env python3
"""Exchanges parameters with PyTorch's models, both ways, and compares test losses.

    torch_models.py --cltrain build/bin/cltrain [--devices pocl] [--models resnet18,gpt2,...]

ResNets are torchvision's. GPT-2 is Hugging Face's GPT2LMHeadModel (its part `transformer`, whose names are
GPT2Model's). LSTMs are torch.nn.LSTM's. None of these packages has vit-tiny, unet and two-branch, which are in
tests/goldens/networks.py.

For each model, on made-up samples: PyTorch's state_dict is saved as safetensors (with I64 counters), and
`cltrain eval` must find PyTorch's loss. `cltrain train --init` trains from it. Its checkpoint must load with
strict=True, and give the same loss in PyTorch as in `cltrain eval`. Run it by hand: it needs torch, torchvision,
transformers, safetensors and numpy from PyPI.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/goldens"))
from networks import LanguageModel, Regressor, RowsOfImages, TwoBranch, UNet, ViT  # noqa: E402

SAMPLES, SIDE, CLASSES = 16, 64, 10
LENGTH, VOCABULARY, LAYERS, HEADS, WIDTH = 32, 101, 3, 4, 64
LIMIT = 2e-5


class Images:
    """Arrays for classification by a torchvision network."""

    options = ["--classes", str(CLASSES)]

    def __init__(self, name, folder):
        self.cltrain = name
        self.model = getattr(torchvision.models, name)(num_classes=CLASSES)
        rng = np.random.default_rng(1)
        for part in ("train", "test"):
            image = rng.standard_normal((SAMPLES, 3, SIDE, SIDE), np.float32)
            label = rng.integers(0, CLASSES, SAMPLES, np.int32)
            np.savez(os.path.join(folder, part + ".npz"), image=image, label=label)
        self.image, self.label = torch.as_tensor(image), torch.as_tensor(label).long()
        self.data = "npz:" + folder
        with torch.no_grad():
            for _ in range(3):  # so that the running statistics are not the initial ones
                self.model.train()(self.image)

    def loss(self, model):
        return functional.cross_entropy(model(self.image.to(model.fc.weight.dtype)), self.label)


def write_tokens(folder):
    rng = np.random.default_rng(1)
    for part in ("train", "val"):
        tokens = rng.integers(0, VOCABULARY, SAMPLES * LENGTH + 1, np.uint16)
        tokens.tofile(os.path.join(folder, part + ".bin"))
    return torch.as_tensor(tokens.astype(np.int64))


TEXT_OPTIONS = ["--seq-len", str(LENGTH), "--classes", str(VOCABULARY)]


class Text:
    """Tokens for GPT2LMHeadModel, whose output is tied to the embedding."""

    options = TEXT_OPTIONS

    def __init__(self, name, folder):
        self.cltrain = f"{name}:layers={LAYERS},heads={HEADS},width={WIDTH}"
        self.whole = GPT2LMHeadModel(GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS,
                                                bos_token_id=None, eos_token_id=None, n_head=HEADS, resid_pdrop=0,
                                                embd_pdrop=0, attn_pdrop=0))  # fmt: skip
        self.model = self.whole.transformer
        with torch.no_grad():
            for p in self.model.parameters():  # so that biases are not zero
                p.add_(0.05 * torch.randn_like(p))
        self.tokens = write_tokens(folder)
        self.data = "tokens:" + folder

    def loss(self, model):
        self.whole.to(model.wte.weight.dtype).eval()
        logits = self.whole(self.tokens[:-1].view(SAMPLES, LENGTH)).logits
        return functional.cross_entropy(logits.flatten(0, 1), self.tokens[1:])


# name: (arguments on the command line, PyTorch's model, shapes of the samples). Without shapes:
# text. Without the second shape: labels.
PLAIN = {
    "vit-tiny": ("", lambda: ViT(12, 3, 192, 4, 3, 16, CLASSES), (3, 16, 16), None),
    "two-branch": (":weight=0.5", lambda: TwoBranch(0.5, 16, 16, CLASSES), (1, 16, 16), None),
    "unet": (":width=8", lambda: UNet(4, 8, 3, 2), (3, 32, 32), (2, 32, 32)),
    "lstm": (":hidden=64,layers=2", lambda: LanguageModel(64, 2, VOCABULARY), None, None),
    "lstm.rows": (":hidden=64", lambda: RowsOfImages(28, 64, 1, CLASSES), (1, 28, 28), None),
    "lstm-regressor": (":hidden=64,layers=2", lambda: Regressor(5, 64, 2, 3, False), (12, 5), (3,)),
    "lstm-regressor.each": (":hidden=64", lambda: Regressor(5, 64, 1, 3, True), (12, 5), (12, 3)),
}


class Plain:
    """A network of tests/goldens/networks.py."""

    def __init__(self, name, folder):
        arguments, make, first, second = PLAIN[name]
        self.cltrain, self.model = name.split(".")[0] + arguments, make()
        rng = np.random.default_rng(1)
        if not first:
            self.options, self.data = TEXT_OPTIONS, "tokens:" + folder
            tokens = write_tokens(folder)
            self.inputs = [t.reshape(SAMPLES, LENGTH) for t in (tokens[:-1], tokens[1:])]
            return
        for part in ("train", "test"):
            fields = {"x" if second else "image": rng.standard_normal((SAMPLES, *first), np.float32)}
            fields |= ({"y": rng.standard_normal((SAMPLES, *second), np.float32)} if second
                       else {"label": rng.integers(0, CLASSES, SAMPLES, np.int32)})  # fmt: skip
            np.savez(os.path.join(folder, part + ".npz"), **fields)
        self.options, self.data = [] if second else ["--classes", str(CLASSES)], "npz:" + folder
        self.inputs = [torch.as_tensor(a) if a.dtype == np.float32 else torch.as_tensor(a).long() for a in fields.values()]
        if name == "unet":
            with torch.no_grad():
                for _ in range(3):  # so that the running statistics are not the initial ones
                    self.model.train()(self.inputs[0])

    def loss(self, model):
        dtype = next(model.parameters()).dtype
        inputs = [i.to(dtype) if i.is_floating_point() else i for i in self.inputs]
        return sum(coefficient * total / weight for coefficient, total, weight in model.losses(*inputs))


def run(options, subject, verb, *more):
    command = [options.cltrain, verb, "--model", subject.cltrain, "--data", subject.data, "--devices", options.devices,
               "--batch", "8", *subject.options, *more]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def compare(name, what, options, subject, state, checkpoint):
    """Compares the loss of `state` in PyTorch, in f64, with that of the checkpoint in cltrain."""
    subject.model.load_state_dict(state, strict=True)
    with torch.no_grad():
        want = subject.loss(subject.model.double().eval()).item()
    subject.model.float()
    have = json.loads(run(options, subject, "eval", "--checkpoint", checkpoint, "--json"))["test_loss"]
    error = abs(have / want - 1)
    print(f"{name}, {what}: test loss {want:.9f} in PyTorch, {have:.9f} in cltrain, {error:.1e} apart", flush=True)
    if not error <= LIMIT:
        sys.exit(f"{name}: more than {LIMIT:.0e}")


def exchange(name, options, folder):
    torch.manual_seed(1)
    data, there, back = (os.path.join(folder, part) for part in ("data", "there.safetensors", "run"))
    os.mkdir(data)
    subject = (Plain if name in PLAIN else Text if name == "gpt2" else Images)(name, data)
    save_file({n: t.contiguous() for n, t in subject.model.state_dict().items()}, there)
    compare(name, "parameters of PyTorch", options, subject, load_file(there), there)
    run(options, subject, "train", "--init", there, "--steps", "2", "--lr", "0.01", "--checkpoint-dir", back)
    (step,) = (entry for entry in os.listdir(back) if entry.startswith("step-"))
    state = load_file(os.path.join(back, step, "model.safetensors"))
    if all(torch.equal(state[n].to(t.dtype), t) for n, t in load_file(there).items()):
        sys.exit(f"{name}: training changed nothing")
    compare(name, "parameters of cltrain", options, subject, state, back)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cltrain", required=True)
    parser.add_argument("--devices", default="pocl")
    parser.add_argument("--models", default=",".join(["resnet18", "resnet34", "resnet50", "gpt2", *PLAIN]))
    options = parser.parse_args()
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory() as folder:
            exchange(name, options, folder)


if __name__ == "__main__":
    main()
