"""The networks of the models' goldens, with torch.nn alone and the names of those who made them known: torchvision's
ResNet, Hugging Face's GPT2Model, timm's VisionTransformer, Pytorch-UNet.

`losses(*inputs)` of each gives [coefficient, sum, weight] of each of its losses; the objective is the sum of
coefficient * sum / weight, with sums and weights of the whole batch.
"""

import math

import torch
from torch import nn
from torch.nn import functional


class Watch:
    """What ReLU and max pooling decide by: distances from zero, and of the largest from the second."""

    def __init__(self):
        self.seen = None

    def relu(self, x):
        if self.seen is not None:
            self.seen.append(x.detach())
        return functional.relu(x)

    def max_pool(self, x, kernel, stride, padding=0):
        if self.seen is not None:
            wide = functional.pad(x.detach(), [padding] * 4, value=-1e3)
            windows = wide.unfold(2, kernel, stride).unfold(3, kernel, stride).flatten(4)
            first, second = windows.topk(2, -1)[0].unbind(-1)
            # Of zeros behind a ReLU it does not matter which is taken: their gradient is zero.
            self.seen.append(torch.where(first > 0, first - second, torch.ones_like(first)))
        return functional.max_pool2d(x, kernel, stride, padding)


WATCH = Watch()


def classes(logits, labels):
    """Of the labels that are not ignored (-100)."""
    return [1, functional.cross_entropy(logits, labels, reduction="sum"), int((labels != -100).sum())]


def distance(have, want, coefficient=1):
    return [coefficient, functional.mse_loss(have, want, reduction="sum"), want.numel()]


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, width, stride, bottleneck):
        super().__init__()
        outputs = 4 * width if bottleneck else width
        kernels = [1, 3, 1] if bottleneck else [3, 3]
        widths = [inputs] + [width] * (len(kernels) - 1) + [outputs]
        self.parts = len(kernels)
        for i, kernel in enumerate(kernels):
            own = stride if i == (1 if bottleneck else 0) else 1
            setattr(self, f"conv{i + 1}", conv(widths[i], widths[i + 1], kernel, own))
            setattr(self, f"bn{i + 1}", nn.BatchNorm2d(widths[i + 1]))
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = x
        for i in range(1, self.parts + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            y = WATCH.relu(y) if i < self.parts else y
        return WATCH.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck, width, small, classes):
        super().__init__()
        self.small = small
        self.conv1 = conv(3, width, 3 if small else 7, 1 if small else 2)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            for b in range(count):
                layers.append(Block(inputs, width << stage, 2 if stage and not b else 1, bottleneck))
                inputs = (width << stage) * (4 if bottleneck else 1)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = WATCH.relu(self.bn1(self.conv1(x)))
        x = x if self.small else WATCH.max_pool(x, 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))

    def losses(self, image, label):
        return [classes(self(image), label)]


