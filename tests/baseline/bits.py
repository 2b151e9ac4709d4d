#!/usr/bin/env python3
"""The bits of 20 training steps of five models on one device, two devices and two ranks.

    bits.py --command BUILD/bin/cltrain --out FILE [--models LIST] [--places LIST]
    bits.py --compare OLD NEW          lists the differences; exit 1 if there are any

All choices are frozen: no tuning, equal parts of a batch, its own cache folder, one seed,
generated data. The bits hold for one kind of machine and driver, so both files must come from
this machine: tests/baseline/compare.sh builds two commits and compares them.
"""
import argparse
import hashlib
import json
import os
import platform
import shutil
import struct
import subprocess
import sys
import tempfile

STEPS = 20
IMAGES = ("--data", "idx:DATA", "--batch", "30", "--lr", "0.05")
TEXT = ("--data", "text:DATA/text.txt", "--seq-len", "32", "--batch", "6")
# Together these models cover convolution and pooling; batch norm; attention and embeddings;
# recurrence; several losses.
MODELS = {
    "lenet": IMAGES,
    "resnet18:small,width=16": (*IMAGES, "--optimizer", "nesterov", "--weight-decay", "5e-4", "--augment", "crop,flip"),
    "gpt2:nano,dropout=0.1": (*TEXT, "--optimizer", "adamw", "--lr", "1e-3", "--weight-decay", "0.1",
                              "--param-group", "1d:decay=0", "--clip-norm", "1"),
    "lstm": (*IMAGES[:4], "--optimizer", "adam", "--lr", "2e-3", "--accumulate", "2"),
    "two-branch": (*IMAGES[:4], "--precision", "bf16", "--schedule", "cosine,warmup:5"),
}  # fmt: skip
PLACES = {"one": ("pocl",), "two": ("pocl/2",), "ranks": ("pocl",)}


