"""Compares api.json with the libraries: the exported symbols, the layout of structs as ctypes computes it
from the members' types, and what functions of the library say about values.

    api.py ROOT API.JSON NM LIBRARY...
"""
import ctypes
import subprocess
import sys

ROOT, API, NM, LIBRARIES = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
sys.path.insert(0, f"{ROOT}/runtime/bindings/generate")
import api  # noqa: E402

KINDS = {"void", "status", "scalar", "enum", "string", "text", "handle", "struct", "opencl", "mpi", "memory",
         "callback", "user"}
CTYPES = {"char": ctypes.c_char, "unsigned char": ctypes.c_ubyte, "int": ctypes.c_int, "float": ctypes.c_float,
          "double": ctypes.c_double, "size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32,
          "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64}
described = api.Api(API)
problems = []


def expect(condition, text):
    if not condition:
        problems.append(text)


def exported(library):
    run = subprocess.run([NM, "--dynamic", "--defined-only", "--format=posix", library], capture_output=True,
                         text=True, check=True)
    return {line.split()[0].split("@")[0] for line in run.stdout.splitlines()}


def symbols():
    for path, name in zip(LIBRARIES, ("cltrain", "cltrain-models", "cltrain-mpi")):
        names = {row["name"] for row in described.functions if row["library"] == name}
        expect(names, f"{name}: no function is described")
        for missing in sorted(exported(path) - names):
            problems.append(f"{missing}: {name} exports it, and api.json lacks it")
        for missing in sorted(names - exported(path)):
            problems.append(f"{missing}: api.json has it, and {name} does not export it")


def items():
    for row in [*described.functions, *described.callbacks]:
        names = [item["name"] for item in row["params"]]
        for item in [*row["params"], row["returns"]]:
            place = f"{row['name']}, {item['name'] or 'result'}"
            expect(item["kind"] in KINDS, f"{place}: the kind {item['kind']}")
            expect(item["direction"] in ("in", "out", "inout"), f"{place}: the direction {item['direction']}")
            if isinstance(item["count"], str):
                expect(item["count"] in names or item["count"] == "?" and item.get("count_doc"),
                       f"{place}: the count {item['count']} names nothing")
            tables = {"handle": described.handle, "struct": described.struct, "enum": described.enum}
            expect(item["type"] in tables.get(item["kind"], [item["type"]]), f"{place}: the type {item['type']}")
    for row in described.functions:
        expect(row["doc"], f"{row['name']}: no comment was found")


def ctype(member):
    """Returns the type of a member for ctypes, which lays it out by the machine's rules."""
    if member["depth"] or member["kind"] in ("string", "handle", "opencl", "memory", "callback", "user") \
            or member["kind"] == "text" and not isinstance(member["count"], int):
        kind = ctypes.c_void_p
    elif member["kind"] == "struct":
        kind = layout(described.struct[member["type"]])
    elif member["kind"] == "enum":
        kind = ctypes.c_int
    else:
        kind = CTYPES[member["type"]]
    if isinstance(member["count"], int):
        kind = kind * member["count"]
    return kind


def layout(struct):
    fields, last = [], None
    for member in struct["members"]:
        if last and member["offset"] == last["offset"]:  # of a union
            continue
        fields.append((member["name"], ctype(member)))
        last = member
    return type(struct["name"], (ctypes.Structure,), {"_fields_": fields})


def layouts():
    for struct in described.structs:
        computed = layout(struct)
        expect(ctypes.sizeof(computed) == struct["size"],
               f"{struct['name']}: {struct['size']} bytes, but its members need {ctypes.sizeof(computed)}")
        for member in struct["members"]:
            field = getattr(computed, member["name"], None)
            if field:
                expect((field.offset, field.size) == (member["offset"], member["size"]),
                       f"{struct['name']}.{member['name']}: at {member['offset']}, {member['size']} bytes, but ctypes "
                       f"has {field.offset} and {field.size}")


def values():
    library = ctypes.CDLL(LIBRARIES[0])
    for function, enum, prefix in (("clt_status_name", "clt_status", "CLT_"), ("clt_dtype_name", "clt_dtype", "CLT_"),
                                   ("clt_optimizer_name", "clt_optimizer", "CLT_")):
        call = getattr(library, function)
        call.restype = ctypes.c_char_p
        for value in described.enum[enum]["values"]:
            text = call(value["value"]).decode().upper()
            expect(prefix + text == value["name"],
                   f"{value['name']} is {value['value']}, which {function} calls {text}")
    # Sizes that the library knows itself: each init function stores the size of its struct.
    for struct in described.structs:
        if struct["struct_size"] and described.function[struct["init"]]["library"] == "cltrain":
            memory = ctypes.create_string_buffer(struct["size"])
            getattr(library, struct["init"])(memory)
            stored = ctypes.c_size_t.from_buffer(memory).value
            expect(stored == struct["size"], f"{struct['name']}: {struct['size']} bytes, but its init stores {stored}")
    count = library.clt_operator_count()
    expect(len(described.operators) == count, f"{len(described.operators)} operators, but the library has {count}")


symbols()
items()
layouts()
values()
for problem in problems:
    print(problem)
print(f"{len(described.functions)} functions, {len(described.structs)} structs: {len(problems)} problem(s)")
sys.exit(1 if problems else 0)
