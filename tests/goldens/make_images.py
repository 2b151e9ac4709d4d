#!/usr/bin/env python3
"""Writes images/: small JPEG and PNG files of each kind, and what Pillow makes of them: their colours, and
resized to some sizes (bilinear, antialiased, as torchvision's Resize does for Pillow's images).

    pip install pillow==13.0.0 numpy
    python3 make_images.py
"""
import io
import os

import numpy
from PIL import Image

from safetensors_file import save

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "images")
SIZES = ((16, 16), (7, 40), (61, 45), (37, 45), (3, 5), (100, 45), (1, 1))


def picture(width, height, seed):
    """Smooth colours with an edge and some noise."""
    rng = numpy.random.default_rng(seed)
    y, x = numpy.mgrid[0:height, 0:width]
    planes = [127 + 120 * numpy.sin(x / (3 + c) + seed) * numpy.cos(y / (5 - c)) for c in range(3)]
    image = numpy.stack(planes, 2) + rng.normal(0, 12, (height, width, 3))
    image[height // 3:, width // 2:] = 255 - image[height // 3:, width // 2:]
    return Image.fromarray(numpy.clip(image, 0, 255).astype(numpy.uint8))


def main():
    os.makedirs(FOLDER, exist_ok=True)
    base = picture(37, 45, 1)
    alpha = base.copy()
    alpha.putalpha(base.convert("L"))
    files = {
        "rgb.jpg": (base, {"quality": 90}), "sub420.jpg": (base, {"quality": 60, "subsampling": 2}),
        "progressive.jpg": (base, {"quality": 80, "progressive": True}),
        "grey.jpg": (base.convert("L"), {"quality": 90}), "cmyk.jpg": (base.convert("CMYK"), {"quality": 95}),
        "rgb.png": (base, {}), "rgba.png": (alpha, {}), "grey.png": (base.convert("L"), {}),
        "palette.png": (base.quantize(13), {}), "one_bit.png": (base.convert("1"), {}),
        "grey_alpha.png": (alpha.convert("LA"), {}),
    }
    tensors = {}
    for name, (image, options) in files.items():
        path = os.path.join(FOLDER, name)
        image.save(path, **options)
        with Image.open(path) as again:
            tensors[name] = numpy.asarray(again.convert("RGB"))
    for width, height in SIZES:
        tensors[f"resized.{width}x{height}"] = numpy.asarray(base.resize((width, height), Image.BILINEAR))
    part = base.crop((5, 9, 30, 40))
    tensors["part.16x16"] = numpy.asarray(part.resize((16, 16), Image.BILINEAR))
    # A photograph that is made much smaller: decoded at a quarter, at least twice 36 x 43, and its middle.
    photo = picture(30, 36, 2).resize((300, 360), Image.BICUBIC)
    photo.save(os.path.join(FOLDER, "large.jpg"), quality=30)
    with Image.open(os.path.join(FOLDER, "large.jpg")) as again:
        again.draft("RGB", (2 * 36, 2 * 43))
        tensors["large.size"] = numpy.asarray(again.size, dtype=numpy.uint8)
        small = again.resize((36, 43), Image.BILINEAR).crop((2, 6, 34, 38))
        tensors["large.32x32"] = numpy.asarray(small)
    # Another, of which a quarter ends within a pixel: resized of its box, and as if all were decoded.
    picture(101, 77, 3).save(os.path.join(FOLDER, "odd.jpg"), quality=75)
    with Image.open(os.path.join(FOLDER, "odd.jpg")) as again:
        _, box = again.draft("RGB", (2 * 11, 2 * 9))
        tensors["odd.8x8"] = numpy.asarray(again.resize((11, 9), Image.BILINEAR, box=box).crop((2, 0, 10, 8)))
    with Image.open(os.path.join(FOLDER, "odd.jpg")) as again:
        tensors["odd.whole"] = numpy.asarray(again.resize((11, 9), Image.BILINEAR).crop((2, 0, 10, 8)))
    save(os.path.join(FOLDER, "pillow.safetensors"), tensors, {"pillow": Image.__version__})


main()
