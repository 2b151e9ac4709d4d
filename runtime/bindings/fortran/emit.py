#!/usr/bin/env python3
"""Writes the Fortran sources that follow from the public headers.

    emit.py API.JSON FOLDER      FOLDER/cltrain_c.f90      constants, layouts of structs, interfaces of functions
                                 FOLDER/cltrain_types.f90  types of handles, options and callbacks
                                 FOLDER/cltrain_calls.f90  the procedures that programs call
                                 FOLDER/cltrain_steps.f90  steps and predictions on arrays
                                 FOLDER/cltrain.f90        the module of programs
                                 FOLDER/missing.txt        functions that it could not write, and why
                                 FOLDER/layout_test.f90    a program that compares layouts with C's
"""
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "generate")]
import api as description  # noqa: E402
import callbacks  # noqa: E402
import calls  # noqa: E402
import steps  # noqa: E402
import structs  # noqa: E402
import tables  # noqa: E402
from writer import Source, literal, scalar  # noqa: E402

USE = ["use, intrinsic :: iso_c_binding", "implicit none", "public"]


def with_handles(api):
    """Some structs of C are objects that only the library makes: they are handles in Fortran."""
    def change(item):
        if item["kind"] == "struct" and item["type"] in tables.OBJECTS and item["depth"] > 0:
            item.update(kind="handle", depth=item["depth"] - 1, owned=item["direction"] == "out")
        for inner in item.get("params", []) + ([item["returns"]] if item.get("returns") else []):
            change(inner)

    for row in api.functions + api.callbacks:
        change({**row, "kind": "", "type": ""})
    for struct in api.structs:
        for member in struct["members"]:
            change(member)
    for name, destroy in tables.OBJECTS.items():
        if name in api.struct:
            row = {"name": name, "destroy": destroy, "destroy_array": None, "owner": None, "outlived_by": [],
                   "doc": api.struct[name]["doc"]}
            api.handles.append(row)
            api.handle[name] = row


def begin(name, text, uses):
    out = Source(f"Written by runtime/bindings/fortran/emit.py from the headers of cltrain. {text}")
    out.open(f"module {name}")
    out.put(*["use " + use for use in uses], *USE, "")
    return out


def chosen(api):
    """Returns the functions that belong in the module."""
    return [f for f in api.stable() if f["header"] not in tables.LEFT_OUT_HEADERS
            and f["name"] not in tables.LEFT_OUT]


def public_enums(api):
    return [row for row in api.enums if row["header"] not in tables.LEFT_OUT_HEADERS]


def emit_c(api, functions):
    out = begin("cltrain_c", "Constants, layouts, and C's functions as they are.", [])
    for row in public_enums(api):
        for value in row["values"]:
            out.put(f"integer(c_int), parameter :: {structs.native(value['name'])} = {value['value']}")
    for row in api.constants:
        if row["header"] in tables.LEFT_OUT_HEADERS:
            continue
        if row["kind"] == "int":
            kind, text = literal(row["value"])
            out.put(f"{kind}, parameter :: {row['name']} = {text}")
        elif row["kind"] == "real":
            out.put(f"real(c_double), parameter :: {row['name']} = {float(row['value'])!r}_c_double")
        else:
            out.put(f"character(*), parameter :: {row['name']} = '{row['value']}'")
    out.put("")
    for name in structs.needed_structs(functions, api) + sorted(tables.C_STRUCTS):
        structs.emit_layout(out, api.struct[name])
        out.put(f"integer(c_size_t), parameter :: c_size_of_{name} = {api.struct[name]['size']}", "")
    out.open("interface")
    for f in functions + [api.function[name] for name in sorted(tables.C_FUNCTIONS) if name in api.function]:
        emit_interface(out, f)
    out.close("end interface")
    out.close("end module")
    return out


def c_argument(p):
    """Returns the declaration of an argument in an interface of C."""
    if p["kind"] == "callback":
        return "type(c_funptr)"
    if p["kind"] == "struct" and p["depth"] == 0 and p["count"] is None:
        return f"type(c_{p['type']})"
    if p["kind"] in ("scalar", "enum") and p["depth"] == 0 and p["count"] is None:
        return scalar(p, 1)
    return "type(c_ptr)"