def stream(name, count):
    """Returns bytes that are the same with every version of Python."""
    data = b"".join(hashlib.sha256(f"{name} {i}".encode()).digest() for i in range(count // 32 + 1))
    return data[:count]


def write_data(folder):
    """Writes text, and images of 28 x 28 whose label is the place of a bright row."""
    for prefix, count in (("train", 240), ("t10k", 40)):
        labels = bytes(b % 10 for b in stream(prefix + " labels", count))
        pixels = bytearray(b // 4 for b in stream(prefix + " pixels", count * 784))
        for i, label in enumerate(labels):
            at = i * 784 + (label * 2 + 4) * 28
            pixels[at:at + 28] = b"\xff" * 28
        for name, dims, data in (("images-idx3", (count, 28, 28), pixels), ("labels-idx1", (count,), labels)):
            with open(os.path.join(folder, f"{prefix}-{name}-ubyte"), "wb") as file:
                file.write(struct.pack(f">HBB{len(dims)}I", 0, 8, len(dims), *dims) + data)
    words = [f"{a}{b}" for a in "kmnprst" for b in ("a", "el", "in", "o")]
    text = " ".join(words[b % len(words)] for b in stream("text", 8000))
    with open(os.path.join(folder, "text.txt"), "w", encoding="ascii") as file:
        file.write(text)


def tensors(path):
    """Returns {name: hash of type, shape and bytes} of a safetensors file."""
    with open(path, "rb") as file:
        data = file.read()
    length, = struct.unpack("<Q", data[:8])
    found = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            text = f"{entry['dtype']} {entry['shape']} ".encode()
            found[name] = hashlib.sha256(text + data[8 + length + begin:8 + length + end]).hexdigest()[:24]
    return found


def train(command, mpiexec, model, place, folder):
    """Returns the losses of all steps, and hashes of the tensors of the last checkpoint."""
    data, run = os.path.join(folder, "data"), os.path.join(folder, "run")
    shutil.rmtree(run, ignore_errors=True)
    words = [w.replace("DATA", data) for w in MODELS[model]]
    words = [command, "train", "--model", model, *words, "--devices", *PLACES[place], "--steps", str(STEPS),
             "--seed", "7", "--tune", "off", "--split", "equal",
             "--cache-dir", os.path.join(folder, "cache"), "--checkpoint-dir", run, "--checkpoint-every", "10",
             "--metrics", os.path.join(folder, "metrics.jsonl"), "--quiet"]  # fmt: skip
    if place == "ranks":
        words[:0] = [mpiexec, "-n", "2"]
    if os.path.exists(os.path.join(folder, "metrics.jsonl")):
        os.remove(os.path.join(folder, "metrics.jsonl"))
    environment = dict(os.environ, XDG_CACHE_HOME=os.path.join(folder, "cache"))
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"bits: {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
        steps = [r for r in map(json.loads, file) if "step" in r]
    losses = [float(r["loss"]).hex() for r in steps]
    if len(losses) != STEPS:
        raise SystemExit(f"bits: {model} on {place}: {len(losses)} losses of {STEPS} steps")
    saved = {}
    for name in sorted(os.listdir(run)):
        for file in ("model", "optimizer"):
            path = os.path.join(run, name, file + ".safetensors")
            if os.path.isfile(path):
                saved.update({f"{name}/{file}/{k}": v for k, v in tensors(path).items()})
    return {"loss": losses, "tensors": saved}


def machine(command):
    out = subprocess.run([command, "devices", "--json"], check=True, capture_output=True, text=True).stdout
    devices = [{k: d.get(k) for k in ("suffix", "name", "driver", "compute_units")} for d in json.loads(out)["devices"]]
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next((line.split(":")[1].split() for line in file if line.startswith("flags")), [])
    wanted = [f for f in flags if f.startswith(("avx", "fma", "sse4", "amx", "f16c"))]
    return {"processor": platform.machine(), "features": wanted, "devices": devices}


def brief(run):
    """Returns one hash for each file of a checkpoint instead of one for each tensor."""
    files = {}
    for name, value in sorted(run["tensors"].items()):
        files.setdefault("/".join(name.split("/")[:2]), []).append(f"{name.split('/', 2)[-1]} {value}")
    return {"loss": run["loss"],
            "tensors": {k: hashlib.sha256("\n".join(v).encode()).hexdigest()[:24] for k, v in files.items()}}  # fmt: skip


def load(paths):
    found = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            found.append(json.load(file))
    if any(f.get("brief") for f in found):
        for f in found:
            if not f.get("brief"):
                f["runs"] = {k: brief(v) for k, v in f["runs"].items()}
    return found


def compare(old, new):
    old, new = load((old, new))
    if old["machine"] != new["machine"]:
        print(f"bits: made on different machines or drivers: {old['machine']} and {new['machine']}")
        return 2
    wrong = 0
    for run in sorted(set(old["runs"]) | set(new["runs"])):
        if run not in old["runs"] or run not in new["runs"]:
            print(f"{run}: only in {'NEW' if run in new['runs'] else 'OLD'}")
            wrong += 1
            continue
        a, b = old["runs"][run], new["runs"][run]
        first = next((i + 1 for i, (x, y) in enumerate(zip(a["loss"], b["loss"])) if x != y), None)
        names = sorted(set(a["tensors"]) | set(b["tensors"]))
        differ = [n for n in names if a["tensors"].get(n) != b["tensors"].get(n)]
        if first or differ:
            wrong += 1
            step = f"the loss of step {first} is the first that differs ({float.fromhex(a['loss'][first - 1])!r}, " \
                   f"{float.fromhex(b['loss'][first - 1])!r})" if first else "all losses are equal"
            print(f"{run}: {step}; {len(differ)} of {len(names)} tensors differ: {', '.join(differ[:4])}")
    print(f"bits: {len(old['runs']) - wrong if wrong <= len(old['runs']) else 0} of {len(old['runs'])} runs are equal")
    return 1 if wrong else 0


def write(path, result):
    with open(path, "w", encoding="utf-8") as file:
        runs = ",\n".join(f"  {json.dumps(k)}: {json.dumps(v)}" for k, v in result["runs"].items())
        rest = json.dumps({k: v for k, v in result.items() if k != "runs"})
        file.write(f'{rest[:-1]}, "runs": {{\n{runs}\n}}}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command")
    parser.add_argument("--out")
    parser.add_argument("--mpiexec", default=shutil.which("mpiexec"))
    parser.add_argument("--models", default=";".join(MODELS), help="names by ;")
    parser.add_argument("--places", default=",".join(PLACES))
    parser.add_argument("--brief", metavar="FILE", help="with --out: also a small file, a hash for each file")
    parser.add_argument("--compare", nargs=2, metavar=("OLD", "NEW"))
    options = parser.parse_args()
    if options.compare:
        sys.exit(compare(*options.compare))
    if not options.command or not options.out:
        parser.error("--command and --out are needed, or --compare")
    result = {"machine": machine(options.command), "steps": STEPS, "runs": {}}
    with tempfile.TemporaryDirectory() as folder:
        os.makedirs(os.path.join(folder, "data"))
        write_data(os.path.join(folder, "data"))
        for model in options.models.split(";"):
            for place in options.places.split(","):
                if place == "ranks" and not options.mpiexec:
                    raise SystemExit("bits: no mpiexec for two ranks; leave them out with --places one,two")
                got = train(options.command, options.mpiexec, model, place, folder)
                result["runs"][f"{model} {place}"] = got
                print(f"{model} {place}: {len(got['tensors'])} tensors", flush=True)
    write(options.out, result)
    if options.brief:
        write(options.brief, dict(result, brief=True, runs={k: brief(v) for k, v in result["runs"].items()}))


if __name__ == "__main__":
    main()
