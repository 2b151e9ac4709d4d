"""Writes the present hashes of kernel files and variants into tuning records, after a change of names
only: measurements stay valid if the compiled kernels are the same as before.

    build-test/tests/tuning_keys >old.txt      # before the change
    build-test/tests/tuning_keys >new.txt      # after it
    python3 tests/tune/rename_keys.py old.txt new.txt [OLD=NEW ...] RECORD.json ...

OLD=NEW: a variant or a kernel file that has another name. A hash that old.txt lacks ends the script.
"""
import re
import sys


def names_by_hash(path):
    with open(path, encoding="utf-8") as file:
        return dict(line.split() for line in file)


def main():
    old, new = names_by_hash(sys.argv[1]), {name: key for key, name in names_by_hash(sys.argv[2]).items()}
    renamed = dict(word.split("=") for word in sys.argv[3:] if "=" in word)

    def name_now(name):
        return renamed.get(name, name)

    def names_now(match):
        return re.sub(r"\w+", lambda name: name_now(name[0]), match[0])

    def hash_now(match):
        return match[1] + new[",".join(map(name_now, old[match[2]].split(",")))] + match[3]

    for path in (word for word in sys.argv[3:] if "=" not in word):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        text = re.sub(r'("variants": ")([0-9a-f]{16})(")', hash_now, text)
        text = re.sub(r'(?m)^( *")([0-9a-f]{16})(",?)$', hash_now, text)  # in the list "sources"
        text = re.sub(r'(?<="variant": ")[^"]+|(?<="rejected": ")[^"]+', names_now, text)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


main()
