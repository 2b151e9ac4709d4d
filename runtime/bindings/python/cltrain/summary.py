"""A table of a model's layers."""
import ctypes

from . import _api
from ._lib import check, lib, text


class Summary:
    """`rows` has a dict for each node. The text is a table."""

    def __init__(self, rows):
        self.rows = rows
        self.parameters = sum(row["parameters"] for row in rows)
        self.flops = sum(row["flops"] for row in rows)

    def __str__(self):
        lines = [f"{'layer':<28} {'operator':<18} {'output':<18} {'parameters':>12}"]
        for row in self.rows:
            sizes = "x".join("B" if d == -1 else f"{-d}B" if d < 0 else str(d) for d in row["shape"])
            count = f"{row['parameters']:,}" if row["parameters"] else ""
            if row["shared"]:
                count += " +shared"
            lines.append(f"{row['name']:<28} {row['op']:<18} {sizes or 'one number':<18} {count:>12}".rstrip())
        lines.append(f"{self.parameters:,} parameters; {self.flops:.3g} floating-point operations forward for one sample")
        return "\n".join(lines)

    __repr__ = __str__


def summary(graph):
    rows = []
    handle = graph._core.use()
    for index in range(lib.clt_graph_node_count(handle)):
        info = _api.clt_node_info()
        check(lib.clt_graph_node_describe(handle, index, ctypes.byref(info)))
        rows.append({"name": text(info.name), "op": text(info.op), "shape": tuple(info.dims[:info.rank]),
                     "parameters": info.parameters, "shared": info.shared, "flops": info.flops})
    return Summary(rows)
