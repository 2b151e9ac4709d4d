"""Reads api.json for the emitters of languages."""
import json


class Api:
    """The description, with its lists and with what is in them by name."""

    def __init__(self, path):
        with open(path, encoding="utf-8") as file:
            self.data = json.load(file)
        self.version = self.data["version"]
        self.libraries = self.data["libraries"]
        self.functions = self.data["functions"]
        self.structs = self.data["structs"]
        self.enums = self.data["enums"]
        self.handles = self.data["handles"]
        self.callbacks = self.data["callbacks"]
        self.constants = self.data["constants"]
        self.operators = self.data["operators"]
        self.function = {row["name"]: row for row in self.functions}
        self.struct = {row["name"]: row for row in self.structs}
        self.enum = {row["name"]: row for row in self.enums if row["name"]}
        self.handle = {row["name"]: row for row in self.handles}
        self.callback = {row["name"]: row for row in self.callbacks}
        self.header = {row["name"]: row for row in self.data["headers"]}

    def stable(self):
        """Returns the functions that programs should use: neither deprecated nor unstable."""
        return [row for row in self.functions if not row["unstable"] and not row["deprecated"]]


# Arrays whose length only C knows, such as the devices of all ranks: (function or struct, name) -> how many elements
# C may read. Programs' arrays are copied, and filled up with numbers that C refuses: -1, or NaN.
GUARDED = {
    ("clt_step_batch", "offsets"): 1 << 10,
    ("clt_step_batch", "loss_weights"): 1 << 10,
    ("clt_trainer_options", "weights"): 1 << 16,
    ("clt_trainer_set_weights", "weights"): 1 << 16,
    ("clt_local_sync", "samples"): 1 << 16,
    ("clt_cross_entropy_options", "class_weights"): 1 << 20,
    ("clt_model_input", "class_weights"): 1 << 20,
}


def short(name):
    """Returns a C name without its prefix."""
    return name[4:] if name.startswith(("clt_", "CLT_")) else name


def signature(item, api):
    """Returns the row with "returns" and "params" of a callback's item."""
    return api.callback[item["type"]] if item["type"] else item