def emit_interface(out, f):
    names = ", ".join(p["name"] for p in f["params"])
    function = f["returns"]["kind"] != "void"
    head = f"c_{f['name']}({names}) bind(c, name='{f['name']}')"
    out.open(f"function {head} result(result_)" if function else f"subroutine {head}")
    out.put("import")
    for p in f["params"]:
        out.put(f"{c_argument(p)}, value :: {p['name']}")
    if function:
        kind = f["returns"]["kind"]
        plain = kind in ("scalar", "enum") and f["returns"]["depth"] == 0
        out.put(f"{'integer(c_int)' if kind == 'status' else scalar(f['returns'], 1) if plain else 'type(c_ptr)'}"
                " :: result_")
    out.close("end function" if function else "end subroutine")


def emit_handle(out, handle, counted):
    name = handle["name"]
    out.note(handle["doc"])
    out.open(f"type, extends(clt_handle) :: {name}")
    if counted:
        out.close("contains")
        out.depth += 1
        out.put(f"procedure, private :: assign_{name}", f"generic :: assignment(=) => assign_{name}",
                f"final :: final_{name}")
    out.close("end type")
    out.put("")


def emit_handle_procedures(out, name):
    out.open(f"impure elemental subroutine assign_{name}(to, from)")
    out.put(f"class({name}), intent(inout) :: to", f"type({name}), intent(in) :: from",
            "call clt_share(to, from)")
    out.close("end subroutine")
    out.put("")
    out.open(f"impure elemental subroutine final_{name}(handle)")
    out.put(f"type({name}), target, intent(inout) :: handle", "if (clt_f_end(c_loc(handle)) == 0) return",
            "call clt_f_release(handle%id)", "handle%id = 0")
    out.close("end subroutine")
    out.put("")


def emit_types(api, functions, made):
    out = begin("cltrain_types", "Types of handles, options, results and callbacks.",
                ["cltrain_c", "cltrain_core"])
    used = {p["type"] for f in functions for p in f["params"] + [f["returns"]] if p["kind"] == "handle"}
    handles = [h for h in api.handles if h["name"] in used]
    counted = [h["name"] for h in handles if h["owner"] is None]
    for h in handles:
        emit_handle(out, h, h["name"] in counted)
    names = structs.needed_structs(functions, api)
    with_calls = [n for n in names if any(m["kind"] == "callback" for m in api.struct[n]["members"])]
    for n in names:
        structs.emit_native(out, api.struct[n], api)
    out.open("abstract interface")
    for n in with_calls:
        for m in api.struct[n]["members"]:
            if m["kind"] == "callback":
                callbacks.emit_interface(out, f"{n}_{m['name']}", callbacks.signature(m, api), m["doc"])
    for call in made:
        for _, interface, row in call.callbacks:
            callbacks.emit_interface(out, interface, row, row.get("doc", ""))
    out.close("end interface")
    out.put("")
    for n in with_calls:
        callbacks.emit_record(out, n, [(m["name"], f"{n}_{m['name']}") for m in api.struct[n]["members"]
                                       if m["kind"] == "callback"])
    for call in made:
        if call.callbacks:
            callbacks.emit_record(out, call.name, [(c[0], c[1]) for c in call.callbacks])
    out.close("contains")
    out.depth += 1
    for name in counted:
        emit_handle_procedures(out, name)
    for n in names:
        structs.emit_fill(out, api.struct[n], api)
        structs.emit_read(out, api.struct[n], api)
    for n in with_calls:
        for m in api.struct[n]["members"]:
            if m["kind"] == "callback":
                callbacks.emit_trampoline(out, n, m["name"], callbacks.signature(m, api))
        callbacks.emit_free(out, n)
    for call in made:
        for member, _, row in call.callbacks:
            callbacks.emit_trampoline(out, call.name, member, row)
        if call.callbacks:
            callbacks.emit_free(out, call.name)
    out.close("end module")
    return out


