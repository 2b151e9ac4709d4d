"""Writes and reads safetensors files byte for byte the same on every run.

The safetensors package keeps metadata in a hash map, so the header's order changes from run to run; goldens under version
control must not. Only what the goldens need: f16, f32, f64, i32, u8.
"""

import json
import struct

import numpy as np

DTYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64, "I32": np.int32, "U8": np.uint8}
NAMES = {np.dtype(t): name for name, t in DTYPES.items()}


def save(path, tensors, metadata):
    """tensors: name -> numpy array, metadata: name -> str. Tensors lie in the order given, wide types first."""
    header = {"__metadata__": dict(sorted(metadata.items()))}
    chunks = []
    offset = 0
    # A stable sort by element size keeps every tensor aligned to its own element size.
    for name, array in sorted(tensors.items(), key=lambda item: -item[1].dtype.itemsize):
        array = np.ascontiguousarray(array)
        data = array.tobytes()
        header[name] = {
            "dtype": NAMES[array.dtype],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(chunks)


def load(path):
    """Returns (tensors, metadata)."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    body = data[8 + length :]
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(body[begin:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = array.reshape(entry["shape"])
    return tensors, metadata
