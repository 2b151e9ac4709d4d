"""Procedures of programs as C's callbacks. C gets a procedure of ours and, as `user`, a record with
the program's procedure pointers and data."""
from structs import native
from writer import scalar


def signature(item, api):
    return api.callback[item["type"]] if item.get("type") in api.callback else item


def arguments(row):
    """Returns (name, declaration for the program, declaration for C, statements, expression)."""
    result = []
    for p in row["params"]:
        name, kind = p["name"], p["kind"]
        if kind == "user":
            result.append((name, f"class(*), intent(inout) :: {name}", f"type(c_ptr), value :: {name}", [],
                           [], "calls%user"))
        elif kind in ("scalar", "enum") and p["depth"] == 0:
            result.append((name, f"{scalar(p)}, intent(in) :: {name}", f"{scalar(p, 1)}, value :: {name}", [],
                           [], name))
        elif kind in ("scalar", "enum"):
            count = p["count"] or next(q["name"] for q in row["params"] if q["name"] == "count")
            result.append((name, f"{scalar(p)}, intent(in) :: {name}(:)", f"type(c_ptr), value :: {name}",
                           [f"{scalar(p, 1)}, pointer :: list_{name}(:)"],
                           [f"call c_f_pointer({name}, list_{name}, [int({count})])"], f"list_{name}"))
        elif kind == "string":
            result.append((name, f"character(*), intent(in) :: {name}", f"type(c_ptr), value :: {name}", [],
                           [], f"clt_text({name})"))
        elif kind == "struct":
            result.append((name, f"type({native(p['type'])}), intent(in) :: {name}",
                           f"type(c_ptr), value :: {name}",
                           [f"type(c_{p['type']}), pointer :: c_{name}",
                            f"type({native(p['type'])}) :: n_{name}"],
                           [f"call c_f_pointer({name}, c_{name})",
                            f"call read_{p['type']}(c_{name}, n_{name}, 0_c_int64_t)"], f"n_{name}"))
        elif kind == "handle" and p["depth"] == 0: # the object is lent for the call
            result.append((name, f"type({p['type']}), intent(in) :: {name}", f"type(c_ptr), value :: {name}",
                           [f"type({p['type']}) :: n_{name}"],
                           [f"call clt_adopt(n_{name}, {name}, clt_f_lend({name}))"], f"n_{name}"))
        elif kind == "memory" and p["depth"] == 1:
            result.append((name, f"type(c_ptr), intent(in) :: {name}", f"type(c_ptr), value :: {name}", [], [],
                           name))
        else:
            raise ValueError(f"callback with an argument of kind {kind}")
    return result


def result_type(row):
    return None if row["returns"]["kind"] == "void" else "integer(c_int)"


def emit_interface(out, name, row, doc):
    """Writes the interface of a program's procedure, in an abstract interface block."""
    args = arguments(row)
    out.note(doc)
    out.open(("subroutine " if not result_type(row) else "function ") + f"{name}({', '.join(a[0] for a in args)})" +
             (" result(result_)" if result_type(row) else ""))
    out.put("import")
    for a in args:
        out.put(a[1])
    if result_type(row):
        out.put(f"{result_type(row)} :: result_")
    out.close("end subroutine" if not result_type(row) else "end function")


def emit_record(out, name, rows):
    """Writes the record of an owner's procedures. rows: (member, interface)."""
    out.open(f"type :: {name}_calls")
    for member, interface in rows:
        out.put(f"procedure({interface}), pointer, nopass :: {member} => null()")
    out.put("class(*), pointer :: user => null()")
    out.close("end type")
    out.put("")


def emit_trampoline(out, owner, member, row):
    """Writes the procedure that C calls."""
    args = arguments(row)
    kind = result_type(row)
    user = next(a[0] for a in args if a[5] == "calls%user")
    head = f"{owner}_{member}_t({', '.join(a[0] for a in args)}) bind(c)"
    out.open(f"function {head} result(result_)" if kind else f"subroutine {head}")
    for a in args:
        out.put(a[2])
    if kind:
        out.put(f"{kind} :: result_")
    out.put(f"type({owner}_calls), pointer :: calls")
    for a in args:
        out.put(*a[3])
    out.put(f"call c_f_pointer({user}, calls)")
    for a in args:
        out.put(*a[4])
    call = f"calls%{member}({', '.join(a[5] for a in args)})"
    out.put(f"result_ = {call}" if kind else f"call {call}")
    out.close("end function" if kind else "end subroutine")
    out.put("")


def emit_free(out, owner):
    out.open(f"subroutine free_{owner}_calls(memory) bind(c)")
    out.put("type(c_ptr), value :: memory", f"type({owner}_calls), pointer :: calls",
            "call c_f_pointer(memory, calls)", "deallocate (calls)")
    out.close("end subroutine")
    out.put("")
