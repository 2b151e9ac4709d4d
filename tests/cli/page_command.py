"""Runs the command on a line of a page, with small models and few steps. tests/cli/test_pages.py calls it
`cltrain`:

    page_command.py COMMAND ARGUMENT...
"""
import os
import sys

SMALLER = {"gpt2:124M": "gpt2:nano", "resnet18": "resnet18:small", "1024": "256", "8,64,512,4096": "8,64"}
# Options of a line that would take long, and what they become.
SHORTER = {"--steps": "2", "--batch": "16", "--seq-len": "16", "--budget": "1"}


def shortened(words):
    name, words = words[0], list(words[1:])
    for i, word in enumerate(words):
        words[i] = SMALLER.get(word, word)
        if i and words[i - 1] in SHORTER:
            words[i] = SHORTER[words[i - 1]]
    if "--epochs" in words:
        at = words.index("--epochs")
        words[at:at + 2] = []
    added = {}
    if name == "train":
        added = {"--batch": "16", "--tune": "off"}
        if "fashion-mnist" in words:
            added["--steps"] = "2"
        if "resnet18:small" in words and "fashion-mnist" not in words:
            added["--image-size"] = "32"
        if "local=*" in words:  # four ranks, whatever the machine
            words.append("--oversubscribe")
    if name in ("train", "plan") and any(word.startswith("gpt2") for word in words):
        added["--seq-len"] = "16"
    if name == "bench" and "--by-node" not in words:
        added["--blocks"] = "1"
    return [name, *words, *(word for option in added.items() if option[0] not in words for word in option)]


if __name__ == "__main__":
    command = sys.argv[1]
    os.execv(command, [command, *(shortened(sys.argv[2:]) if len(sys.argv) > 2 else [])])