class Conv1D(nn.Module):
    """x weight + bias: the weight lies input by output."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


class GPT2Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.attn["c_attn"](x).split(width, -1))  # fmt: skip
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)
        later = torch.ones(length, length, dtype=torch.bool).triu(1)
        y = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        return self.attn["c_proj"](y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        return x + self.mlp["c_proj"](gelu_new(self.mlp["c_fc"](self.ln_2(x))))


class GPT2(nn.Module):
    def __init__(self, layers, heads, width, positions, vocabulary):
        super().__init__()
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(positions, width)
        self.h = nn.ModuleList(GPT2Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def losses(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.T
        return [classes(logits.flatten(0, 1), targets.flatten())]


class LanguageModel(nn.Module):
    def __init__(self, hidden, layers, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.lstm = nn.LSTM(hidden, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, vocabulary)

    def losses(self, tokens, targets):
        logits = self.fc(self.lstm(self.embedding(tokens))[0])
        return [classes(logits.flatten(0, 1), targets.flatten())]


class RowsOfImages(nn.Module):
    def __init__(self, inputs, hidden, layers, classes):
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, classes)

    def losses(self, image, label):
        rows = image.transpose(1, 2).flatten(2)
        return [classes(self.fc(self.lstm(rows)[0][:, -1]), label)]


class Regressor(nn.Module):
    def __init__(self, inputs, hidden, layers, outputs, each):
        super().__init__()
        self.each = each
        self.lstm = nn.LSTM(inputs, hidden, layers, batch_first=True)
        self.fc = nn.Linear(hidden, outputs)

    def losses(self, x, y):
        h = self.lstm(x)[0]
        return [distance(self.fc(h if self.each else h[:, -1]), y)]


class TwoBranch(nn.Module):
    def __init__(self, weight, width, side, classes):
        super().__init__()
        self.weight = weight
        self.features = nn.ModuleDict({"conv1": nn.Conv2d(1, width, 3, padding=1),
                                       "conv2": nn.Conv2d(width, 2 * width, 3, padding=1),
                                       "fc": nn.Linear(2 * width * (side // 4) ** 2, 8 * width)})  # fmt: skip
        self.classifier = nn.Linear(8 * width, classes)
        self.decoder = nn.ModuleDict({"fc1": nn.Linear(8 * width, 16 * width),
                                      "fc2": nn.Linear(16 * width, side * side)})  # fmt: skip

    def losses(self, image, label):
        x = WATCH.max_pool(WATCH.relu(self.features["conv1"](image)), 2, 2)
        x = WATCH.max_pool(WATCH.relu(self.features["conv2"](x)), 2, 2)
        x = WATCH.relu(self.features["fc"](x.flatten(1)))
        again = self.decoder["fc2"](WATCH.relu(self.decoder["fc1"](x)))
        return [classes(self.classifier(x), label), distance(again, image.flatten(1), self.weight)]


class ViTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width, 1e-6)
        self.attn = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "proj": nn.Linear(width, width)})
        self.norm2 = nn.LayerNorm(width, 1e-6)
        self.mlp = nn.ModuleDict({"fc1": nn.Linear(width, 4 * width), "fc2": nn.Linear(4 * width, width)})

    def attention(self, x):
        batch, length, width = x.shape
        q, k, v = self.attn["qkv"](x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = (q @ k.transpose(-1, -2) / math.sqrt(width // self.heads)).softmax(-1) @ v
        return self.attn["proj"](y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp["fc2"](functional.gelu(self.mlp["fc1"](self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, layers, heads, width, patch, channels, side, classes):
        super().__init__()
        self.patch_embed = nn.ModuleDict({"proj": nn.Conv2d(channels, width, patch, patch)})
        self.pos_embed = nn.Parameter(torch.zeros(1, (side // patch) ** 2, width))
        self.blocks = nn.ModuleList(ViTBlock(width, heads) for _ in range(layers))
        self.fc_norm = nn.LayerNorm(width, 1e-6)
        self.head = nn.Linear(width, classes)

    def forward(self, image):
        x = self.patch_embed["proj"](image).flatten(2).transpose(1, 2) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.fc_norm(x.mean(1)))

    def losses(self, image, label):
        return [classes(self(image), label)]


class Twice(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.double_conv = nn.Sequential(conv(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.Identity(),
                                         conv(outputs, outputs, 3), nn.BatchNorm2d(outputs))  # fmt: skip

    def forward(self, x):
        for i in (0, 3):
            x = WATCH.relu(self.double_conv[i + 1](self.double_conv[i](x)))
        return x


class Up(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.up = nn.ConvTranspose2d(inputs, outputs, 2, 2)
        self.conv = Twice(2 * outputs, outputs)

    def forward(self, x, beside):
        return self.conv(torch.cat([beside, self.up(x)], 1))


class UNet(nn.Module):
    def __init__(self, levels, width, inputs, outputs):
        super().__init__()
        self.levels = levels
        self.inc = Twice(inputs, width)
        for i in range(levels):
            down = nn.ModuleDict({"maxpool_conv": nn.ModuleList([nn.Identity(), Twice(width << i, width << (i + 1))])})
            setattr(self, f"down{i + 1}", down)
        for i in range(levels):
            setattr(self, f"up{i + 1}", Up(width << (levels - i), width << (levels - 1 - i)))
        self.outc = nn.ModuleDict({"conv": nn.Conv2d(width, outputs, 1)})

    def forward(self, x):
        beside = [self.inc(x)]
        for i in range(self.levels):
            beside.append(getattr(self, f"down{i + 1}")["maxpool_conv"][1](WATCH.max_pool(beside[-1], 2, 2)))
        x = beside.pop()
        for i in range(self.levels):
            x = getattr(self, f"up{i + 1}")(x, beside.pop())
        return self.outc["conv"](x)

    def losses(self, x, y):
        return [distance(self(x), y)]