def emit_calls(api, functions, made):
    out = begin("cltrain_calls", "The procedures that programs call.",
                ["cltrain_c", "cltrain_core", "cltrain_types"])
    body = Source("")
    body.lines.clear()
    body.depth = 1
    generics = []
    destroys = {h["destroy"]: h["name"] for h in api.handles if h["destroy"]}
    arrays = {h["destroy_array"]: h["name"] for h in api.handles if h["destroy_array"]}
    inits = {s["init"]: s for s in api.structs if s["init"]}
    by_name = {call.name: call for call in made}
    for f in functions:
        body.note(f["doc"])
        if f["name"] in destroys:
            calls.emit_destroy(body, f, destroys[f["name"]])
        elif f["name"] in arrays:
            calls.emit_destroy_array(body, f, arrays[f["name"]])
        elif f["name"] in inits and f["name"].endswith("_init"):
            structs.emit_init(body, inits[f["name"]])
        else:
            specifics = by_name[f["name"]].emit(body)
            if specifics:
                generics.append((f["name"], specifics))
    for name, specifics in generics:
        out.put(f"interface {name}", f"  procedure {', '.join(specifics)}", "end interface")
    out.put("")
    out.close("contains")
    out.depth += 1
    out.put("! The number of dimensions of a value; 0 for one that may not be used.")
    out.open("function clt_rank(value) result(rank)")
    out.put("type(clt_value), intent(in) :: value", "integer(c_int) :: rank", "type(c_ptr) :: object",
            "rank = 0", "object = clt_weak(value)", "if (c_associated(object)) rank = c_clt_value_rank(object)")
    out.close("end function")
    out.put("")
    out.lines += body.lines
    out.close("end module")
    return out


def constants(api):
    """Returns the names of the constants of the module."""
    return [structs.native(v["name"]) for e in public_enums(api) for v in e["values"]] + \
        [row["name"] for row in api.constants if row["header"] not in tables.LEFT_OUT_HEADERS]


def interfaces(api, functions, made):
    """Returns the names of the interfaces of callbacks."""
    return [f"{n}_{m['name']}" for n in structs.needed_structs(functions, api) for m in api.struct[n]["members"]
            if m["kind"] == "callback"] + [c[1] for call in made for c in call.callbacks]


def emit_module(api, functions, made):
    """Writes module cltrain, which shows programs what they need and hides the rest."""
    out = Source("Written by runtime/bindings/fortran/emit.py. The module of programs: use cltrain")
    out.open("module cltrain")
    out.put("use cltrain_c", "use cltrain_types", "use cltrain_calls", "use cltrain_steps", "use cltrain_policies",
            "implicit none", "private")
    used = {p["type"] for f in functions for p in f["params"] + [f["returns"]] if p["kind"] == "handle"}
    types = [h["name"] for h in api.handles if h["name"] in used]
    for title, names in (("Constants.", constants(api)), ("Handles.", types),
                         ("Options and results.", [structs.native(n) for n in structs.needed_structs(functions, api)]),
                         ("Interfaces of callbacks.", interfaces(api, functions, made)),
                         ("Procedures.", [f["name"] for f in functions]), ("Steps on arrays.", steps.names(api)),
                         ("Policies of one's own.", ["clt_policy_run", "clt_evaluation", "clt_policy_create",
                                                     "clt_policy_begin", "clt_policy_evaluated", "clt_policy_save",
                                                     *tables.POLICIES])):
        out.note(title)
        for i in range(0, len(names), 4):
            out.put("public :: " + ", ".join(names[i:i + 4]))
    out.close("end module")
    return out


def emit_layout_test(api, functions):
    """Writes a program that compares sizes and offsets of all structs with those of C."""
    out = Source("Compares the layouts of structs with those that the C compiler gave them.")
    out.open("program layout_test")
    out.put("use cltrain_c", *USE[:2], "integer :: wrong = 0, compared = 0")
    names = structs.needed_structs(functions, api) + sorted(tables.C_STRUCTS)
    for n in names:
        out.put(f"type(c_{n}), target :: {n}")
    for n in names:
        out.put(f"call compare('{n}', c_sizeof({n}), {api.struct[n]['size']}_c_size_t)")
        for m in api.struct[n]["members"]:
            out.put(f"call compare('{n}%{m['name']}', place(c_loc({n}%{m['name']})) - place(c_loc({n})), "
                    f"{m['offset']}_c_size_t)")
    out.put("print '(i0, a, i0, a)', compared, ' sizes and offsets, ', wrong, ' wrong'",
            "if (wrong > 0) error stop 'layouts differ'")
    out.close("contains")
    out.depth += 1
    out.put("function place(address) result(number)", "  type(c_ptr), intent(in) :: address",
            "  integer(c_size_t) :: number", "  number = transfer(address, number)", "end function",
            "subroutine compare(what, found, expected)", "  character(*), intent(in) :: what",
            "  integer(c_size_t), intent(in) :: found, expected", "  compared = compared + 1",
            "  if (found == expected) return", "  wrong = wrong + 1",
            "  print '(a, a, i0, a, i0)', what, ' is ', found, ', in C ', expected", "end subroutine")
    out.close("end program")
    return out


