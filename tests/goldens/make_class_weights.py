"""Writes class_weights.json: PyTorch's CrossEntropyLoss(weight=) in f64, for tests/ops/loss.

    python3 -m venv torchenv && torchenv/bin/pip install torch numpy && torchenv/bin/python make_class_weights.py
"""
import json
import os

import torch


def main():
    torch.manual_seed(24)
    cases = []
    for classes, count, smoothing in ((2, 5, 0), (3, 9, 0.1), (5, 17, 0), (7, 12, 0.3), (4, 6, 1)):
        logits = (torch.randint(-32, 33, (count, classes)) / 8).double().requires_grad_()
        labels = torch.randint(0, classes, (count,))
        labels[torch.rand(count) < 0.2] = -100
        labels[0] = classes - 1
        weights = torch.randint(0, 9, (classes,)).double() / 4
        weights[-1] = 1.5
        loss = torch.nn.CrossEntropyLoss(weight=weights, label_smoothing=smoothing)(logits, labels)
        loss.backward()
        cases.append({"logits": logits.detach().tolist(), "labels": labels.tolist(), "weights": weights.tolist(),
                      "smoothing": smoothing, "loss": loss.item(), "gradient": logits.grad.tolist()})
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "class_weights.json")
    with open(path, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
