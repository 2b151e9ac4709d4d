"""The LeNet of the goldens in PyTorch, its data, and one loss and gradient over a split batch."""

import gzip
import os

import numpy as np
import torch
from torch import nn
from torch.nn import functional

IGNORE_INDEX = -100
PARAMETERS = [
    "conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias",
    "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias",
]  # fmt: skip


class LeNet(nn.Module):
    """d2l's variant: 129,068 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = functional.avg_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.avg_pool2d(functional.relu(self.conv2(x)), 2)
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc2(x)

    @torch.no_grad()
    def relu_inputs(self, x):
        """What the three ReLUs see."""
        first = self.conv1(x)
        second = self.conv2(functional.avg_pool2d(functional.relu(first), 2))
        third = self.fc1(functional.avg_pool2d(functional.relu(second), 2).flatten(1))
        return first, second, third


def load_idx(path):
    """An IDX file (gzip or plain) of unsigned bytes as an array."""
    opener = gzip.open if path.endswith(".gz") else open
    with opener(path, "rb") as file:
        data = file.read()
    rank = data[3]
    shape = np.frombuffer(data, ">i4", rank, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * rank).reshape(shape)


def load_fashion_mnist(folder, part="train"):
    """(images u8 [n, 1, 28, 28], labels i64 [n]) as tensors; part: train or t10k."""
    def find(name):
        plain = os.path.join(folder, name)
        return plain if os.path.exists(plain) else plain + ".gz"

    images = load_idx(find(part + "-images-idx3-ubyte"))
    labels = load_idx(find(part + "-labels-idx1-ubyte"))
    return torch.from_numpy(images.copy())[:, None], torch.from_numpy(labels.astype(np.int64))


def mask_labels(labels):
    """The ignored-label rule: position p of a batch of B is ignored if p < B/2 (integer division) and p % 3 != 0."""
    position = torch.arange(len(labels))
    ignored = (position < len(labels) // 2) & (position % 3 != 0)
    return torch.where(ignored, IGNORE_INDEX, labels)


def batch_of(data, first, count, ignore, dtype):
    images, labels = data
    x = images[first : first + count].to(dtype) / 255
    y = labels[first : first + count]
    return x, mask_labels(y) if ignore else y


def loss_and_gradient(model, x, y, splits=1):
    """Mean cross entropy over the targets that are not ignored, of the whole batch; leaves the gradients in .grad.

    With more than one split, each share's sum is divided by the weight of the whole batch, and shares are added up.
    """
    model.zero_grad(set_to_none=True)
    weight = int((y != IGNORE_INDEX).sum())
    total = 0.0
    for xs, ys in zip(torch.tensor_split(x, splits), torch.tensor_split(y, splits)):
        out = model(xs)
        if splits == 1:
            loss = functional.cross_entropy(out, ys, ignore_index=IGNORE_INDEX)
        else:
            loss = functional.cross_entropy(out, ys, ignore_index=IGNORE_INDEX, reduction="sum") / weight
        loss.backward()
        total += loss.item()
    return total


def versions():
    return {
        "torch": torch.__version__,
        "numpy": np.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }
