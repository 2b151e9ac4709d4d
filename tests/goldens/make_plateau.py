#!/usr/bin/env python3
"""Writes plateau.txt: rates that PyTorch's ReduceLROnPlateau gives for random courses of a metric, with ties, NaN and
infinity. train.policies reads it. Each case is a line of options (larger, factor, patience, minimum, threshold,
cooldown, epsilon, rate at first, number of values), then a line of values and a line of rates after them."""
import math
import random

import torch

random.seed(20)
lines = []
for case in range(24):
    larger = case % 2
    factor = random.choice((0.1, 0.5, 0.9))
    patience = random.randrange(4)
    minimum = random.choice((0.0, 0.003))
    threshold = random.choice((1e-4, 0.0, 0.1))
    cooldown = random.randrange(3)
    epsilon = random.choice((1e-8, 1e-3))
    rate = random.choice((0.1, 0.7))
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, mode="max" if larger else "min", factor=factor, patience=patience, threshold=threshold,
        cooldown=cooldown, min_lr=minimum, eps=epsilon)
    value, values, rates = 1.0, [], []
    for _ in range(50):
        value += random.choice((0.0, 0.0, 0.01, -0.01, 0.2, -0.2)) * random.choice((0.5, 1.0))
        shown = random.choice((math.nan, math.inf)) if random.random() < 0.04 else value
        if shown == math.inf and larger:
            shown = -math.inf
        schedule.step(shown)
        values.append(shown)
        rates.append(optimizer.param_groups[0]["lr"])
    lines.append(f"{larger} {factor!r} {patience} {minimum!r} {threshold!r} {cooldown} {epsilon!r} {rate!r} {len(values)}")
    lines.append(" ".join(map(repr, values)))
    lines.append(" ".join(map(repr, rates)))
with open("plateau.txt", "w", encoding="ascii") as file:
    file.write("\n".join(lines) + "\n")
