"""Writes the generated modules of the Python package from api.json.

    emit.py API_JSON FOLDER SOVERSION

_api.py has what the C headers say: constants, enumerations, structures, prototypes. _operators.py has a
method for each operator of the schema. Nothing of this is written by hand, so it cannot differ from the
library that it was built with.
"""
import keyword
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "generate"))
sys.dont_write_bytecode = True
import api as description  # noqa: E402

SCALARS = {"int": "c_int", "int32_t": "c_int32", "int64_t": "c_int64", "uint64_t": "c_uint64",
           "uint32_t": "c_uint32", "size_t": "c_size_t", "double": "c_double", "float": "c_float",
           "char": "c_char", "unsigned char": "c_ubyte", "unsigned int": "c_uint"}
CHECKED = set(SCALARS) - {"char", "unsigned char"}
HEADER = '"""Written by emit.py from the headers of cltrain {version}. Do not edit."""\n'


def pointers(name, depth):
    for _ in range(depth):
        name = f"POINTER({name})"
    return name


def base(item, api):
    """Returns the ctypes type of an item without its pointers."""
    kind, name = item["kind"], item["type"]
    if kind in ("scalar", "enum", "status"):
        return "c_int" if name in api.enum else SCALARS[name]  # enumerations of 4 bytes, see structures()
    if kind == "struct":
        return name if name in api.struct else None
    if kind == "callback":
        return callback_type(description.signature(item, api), api)
    if kind in ("handle", "opencl", "memory", "user", "mpi"):
        return "c_void_p"
    if kind == "string":
        # ctypes copies a c_char_p, so what the caller must free is a plain pointer.
        return "c_void_p" if item.get("owned") else "c_char_p"
    if kind == "text":
        return "c_char_p"
    raise SystemExit(f"emit.py: {item['c']}: kind '{kind}' is not known")


def ctypes_of(item, api, member=False):
    if item["kind"] == "void":
        return "None"
    if item["kind"] == "text" and member:
        return f"c_char * {item['count']}"
    name = base(item, api)
    if name is None:  # a structure that no header describes
        return pointers("c_void_p", item["depth"] - 1)
    name = pointers(name, item["depth"])
    if member and isinstance(item["count"], int) and item["depth"] == 0:
        name = f"{name} * {item['count']}"
    return name


def callback_type(row, api):
    parts = [ctypes_of(row["returns"], api)] + [callback_argument(p, api) for p in row["params"]]
    return f"CFUNCTYPE({', '.join(parts)})"


def callback_argument(item, api):
    """Arguments of callbacks are plain addresses, which cost nothing until they are read."""
    if item["kind"] in ("scalar", "enum", "status") and item["depth"] == 0:
        return ctypes_of(item, api)
    return "c_char_p" if item["kind"] == "string" and item["depth"] == 0 else "c_void_p"


def constants(api, out):
    for row in api.constants:
        out.append(f"{row['name']} = {row['value']!r}")
    for row in api.enums:
        for value in row["values"]:
            out.append(f"{value['name']} = {value['value']}")
    out.append("\n# Values of enumerations by their short names.\nENUMS = {")
    for row in api.enums:
        if row["name"]:
            names = [value["name"] for value in row["values"]]
            cut = len(common_prefix(names))
            pairs = ", ".join(f"{v['name'][cut:].lower()!r}: {v['value']}" for v in row["values"])
            out.append(f"    {row['name']!r}: {{{pairs}}},")
    out.append("}\nSTATUS_DOCS = {")
    for value in api.enum["clt_status"]["values"]:
        out.append(f"    {value['value']}: {value['doc']!r},")
    out.append("}")


def common_prefix(names):
    """Returns the words that all names begin with, with the underscore behind them."""
    words = [name.split("_") for name in names]
    prefix = []
    for column in zip(*[row[:-1] for row in words]):
        if len(set(column)) > 1:
            break
        prefix.append(column[0])
    return "".join(word + "_" for word in prefix)


def in_order(api):
    """Yields structures, those first that others contain."""
    done = set()

    def visit(row):
        if row["name"] in done:
            return
        done.add(row["name"])
        for member in row["members"]:
            if member["kind"] == "struct" and member["depth"] == 0:
                yield from visit(api.struct[member["type"]])
        yield row

    for row in api.structs:
        yield from visit(row)


def own_memory(members):
    """Returns the members without those of a union that share the memory of the one before."""
    end, found = 0, []
    for member in members:
        if member["offset"] >= end:
            found.append(member)
            end = member["offset"] + member["size"]
    return found


def structures(api, out):
    if any(row["size"] != 4 for row in api.enums):
        raise SystemExit("emit.py: an enumeration has not the size of int")
    for row in api.structs:
        row["members"] = own_memory(row["members"])
    for row in api.structs:
        out.append(f"\n\nclass {row['name']}(Structure):\n    {text(row['doc'], 4)}")
    out.append("\n")
    for row in in_order(api):
        out.append(f"{row['name']}._fields_ = [")
        for member in row["members"]:
            out.append(f"    ({python_name(member['name'])!r}, {ctypes_of(member, api, member=True)}),")
        out.append("]")
    out.append("\n# Size, and offset of each member, as the C compiler laid them out.\nLAYOUTS = {")
    for row in api.structs:
        offsets = ", ".join(f"{python_name(m['name'])!r}: {m['offset']}" for m in row["members"])
        out.append(f"    {row['name']}: ({row['size']}, {{{offsets}}}),")
    out.append("}\n\n# For each structure: (kind, type, pointers, number of elements, documentation) of its members."
               "\nMEMBERS = {")
    for row in api.structs:
        out.append(f"    {row['name']!r}: {{")
        for m in row["members"]:
            values = tuple(m[key] for key in ("kind", "type", "depth", "count", "doc"))
            out.append(f"        {python_name(m['name'])!r}: {values!r},")
        out.append("    },")
    out.append("}")


