#!/usr/bin/env python3
"""Writes the report of gpu-check.sh in Markdown: gpu_report.py FOLDER DEVICES COMMIT. FOLDER has
the results so far."""

import datetime
import json
import pathlib
import platform
import re
import subprocess
import sys


def read(path):
    return path.read_text().strip() if path.exists() else ""


def driver():
    """Returns the output of the vendor's own tool, if there is one."""
    try:
        return subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm,power.limit",
                               "--format=csv,noheader"], check=True, capture_output=True, text=True).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""


def lines(path):
    """Returns the JSON of each line. The last line may be incomplete."""
    found = []
    for line in read(path).splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return found


def ours(folder):
    """Yields (command, row) of every benchmark that ran."""
    for path in sorted(folder.glob("*.command"), key=lambda p: (re.sub(r"\d", "", p.stem), int("0" + re.sub(r"\D", "", p.stem)))):
        result = json.loads(path.with_suffix(".json").read_text())
        command = read(path)
        if "rows" not in result:
            seconds = result["step_seconds"]["median"]
            yield command, {"name": "step", "median_seconds": seconds, "variant": f"{result['samples_per_s']['median']:.0f} samples/s"}
        for row in result.get("rows", []):
            yield command, row


def peer_of(peers, command, name):
    """Returns the peer's seconds for one of our rows, or None."""
    kind = "lenet" if command.startswith("train") else command
    for row in peers:
        if row.get("of") == kind and row.get("name") == name:
            return row["seconds"]
    return None


def main(folder, devices, commit):
    folder = pathlib.Path(folder)
    peers = lines(folder / "peers.jsonl")
    print(f"# cltrain on {devices}\n")
    print(f"{datetime.date.today()}, commit {commit}, {platform.platform()}\n")
    for text in (driver(), read(folder / "devices.txt")):
        if text:
            print(f"```\n{text}\n```\n")
    for path in sorted(folder.glob("*.problem")):
        print(f"- {read(path)}")
    tests = read(folder / "tests.txt").splitlines()
    failed = [line for line in tests if line.startswith("FAILED")]
    print(f"\nTests: {len(tests) - len(failed)} of {len(tests)} passed" if tests else "\nTests: not run")
    for line in failed:
        print(f"- {line}")
    print(f"\nPeers: {read(folder / 'peers.txt') or 'not run'}")
    for row in peers:
        if "error" in row:
            print(f"- {row['of']}: {row['error']}")
    print()
    print("| benchmark | kernel | variant | microseconds | GFLOP/s | GB/s | of the limit | peer, microseconds | peer / ours |")
    print("|---|---|---|---|---|---|---|---|---|")
    for command, row in ours(folder):
        if command.startswith("conv") and row["name"] == "layout":
            continue
        seconds = row["median_seconds"]
        other = peer_of(peers, command, row["name"])
        cells = [command, row["name"], row.get("variant", ""), f"{seconds * 1e6:.1f}",
                 f"{row['flops_per_s'] / 1e9:.0f}" if row.get("flops_per_s") else "",
                 f"{row['bytes_per_s'] / 1e9:.0f}" if row.get("bytes_per_s") else "",
                 f"{row['of_limit']:.2f}" if "of_limit" in row else "",
                 f"{other * 1e6:.1f}" if other else "", f"{other / seconds:.2f}" if other else ""]  # fmt: skip
        print("| " + " | ".join(cells) + " |")


main(*sys.argv[1:])
