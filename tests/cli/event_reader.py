"""Reads TensorBoard's event files without a library: records, checksums, and the few fields that cltrain writes."""
import os
import struct


def crc32c(data):
    """The checksum of RFC 3720, bit by bit."""
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def messages(path):
    """Yields the message of each record. An incomplete last record is left out."""
    with open(path, "rb") as file:
        data = file.read()
    while len(data) >= 12:
        bytes_, = struct.unpack("<Q", data[:8])
        if len(data) < 16 + bytes_:
            return
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8]), "checksum of a length"
        message = data[12:12 + bytes_]
        assert struct.unpack("<I", data[12 + bytes_:16 + bytes_])[0] == masked(message), "checksum of a message"
        yield message
        data = data[16 + bytes_:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Yields (number, value) of a message: an integer, or the bytes of a double, float, text or message."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        size = {1: 8, 5: 4}.get(key & 7)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            if size is None:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def events(folder):
    """Returns the scalars as TensorBoard shows them, {tag: {step: value}}, and the steps at which sessions begin."""
    scalars, starts = {}, []
    for name in sorted(os.listdir(folder)):
        if "tfevents" not in name:
            continue
        for message in messages(os.path.join(folder, name)):
            event = dict(fields(message))
            step = event.get(2, 0)
            if 7 in event:
                starts.append(step)
                for curve in scalars.values():
                    for late in [s for s in curve if s >= step]:
                        del curve[late]
            for number, value in fields(event.get(5, b"")):
                assert number == 1, "a summary has values only"
                scalar = dict(fields(value))
                curve = scalars.setdefault(scalar[1].decode(), {})
                curve[step], = struct.unpack("<f", scalar[2])
    return scalars, starts