def check_names(api, functions):
    """Fortran ignores case: CLT_BATCH and clt_batch are one name."""
    seen = {}
    names = [(row["name"], "constant") for row in api.constants if row["header"] not in tables.LEFT_OUT_HEADERS]
    names += [(structs.native(v["name"]), "constant") for e in public_enums(api) for v in e["values"]]
    names += [(structs.native(n), "type") for n in structs.needed_structs(functions, api)]
    names += [(h["name"], "type") for h in api.handles] + [(f["name"], "function") for f in functions]
    for name, kind in names:
        if seen.setdefault(name.lower(), name) != name or names.count((name, kind)) > 1:
            raise SystemExit(f"emit.py: {kind} {name} is also {seen[name.lower()]}; give it a row in RENAMED")


def try_out(call, function, api):
    """Writes all that follows from a function, and drops the text. So what raises, raises here."""
    out = Source("")
    emit_interface(out, function)
    for name in structs.needed_structs([function], api):
        struct = api.struct[name]
        structs.emit_layout(out, struct)
        structs.emit_native(out, struct, api)
        structs.emit_fill(out, struct, api)
        structs.emit_read(out, struct, api)
        for m in struct["members"]:
            if m["kind"] == "callback":
                row = callbacks.signature(m, api)
                callbacks.emit_interface(out, f"{name}_{m['name']}", row, m["doc"])
                callbacks.emit_trampoline(out, name, m["name"], row)
    for member, interface, row in call.callbacks if call else []:
        callbacks.emit_interface(out, interface, row, "")
        callbacks.emit_trampoline(out, call.name, member, row)
    if call:
        call.emit(out)


def stale(api):
    """Returns the rows of tables.py that name nothing: what they were for may be missing now."""
    functions = {(f["name"], p["name"]) for f in api.functions for p in f["params"]}
    members = {(s["name"], m["name"]) for s in api.structs for m in s["members"]}
    rows = [(name, api.header) for name in tables.LEFT_OUT_HEADERS]
    rows += [(name, api.function) for name in [*tables.LEFT_OUT, *tables.OPTIONAL_OUTPUTS, *tables.C_FUNCTIONS]]
    rows += [(name, api.struct) for name in [*tables.OBJECTS, *tables.HAND_STRUCTS, *tables.C_STRUCTS]]
    rows += [(name, functions) for name in [*tables.OPTIONAL, *tables.FIXED, *tables.SIZES, *tables.IN_OUT]]
    rows += [(name, members) for name in tables.LEFT_OUT_MEMBERS]
    return [f"tables.py: there is no {name if isinstance(name, str) else ', '.join(name)}"
            for name, known in rows if name not in known]


def main():
    api = description.Api(sys.argv[1])
    with_handles(api)
    special = {h["destroy"] for h in api.handles} | {h["destroy_array"] for h in api.handles} | \
        {s["init"] for s in api.structs if s["init"] and s["init"].endswith("_init")}
    functions, made, problems = [], [], stale(api)
    for f in chosen(api):
        try:
            call = None if f["name"] in special else calls.Call(f, api)
            structs.check([f], api)
            try_out(call, f, api)
        except Exception as problem: # whatever it is, other functions can be written
            problems.append(f"{f['name']}: {problem!r}")
            continue
        functions.append(f)
        made += [call] if call else []
    check_names(api, functions)
    os.makedirs(sys.argv[2], exist_ok=True)
    for name, out in (("cltrain_c", emit_c(api, functions)), ("cltrain_types", emit_types(api, functions, made)),
                      ("cltrain_calls", emit_calls(api, functions, made)),
                      ("cltrain_steps", steps.emit_all(Source(""), api)),
                      ("cltrain", emit_module(api, functions, made)),
                      ("layout_test", emit_layout_test(api, functions))):
        with open(os.path.join(sys.argv[2], name + ".f90"), "w", encoding="ascii") as file:
            file.write(out.text())
    # A new function of a header must not keep others from building. A test fails until it is emitted, or has a
    # reason in tables.py.
    with open(os.path.join(sys.argv[2], "missing.txt"), "w", encoding="utf-8") as file:
        file.writelines(problem + "\n" for problem in problems)


main()
