"""Writes metrics.json: predictions, labels and scikit-learn's metrics, for tests/train/metrics.

    python3 -m venv venv && venv/bin/pip install scikit-learn==1.9.1 && venv/bin/python make_metrics.py

Scores are whole numbers over 20, so that many are equal, and sum up to 1, as roc_auc_score wants. Some classes have no
samples, some are never predicted, and labels of -1 do not count.
"""
import json
import math
import os
import warnings

import numpy as np
from sklearn import metrics as sk

DIVISOR, IGNORED = 20, -1
warnings.filterwarnings("ignore")


def number(value):
    return None if math.isnan(value) else float(value)


def averages(labels, predicted, weights):
    out = {}
    for kind in ("macro", "micro", "weighted"):
        values = sk.precision_recall_fscore_support(labels, predicted, average=kind, sample_weight=weights)
        for name, value in zip(("precision", "recall", "f1"), values):
            out[f"{name}_{kind}"] = number(value)
    return out


def area(labels, scores, classes, weights):
    if classes == 2:
        return sk.roc_auc_score(labels, scores[:, 1], sample_weight=weights)
    return sk.roc_auc_score(labels, scores, multi_class="ovr", labels=range(classes), sample_weight=weights)


def classification(random, binary):
    classes = 2 if binary else int(random.integers(3, 8))
    count = int(random.integers(4, 50))
    present = random.choice(classes, int(random.integers(1 if count % 3 == 0 else classes, classes + 1)), replace=False)
    labels = random.choice(present, count)
    labels[random.random(count) < 0.1] = IGNORED
    if (labels == IGNORED).all():
        labels[0] = present[0]
    chances = random.dirichlet(np.full(classes, 0.7))
    scores = random.multinomial(DIVISOR, chances, count)
    for i in range(count):  # better than chance
        if labels[i] != IGNORED and random.random() < 0.5:
            scores[i] = np.roll(scores[i], int(labels[i]) - int(scores[i].argmax()))
    weights = random.integers(1 if count % 2 else 0, 9, count) / 4 if random.random() < 0.5 else None
    if weights is not None and not weights[labels != IGNORED].sum() > 0:
        weights[:] = 1
    top = int(random.integers(1, classes + 1)) if not binary else 0
    case = {"classes": classes, "scores": scores.tolist(), "labels": labels.tolist(), "top": top,
            "weights": None if weights is None else weights.tolist()}
    counts = labels != IGNORED
    y, s, w = labels[counts], scores[counts] / DIVISOR, None if weights is None else weights[counts]
    predicted = s.argmax(1)
    result = averages(y, predicted, w)
    result["accuracy"] = number(sk.accuracy_score(y, predicted, sample_weight=w))
    result["auc"] = number(area(y, s, classes, w))
    if top:
        result["top_accuracy"] = number(sk.top_k_accuracy_score(y, s, k=top, labels=range(classes), sample_weight=w))
    case["result"] = result
    case["confusion"] = sk.confusion_matrix(y, predicted, labels=range(classes), sample_weight=w).astype(float).tolist()
    by_class = sk.precision_recall_fscore_support(y, predicted, labels=range(classes), sample_weight=w)
    case["by_class"] = [
        {"precision": number(by_class[0][c]), "recall": number(by_class[1][c]), "f1": number(by_class[2][c]),
         "support": number(by_class[3][c]),
         "auc": None if binary and c == 0 else number(sk.roc_auc_score(y == c, s[:, c], sample_weight=w))}
        for c in range(classes)]
    return case


def regression(random):
    outputs, count = int(random.integers(1, 4)), int(random.integers(1, 40))
    targets = random.integers(-40, 40, (count, outputs)) / 8
    predictions = targets + random.integers(-10, 10, (count, outputs)) / 8
    if count % 5 == 0:
        targets[:, 0] = 0.5  # constant: R2 is 0
    if count % 10 == 0:
        predictions[:, 0] = 0.5  # and right: R2 is 1
    if count % 7 == 0:
        targets, predictions = targets + 1000, predictions + 1000
    weights = random.integers(1, 9, count) / 4 if random.random() < 0.5 else None
    error = sk.mean_squared_error(targets, predictions, sample_weight=weights)
    return {"classes": 0, "outputs": outputs, "predictions": predictions.tolist(), "targets": targets.tolist(),
            "weights": None if weights is None else weights.tolist(),
            "result": {"mae": number(sk.mean_absolute_error(targets, predictions, sample_weight=weights)),
                       "mse": number(error),
                       "rmse": number(sk.root_mean_squared_error(targets, predictions, sample_weight=weights)),
                       "r2": number(sk.r2_score(targets, predictions, sample_weight=weights))}}


def main():
    random = np.random.default_rng(24)
    cases = [classification(random, i % 4 == 0) for i in range(100)] + [regression(random) for _ in range(40)]
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "metrics.json")
    with open(path, "w", encoding="ascii") as file:
        file.write("[\n" + ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases) + "\n]\n")


if __name__ == "__main__":
    main()