def functions(api, out):
    out.append("\n# For each library its functions: result, arguments, and of numbers and texts (place, name, type).\nFUNCTIONS = {")
    for library in api.libraries:
        out.append(f"    {library!r}: {{")
        for row in api.functions:
            if row["library"] == library:
                arguments = "".join(ctypes_of(p, api) + ", " for p in row["params"])
                out.append(f"        {row['name']!r}: ({ctypes_of(row['returns'], api)}, ({arguments}),")
                out.append(f"            {checked(row['params'])}),")
        out.append("    },")
    out.append("}")


def checked(params):
    """Returns the arguments that ctypes would not check: numbers wrap, and texts end at a zero byte."""
    return [(place, python_name(p["name"]), "text" if p["kind"] == "string" else p["type"]) for place, p in enumerate(params)
            if p["depth"] == 0 and (p["kind"] == "string" or p["kind"] == "scalar" and p["type"] in CHECKED)]


def python_name(name):
    return name + "_" if keyword.iskeyword(name) else name


def text(doc, indent):
    """Returns a docstring."""
    lines = doc.replace("\\", "\\\\").replace('"""', "'''").split("\n")
    joined = ("\n" + " " * indent).join(lines).rstrip()
    return f'"""{joined or "No documentation."}"""'


def default_of(attribute):
    """Returns the source of an attribute's default: None leaves it to the library."""
    value = attribute["default"]
    limited = attribute["least"] or attribute["most"]
    if attribute["list"] or attribute["kind"] in ("type", "text") or value is None:
        return "None"
    if limited and not attribute["least"] <= value <= attribute["most"]:
        return "None"
    if attribute["kind"] == "flag":
        return str(bool(value))
    if attribute["kind"] == "choice":
        return repr(attribute["choices"][int(value)])
    if attribute["kind"] == "int":
        return "None" if abs(value) >= 2**31 else str(int(value))
    return repr(float(value))


def result_count(row, api):
    """Returns how many results programs use. Norms have more, which only gradients read."""
    function = api.function.get(row.get("function"))
    if not function:
        return len(row["results"])
    outputs = [p for p in function["params"] if p["kind"] == "handle" and p["direction"] == "out"]
    return (function["returns"]["kind"] == "handle") + len(outputs) or len(row["results"])


def operator(row, api):
    given = [python_name(o["name"]) for o in row["operands"]]
    arguments, values = [], []
    for operand, name in zip(row["operands"], given):
        arguments.append(f"*{name}" if operand["repeated"] else f"{name}=None" if operand["optional"] else name)
        values.append(f"*{name}" if operand["repeated"] else name)
    attributes = [a for a in row["attributes"] if not a["internal"]]
    if not any(o["repeated"] for o in row["operands"]):
        arguments.append("*")
    arguments += [python_name(a["name"]) + ("" if a["required"] else f"={default_of(a)}") for a in attributes]
    arguments.append("name=None")
    pairs = ", ".join(f"{a['name']!r}: {python_name(a['name'])}" for a in attributes)
    count = result_count(row, api)
    results = row["results"][:count]
    lines = [row["doc"], "", "Operands: " + ", ".join(shape_text(o) for o in row["operands"])]
    lines.append(("Returns " if count == 1 else "Returns the tuple ") + ", ".join(shape_text(r) for r in results))
    lines += [f"{python_name(a['name'])}: {a['doc']}" for a in attributes]
    head = f"\n    def {python_name(row['name'])}(self, {', '.join(arguments)}):\n"
    return (head + f"        {text(chr(10).join(lines), 8)}\n"
            f"        return self._apply({row['name']!r}, [{', '.join(values)}], {{{pairs}}}, {count}, name)\n")


def shape_text(row):
    kind = "" if row["type"] == "f32" else " " + row["type"]
    return f"{row['name']} [{row['dims']}]{kind}" + (" (may be left out)" if row["optional"] else "")


def main(path, folder, soversion):
    api = description.Api(path)
    os.makedirs(folder, exist_ok=True)
    out = [HEADER.format(version=api.version),
           "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char, c_char_p, c_double, c_float, c_int, c_int32,",
           "                    c_int64, c_size_t, c_ubyte, c_uint, c_uint32, c_uint64, c_void_p)  # noqa: F401\n",
           f"VERSION = {api.version!r}\nSOVERSION = {soversion!r}  # behind the libraries' names"]
    for part in (constants, structures, functions):
        part(api, out)
    write(folder, "_api.py", "\n".join(out) + "\n")
    out = [HEADER.format(version=api.version), "\nclass Operators:",
           '    """The operators of the library as methods of a graph. See docs/operators.md."""']
    out += [operator(row, api) for row in api.operators if row["callable"]]
    out.append("\n# For each operator: (name, dimensions) of its operands.\nOPERANDS = {")
    out += [f"    {row['name']!r}: {[(o['name'], o['dims']) for o in row['operands']]!r}," for row in api.operators
            if row["callable"]]
    out.append("}\n")
    write(folder, "_operators.py", "\n".join(out))


def write(folder, name, source):
    compile(source, name, "exec")
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(source)


if __name__ == "__main__":
    main(*sys.argv[1:])
